"""Fanouts: how many edges of a vertex are drawn, layer by layer, as options give them."""

from collections.abc import Sequence

from siafu.base.errors import BadInput
from siafu.options import fanouts_of

DEFAULT_FANOUT = 10
"""Edges of a vertex in every layer, where nothing else is asked for."""
DEFAULT_BATCH = 1024
"""Vertices of a batch, where nothing else is asked for."""


def fanouts_for(asked: "str | Sequence[int] | None", depth: int) -> tuple[int, ...]:
    """A fanout for each layer, from the batch outwards; depth: of the model."""
    if asked is None:
        return (DEFAULT_FANOUT,) * depth
    found = fanouts_of(asked)
    if len(found) != depth:
        raise BadInput(
            f"fanout is {','.join(map(str, found))}, and the model gathers {depth} times, layer after layer: give a number for each"
        )
    return found
