"""Clusters of machines for runs: start, status and end, by Ray's own launcher."""
