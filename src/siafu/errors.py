"""The errors that programs catch, under the name that they import: see `siafu.base.errors`."""

from siafu.base.errors import BadInput, Diverged, Interrupted, SiafuError

__all__ = ["BadInput", "Diverged", "Interrupted", "SiafuError"]
