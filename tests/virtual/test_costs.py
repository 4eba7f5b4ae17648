"""What work costs: curves between measured points, and gathers near and far."""

import pytest

from siafu.server.costs.work import Product, Work
from siafu.virtual.costs import (
    DENSE_VISIT,
    USUAL_DEGREE,
    CoreSpeed,
    Curve,
    EdgeCosts,
    Machine,
    blocks_of,
    compute_seconds,
    gather_seconds,
    task_seconds,
)

EDGES = EdgeCosts((1e6, 1e8), (Curve.flat(1e-9), Curve.flat(1e-8)), Curve.flat(3e-9))
CORE = CoreSpeed(Curve.flat(1e9), stream=1e9, draws=1e8, call_seconds=1e-6, functions=1e7, memory=5e8)
MACHINE = Machine(
    4,
    CORE,
    EDGES,
    (1e-9, 2e-9),
    1e-4,
    1e9,
    1e-4,
    1e10,
    near_cache=1 << 20,
    row_seconds=5e-9,
    attention_rows=(3e-8, 4e-8),
)


def test_a_curve_is_a_line_in_logarithms_and_flat_beyond_its_ends() -> None:
    curve = Curve(((10.0, 1.0), (1000.0, 100.0)))
    assert curve.at(100.0) == pytest.approx(10.0)
    assert (curve.at(1.0), curve.at(1e6)) == (1.0, 100.0)
    assert curve.times(2.0).at(100.0) == pytest.approx(20.0)


def test_a_visit_of_a_block_is_shared_by_its_edges() -> None:
    assert EDGES.by_blocks(64.0, DENSE_VISIT) == pytest.approx(3e-9)
    assert EDGES.by_blocks(64.0, 1e9) == pytest.approx(1e-9)
    assert EDGES.row_by_row(64.0, 1e7) == pytest.approx(10 ** (-8.5))


def test_a_tensor_tasks_parts_add_up() -> None:
    work = Work(
        1000, products=(Product(2e9, 8),), moved=1e9, streamed=5e8, draws=1e8, functions=1e7, calls=10
    )
    assert compute_seconds(work, CORE, blocks=3) == pytest.approx(2 + 1 + 1 + 1 + 1 + 30e-6)
    assert task_seconds(work, MACHINE) == pytest.approx(6 + 10e-6 + 1e-4)
    assert compute_seconds(work, CORE.times(2.0)) == pytest.approx(compute_seconds(work, CORE) / 2)


def test_rows_are_computed_in_blocks_that_fit_the_cache() -> None:
    assert blocks_of(Work(16_384, widest=256.0), MACHINE) == 4
    assert blocks_of(Work(100, widest=256.0), MACHINE) == 1
    assert blocks_of(Work(10_240, widest=1 << 20), MACHINE) == 10  # no fewer than 1,024 rows


def test_rows_with_few_edges_cost_more_than_their_edges() -> None:
    usual, few = (
        Work(rows, edges=3200, row_bytes=(64.0,), table_bytes=1e6)
        for rows in (3200 / USUAL_DEGREE, 3200 / USUAL_DEGREE + 700)
    )
    assert gather_seconds(usual, MACHINE) == pytest.approx(3200 * 1e-9)
    assert gather_seconds(few, MACHINE) == pytest.approx(3200 * 1e-9 + 700 * 5e-9)
    assert gather_seconds(few, MACHINE.faster(2.0)) == pytest.approx(gather_seconds(few, MACHINE) / 2)


def test_a_softmax_costs_its_heads_and_one_more_for_every_edge_self_loop_and_row() -> None:
    plain = Work(10, edges=1000, row_bytes=(64.0,), table_bytes=1e6)
    attention = Work(10, edges=1000, row_bytes=(64.0,), table_bytes=1e6, heads=2, back=True)
    more = gather_seconds(attention, MACHINE) - gather_seconds(plain, MACHINE)
    assert more == pytest.approx((1010 * 2e-9 + 10 * 4e-8) * 3)


def test_a_share_of_a_stage_has_its_share_of_everything_that_grows_with_rows() -> None:
    whole = Work(100, edges=500, products=(Product(1e6, 4),), moved=10.0, received=20.0, sent=5.0, calls=3)
    part = whole.share(25, 125)
    assert (part.flops, part.moved, part.received, part.sent, part.calls) == (2.5e5, 2.5, 5.0, 1.25, 3)
