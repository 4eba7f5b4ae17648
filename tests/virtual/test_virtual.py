"""Virtual time: small runs worked out by hand, laws that hold for all, and large runs by a sample."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.base.errors import BadInput
from siafu.server.memory.server_hardware import ServerHardware
from siafu.virtual.costs import LambdaKind
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.run_sizes import RunSizes
from siafu.virtual.virtual import Simulated, simulate
from siafu.virtual.workload import ModelShape, traffic_of, workload_of
from tests.virtual.virtual_cases import SHAPE, far_lambda, machine, workload


def test_one_core_does_one_task_after_the_other() -> None:
    found = simulate(SHAPE, workload(), machine(), intervals=1)
    assert found.seconds_per_epoch == pytest.approx(1 + 2 + 3)
    assert found.busy_seconds["cores"] == pytest.approx(5 * 6)
    assert found.utilisation == pytest.approx(1.0)


def test_two_cores_share_two_intervals() -> None:
    found = simulate(SHAPE, workload(), machine(cores=2), intervals=2)
    assert found.seconds_per_epoch == pytest.approx(6 / 2)


def test_an_odd_interval_keeps_a_core_waiting_at_every_gather() -> None:
    # T0 of three thirds on two cores takes two turns, and so on: no gather begins before all rows are made.
    found = simulate(SHAPE, workload(), machine(cores=2), intervals=3, mode="sync")
    assert found.seconds_per_epoch == pytest.approx(2 * (1 + 2 + 3) / 3)


def test_rows_travel_to_ghosts_and_weights_come_from_their_server() -> None:
    found = simulate(SHAPE, workload(ghost_bytes=4.0), machine(), servers=2, intervals=1)
    scatter = 10 * 4 / 10 + 1  # ten ghosts' rows of four bytes at ten bytes a second, and the way
    # The last gradient travels a second; the version that it makes is granted with another. In between the epoch is closed:
    # the gradient is acknowledged, the run hears that the epoch is finished, lets the next begin, and its version is asked for.
    assert found.seconds_per_epoch == pytest.approx(0.5 + scatter + 1 + 1.5 + 1 + 4 + 1)
    assert found.bytes_scattered == pytest.approx(5 * 2 * 10 * 4)


def test_servers_of_one_machine_share_its_cores_and_send_nothing() -> None:
    def epoch(machines: int | None) -> float:
        work = workload(ghost_bytes=8.0)
        found = simulate(SHAPE, work, machine(), servers=2, intervals=1, machines=machines)
        return found.seconds_per_epoch

    assert epoch(2) == epoch(None)
    # One core does all of the work, no rows travel, and the epoch is closed as above.
    assert epoch(1) == pytest.approx((1 + 2 + 3) + 1 + 4 + 1)
    with pytest.raises(BadInput, match="2 servers on 3 machines"):
        epoch(3)


@pytest.mark.parametrize("layout", ["vertices", "columns"])
@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_bytes_of_either_layout_are_those_of_its_traffic(name: str, layout: str) -> None:
    shape, servers = GraphShape(5000, 200_000, 30, 7, train=0.4), 3
    model = ModelShape(name, hidden=64, layers=3)
    found = simulate(
        shape, workload_of(model, shape, layout, servers=servers), machine(), servers=servers, intervals=2
    )
    traffic = sum(getattr(each, layout) for each in traffic_of(model, shape, servers))
    assert found.bytes_scattered == pytest.approx(5 * traffic, rel=0.01)


def test_a_lambda_waits_for_rows_and_its_server_for_results() -> None:
    found = simulate(
        SHAPE, workload(), machine(network=1e9), intervals=1, lambdas=far_lambda(), lambda_count=1
    )
    first = 1 + 50 / 10 + 1 + 20 / 10 + 1  # offered with its rows, computed, sent back
    last = 1 + 50 / 10 + 3 + 20 / 10 + 1
    # Weights of a new version are asked for, and come, while the rows do.
    assert found.seconds_per_epoch == pytest.approx(first + 2 + last)
    assert (found.lambda_tasks, found.lambda_invocations) == (10, 1)
    assert found.bytes_to_lambdas == pytest.approx(5 * 100)


def test_a_lambda_that_is_given_tasks_ahead_computes_while_rows_arrive() -> None:
    def seconds(kind: LambdaKind) -> float:
        found = simulate(SHAPE, workload(), machine(network=1e9), intervals=4, lambdas=kind, lambda_count=1)
        return found.seconds_per_epoch

    assert seconds(far_lambda(prefetch=2)) < 0.8 * seconds(far_lambda())


def test_an_invocation_for_every_task_is_billed_for_its_task() -> None:
    found = simulate(
        SHAPE,
        workload(),
        machine(network=1e9),
        intervals=1,
        lambdas=far_lambda(tasks_per_invocation=1, invoke_s=3.0, cold_start_s=5.0),
        lambda_count=1,
    )
    assert found.lambda_invocations == found.lambda_tasks == 10
    # It asks for its task: another second each time. The way to it is not billed; its own start is, once.
    assert found.lambda_billed_seconds == pytest.approx(5 * (1 + 10 + 1 + 12) + 2)


SHAPES = st.builds(
    GraphShape,
    vertices=st.integers(1_000, 200_000),
    edges=st.integers(10_000, 5_000_000),
    features=st.sampled_from([8, 100]),
    classes=st.just(4),
    train=st.floats(0.1, 1.0),
    locality=st.floats(0.0, 0.9),
)
CLUSTERS = st.fixed_dictionaries(
    {
        "servers": st.integers(1, 4),
        "intervals": st.integers(1, 6),
        "weight_servers": st.integers(1, 3),
        "lambda_count": st.sampled_from([0, 1, 3, 50]),
    }
)


def _run(shape: GraphShape, cluster: dict[str, Any], **more: Any) -> Simulated:
    kind = far_lambda(latency_s=1e-3, bytes_s=1e8)
    fast = replace(machine(cores=2, network=1e9, latency=1e-3), core=_fast(), message_seconds=1e-5)
    return simulate(shape, ModelShape("gcn", hidden=8), fast, lambdas=kind, epochs=3, **cluster, **more)


def _fast() -> Any:
    return replace(machine().core, products=machine().core.products.times(1e10), stream=1e10, draws=1e9)


@settings(max_examples=12, deadline=None)
@given(shape=SHAPES, cluster=CLUSTERS, mode=st.sampled_from(["sync", "pipe", "async"]))
def test_no_core_is_busier_than_time_allows_and_the_same_run_gives_the_same_numbers(
    shape: GraphShape, cluster: dict[str, Any], mode: str
) -> None:
    found = _run(shape, cluster, mode=mode)
    assert 0 < found.busy_seconds["cores"] <= found.seconds_total * 2 * cluster["servers"] * (1 + 1e-9)
    assert found == _run(shape, cluster, mode=mode)
    # Only the first asynchronous epoch is exact: all wait for its update.
    assert found.max_staleness == 0
    stages = 3 if cluster["lambda_count"] else 0
    assert found.lambda_tasks == stages * 3 * cluster["servers"] * cluster["intervals"]


@settings(max_examples=15, deadline=None)
@given(shape=SHAPES, cluster=CLUSTERS)
def test_what_waits_for_less_is_not_slower(shape: GraphShape, cluster: dict[str, Any]) -> None:
    cluster = {**cluster, "lambda_count": 0}
    sync, pipe = (
        _run(shape, cluster, mode=mode, early_gathers=False).seconds_total for mode in ("sync", "pipe")
    )
    # Another order of equal tasks may cost a task at an epoch's end: it is the barriers that are compared.
    assert pipe <= sync * 1.02


def test_staleness_lets_intervals_go_ahead_and_no_further() -> None:
    found = simulate(SHAPE, workload(), machine(cores=1), intervals=3, mode="async", staleness=1, epochs=6)
    assert found.max_staleness <= 1


def test_a_few_servers_show_what_all_do() -> None:
    shape = GraphShape(1_000_000, 30_000_000, 50, 10, locality=0.5)
    cluster = {"servers": 8, "intervals": 16, "weight_servers": 1, "lambda_count": 0}
    full = _run(shape, cluster, most_servers=8)
    sample = _run(shape, cluster, most_servers=4)
    assert full.simulated_servers == 8
    assert sample.simulated_servers == 4
    assert sample.seconds_per_epoch == pytest.approx(full.seconds_per_epoch, rel=0.03)
    assert sample.bytes_scattered == pytest.approx(full.bytes_scattered)
    assert sample.busy_seconds["cores"] == pytest.approx(full.busy_seconds["cores"], rel=0.02)


def test_a_thousand_servers_and_a_trillion_edges_take_a_bounded_number_of_events() -> None:
    shape = GraphShape(10_000_000_000, 1_000_000_000_000, 128, 50, locality=0.5)
    cluster = {"servers": 1000, "intervals": 100, "weight_servers": 20, "lambda_count": 100}
    found = _run(shape, cluster, most_intervals=16)
    assert found.events < 10_000
    assert (found.simulated_servers, found.simulated_intervals) == (4, 16)
    assert found.lambda_invocations == pytest.approx(100_000, rel=0.05)


@pytest.mark.parametrize("wrong", [{"servers": 0}, {"intervals": 0}, {"epochs": 1}, {"weight_servers": 0}])
def test_nothing_to_simulate_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="simulate at least"):
        simulate(SHAPE, workload(), machine(), **wrong)  # type: ignore[arg-type]


def test_memory_falls_with_servers_but_not_as_fast() -> None:
    shape = GraphShape(1_000_000, 30_000_000, 50, 10)
    sizes, hardware = RunSizes.of_shape(ModelShape("gcn", hidden=16), shape), ServerHardware(8, 1 << 20)
    one, four = (sizes.listings(servers, hardware, 0)[0].listed.peak for servers in (1, 4))
    assert one / 4 < four < one


def test_eager_copies_use_idle_cores_and_send_forward_rows_twice() -> None:
    def run(cores: int, *, eager: bool, ghost_bytes: float = 0.0, latency: float = 1.0) -> Simulated:
        work, there = workload(ghost_bytes=ghost_bytes), machine(cores=cores, latency=latency)
        return simulate(SHAPE, work, there, servers=2, intervals=1, eager=eager)

    # T0 and G1 take 1.5 s of the other machine's idle core.
    assert run(2, eager=True).seconds_per_epoch == pytest.approx(run(2, eager=False).seconds_per_epoch)
    alone, copied = (run(2, eager=each).busy_seconds["cores"] for each in (False, True))
    assert 1.2 * alone < copied <= 1.5 * alone
    # One core has no time to spare unless its server waits for the network.
    assert run(1, eager=True).seconds_per_epoch == run(1, eager=False).seconds_per_epoch
    busy, slower = (run(1, eager=each, latency=0.0).seconds_per_epoch for each in (False, True))
    assert slower > 1.2 * busy
    sent = [run(2, eager=each, ghost_bytes=4.0).bytes_scattered for each in (False, True)]
    assert sent[1] > 1.5 * sent[0]
    with pytest.raises(BadInput, match="simulate all of the servers"):
        simulate(SHAPE, workload(), machine(), servers=8, intervals=1, eager=True)
