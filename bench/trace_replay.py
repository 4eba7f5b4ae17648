"""A trace of spot machines replayed with real kills and joins, beside its prediction.

    python bench/trace_replay.py measure STORE -o MEASURED.json             # this machine: epoch, pauses, how long copies take
    python bench/trace_replay.py replay STORE TRACE --measured MEASURED.json [--times 60] [--offset S] [--epochs N] -o DIRECTORY
    python bench/trace_replay.py check STORE DIRECTORY                      # the same epochs undisturbed, in this process

A Ray cluster of 4 nodes on this machine, with networks of their own where that can be had; 4 graph servers and 1 weight server, each with a warm copy.
The head, with the driver, stays. The other three are machines of the trace, `--times` faster than they came and went: at its moments a
node's processes are killed by SIGKILL, all at once, and another node is started. The training holds three machines whenever there are three.

Nodes share the cores of this machine, and every join starts processes. So epochs are mostly waiting: the run's own callback waits
`--wait` seconds after each, and the rest is a small graph.

`measure` gives the median epoch, the pauses after machines were killed whose servers all had copies, the pause after a machine was killed together with the one that
has the copy of its server, and the time until all copies are there again. With these, `siafu.planning.spot.replay` predicts the seconds of the replay and the machines' seconds, before the
replay begins. Dollars are those of c5n.2xlarge machines, the head on demand, for the seconds of the compressed run.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # this folder's other files, and the tests' Ray nodes

import ray
import torch
from bench.kills import Killer, Ran, say
from safetensors.torch import load_file, save_file
from tests.cluster.ray_nodes import RayNodes, ray_nodes

from bench import kills
from siafu.cost.instances import Rental
from siafu.cost.prices import price_book
from siafu.launch import sessions
from siafu.planning.spot.replay import Replayed, SpotTraining, replay
from siafu.planning.spot.risk import SpotPrices
from siafu.planning.spot.trace import Change, compressed, from_trace, held, read_trace

kills.WEIGHT_SERVERS = 1
SPOT_MACHINES = kills.MACHINES - 1
INSTANCE = "c5n.2xlarge"
FIRST_KILLS = ("machine", "two machines", "machine")
COUNTED = ("servers_lost", "epochs_lost", "servers_moved", "rows_compared", "rows_differ")


@dataclass(frozen=True, slots=True)
class Measured:
    """This machine.

    epoch:   seconds of an undisturbed epoch
    machine: seconds that the run pauses after the loss of a machine whose servers all have copies
    cold:    after the loss of two machines, with a server and its copy
    copies:  from when the run goes on until all copies are there again
    """

    epoch: float
    machine: float
    cold: float
    copies: float

    def training(self, epochs: int) -> SpotTraining:
        """As a replay in virtual time has it. The nodes share one machine: an epoch takes as long on fewer."""
        detection = max(0.0, self.machine - self.epoch / 2)  # half an epoch is done again, in the mean
        return SpotTraining(
            SPOT_MACHINES,
            epochs,
            self.epoch,
            max(0.0, self.cold - self.machine),
            detection,
            paces=(self.epoch,) * (SPOT_MACHINES + 1),
            warm=True,
            copies_seconds=self.copies,
        )


class Nodes:
    """The cluster's nodes by the names of machines."""

    def __init__(self, nodes: RayNodes) -> None:
        self._nodes, self.here = nodes, ray.get_runtime_context().get_node_id()
        self.of: dict[str, str] = {}

    def others(self) -> list[str]:
        """Nodes but for the driver's."""
        alive = [each["NodeID"] for each in ray.nodes() if each["Alive"]]
        return [each for each in alive if each != self.here]

    def join(self, machine: str) -> None:
        """Start a node, and wait until the cluster has it."""
        known = set(self.others())
        self._nodes.add()
        (self.of[machine],) = set(self.others()) - known

    def kill(self, machine: str) -> int:
        """End a machine's node by SIGKILL; how many processes it had."""
        return self.kill_node(self.of.pop(machine))

    def kill_node(self, node: str) -> int:
        resources = next(each["Resources"] for each in ray.nodes() if each["NodeID"] == node)
        leader = self._nodes._processes.pop(
            next(each for each in resources if each in self._nodes._processes)
        )
        found = sessions.members(leader["pid"])
        for process in found:
            os.kill(process, signal.SIGKILL)
        return len(found)


