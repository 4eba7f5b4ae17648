"""What hides the network from Lambdas: modes, tricks, the autotuner, and what Lambdas cost without any network."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.files import replacing
from siafu.base.owned import OwnedDirectory
from siafu.bench.network import network
from siafu.graph import Graph, read_store
from siafu.graph.generate import generate, shape_named
from siafu.options import Options
from siafu.pipeline.ids import Lane
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
class Setting:
    """What every training of a part has in common.

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


NEAR = Setting(
    "reddit-small", 0.25, hidden=128, layers=2, intervals=8, count=2, latency_ms=0, mbps=None, epochs=12
)
"""Where overhead is measured: no network in between, and a Lambda for each of two cores."""


def smaller(setting: Setting) -> Setting:
    """For trainings with a single Lambda, which must do alone what many do otherwise."""
    return replace(setting, scale=setting.scale / 4, layers=2, intervals=max(1, setting.intervals // 2))


@dataclass(frozen=True, slots=True)
class Measured:
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
    setting: Setting
    measured: list[Measured]

    def of(self, who: str) -> Measured:
        return next(each for each in self.measured if each.who == who)

    @property
    def fixed(self) -> dict[int, Measured]:
        """Of "tuning": the trainings with so many Lambdas throughout."""
        return {int(each.who): each for each in self.measured if each.who.isdigit()}


def measure(name: str, setting: Setting, store: Path | None, told: Told) -> Part:
    """Take the measurements of a part. `store`: the graph; None: it is generated, and removed again."""
    if name not in PARTS:
        raise BadInput(f"no part {name!r} of this benchmark: choose from {', '.join(PARTS)}")
    with _graph(setting, store) as graph:
        bench = _Bench(graph, setting, lambda line: told(f"{name}: {line}"))
        work = {
            "modes": bench.modes,
            "tricks": bench.tricks,
            "tuning": bench.tuning,
            "overhead": bench.overhead,
        }
        return Part(name, setting, list(work[name]()))


@contextmanager
def _graph(setting: Setting, store: Path | None) -> Iterator[Graph]:
    if store is not None:
        yield read_store(store, verify=False)
        return
    with OwnedDirectory() as directory:
        path = directory / "graph"
        generate(shape_named(setting.graph).scaled(setting.scale), path)
        yield read_store(path, verify=False)


class _Bench:
    """Trainings of one model on one graph."""

    def __init__(self, graph: Graph, setting: Setting, told: Told) -> None:
        self._graph, self._setting, self._told = graph, setting, told
        self._model = network(graph, setting.model, setting.hidden, setting.layers, dropout=0.5)
        self._partition = choose_partition(graph, 1, "auto")
        self._programs: dict[Lane, Program] | None = None

    def modes(self) -> Iterator[Measured]:
        for mode in MODES:
            yield self._train(mode, self._lambdas(self._setting.count), mode=mode)

    def tricks(self) -> Iterator[Measured]:
        yield self._train("all", self._lambdas(self._setting.count))
        for who, off in TRICKS.items():
            yield self._train(who, self._lambdas(self._setting.count, **off))

    def tuning(self) -> Iterator[Measured]:
        for count in COUNTS:
            # One Lambda takes as long as many together: few epochs of it are enough to see that.
            yield self._train(
                str(count), self._lambdas(count), epochs=4 if count < 4 else self._setting.epochs
            )
        for first in (1, 100):
            lambdas = self._lambdas(None, first=first)
            yield self._train(f"auto from {first}", lambdas, epochs=4 * self._setting.epochs)

    def overhead(self) -> Iterator[Measured]:
        yield self._train("threads", None)
        yield self._train("Lambdas", self._lambdas(self._setting.count))

    def _lambdas(self, count: int | None, **changes: Any) -> Lambdas:
        return replace(Lambdas(count, self._setting.platform), **changes)

    def _train(
        self, who: str, lambdas: Lambdas | None, *, mode: str = "pipe", epochs: int | None = None
    ) -> Measured:
        wanted = epochs or self._setting.epochs
        options = Options.to_measure(wanted, self._setting.intervals, mode=mode)
        trainer = Trainer(self._graph, self._model, options, self._partition, self._programs, lambdas)
        self._programs = trainer.programs
        trainer.prepare()
        seconds = [event.seconds for event in trainer.run() if isinstance(event, EpochMetrics)]
        found = _measured(who, seconds[1:-1], trainer.counters().get("lambda", {}))
        settled = f", settled at {found.settled}" if found.counts else ""
        self._told(f"{who}: {found.best:.2f} s an epoch{settled}")
        return found


def _measured(who: str, seconds: list[float], counted: Mapping[str, Any]) -> Measured:
    kinds: Mapping[str, Mapping[str, int]] = counted.get("kinds", {})
    moved = sum(each["bytes_sent"] + each["bytes_received"] for each in kinds.values())
    counts = list(counted.get("counts", []))[1:-1]
    return Measured(who, seconds, counts, counted.get("invocations", 0), moved)


def table(parts: Sequence[Part]) -> str:
    """Everything as tables in Markdown."""
    return "\n\n".join(_TABLES[part.name](part) for part in parts)


def _modes_table(part: Part) -> str:
    sync = part.of("sync").best
    rows = [[each.who, f"{each.best:.2f}", f"{sync / each.best:.2f}"] for each in part.measured]
    return _markdown(["mode", "s an epoch", "× as fast as sync"], rows)


def _tricks_table(part: Part) -> str:
    whole = part.measured[0]
    rows = [
        [
            each.who,
            f"{each.best:.2f}",
            f"{each.best / whole.best:.2f}",
            f"{each.bytes / whole.bytes:.2f}",
            f"{each.invocations}",
        ]
        for each in part.measured
    ]
    return _markdown(["pipe", "s an epoch", "× all", "× all's bytes", "invocations"], rows)


def _tuning_table(part: Part) -> str:
    best = min(each.best for each in part.fixed.values())
    rows = [[f"{count}", f"{each.best:.2f}", f"{each.best / best:.2f}"] for count, each in part.fixed.items()]
    for each in part.measured:
        if each.counts:
            seconds = each.settled_seconds
            rows.append([f"{each.who}: {each.settled}", f"{seconds:.2f}", f"{seconds / best:.2f}"])
    return _markdown(["Lambdas", "s an epoch", "× the best"], rows)


def _overhead_table(part: Part) -> str:
    threads = part.of("threads").best
    rows = [[each.who, f"{each.best:.2f}", f"{each.best / threads:.2f}"] for each in part.measured]
    return _markdown(["tensor tasks on", "s an epoch", "× threads"], rows)


_TABLES: dict[str, Callable[[Part], str]] = {
    "modes": _modes_table,
    "tricks": _tricks_table,
    "tuning": _tuning_table,
    "overhead": _overhead_table,
}


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def save(parts: Sequence[Part], path: Path) -> None:
    """Write parts, in order, beside the others that the file holds."""
    kept = {each.name: each for each in read(path)} | {each.name: each for each in parts}
    every = sorted(kept.values(), key=lambda each: PARTS.index(each.name))
    with replacing(path) as file:
        file.write(json.dumps([asdict(each) for each in every]).encode())


def read(path: Path) -> list[Part]:
    """What `save` wrote; nothing where there is no such file."""
    if not path.exists():
        return []
    try:
        return [
            Part(each["name"], Setting(**each["setting"]), [Measured(**one) for one in each["measured"]])
            for each in json.loads(path.read_text())
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path} does not hold results of 'siafu bench lambda': {error}") from error


def as_json(parts: Sequence[Part]) -> str:
    """One line: everything that was measured."""
    return json.dumps({"bench": "lambda", "parts": [asdict(each) for each in parts]})
