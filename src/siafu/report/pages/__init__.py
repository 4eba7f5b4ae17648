"""Pages about runs: reports, comparisons, plots, cards."""
