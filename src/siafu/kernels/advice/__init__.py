"""The advisor: which way to walk the edges is fastest, timed on the graph itself, and kept for the next run."""
