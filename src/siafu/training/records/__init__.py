"""Records of a training: its metrics, checkpoints, facts for the report, and its story if it fails."""
