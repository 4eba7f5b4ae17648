"""kill -9 of any server at any of its tasks, and the run ends as if nothing had been."""

import random
from collections.abc import Iterator
from itertools import cycle

import numpy as np
import pytest

from siafu.base.errors import SiafuError
from siafu.pipeline.ids import Address
from tests.cluster.cases import truth
from tests.cluster.cluster_runs import Dooms, Ran, assert_exact, graph, train_on_crew, weight
from tests.cluster.dooms import GRAPH_POINTS, WEIGHT_POINTS, Doom

pytestmark = pytest.mark.slow  # starts servers as processes

EPOCHS = 5
INTERVALS = 6  # of both servers
PHASES = 2  # that have parameters

# Points that a server passes at least so often in an epoch: no loss costs more than the open one, so that a doom is sure to
# come, whatever was lost before. Others come three times or more.
OFTEN = {
    "begin": 1,
    "Ready": 1,
    "Restore": 1,
    "report": 1,
    "Settled": 1,
    "EpochFinished": 2,
    "Update": 1,
    "WeightsMade": 1,
    "KeepWeights": 1,
    "FreeWeights": 1,
    "StateMade": 1,
}


def kinds() -> Iterator[tuple[Address, str]]:
    """Each kind of process at each kind of task, and again and again."""
    points = [("graph", each) for each in GRAPH_POINTS] + [("weight", each) for each in WEIGHT_POINTS]
    servers = cycle((0, 1))
    for role, point in cycle(points):
        index = next(servers)
        yield (graph(index) if role == "graph" else weight(index)), point


def plan(seeds: int, kills: int) -> list[Dooms]:
    """For each of `seeds` runs so many kills: each a point of its kind, at a time that the seed chooses."""
    found = kinds()
    plans = []
    for seed in range(seeds):
        rng = random.Random(seed)
        dooms: dict[tuple[Address, int], Doom] = {}
        for _ in range(kills):
            server, point = next(found)
            life = 1 + sum(address == server for address, _ in dooms)
            dooms[server, life] = Doom(point, rng.randint(1, OFTEN.get(point, 3)))
        plans.append(dooms)
    return plans


KILLS = plan(7, 4)
SAVED_KILLS = plan(7, 4)


def described(dooms: Dooms) -> str:
    return ", ".join(f"{who} {life}: {doom.point} {doom.count}" for (who, life), doom in dooms.items())


def assert_as_if_nothing_had_been(ran: Ran, lost: int) -> None:
    assert_exact(ran, truth("gcn", EPOCHS))
    assert ran.counters["gradients_applied"] == EPOCHS * INTERVALS * PHASES
    assert sum(ran.counters["staleness_histogram"].values()) == EPOCHS * INTERVALS
    if lost:
        # A starved one may be taken for lost, and is replaced all the same.
        assert ran.counters["servers_lost"] >= lost
        assert ran.counters["recovery_seconds"] > 0
        assert ran.counters["epochs_lost"] == 0
    assert [told.epochs for told in ran.rewound] == sorted(told.epochs for told in ran.rewound)


def assert_checkpoints(ran: Ran) -> None:
    """Each is what the oracle has after its epochs, and has counted these and no more."""
    saved = [each.epoch for each in ran.checkpoints]
    assert saved == sorted(set(saved))
    assert len(saved) >= 3
    for each in ran.checkpoints:
        for name, wanted in truth("gcn", each.epoch).weights.items():
            np.testing.assert_allclose(each.tensors[f"model.{name}"], wanted, rtol=1e-9, atol=1e-12)
        assert each.counters["gradients_applied"] == each.epoch * INTERVALS * PHASES
        assert sum(each.counters["staleness_histogram"].values()) == each.epoch * INTERVALS


@pytest.mark.parametrize("seed", range(len(KILLS)), ids=lambda seed: f"{seed}: {described(KILLS[seed])}")
def test_a_run_without_checkpoints_goes_on_and_ends_with_the_oracles_result(seed: int) -> None:
    mode = ("sync", "pipe")[seed % 2]
    ran = train_on_crew("gcn", epochs=EPOCHS, mode=mode, dooms=KILLS[seed])
    assert_as_if_nothing_had_been(ran, len(KILLS[seed]))


