"""The hash partition: a vertex's server depends on its id and the seed alone, not on edges."""

from typing import Any

import numpy as np

from siafu.base.hashing import GOLDEN, mix
from siafu.base.jit import kernel
from siafu.graph.partition.partition import Owners, owner_dtype


def hash_owners(num_vertices: int, parts: int, seed: int) -> Owners:
    """Owner of each vertex by a hash of (seed, vertex); all servers are equally likely."""
    owner = np.empty(num_vertices, owner_dtype(parts))
    _draw(np.uint64(seed), np.uint64(parts), owner)
    return owner


@kernel
def _draw(seed: Any, parts: Any, owner: Owners) -> None:
    key = mix(seed + GOLDEN)
    for v in range(len(owner)):
        draw = mix(key + GOLDEN * np.uint64(v + 1))
        # The high 32 bits times `parts`, over 2**32: as even as a remainder, and it never overflows.
        owner[v] = ((draw >> np.uint64(32)) * parts) >> np.uint64(32)
