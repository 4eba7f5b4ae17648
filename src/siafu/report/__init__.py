"""Output of a run: metrics, checkpoints, its directory, progress, reports, costs."""
