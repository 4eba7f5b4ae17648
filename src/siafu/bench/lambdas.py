"""Measurements of Lambdas: modes, tricks that hide the network, the autotuner, and their overhead without a network."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.bench.network import network
from siafu.bench.results import generated, markdown, read_results, save_results
from siafu.graph import Graph, read_store
from siafu.options import Options
from siafu.pipeline.ids import LaneName
from siafu.program.program import Program
from siafu.report.files.metrics import EpochMetrics
from siafu.runtime.lambdas import Lambdas
from siafu.serverless.platforms.environment import Limits
from siafu.serverless.platforms.platform import LocalPlatform
from siafu.training.placement import choose_partition
from siafu.training.trainer import Trainer

MODES = ("sync", "pipe", "async")
TRICKS: dict[str, dict[str, Any]] = {
    "not fused": {"fused": False},
    "nothing computed again": {"rematerialise": False},
    "nothing stashed": {"stash": False},
    "no streaming": {"streaming": False},
    "one task in hand": {"places": 1},
    "one task an invocation": {"tasks": 1},
    "nothing kept": {"keep_mb": 0},
}
COUNTS = (1, 2, 4, 8, 16)
PARTS = ("modes", "tricks", "tuning", "overhead")

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LambdaSetting:
    """Options that all trainings of a part share.

    graph:      what `siafu generate` makes, and its `scale`
    count:      Lambdas, where a measurement is not about their number
    latency_ms, mbps: of each Lambda's connection, as `Limits` has them
    epochs:     of each training; the first warms up and the last is evaluated, so neither counts
    """

    graph: str
    scale: float
    hidden: int
    layers: int
    intervals: int
    count: int
    latency_ms: float
    mbps: float | None
    epochs: int
    model: str = "gcn"

    @property
    def platform(self) -> LocalPlatform:
        return LocalPlatform(Limits(latency_ms=self.latency_ms, mbps=self.mbps))


NEAR = LambdaSetting(
    "reddit-small", 0.25, hidden=128, layers=2, intervals=8, count=2, latency_ms=0, mbps=None, epochs=12
)
"""Where overhead is measured: no network in between, and a Lambda for each of two cores."""


def smaller(setting: LambdaSetting) -> LambdaSetting:
    """A smaller setting, for trainings with a single Lambda."""
    return replace(setting, scale=setting.scale / 4, layers=2, intervals=max(1, setting.intervals // 2))


@dataclass(frozen=True, slots=True)
class TrainingMeasurement:
    """One training.

    seconds:     of each epoch that counts
    counts:      how many Lambdas each epoch had, where the autotuner chose
    invocations, bytes: of all its Lambdas
    """

    who: str
    seconds: list[float]
    counts: list[int] = field(default_factory=list)
    invocations: int = 0
    bytes: int = 0

    @property
    def best(self) -> float:
        """A shared machine only ever adds time."""
        return min(self.seconds)

    @property
    def settled(self) -> int:
        """The number of Lambdas at the end."""
        return self.counts[-1]

    @property
    def settled_seconds(self) -> float:
        """The best epoch with that number, of those since it was last changed."""
        changes = [k for k, count in enumerate(self.counts) if count != self.settled]
        return min(self.seconds[(changes[-1] + 1 if changes else 0) :])


@dataclass(frozen=True, slots=True)
class Part:
    """One of `PARTS`: its setting and its trainings, the one that others are compared to first."""

    name: str
    setting: LambdaSetting
    measured: list[TrainingMeasurement]

    def of(self, who: str) -> TrainingMeasurement:
        return next(each for each in self.measured if each.who == who)

    @property
    def fixed(self) -> dict[int, TrainingMeasurement]:
        """Trainings of "tuning" with a fixed number of Lambdas, by that number."""
        return {int(each.who): each for each in self.measured if each.who.isdigit()}


def measure(name: str, setting: LambdaSetting, store: Path | None, told: Told) -> Part:
    """Take the measurements of a part. `store`: the graph; None: it is generated, and removed again."""
    if name not in PARTS:
        raise BadInput(f"no part {name!r} of this benchmark: choose from {', '.join(PARTS)}")
    at = nullcontext(read_store(store, verify=False)) if store else generated(setting.graph, setting.scale)
    with at as graph:
        bench = _Bench(graph, setting, lambda line: told(f"{name}: {line}"))
        return Part(name, setting, list(getattr(bench, name)()))


class _Bench:
    """Trainings of one model on one graph."""

    def __init__(self, graph: Graph, setting: LambdaSetting, told: Told) -> None:
        self._graph, self._setting, self._told = graph, setting, told
        self._model = network(graph, setting.model, setting.hidden, setting.layers, dropout=0.5)
        self._partition = choose_partition(graph, 1, "auto")
        self._programs: dict[LaneName, Program] | None = None

    def modes(self) -> Iterator[TrainingMeasurement]:
        for mode in MODES:
            yield self._train(mode, self._lambdas(self._setting.count), mode=mode)

    def tricks(self) -> Iterator[TrainingMeasurement]:
        yield self._train("all", self._lambdas(self._setting.count))
        for who, off in TRICKS.items():
            yield self._train(who, self._lambdas(self._setting.count, **off))

    def tuning(self) -> Iterator[TrainingMeasurement]:
        for count in COUNTS:
            # One Lambda takes as long as many together: few epochs of it are enough to see that.
            yield self._train(
                str(count), self._lambdas(count), epochs=4 if count < 4 else self._setting.epochs
            )
        for first in (1, 100):
            lambdas = self._lambdas(None, first=first)
            yield self._train(f"auto from {first}", lambdas, epochs=4 * self._setting.epochs)

    def overhead(self) -> Iterator[TrainingMeasurement]:
        yield self._train("threads", None)
        yield self._train("Lambdas", self._lambdas(self._setting.count))

    def _lambdas(self, count: int | None, **changes: Any) -> Lambdas:
        return replace(Lambdas(count, self._setting.platform), **changes)

    def _train(
        self, who: str, lambdas: Lambdas | None, *, mode: str = "pipe", epochs: int | None = None
    ) -> TrainingMeasurement:
        wanted = epochs or self._setting.epochs
        options = Options.to_measure(wanted, self._setting.intervals, mode=mode)
        trainer = Trainer(self._graph, self._model, options, self._partition, self._programs, lambdas)
        self._programs = trainer.programs
        trainer.prepare()
        seconds = [event.seconds for event in trainer.run() if isinstance(event, EpochMetrics)]
        counted: dict[str, Any] = trainer.counters().get("lambda", {})
        moved = sum(each["bytes_sent"] + each["bytes_received"] for each in counted.get("kinds", {}).values())
        counts = list(counted.get("counts", []))[1:-1]
        found = TrainingMeasurement(who, seconds[1:-1], counts, counted.get("invocations", 0), moved)
        settled = f", settled at {found.settled}" if found.counts else ""
        self._told(f"{who}: {found.best:.2f} s an epoch{settled}")
        return found


def table(parts: Sequence[Part]) -> str:
    """Everything as tables in Markdown."""
    tables = {
        "modes": _modes_table,
        "tricks": _tricks_table,
        "tuning": _tuning_table,
        "overhead": _overhead_table,
    }
    return "\n\n".join(tables[part.name](part) for part in parts)


def _modes_table(part: Part) -> str:
    sync = part.of("sync").best
    rows = [[each.who, f"{each.best:.2f}", f"{sync / each.best:.2f}"] for each in part.measured]
    return markdown(["mode", "s an epoch", "× as fast as sync"], rows)


def _tricks_table(part: Part) -> str:
    whole = part.measured[0]
    rows = []
    for each in part.measured:
        times, bytes = each.best / whole.best, each.bytes / whole.bytes
        rows.append([each.who, f"{each.best:.2f}", f"{times:.2f}", f"{bytes:.2f}", f"{each.invocations}"])
    return markdown(["pipe", "s an epoch", "× all", "× all's bytes", "invocations"], rows)


def _tuning_table(part: Part) -> str:
    best = min(each.best for each in part.fixed.values())
    rows = [[f"{count}", f"{each.best:.2f}", f"{each.best / best:.2f}"] for count, each in part.fixed.items()]
    for each in part.measured:
        if each.counts:
            seconds = each.settled_seconds
            rows.append([f"{each.who}: {each.settled}", f"{seconds:.2f}", f"{seconds / best:.2f}"])
    return markdown(["Lambdas", "s an epoch", "× the best"], rows)


def _overhead_table(part: Part) -> str:
    threads = part.of("threads").best
    rows = [[each.who, f"{each.best:.2f}", f"{each.best / threads:.2f}"] for each in part.measured]
    return markdown(["tensor tasks on", "s an epoch", "× threads"], rows)


def save(parts: Sequence[Part], path: Path) -> None:
    """Write parts, in order, beside the others that the file holds."""
    kept = {each.name: each for each in (*read(path), *parts)}
    save_results(sorted(kept.values(), key=lambda each: PARTS.index(each.name)), path)


def read(path: Path) -> list[Part]:
    """Parts that `save` wrote; nothing where there is no such file."""
    return read_results(path, "lambda", Part)


def as_json(parts: Sequence[Part]) -> str:
    """One line: everything that was measured."""
    return json.dumps({"bench": "lambda", "parts": [asdict(each) for each in parts]})