class Weather:
    """Kills and joins nodes at the moments of a trace, from when it starts, in threads of its own.

    moments: what was done, and when: seconds since the start, the machine, and "killed", "joining" or "joined"
    """

    def __init__(self, nodes: Nodes, changes: Iterator[Change]) -> None:
        self.moments: list[tuple[float, str, str]] = []
        self._nodes, self._changes, self._since = nodes, changes, 0.0
        self._over = threading.Event()
        self._joins: SimpleQueue[str | None] = SimpleQueue()
        self._doomed: set[str] = set()
        self._lock = threading.Lock()
        self._held: dict[str, float] = {}
        self.machine_seconds = 0.0
        self.losses = 0

    def begin(self) -> None:
        """Name the nodes that are there after the first machines, and start."""
        self._since = time.monotonic()
        there = self._nodes.others()
        first = [next(self._changes) for _ in there]
        assert all(each.comes and each.seconds == 0 for each in first), (
            "the trace has too few machines at first"
        )
        self._nodes.of = {each.machine: node for each, node in zip(first, there, strict=True)}
        self._held = {each.machine: 0.0 for each in first}
        for work in (self._change, self._join):
            threading.Thread(target=work, daemon=True).start()

    def end(self) -> None:
        """Nothing comes or goes from now on."""
        with self._lock:
            self._over.set()
            self._joins.put(None)
            now = time.monotonic() - self._since
            self.machine_seconds += sum(now - since for since in self._held.values())

    def _change(self) -> None:
        for change in self._changes:
            wait = change.seconds - (time.monotonic() - self._since)
            if self._over.wait(max(0.0, wait)):
                return
            with self._lock:
                if not self._over.is_set():
                    self._take(change)

    def _take(self, change: Change) -> None:
        now = time.monotonic() - self._since
        if change.comes:
            self._held[change.machine] = now
            self._joins.put(change.machine)
            self._note("joining", change.machine)
            return
        self.losses += 1
        self.machine_seconds += now - self._held.pop(change.machine)
        if change.machine in self._nodes.of:
            count = self._nodes.kill(change.machine)
            self._note(f"killed, {count} processes", change.machine)
        else:
            self._doomed.add(change.machine)

    def _join(self) -> None:
        while (machine := self._joins.get()) is not None:
            if machine in self._doomed:
                continue
            self._nodes.join(machine)
            with self._lock:
                self._note("joined", machine)
                if machine in self._doomed and not self._over.is_set():
                    self._nodes.kill(machine)
                    self._note("killed as it joined", machine)

    def _note(self, what: str, machine: str) -> None:
        now = time.monotonic() - self._since
        self.moments.append((now, machine, what))
        say(f"{now:6.1f} s: {machine} {what}")


@contextmanager
def cluster(spares: int) -> Iterator[tuple[RayNodes, Nodes]]:
    with ray_nodes(kills.MACHINES, spares=spares) as nodes:
        if nodes.why_not_separate is not None:
            say(nodes.why_not_separate)
        yield nodes, Nodes(nodes)


def train(
    trainer: Any, wait: float, ended: Callable[[Any, list[float]], bool], heard: Callable[[Any], None]
) -> Ran:
    """Train to the end, waiting after each epoch; times from record to record."""
    gaps, before = list[float](), [0.0]

    def closes(end: Any) -> None:
        now = time.monotonic()
        gaps.append(now - before[0])
        before[0] = now
        if ended(trainer._runtime, gaps):
            end.stop()
        time.sleep(wait)

    trainer._pace = trainer._paced([closes])
    for line in trainer.prepare()[0]:
        say(line)
    saved, before[0] = [], time.monotonic()
    with closing(trainer.run()) as events:
        for event in events:
            if isinstance(event, kills.Checkpoint):
                saved.append(event)
            heard(event)
    weights = {name: each for name, each in saved[-1].tensors.items() if name.startswith("model.")}
    losses = [each.train_loss for each in trainer.history if isinstance(each, kills.EpochMetrics)]
    return Ran(weights, losses, trainer.counters(), gaps)


