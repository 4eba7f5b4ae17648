"""Embeddings on several servers: partitions on their disks, states trained side by side, and the machine that hands them out."""
