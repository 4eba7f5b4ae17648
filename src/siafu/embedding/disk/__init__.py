"""Entities' vectors in partitions on disk: orders of buckets, the buffer, the trainer."""
