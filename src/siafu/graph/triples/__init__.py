"""Triples (head, relation, tail) of a knowledge graph: in memory, in stores, imported. Knows nothing of training."""

from siafu.graph.triples.plain_graphs import triples_at, triples_of
from siafu.graph.triples.triple_store import is_triple_store, read_triples
from siafu.graph.triples.triples import Triples

__all__ = ["Triples", "is_triple_store", "read_triples", "triples_at", "triples_of"]