class MeasuringKiller(Killer):
    """Kills, and notes how long it takes until all copies are there again after a machine was killed."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.copies: list[float] = []
        self._going_since = 0.0

    def _kill(self, runtime: Any, kill: kills.Kill) -> None:
        """As `Killer` does; or a graph server's machine and its copy's, neither of them the driver's."""
        if kill.kind != "two machines":
            super()._kill(runtime, kill)
            return
        time.sleep(kill.moment * self.epoch)
        pairs = [
            (server.machine, copy.machine)
            for address, server in runtime.servers.items()
            for copy in runtime.seats._seats[address]
        ]
        for machine in next(each for each in pairs if self.here not in each):
            self._take_away(machine)

    def __call__(self, runtime: Any, gaps: list[float]) -> bool:
        was_running, kill = self._running, self.kills[self._next - 1]
        stop = super().__call__(runtime, gaps)
        if was_running and kill.told and kill.kind in ("machine", "two machines"):
            self._going_since = time.monotonic()
        if self._going_since and runtime.seats.wait(0.0):
            self.copies.append(time.monotonic() - self._going_since)
            say(f"all copies are there after {self.copies[-1]:.1f} s")
            self._going_since = 0.0
        return stop


def measure(store: str, kinds: list[str], wait: float, output: Path) -> None:
    """Measure this machine; adds to what is in the file."""
    kills.WAIT_SECONDS = 0.0
    with cluster(2 * len(kinds)) as (made, nodes), ThreadPoolExecutor(1) as joins:
        trainer = kills._trainer(store, 10**6, cluster=made.address, redundancy=1)
        started = 0

        def take_away(node: str) -> None:
            nonlocal started
            started += 1
            nodes.kill_node(node)
            joins.submit(nodes.join, f"machine {started}")

        killer = MeasuringKiller(len(kinds), 1, take_away, kinds=kinds)
        killer.seconds, killer.here = 3600.0, nodes.here
        train(trainer, wait, killer, lambda event: killer.heard(trainer._runtime, event))
    found: dict[str, list[float]] = json.loads(output.read_text()) if output.exists() else {}
    found.setdefault("epoch", []).append(killer.epoch)
    found.setdefault("copies", []).extend(killer.copies)
    for kill in killer.kills:
        found.setdefault(kill.kind, []).append(kill.pause)
    output.write_text(json.dumps(found))
    print(json.dumps(found))


def measured(path: Path) -> Measured:
    found = json.loads(path.read_text())
    return Measured(
        *(statistics.median(found[each]) for each in ("epoch", "machine", "two machines", "copies"))
    )


def predict(training: SpotTraining, changes: Iterator[Change]) -> Replayed:
    """The replay in virtual time, from the first epoch on: a replay there begins with a start, which is taken off."""
    start = training.start_seconds
    later = (
        Change(each.seconds + start if each.seconds else 0.0, each.machine, each.comes) for each in changes
    )
    found = replay(training, later)
    taken_off = {"seconds": start, "machine_seconds": start * training.machines}
    return replace(found, **{name: getattr(found, name) - value for name, value in taken_off.items()})


def prices() -> SpotPrices:
    instance = price_book().instance(INSTANCE)
    return SpotPrices(Rental(instance, spot=True).usd_h, Rental(instance).usd_h)


