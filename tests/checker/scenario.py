"""Scenario: all that decides a simulated run, drawn from a seed or given by a planner."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from siafu.objective.score import Score
from siafu.pipeline.events import (
    EpochFinished,
    EvaluationStarted,
    Event,
    GradientArrived,
    GradientTaken,
    Measures,
    NormsTold,
    Proceed,
    RatesSet,
    RoomMade,
    RowsArrived,
    ServerAdvanced,
    Settle,
    UpdateDue,
    WeightsAsked,
    WeightsGranted,
    WeightsMade,
    WeightsReleased,
)
from siafu.pipeline.ids import Address, Anchor, Direction, Epoch, IntervalId, ServerId, Version
from siafu.pipeline.layout import Layout
from siafu.pipeline.run_machine.run_options import RunOptions
from siafu.pipeline.schedule import (
    Schedule,
    by_columns,
    evaluation_schedule,
    numbered,
    reducing,
    training_schedule,
)
from siafu.pipeline.setup import Setup
from siafu.weights.policy import POLICIES
from tests.checker.durations import Durations, RandomDurations
from tests.checker.faults import Faults

_VICTIMS = (
    RowsArrived,
    RowsArrived,
    ServerAdvanced,
    WeightsAsked,
    WeightsGranted,
    WeightsReleased,
    GradientArrived,
    GradientTaken,
    WeightsMade,
    RoomMade,
    UpdateDue,
    Proceed,
    EvaluationStarted,
    EpochFinished,
    Settle,
)
"""Messages that may be the only ones to be held up: what comes in between then differs most from the usual."""

_START = Anchor(Epoch(0), Version(0))


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that decides a simulated run.

    score:          what an evaluation's measures, (intervals, versions of all intervals), say
    cores, lambdas: of each graph server; no Lambdas: tensor tasks run on the cores
    diverges_in:    the epoch whose loss is not a number
    checkpoints:    when someone asks for one
    stop:           when someone asks the run to end
    stopped_after:  the epoch after which the run's owner ends it, where epochs close
    """

    seed: int
    setup: Setup
    options: RunOptions
    durations: Durations
    score: Callable[[Measures], Score]
    faults: Faults = field(default_factory=Faults)
    cores: int = 2
    lambdas: int = 0
    start: Anchor = _START
    diverges_in: Epoch | None = None
    checkpoints: tuple[float, ...] = ()
    stop: float | None = None
    stopped_after: Epoch | None = None


def random_scenario(seed: int, *, mode: str | None = None, policy: str | None = None) -> Scenario:
    """A small run of any shape, with any faults. The same seed gives the same run."""
    source = random.Random(seed)
    setup = _with_statistics(_random_setup(source, mode, policy), random.Random(seed + 2))
    setup = _with_columns(setup, random.Random(seed + 3))
    setup = replace(setup, rows_stay=random.Random(seed + 4).random() < 0.8)
    epochs = source.randint(1, 4)
    start = Epoch(source.choice([0, 0, 0, 3]))
    return Scenario(
        seed=seed,
        setup=setup,
        options=_random_options(source, start + epochs),
        durations=RandomDurations(
            random.Random(seed + 1),
            latency=source.choice([0.01, 0.5, 3.0]),
            slow=_some_servers(source, setup),
        ),
        score=_RandomScore(seed),
        faults=_random_faults(source, setup),
        cores=source.randint(1, 3),
        lambdas=source.choice([0, 0, 1, 4]),
        start=Anchor(start, Version(start * source.randint(0, 2))),
        diverges_in=Epoch(start + source.randrange(epochs)) if source.random() < 0.02 else None,
        checkpoints=tuple(source.random() * 40 for _ in range(source.choice([0, 0, 0, 1, 2]))),
        stop=source.random() * 40 if source.random() < 0.05 else None,
    )


