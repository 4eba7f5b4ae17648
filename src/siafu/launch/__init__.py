"""Clusters of machines for runs: started, looked at and ended, with Ray's own launcher underneath."""