def replay_really(asked: argparse.Namespace) -> None:
    this = measured(asked.measured)
    trace = read_trace(asked.trace)

    def changes() -> Iterator[Change]:
        return held(compressed(from_trace(trace, asked.offset), asked.times), SPOT_MACHINES)

    predicted, pays = predict(this.training(asked.epochs), changes()), prices()
    say(f"measured: {this}")
    say(f"predicted: {predicted.seconds:.1f} s, ${pays.usd(predicted):.4f}, {predicted}")
    with cluster(3 * predicted.losses + 3) as (made, nodes):
        trainer = kills._trainer(asked.store, asked.epochs, cluster=made.address, redundancy=1)
        weather, told = Weather(nodes, changes()), list[str]()

        def heard(event: Any) -> None:
            if isinstance(event, kills.Rewound):
                told.append(event.lost)
                say(event.lost)

        def ended(runtime: Any, gaps: list[float]) -> bool:
            if len(gaps) == asked.epochs:
                weather.end()
            return False

        prepare = trainer.prepare

        def prepared(*arguments: Any) -> Any:
            lines = prepare(*arguments)
            weather.begin()
            return lines

        trainer.prepare = prepared
        ran = train(trainer, asked.wait, ended, heard)
        seconds = sum(ran.gaps)
    real = replace(predicted, seconds=seconds, machine_seconds=weather.machine_seconds, losses=weather.losses)
    found = {
        "trace": trace.name,
        "times": asked.times,
        "offset": asked.offset,
        "epochs": len(ran.losses),
        "measured": asdict(this),
        "seconds": seconds,
        "usd": pays.usd(real),
        "machine_seconds": weather.machine_seconds,
        "losses": weather.losses,
        "predicted": asdict(predicted) | {"usd": pays.usd(predicted)},
        "moments": weather.moments,
        "told": told,
        "counters": {name: ran.counters.get(name, 0) for name in COUNTED},
        "gaps": ran.gaps,
        "losses_of_epochs": ran.losses,
    }
    asked.output.mkdir(parents=True, exist_ok=True)
    save_file(ran.weights, asked.output / "weights.safetensors")
    (asked.output / "replay.json").write_text(json.dumps(found))
    report(found)


def report(found: dict[str, Any]) -> None:
    predicted = found["predicted"]
    joins = sum(what == "joined" for _, _, what in found["moments"])
    print(
        f"{found['trace']} from {found['offset']:g} s on, {found['times']:g} times faster: {found['epochs']} epochs, "
        f"{found['losses']} machines lost, {joins} joined, {found['counters']}"
    )
    for name, unit in (("seconds", "s"), ("machine_seconds", "s of spot machines"), ("usd", "dollars")):
        real, expected = found[name], predicted[name]
        print(f"{real:.4g} {unit}, predicted {expected:.4g} ({real / expected - 1:+.1%})")


def check(store: str, directory: Path) -> None:
    """Train the same epochs undisturbed, in this process."""
    found = json.loads((directory / "replay.json").read_text())
    weights = load_file(directory / "weights.safetensors")
    quiet = kills.train(kills._trainer(store, found["epochs"]), None)
    report(found)
    same = all(torch.equal(weights[name], each) for name, each in quiet.weights.items())
    print(f"weights equal: {same}, losses equal: {quiet.losses == found['losses_of_epochs']}")


def main() -> None:
    parser = argparse.ArgumentParser()
    ways = parser.add_subparsers(dest="way", required=True)
    for name in ("measure", "replay", "check"):
        way = ways.add_parser(name)
        way.add_argument("store")
        if name == "check":
            way.add_argument("directory", type=Path)
            continue
        way.add_argument("--wait", type=float, default=0.2, help="seconds after each epoch")
        if name == "measure":
            way.add_argument("--kinds", nargs="+", choices=("machine", "two machines"), default=FIRST_KILLS)
        else:
            way.add_argument("trace")
            way.add_argument("--measured", type=Path, required=True)
            way.add_argument("--times", type=float, default=60.0)
            way.add_argument("--offset", type=float, default=0.0, help="seconds of the trace to begin at")
            way.add_argument("--epochs", type=int, default=500)
        way.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    if asked.way == "measure":
        measure(asked.store, asked.kinds, asked.wait, asked.output)
    elif asked.way == "replay":
        replay_really(asked)
    else:
        check(asked.store, asked.directory)


if __name__ == "__main__":
    main()
