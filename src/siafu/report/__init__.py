"""What a run leaves behind and shows: metrics, checkpoints, its directory, progress, the machine it ran on."""
