"""The embedded runtime: every server in this process, one pool of threads, rows passed by reference."""

from siafu.runtime.local.runtime import LocalRuntime

__all__ = ["LocalRuntime"]
