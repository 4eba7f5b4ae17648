"""The embedded runtime: every server in this process, one pool of threads, rows passed by reference."""

from siafu.runtime.local.runtime import EpochRecord, LocalRuntime, Outcome, Snapshot

__all__ = ["EpochRecord", "LocalRuntime", "Outcome", "Snapshot"]
