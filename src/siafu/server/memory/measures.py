"""Measures: ways to spare memory, each with its bytes and its price in seconds, and the cheapest of them that fit a budget."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from siafu.pipeline.ids import LaneName
from siafu.pipeline.schedule import Stage
from siafu.pipeline.stage_kind import GATHER
from siafu.program.program import Program
from siafu.server.costs.stage_cost import StageCost
from siafu.server.fusion import alike, fusable, gathers_again
from siafu.server.memory.listing import RunListing
from siafu.server.memory.memory_list import MemoryList
from siafu.server.memory.savings import Savings
from siafu.server.plan import ServerPlan
from siafu.server.stages.registry import stages_of

# Of one core, roughly, for prices only: a price need not be right, but in the right order.
_FLOPS = 3e10
_BYTES = 5e9
_MANY = 6  # measures with a price: more, and sets are not all tried


@dataclass(frozen=True, slots=True)
class Measure:
    """One way to spare memory.

    name:    for people
    savings: what it is to a run
    bytes:   that it spares of the peak on its own
    seconds: that an epoch takes longer by it, as predicted
    """

    name: str
    savings: Savings
    bytes: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"name": self.name, "bytes": self.bytes, "seconds": self.seconds}


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Measures that were chosen for a budget.

    measures: that are taken; none where everything fits as it is
    offered:  all that there are
    savings:  the measures together; seconds: their price
    listed:   the arrays then
    least:    the lowest peak that there is
    """

    measures: Sequence[Measure]
    offered: Sequence[Measure]
    savings: Savings
    seconds: float
    listed: MemoryList
    least: int

    def as_json(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "measures": [each.name for each in self.measures],
            "seconds": self.seconds,
            "offered": [each.as_json() for each in self.offered],
            "least_bytes": self.least,
        }

    def __str__(self) -> str:
        """One line, such as 'to fit 8 GB: evaluation in the training's tables (0.1 s an epoch)'."""
        names = "; ".join(each.name for each in self.measures)
        return f"{names} (about {self.seconds:,.1f} s more an epoch)" if self.measures else ""


def choose_if_needed(listing: RunListing, budget: int | None) -> Choice:
    """`choose`, which takes a while on large graphs, only where a run does not fit as it is; else nothing is offered."""
    listed = listing.saving(listing.plan.savings)
    if budget is None or listed.peak <= budget:
        return Choice((), (), listing.plan.savings, 0.0, listed, listed.peak)
    return choose(listing, budget)


def choose(listing: RunListing, budget: int | None) -> Choice:
    """The cheapest measures with which a run fits; where none fit, those that spare most. budget: in bytes; None: any amount.

    A plan that says how to spare memory is left as it is.
    """
    if listing.plan.savings != Savings():
        listed = listing.saving(listing.plan.savings)
        return Choice((), (), listing.plan.savings, 0.0, listed, listed.peak)
    return _Chooser(listing).choose(budget)


@dataclass(slots=True, eq=False)
class _Chooser:
    listing: RunListing
    prices: "_Prices" = field(init=False)

    def __post_init__(self) -> None:
        self.prices = _Prices(self.listing)

    def choose(self, budget: int | None) -> Choice:
        offered = tuple(self._offered())
        free = sorted((each for each in offered if not each.seconds), key=lambda each: -each.bytes)
        priced = [each for each in offered if each.seconds]
        sets = list(self._tried(free, priced))
        tightest = min(sets, key=lambda these: self._listed(_together(these)).peak)
        fitting = (these for these in sets if budget is None or self._listed(_together(these)).peak <= budget)
        taken = next(fitting, tightest)
        savings, least = _together(taken), self._listed(_together(tightest)).peak
        return Choice(taken, offered, savings, self.prices.of(savings), self._listed(savings), least)

    def _offered(self) -> Iterator[Measure]:
        """All that spare anything."""
        plain = self._listed(Savings()).peak
        for name, savings in _measures(self.listing.plan, on_lambdas=self.listing.on_lambdas):
            spared = plain - self._listed(savings).peak
            if spared > 0:
                yield Measure(name, savings, spared, self.prices.of(savings))

    def _tried(self, free: Sequence[Measure], priced: Sequence[Measure]) -> Iterator[Sequence[Measure]]:
        """Sets of measures, the cheapest first: none, more and more of those that cost nothing, then these with others."""
        yield from (free[:count] for count in range(len(free) + 1))
        if len(priced) > _MANY:
            worth = sorted(priced, key=lambda each: each.seconds / each.bytes)
            yield from ([*free, *worth[:count]] for count in range(1, len(worth) + 1))
            return
        sets = [list(each) for count in range(1, len(priced) + 1) for each in combinations(priced, count)]
        for each in sorted(sets, key=lambda these: self.prices.of(_together(these))):
            yield [*free, *each]

    def _listed(self, savings: Savings) -> MemoryList:
        return self.listing.saving(savings)


