"""Partition: which server owns each vertex."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Owners = NDArray[Any]  # uint16 or int32


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Every vertex of a graph given to one of `parts` servers.

    method: what made it: metis, stream, contiguous or hash
    parts:  how many servers there are; one may own no vertex
    owner:  [V] uint16 (int32 where there are more than 65,536 parts); the server of each vertex, 0 to parts - 1
    seed:   what `metis` and `hash` drew from; the others draw nothing
    """

    method: str
    parts: int
    owner: Owners
    seed: int = 0

    @classmethod
    def whole(cls, vertices: int) -> "Partition":
        """All vertices on one server."""
        return cls("contiguous", 1, np.zeros(vertices, np.uint16))

    @property
    def num_vertices(self) -> int:
        return len(self.owner)

    def vertices_of(self, server: int) -> NDArray[np.int64]:
        """The vertices that `server` owns, ascending."""
        return np.flatnonzero(self.owner == server)


def owner_dtype(parts: int) -> type[np.uint16] | type[np.int32]:
    """The narrowest type that names every server."""
    return np.uint16 if parts <= 1 << 16 else np.int32
