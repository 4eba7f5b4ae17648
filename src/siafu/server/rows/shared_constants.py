"""Constant rows that several runs on one graph have in common, computed by the first of them: while a sweep goes on."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from siafu.graph import Graph
from siafu.program.constants import reads_weights
from siafu.program.program import Program

Key = tuple[str, ...]


class SharedConstants:
    """Rows by graph, features and formula. Graphs are held, so that no other one is taken for them.

    found: how often rows were there already
    """

    def __init__(self) -> None:
        self._rows: dict[Key, Tensor] = {}
        self._graphs: dict[tuple[int, ...], Graph] = {}
        self.found = 0

    def keys(
        self, program: Program, graph: Graph, x: Tensor, kind: torch.dtype, recipes: list[str]
    ) -> list[Key] | None:
        """A key for each of a program's constants; None: they are made of weights, which differ from run to run."""
        if reads_weights(program.cut) or not recipes:
            return None
        edges = tuple(
            map(id, (graph.indptr, graph.indices, graph.edge_weight, graph.edge_attr, graph.edge_type))
        )
        self._graphs.setdefault(edges, graph)
        numbers = x.contiguous().view(torch.uint8).numpy().reshape(-1)
        digest = hashlib.blake2b(numbers.data, digest_size=16).hexdigest()
        return [(str(edges), digest, str(kind), recipe) for recipe in recipes]

    def known(self, keys: list[Key]) -> list[Tensor] | None:
        """Rows of all the keys, if all are there."""
        if not all(key in self._rows for key in keys):
            return None
        self.found += 1
        return [self._rows[key] for key in keys]

    def keep(self, keys: list[Key], rows: list[Tensor]) -> None:
        self._rows |= dict(zip(keys, rows, strict=True))


_SHARED: ContextVar[SharedConstants | None] = ContextVar("shared constants", default=None)


@contextmanager
def sharing_constants() -> Iterator[SharedConstants]:
    """Runs that begin in here share what they compute once."""
    shared = SharedConstants()
    token = _SHARED.set(shared)
    try:
        yield shared
    finally:
        _SHARED.reset(token)


def shared_constants() -> SharedConstants | None:
    """Those of the sweep that goes on; None: there is none."""
    return _SHARED.get()