def _measures(plan: ServerPlan, *, on_lambdas: bool) -> Iterator[tuple[str, Savings]]:
    """Measures that a run may take, whether they spare anything or not.

    on_lambdas: tensor tasks run elsewhere: they read what was gathered from tables, and keep nothing here
    """
    program = plan.programs["train" if plan.trains else "evaluate"]
    if not plan.trains:
        for depth in sorted(fusable(program, range(len(program.gathers)))):
            yield f"no table for what G{depth + 1} gathers", Savings(fused=frozenset({depth}))
        return
    exact = plan.options.mode != "async"
    if exact:
        yield "gradients in the place of rows", Savings(in_place=True)
        if alike(plan.programs["train"], plan.programs["evaluate"]):
            yield "evaluation in the training's tables", Savings(shared=True)
    if on_lambdas:
        return
    for depth in sorted(fusable(program, range(len(program.gathers)))):
        savings = Savings(fused=frozenset({depth}))
        # An asynchronous gather may find other rows when it runs again.
        if exact or not gathers_again(program, savings):
            yield f"no table for what G{depth + 1} gathers", savings
    if exact:
        for number, phase in enumerate(program.phases[:-1]):
            if phase.programs.kept and phase.programs.backward is not None:
                yield f"T{number} computed again on the way back", Savings(remade=frozenset({number}))


def least_peak(listing: RunListing) -> int:
    """Bytes at most with every measure that there is, as long as all tables are in memory."""
    plan = listing.plan
    every = (savings for _, savings in _measures(plan, on_lambdas=listing.on_lambdas))
    together = Savings()
    for each in every:
        together = together | each
    return listing.saving(together).peak


def _together(measures: Sequence[Measure]) -> Savings:
    found = Savings()
    for each in measures:
        found = found | each.savings
    return found


def more_seconds(listing: RunListing, savings: Savings) -> float:
    """Seconds that an epoch takes longer by what is gathered or computed again, and by waiting for evaluations."""
    return _Prices(listing).of(savings)


class _Prices:
    """Seconds that an epoch takes longer."""

    def __init__(self, listing: RunListing) -> None:
        self._listing, self._plan = listing, listing.plan
        self._threads = max(1, listing.hardware.threads)

    def of(self, savings: Savings) -> float:
        if not self._plan.trains:  # it goes forth alone: nothing runs again
            return 0.0
        program = self._plan.programs["train"]
        found = sum(self._gathered(depth) for depth in gathers_again(program, savings))
        found += sum(self._computed(program, number) for number in savings.remade)
        return found + (self._turns() if savings.shared else 0.0)

    def _gathered(self, depth: int) -> float:
        """A gather once more."""
        stages = self._plan.training.stages
        plain = (each for each in stages if each.kind == GATHER and each.direction == "forward")
        return self._seconds(self._cost("train", next(each for each in plain if each.phase == depth + 1)))

    def _computed(self, program: Program, number: int) -> float:
        """The products of a phase once more."""
        programs, rows = program.phases[number].programs, self._plan.graph.num_vertices
        if programs.backward is None or programs.backward_kept is None:
            return 0.0
        more = programs.backward.flops(rows) - programs.backward_kept.flops(rows)
        return max(more, 0) / (_FLOPS * self._threads)

    def _turns(self) -> float:
        """At the end of an epoch, and of its evaluation, threads wait for the last task: half an average one each time."""
        seconds = [
            self._seconds(self._cost(lane, stage))
            for lane, schedule in self._plan.schedules.items()
            for stage in schedule.stages
        ]
        a_task = sum(seconds) * self._threads / (len(seconds) * sum(self._plan.interval_counts))
        return a_task / self._plan.options.evaluate_every

    def _cost(self, lane: LaneName, stage: Stage) -> StageCost:
        return stages_of(stage.kind).cost(self._listing.extents[lane], stage)

    def _seconds(self, cost: StageCost) -> float:
        return (cost.flops / _FLOPS + cost.bytes / _BYTES) / self._threads
