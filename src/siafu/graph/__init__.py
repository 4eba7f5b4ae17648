"""Graphs: in memory, in stores, imported, generated. Knows nothing of training.

Names are loaded when first used: a command that refuses a mistyped option does not wait for Numba.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from siafu.graph.csr import Csr as Csr
    from siafu.graph.graph import Graph as Graph
    from siafu.graph.stores.remote import is_address as is_address
    from siafu.graph.stores.remote import open_store as open_store
    from siafu.graph.stores.store import StoreWriter as StoreWriter
    from siafu.graph.stores.store import is_store as is_store
    from siafu.graph.stores.store import read_store as read_store
    from siafu.graph.stores.store import write_store as write_store

__all__ = ["Csr", "Graph", "StoreWriter", "is_address", "is_store", "open_store", "read_store", "write_store"]

_HOMES = {
    "Csr": "siafu.graph.csr",
    "Graph": "siafu.graph.graph",
    "StoreWriter": "siafu.graph.stores.store",
    "is_address": "siafu.graph.stores.remote",
    "is_store": "siafu.graph.stores.store",
    "open_store": "siafu.graph.stores.remote",
    "read_store": "siafu.graph.stores.store",
    "write_store": "siafu.graph.stores.store",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'siafu.graph' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
