"""Graphs: in memory, in stores, imported, generated. Knows nothing of training."""

from siafu.graph.csr import Csr
from siafu.graph.graph import Graph
from siafu.graph.stores.remote import is_address, open_store
from siafu.graph.stores.store import StoreWriter, is_store, read_store, write_store

__all__ = ["Csr", "Graph", "StoreWriter", "is_address", "is_store", "open_store", "read_store", "write_store"]