@pytest.mark.parametrize("seed", [1, 2])
def test_gathers_by_columns_go_on_and_end_with_the_oracles_result(seed: int) -> None:
    mode = ("sync", "pipe")[seed % 2]
    ran = train_on_crew("gcn", epochs=EPOCHS, mode=mode, dooms=KILLS[seed], layout="columns")
    assert_as_if_nothing_had_been(ran, len(KILLS[seed]))


def test_attention_by_columns_goes_on_and_ends_with_the_oracles_result() -> None:
    ran = train_on_crew("gat", epochs=EPOCHS, mode="pipe", dooms=KILLS[1], layout="columns")
    assert_exact(ran, truth("gat", EPOCHS))


@pytest.mark.parametrize("seed", [0, 3])
def test_statistics_of_all_vertices_are_taken_again_as_they_were(seed: int) -> None:
    mode = ("sync", "pipe")[seed % 2]
    ran = train_on_crew("norm", epochs=EPOCHS, mode=mode, dooms=KILLS[seed])
    assert_exact(ran, truth("norm", EPOCHS))
    assert ran.counters["servers_lost"] >= len(KILLS[seed])
    assert ran.counters["epochs_lost"] == 0


@pytest.mark.parametrize(
    "seed", range(len(SAVED_KILLS)), ids=lambda seed: f"{seed}: {described(SAVED_KILLS[seed])}"
)
def test_a_run_with_checkpoints_goes_on_and_ends_with_the_oracles_result(seed: int) -> None:
    mode = ("pipe", "sync")[seed % 2]
    ran = train_on_crew("gcn", epochs=EPOCHS, mode=mode, dooms=SAVED_KILLS[seed], checkpoint_every=0)
    assert_as_if_nothing_had_been(ran, len(SAVED_KILLS[seed]))
    assert_checkpoints(ran)


def test_at_least_forty_kills_of_every_kind_are_tried() -> None:
    dooms = [(who.role, doom.point) for each in (*KILLS, *SAVED_KILLS) for (who, _), doom in each.items()]
    assert len(dooms) >= 40
    wanted = {("graph", each) for each in GRAPH_POINTS} | {("weight", each) for each in WEIGHT_POINTS}
    assert wanted <= set(dooms)


AT_ONCE: dict[str, Dooms] = {
    "two graph servers": {
        (graph(0), 1): Doom("train backward tensor", 4),
        (graph(1), 1): Doom("train backward tensor", 4),
    },
    "two weight servers": {(weight(0), 1): Doom("Update", 2), (weight(1), 1): Doom("Update", 2)},
    "one of each": {(graph(1), 1): Doom("GradientArrived", 8), (weight(0), 1): Doom("Accumulate", 8)},
    "all of them": {(server, 1): Doom("begin") for server in (graph(0), graph(1), weight(0), weight(1))},
}


@pytest.mark.parametrize("name", AT_ONCE)
def test_several_at_once(name: str) -> None:
    ran = train_on_crew("gcn", epochs=EPOCHS, dooms=AT_ONCE[name])
    assert_as_if_nothing_had_been(ran, len(AT_ONCE[name]))


AS_IT_STARTS: dict[str, Dooms] = {
    "as it is asked what it has": {(graph(0), 1): Doom("scatter"), (graph(0), 2): Doom("share")},
    "as it joins": {(graph(0), 1): Doom("scatter"), (graph(0), 2): Doom("join")},
    "as it begins": {
        (weight(0), 1): Doom("Update", 3),
        (weight(0), 2): Doom("begin"),
        (weight(0), 3): Doom("Ready"),
    },
    "while another is replaced": {
        (graph(1), 1): Doom("GradientArrived", 5),
        (graph(1), 2): Doom("join"),
        (weight(1), 1): Doom("Noted"),
        (weight(1), 2): Doom("Restore"),
    },
}


@pytest.mark.parametrize("name", AS_IT_STARTS)
def test_a_replacement_that_is_killed_as_it_starts_is_replaced(name: str) -> None:
    ran = train_on_crew("gcn", epochs=EPOCHS, dooms=AS_IT_STARTS[name])
    assert_as_if_nothing_had_been(ran, len(AS_IT_STARTS[name]))


