"""A gather that begins with the rows that are there: bits of one walk, and no row is read before it is there."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from siafu.kernels import Table
from siafu.nn import GcnSum, Max, Mean, Softmax, Sum
from siafu.nn.gathers.gather import Gather
from siafu.server.edges import ServerEdges
from siafu.server.gathers.early_gather import EarlyGather
from siafu.server.gathers.gather_tables import PassingTables, ThreadBuffers
from siafu.server.gathers.local_gather import LocalGather
from siafu.server.gathers.registry import local_gather
from tests.server.phases import partition_of, some_graph

WIDTH = 24
GATHERS: dict[str, Gather] = {
    "sum": Sum(),
    "mean in bf16": Mean(precision="bf16"),
    "GCN's sum": GcnSum(),
    "weighted sum": Sum(weighted=True),
    "maximum": Max(),
    "attention": Softmax(heads=3),
    "attention without self-loops": Softmax(heads=3, self_loops=False),
}


def some_server(seed: int, *, weighted: bool) -> ServerEdges:
    """The first of one or two servers of a graph that is symmetric or not."""
    graph = some_graph(weighted=weighted, symmetric=seed % 2 == 0)
    return ServerEdges.of(graph, partition_of(graph, 1 + seed // 2 % 2), 0)


def fill(tables: Sequence[Table], seed: int) -> None:
    """Rows that came: small numbers, so that some are equal; of attention's denominators, some that make weights."""
    draw = np.random.default_rng(seed)
    for table in tables:
        table[:] = draw.integers(0, 4, table.shape)


def gathered(local: LocalGather, ranges: Sequence[tuple[int, int]], *, back: bool, dropout: float) -> Any:
    if back:
        found = [local.backward(*each, dropout=dropout, seed=9).sent for each in ranges]
    else:
        found = [(local.forward(*each, dropout=dropout, seed=9),) for each in ranges]
    return [torch.cat(parts).numpy().copy() for parts in zip(*found, strict=True)]


def begin(
    early: EarlyGather[Any],
    tables: Sequence[Table],
    ranges: Sequence[tuple[int, int]],
    bounds: Sequence[int],
    dropout: float,
) -> None:
    """Begin ranges with sources up to each of some bounds, where rows from there on are no numbers yet."""
    whole = [table.copy() for table in tables]
    for until in bounds:
        for table, rows in zip(tables, whole, strict=True):
            table[:until] = rows[:until]
            own = table[until:]
            own[:] = 0x7FC0 if own.dtype == np.uint16 else np.nan
        for first, last in ranges:
            if last <= until:  # an interval gathers when it has sent its own rows
                early.add(first, last, until, dropout=dropout, seed=9)
    for table, rows in zip(tables, whole, strict=True):
        table[:] = rows


def bits(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).view(np.uint32)


@pytest.mark.slow
@pytest.mark.parametrize("name", GATHERS)
@settings(max_examples=12)
@given(
    shares=st.lists(st.floats(0, 1), max_size=4),
    count=st.integers(1, 3),
    some=st.booleans(),
    back=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_every_bit_is_that_of_one_walk(
    name: str, shares: list[float], count: int, some: bool, back: bool, seed: int
) -> None:
    gather = GATHERS[name]
    server = some_server(seed, weighted=getattr(gather, "weighted", False))
    needed = np.random.default_rng(seed).random(server.graph.num_vertices) < 0.5 if some else None
    one_walk, begun = (local_gather(gather, server, WIDTH, needed=needed) for _ in range(2))
    dropout = 0.4 if isinstance(gather, Softmax) else 0.0
    early = begun.early_backward if back else begun.early_forward
    if isinstance(gather, Softmax) and not back:
        assert early is None
        return
    assert early is not None
    for local in (one_walk, begun):
        fill([*local.forward_tables, *local.backward_tables], seed)
    own = server.own
    ranges = [(own * k // count, own * (k + 1) // count) for k in range(count)]
    walk = begun.walks.backward if back else begun.walks.forward
    bounds = sorted(round(share * walk.columns) for share in shares)
    begin(early, begun.backward_tables if back else begun.forward_tables, ranges, bounds, dropout)
    expected, found = (gathered(local, ranges, back=back, dropout=dropout) for local in (one_walk, begun))
    rows = slice(None) if needed is None or back else needed[server.local.vertices]
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(bits(other[rows]), bits(one[rows]))
    again = gathered(begun, ranges, back=back, dropout=dropout)  # nothing is left of it
    for one, other in zip(expected, again, strict=True):
        np.testing.assert_array_equal(bits(other[rows]), bits(one[rows]))


def test_a_new_beginning_forgets_what_was_begun() -> None:
    server = some_server(0, weighted=False)
    local = local_gather(Sum(), server, WIDTH)
    assert local.early_forward is not None
    fill(local.forward_tables, 1)
    local.early_forward.add(0, server.own, server.own // 2)
    fill(local.forward_tables, 2)
    local.begin_anew()
    expected = local_gather(Sum(), server, WIDTH)
    fill(expected.forward_tables, 2)
    assert torch.equal(local.forward(0, server.own), expected.forward(0, server.own))


def test_results_that_pass_by_are_not_begun() -> None:
    server = some_server(0, weighted=False)
    passing = server.placing(PassingTables(server.own, ThreadBuffers(), "0"))
    for gather in (Sum(), Max(), Softmax()):
        local = local_gather(gather, passing, WIDTH)
        assert local.early_forward is None and local.early_backward is None
