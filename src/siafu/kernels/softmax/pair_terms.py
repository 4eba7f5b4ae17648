"""Terms of a softmax gather of pairs (see `pairs`) for one edge: its features' part, its logit, its match with a gradient."""

from typing import Any, NamedTuple

from siafu.base.jit import fast_kernel, kernel
from siafu.kernels.chunks import row_at
from siafu.kernels.llvm.tiles import put, value_of


class EdgeTerms(NamedTuple):
    """The part of features in edges, as kernels take it; four None where there are none.

    features: [E, D] of all edges, float32, float64 or uint16 with bfloat16 bits
    numbers:  [e] which of them is whose, by the edges that are walked; None: in that order
    mix:      [D, columns] in the type that rows are summed in, heads padded
    loops:    [V, D] of the self-loops that vertices get; None: they get none
    """

    features: Any = None
    numbers: Any = None
    mix: Any = None
    loops: Any = None


@kernel
def next_places(
    indices: Any, at: int, end: int, vertex: int, self_loops: bool, near: Any, places: Any, add_self: bool
) -> tuple[int, int]:
    """Fill `near` with the next ends of edges and `places` with where they stand, -1 for an added self-loop."""
    count = 0
    if add_self:
        near[0], places[0] = vertex, -1
        count = 1
    while at < end and count < len(near):
        if not (self_loops and indices[at] == vertex):
            near[count], places[count] = indices[at], at
            count += 1
        at += 1
    return at, count


@kernel
def count_rows(table: Any) -> int:
    """0 of no table."""
    if table is None:
        return 0
    return table.shape[0]  # type: ignore[no-any-return]


@kernel
def feature_of(features: Any, numbers: Any, loops: Any, place: int, vertex: int, column: int) -> Any:
    """A number of the edge at `place`, or of the vertex's self-loop where that is -1."""
    if loops is not None:  # noqa: SIM102  (Numba prunes a branch whose only condition is None)
        if place < 0:
            return value_of(loops, vertex, column)
    return value_of(features, row_at(numbers, place), column)


@fast_kernel
def edge_term(features: Any, numbers: Any, mix: Any, loops: Any, place: int, vertex: int, term: Any) -> None:
    """term = the features of the edge at `place`, or of the vertex's self-loop, times `mix`."""
    width = term.shape[0]
    for c in range(width):
        term[c] = 0
    for d in range(mix.shape[0]):
        factor = term.dtype.type(feature_of(features, numbers, loops, place, vertex, d))
        for c in range(width):
            put(term, 0, c, value_of(term, 0, c) + factor * value_of(mix, d, c))


@fast_kernel
def edge_logit(
    keys: Any,
    targets: Any,
    queries: Any,
    features: Any,
    term: Any,
    j: int,
    i: int,
    begin: int,
    columns: int,
    slope: Any,
    total: Any,
) -> Any:
    """z_ij of the head whose columns start at `begin`; total: a zero of the type to sum in."""
    for c in range(begin, begin + columns):
        s = value_of(keys, j, c)
        if targets is not None:
            s += value_of(targets, i, c)
        if features is not None:
            s += value_of(term, 0, c)
        if targets is not None:
            s = s if s > 0 else slope * s
        total += value_of(queries, i, c) * s
    return total


@fast_kernel
def edge_match(
    gradient: Any,
    values: Any,
    features: Any,
    term: Any,
    products: bool,
    i: int,
    j: int,
    begin: int,
    columns: int,
    total: Any,
) -> Any:
    """⟨gradient_i, value_j⟩ of a head."""
    for c in range(begin, begin + columns):
        value = value_of(values, j, c)
        if features is not None:  # noqa: SIM102
            if products:
                value += value_of(term, 0, c)
        total += value_of(gradient, i, c) * value
    return total