BEFORE: dict[str, Dooms] = {
    "asked what it has": {(graph(1), 1): Doom("share")},
    "asked what it reads": {(graph(0), 1): Doom("reads"), (graph(0), 2): Doom("reads")},
    "joining": {(graph(1), 1): Doom("join"), (weight(0), 1): Doom("join")},
}


@pytest.mark.parametrize("name", BEFORE)
def test_one_that_is_killed_before_the_run_begins_is_replaced(name: str) -> None:
    assert_as_if_nothing_had_been(train_on_crew("gcn", epochs=EPOCHS, dooms=BEFORE[name]), 0)


@pytest.mark.parametrize(
    ("server", "point"),
    [(graph(0), "evaluate forward gather"), (graph(1), "EpochFinished"), (weight(1), "StateMade")],
    ids=str,
)
def test_one_that_is_killed_while_a_checkpoint_is_made(server: Address, point: str) -> None:
    dooms = {(server, 1): Doom(point, 2)}
    ran = train_on_crew("gcn", epochs=EPOCHS, dooms=dooms, checkpoint_every=0)
    assert_as_if_nothing_had_been(ran, 1)
    assert_checkpoints(ran)


@pytest.mark.parametrize("server", [graph(0), weight(1)], ids=str)
def test_one_that_is_killed_at_the_very_end(server: Address) -> None:
    ran = train_on_crew("gcn", epochs=EPOCHS, dooms={(server, 1): Doom("report")}, checkpoint_every=0)
    assert_as_if_nothing_had_been(ran, 1)
    assert ran.rewound[0].epochs == EPOCHS


@pytest.mark.parametrize("role", ["graph", "weight"])
def test_one_that_always_dies_ends_the_run_and_says_why(role: str) -> None:
    server = graph(1) if role == "graph" else weight(1)
    dooms = {(server, life): Doom("begin") for life in range(1, 10)}
    with pytest.raises(SiafuError, match=f"{server} was lost 6 times without an epoch in between"):
        train_on_crew("gcn", epochs=EPOCHS, dooms=dooms)


def test_one_that_always_dies_before_the_run_begins_is_told_too() -> None:
    dooms = {(graph(1), life): Doom("share") for life in range(1, 10)}
    with pytest.raises(SiafuError, match="graph server 1 was lost 6 times"):
        train_on_crew("gcn", epochs=EPOCHS, dooms=dooms)


def test_what_was_lost_is_told_in_words() -> None:
    dooms = {(graph(0), 1): Doom("EpochFinished", 3)}
    ran = train_on_crew("gcn", epochs=EPOCHS, evaluate_every=EPOCHS, dooms=dooms)
    (rewound,) = ran.rewound
    assert rewound.epochs == 2
    assert rewound.lost.startswith("graph server 0 was lost (its process ended with -9) and replaced in ")
    assert ran.counters["epochs_lost"] == 0
    assert rewound.lost.endswith(" s; no epoch is lost")


ASYNC_KILLS: tuple[Dooms, ...] = (
    {(graph(0), 1): Doom("train backward gather", 40), (weight(1), 1): Doom("Update", 30)},
    {(weight(0), 1): Doom("Accumulate", 100), (graph(1), 1): Doom("scatter", 90)},
    {(graph(0), 1): Doom("WeightsAsked", 50), (graph(0), 2): Doom("evaluate forward gather", 10)},
)


@pytest.mark.parametrize("dooms", ASYNC_KILLS, ids=described)
def test_asynchronous_runs_lose_no_epoch_and_come_to_the_same_accuracy(dooms: Dooms) -> None:
    epochs = 40
    ran = train_on_crew("learns", epochs=epochs, mode="async", staleness=1, dooms=dooms)
    assert ran.counters["servers_lost"] >= len(dooms)
    assert ran.counters["epochs_lost"] == 0
    assert ran.counters["gradients_applied"] == epochs * INTERVALS * PHASES
    assert ran.epochs == list(range(1, epochs + 1))
    best = max(epoch.val_accuracy or 0.0 for epoch in ran.history)
    assert best >= max(each["val_accuracy"] for each in truth("learns", epochs).scores) - 0.005