def bent_scenario(seed: int, *, mode: str | None = None) -> Scenario:
    """A run whose rates are decided epoch by epoch, whose gradients are clipped, and which its owner may end."""
    source = random.Random(-seed - 1)
    given = random_scenario(seed, mode=mode)
    setup = replace(given.setup, update_every=None, paced=True, clipped=source.random() < 0.7)
    first, last = given.start.epoch, given.options.epochs
    faults = given.faults
    if source.random() < 0.3:
        faults = replace(faults, held_up=0.3, victims=(source.choice([RatesSet, NormsTold]),))
    return replace(
        given,
        setup=setup,
        options=replace(given.options, closes=source.random() < 0.7),
        faults=faults,
        stopped_after=Epoch(source.randrange(first, last)) if source.random() < 0.3 else None,
    )


def losing_scenario(seed: int, *, mode: str | None = None, within: bool = True) -> Scenario:
    """A run that loses servers: at any moment, several at once, while another is replaced, some while they live on.

    within: the others go on within the epoch; else all begin again
    """
    source = random.Random(seed * 7 + 1)
    given = random_scenario(seed, mode=mode or source.choice(["sync", "pipe"]))
    given = replace(given, setup=replace(given.setup, rows_stay=within))
    servers = given.setup.graph_addresses + given.setup.weight_addresses
    deaths = tuple(
        (source.random() * source.choice([5, 20, 60]), source.choice(servers))
        for _ in range(source.choice([1, 1, 2, 3, 5]))
    )
    faults = replace(
        given.faults,
        deaths=deaths,
        hand_overs=_random_hand_overs(random.Random(seed * 7 + 2), servers),
        detection=source.choice([0.1, 1.0, 3.0]),
        replacement=source.choice([0.0, 0.5, 5.0]),
        undead=source.choice([0.0, 0.0, 0.5]),
        with_sender=source.choice([0.0, 0.2, 0.7]),
    )
    return replace(given, faults=faults)


def eager_scenario(seed: int, *, mode: str | None = None) -> Scenario:
    """A run that loses servers, and eager copies of them: alone, together with their servers, and unnoticed."""
    source = random.Random(seed * 7 + 3)
    given = losing_scenario(seed, mode=mode)
    servers = range(given.setup.layout.num_servers)
    copies = tuple((source.random() * source.choice([0, 10]), ServerId(each)) for each in servers)
    lost = tuple(
        (source.random() * source.choice([5, 20, 60]), Address("copy", ServerId(source.choice(servers))))
        for _ in range(source.choice([0, 0, 1, 2]))
    )
    more = tuple(
        (source.random() * source.choice([10, 40]), Address("graph", ServerId(source.choice(servers))))
        for _ in range(source.choice([1, 2, 3]))
    )
    together = tuple((when, Address("copy", who.index)) for when, who in more if source.random() < 0.1)
    faults = replace(
        given.faults,
        deaths=(*given.faults.deaths, *lost, *more, *together),
        copies=copies,
        unnoticed=source.choice([0.0, 0.3]),
        replacement=source.choice([0.0, 0.5]),
    )
    return replace(given, faults=faults)


def handing_over_scenario(seed: int) -> Scenario:
    """A run that loses nothing, and whose servers are handed over."""
    given = losing_scenario(seed)
    servers = given.setup.graph_addresses + given.setup.weight_addresses
    handed = _random_hand_overs(random.Random(seed), servers, (1, 2, 3))
    return replace(given, faults=replace(given.faults, deaths=(), hand_overs=handed))


def _random_hand_overs(
    source: random.Random, servers: Sequence[Address], numbers: Sequence[int] = (0, 0, 1, 2)
) -> tuple[tuple[float, Address], ...]:
    return tuple(
        (source.random() * source.choice([5, 20, 60]), source.choice(servers))
        for _ in range(source.choice(numbers))
    )


