"""The files of a run's directory: metrics, traces, checkpoints, weights, locks."""