def _random_setup(source: random.Random, mode: str | None, policy: str | None) -> Setup:
    servers = source.choice([1, 2, 2, 3, 4, 5])
    # Many intervals on many servers take long to simulate and show little more: such runs are rare.
    most = 7 if servers == 1 or source.random() < 0.03 else max(1, 9 // servers)
    layout = _random_layout(source, tuple(source.randint(1, most) for _ in range(servers)))
    layers = source.choice([1, 2, 2, 3, 4])
    first = source.choice([0, 1])
    phases = range(first, layers + 1)
    parameters = {phase for phase in phases if source.random() < 0.8} or {layers}
    chosen = mode or source.choice(["sync", "pipe", "async", "async"])
    return Setup(
        training=training_schedule(first, layers, parameters),
        evaluation=evaluation_schedule(first, layers),
        layout=layout,
        weight_servers=source.randint(1, 3),
        mode=chosen,  # type: ignore[arg-type]
        policy=POLICIES[policy or source.choice(sorted(POLICIES))],
        staleness=source.randint(0, 2),
        update_every=source.choice([None, None, source.randint(1, layout.num_intervals + 2)]),
        alternate=chosen != "async" and source.random() < 0.2,
        gather_parts=(0, 2, 8)[layout.num_intervals % 3] if chosen == "pipe" else 0,
    )


def _with_statistics(setup: Setup, source: random.Random) -> Setup:
    """In some runs, statistics over all vertices between phases, beside a gather or in its place, forth alone or forth and back."""
    if source.random() < 0.6:
        return setup
    numbers = {stage.phase for stage in setup.evaluation.stages}
    places = sorted(numbers)[1:]
    reduces = {phase for phase in places if source.random() < 0.6}
    gathers = {phase for phase in places if phase not in reduces or source.random() < 0.5}
    moved = {phase for phase in reduces if source.random() < 0.8}

    def reduced(schedule: Schedule) -> Schedule:
        return numbered(reducing(schedule.stages, reduces, gathers, moved))

    return replace(setup, training=reduced(setup.training), evaluation=reduced(setup.evaluation))


def _with_columns(setup: Setup, source: random.Random) -> Setup:
    """In some exact runs, gathers that are laid out by columns."""
    if not setup.exact or source.random() < 0.7:
        return setup
    chosen = {stage.phase for stage in setup.evaluation.stages if source.random() < 0.6}

    def laid_out(schedule: Schedule) -> Schedule:
        return numbered(by_columns(schedule.stages, chosen))

    return replace(setup, training=laid_out(setup.training), evaluation=laid_out(setup.evaluation))


def _random_layout(source: random.Random, intervals: tuple[int, ...]) -> Layout:
    count = sum(intervals)
    density = source.choice([0.1, 0.5, 1.0])
    edges = [
        [reader == each or source.random() < density for each in range(count)] for reader in range(count)
    ]
    forward = tuple(frozenset(IntervalId(j) for j in range(count) if edges[i][j]) for i in range(count))
    backward = tuple(frozenset(IntervalId(j) for j in range(count) if edges[j][i]) for i in range(count))
    reads: dict[Direction, tuple[frozenset[IntervalId], ...]] = {"forward": forward, "backward": backward}
    return Layout(intervals, reads)


def _random_options(source: random.Random, epochs: int) -> RunOptions:
    return RunOptions(
        epochs=epochs,
        evaluate_every=source.choice([1, 1, 2, 3]),
        patience=source.choice([None, None, 1, 2]),
        checkpoint_every=source.choice([None, None, 1, 2]),
        exact_above=source.choice([None, None, 0.3, 0.7]),
    )


def _random_faults(source: random.Random, setup: Setup) -> Faults:
    if source.random() < 0.2:
        return Faults()
    held_up, victims = source.choice([(0.0, (Event,)), (0.05, (Event,)), (0.3, (source.choice(_VICTIMS),))])
    return Faults(
        lost=source.choice([0.0, 0.05, 0.3]),
        duplicated=source.choice([0.0, 0.1, 0.5]),
        held_up=held_up,
        victims=victims,
        late=source.choice([0.0, 0.1]),
        dead=source.choice([0.0, 0.1]),
        deaths=tuple(
            (source.random() * 40, source.choice(setup.graph_addresses + setup.weight_addresses))
            for _ in range(source.choice([0, 0, 0, 1, 1, 2]))
        ),
    )


def _some_servers(source: random.Random, setup: Setup) -> frozenset[Address]:
    return frozenset(
        each for each in setup.graph_addresses + setup.weight_addresses if source.random() < 0.15
    )


@dataclass(frozen=True, slots=True)
class _RandomScore:
    """Scores that go up and down from version to version, and are often equal."""

    seed: int

    def __call__(self, measures: Measures) -> Score:
        source = random.Random(hash((self.seed, *measures)))
        return Score(accuracy=source.randint(0, 4) / 4, loss=float(source.randint(0, 2)))
