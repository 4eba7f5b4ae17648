"""Real kills: a run whose servers are killed again and again, beside the same run undisturbed.

    python bench/kills.py --on processes|ray [--kills 40] [--redundancy 1 0 eager] [--store STORE] [--seconds S] [--seed N] [--json]
    python bench/kills.py --on ray --save DIR …, and later --check DIR …: the undisturbed run in this process, when there is time

`processes`: servers are forked processes of this machine, as the tests have them, on a small graph. `ray`: a Ray cluster of 4 nodes on
this machine, with networks of their own where that can be had, and STORE, such as `siafu generate reddit-small --scale 0.1 -o STORE`
writes. Every second epoch something is killed by SIGKILL, at a chosen moment of it (as it begins, in its middle, at its end) or at a random one: a graph
server, a weight server, a whole machine (another comes in its place), a server together with its warm copy; or a server is stopped by SIGSTOP
until it is given up. The driver cannot end that one, as if its machine could not be reached. It is woken after its replacement goes on, and the
driver must refuse what it then says.

A kill waits until all warm copies are there, and epochs go on slowly meanwhile. A pause is the time of the epoch with the kill, from one
record to the next (of both, if it was noticed in the one after), less the median of the first epochs, which are undisturbed. It may take detection, an epoch and half a second,
and where a server starts cold, 10 s more. Detection is a second for a process, and 3 s (with warm copies, and here on processes) or 10 s for a machine, and for one that is silent.
The same number of epochs is then trained without a kill. The last lines say what holds; the exit code is 1 where something does not.
"""

import argparse
import copy
import json
import os
import random
import re
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tests' forked servers and Ray nodes

import torch
from safetensors.torch import load_file, save_file
from tests.cluster.cluster_runs import trainer_on_crew
from tests.cluster.ray_nodes import RayNodes, ray_nodes

import siafu
from siafu.options import Options
from siafu.pipeline.ids import Address
from siafu.report.files.metrics import EpochMetrics
from siafu.runtime.happenings import Rewound
from siafu.training.placement import choose_partition
from siafu.training.records.checkpoint import Checkpoint
from siafu.training.trainer import Trainer

SERVERS, WEIGHT_SERVERS, MACHINES = 4, 2, 4
FIRST = 12  # epochs that are left alone
Redundancy = int | Literal["eager"]

KINDS = ("graph", "weight", "graph", "machine", "graph", "with copy", "stopped", "weight")
CHOSEN = (0.0, 0.5, 0.95)  # shares of an epoch; every third kill is at one of them
WAIT_SECONDS = 1.0  # that an epoch is held up while copies are missing
REFUSED_SECONDS = 30.0  # until something that a woken server says must have been refused
PROCESS_SECONDS, SILENT_SECONDS, WARM_SILENT_SECONDS = 1.0, 10.0, 3.0  # detection
SLACK_SECONDS, COLD_SECONDS = 0.5, 10.0


@dataclass
class Kill:
    """One kill: what, when, and what it came to.

    moment:    share of an undisturbed epoch that had gone by
    detection: the most seconds until it is noticed
    pause:     seconds that the epochs until it was told of took longer
    refused:   whether it was woken and refused; None: it was not to be woken
    """

    kind: str
    moment: float
    detection: float
    victims: list[str] = field(default_factory=list)
    pause: float = 0.0
    told: str = ""
    refused: bool | None = None

    @property
    def how(self) -> str:
        """Cold where any of the servers was."""
        replaced = self.told.count("and replaced")
        return "warm" if replaced and self.told.count("by a warm copy") == replaced else "cold"

    def most(self, epoch: float) -> float:
        """The longest pause that is allowed, with epochs of so many seconds."""
        return self.detection + epoch + SLACK_SECONDS + (COLD_SECONDS if self.how == "cold" else 0.0)


@dataclass
class Ran:
    weights: dict[str, torch.Tensor]
    losses: list[float]
    counters: dict[str, Any]
    gaps: list[float]


class Killer:
    """Kills as epochs end, in the run's own callback, which the next epoch waits for."""

    def __init__(
        self,
        kills: int,
        redundancy: Redundancy,
        take_away: Callable[[str], None],
        seed: int = 1,
        kinds: Sequence[str] = KINDS,
        silent: float = SILENT_SECONDS,
    ) -> None:
        """silent: seconds after which one that says nothing is given up"""
        source = random.Random(seed)
        kinds = [each for each in kinds if redundancy or each != "with copy"]
        self.kills = []
        for place in range(kills):
            kind, turn = kinds[(place + seed - 1) % len(kinds)], place // 3 + seed - 1
            moment = source.random() if place % 3 else CHOSEN[turn % len(CHOSEN)]
            detection = silent if kind in ("machine", "stopped") else PROCESS_SECONDS
            self.kills.append(Kill(kind, moment, detection))
        self._source, self._take_away = source, take_away
        self.epoch, self.here, self.seconds, self._since = 0.0, "", 0.0, 0.0
        self._next, self._running = 0, False
        self._stopped: list[tuple[Kill, Any]] = []
        self._waking: list[threading.Thread] = []

    def __call__(self, runtime: Any, gaps: list[float]) -> bool:
        """An epoch has ended: begin the next kill, if all is whole; whether all is over."""
        if self._running:
            kill = self.kills[self._next - 1]
            kill.pause += gaps[-1] - self.epoch
            self._running = not kill.told
            if not self._running:
                say(f"kill {self._next}, {kill.kind}: {kill.pause:.2f} s, {kill.told}")
        if len(gaps) < FIRST or self._running:
            return False
        if not self.epoch:
            self.epoch, self._since = statistics.median(gaps[2:]), time.monotonic()
        if not runtime.seats.wait(WAIT_SECONDS) or any(each.is_alive() for each in self._waking):
            return False
        if self._next == len(self.kills) or time.monotonic() > self._since + self.seconds:
            return True
        kill = self.kills[self._next]
        self._next += 1
        self._running = True
        threading.Thread(target=self._kill, args=(runtime, kill), daemon=True).start()
        return False

    def _kill(self, runtime: Any, kill: Kill) -> None:
        time.sleep(kill.moment * self.epoch)
        role = kill.kind if kill.kind in ("graph", "weight") else "graph"
        chosen: Address = self._source.choice([each for each in runtime.servers if each.role == role])
        server = runtime.servers[chosen]
        kill.victims = [str(chosen)]
        if kill.kind == "machine":
            machine = self._machine(runtime)
            kill.victims = [str(each) for each, at in runtime.servers.items() if at.machine == machine]
            self._take_away(machine)
            return
        if kill.kind == "with copy":
            for seat in runtime.seats._seats[chosen]:
                os.kill(_process(seat), signal.SIGKILL)
        if kill.kind == "stopped":
            server.kill = lambda: None
            if hasattr(server, "out_of_reach"):
                server.out_of_reach = True
            self._stopped.append((kill, server))
        os.kill(_process(server), signal.SIGSTOP if kill.kind == "stopped" else signal.SIGKILL)

    def _machine(self, runtime: Any) -> str:
        """A machine with a graph server, but not the driver's."""
        found = {each.machine for address, each in runtime.servers.items() if address.role == "graph"}
        return self._source.choice(sorted(found - {self.here}))

    def heard(self, runtime: Any, event: Any) -> None:
        if isinstance(event, Rewound) and self._next and "was lost" in event.lost:
            kill = self.kills[self._next - 1]
            kill.told = f"{kill.told}; {event.lost}" if kill.told else event.lost
            for stopped in self._stopped:
                self._waking.append(
                    threading.Thread(target=self._wake, args=(runtime, *stopped), daemon=True)
                )
                self._waking[-1].start()
            self._stopped.clear()

    def _wake(self, runtime: Any, kill: Kill, server: Any) -> None:
        """Let a replaced server go on; it must be refused."""
        before, deadline = runtime.refusals.total(), time.monotonic() + REFUSED_SECONDS
        os.kill(_process(server), signal.SIGCONT)
        while runtime.refusals.total() == before and time.monotonic() < deadline:
            time.sleep(0.05)
        kill.refused = runtime.refusals.total() > before
        with suppress(ProcessLookupError):
            os.kill(_process(server), signal.SIGKILL)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _process(of: Any) -> int:
    return int(re.findall(r"process (\d+)", of.where)[0])


def train(trainer: Trainer, killer: Killer | None) -> Ran:
    """Train to the end; the times between records, and what the kills came to."""
    gaps, began = [], [0.0]

    def ended(end: Any) -> None:
        now = time.monotonic()
        gaps.append(now - began[0])
        if killer is not None and killer(trainer._runtime, gaps):
            end.stop()
        began[0] = time.monotonic()

    trainer._pace = trainer._paced([ended])
    for line in trainer.prepare()[0]:
        say(line)
    saved = []
    began[0] = time.monotonic()
    with closing(trainer.run()) as events:
        for event in events:
            if isinstance(event, Checkpoint):
                saved.append(event)
            if killer is not None:
                killer.heard(trainer._runtime, event)
    weights = {name: each for name, each in saved[-1].tensors.items() if name.startswith("model.")}
    losses = [each.train_loss for each in trainer.history if isinstance(each, EpochMetrics)]
    return Ran(weights, losses, trainer.counters(), gaps)


def settings(epochs: int, **more: Any) -> dict[str, Any]:
    return {
        "servers": SERVERS,
        "weight_servers": WEIGHT_SERVERS,
        "intervals": 3,
        "epochs": epochs,
        "evaluate_every": 3,
        "seed": 7,
        "lr": 0.02,
        **more,
    }


def on_processes(
    epochs: int, redundancy: Redundancy, killer: Callable[[Callable[[str], None]], Killer | None]
) -> Ran:
    """A run on forked processes; killer: makes one, with what takes a machine away."""
    names = [f"machine {each}" for each in range(MACHINES)]
    # Warm copies make 3 s of silence a loss; here without them, too.
    trainer = trainer_on_crew(
        "gcn",
        **{key: value for key, value in settings(epochs).items() if key not in ("seed", "lr")},
        redundancy=redundancy,
        lost_after=3.0,
        crew={"names": names},
    )

    def take_away(machine: str) -> None:
        trainer.crew.take_away(machine)
        trainer.crew.names.append(f"{machine}'")

    try:
        return train(trainer, killer(take_away))
    finally:
        trainer.crew.end_all()


def on_ray(
    nodes: RayNodes,
    store: str,
    epochs: int,
    redundancy: Redundancy,
    killer: Callable[[Callable[[str], None]], Killer | None],
) -> Ran:
    trainer = _trainer(store, epochs, cluster=nodes.address, redundancy=redundancy)

    def take_away(node: str) -> None:
        nodes.take_away(node)
        threading.Thread(target=nodes.add, daemon=True).start()

    import ray

    made = killer(take_away)
    if made is not None:
        made.here = ray.get_runtime_context().get_node_id()
    return train(trainer, made)


def _trainer(store: str, epochs: int, evaluate_every: int = 3, **where: Any) -> Trainer:
    graph = siafu.load(store)
    torch.manual_seed(0)
    model = siafu.nn.GCN(graph.num_features, 64, 2, graph.num_classes)
    partition = choose_partition(graph, SERVERS, "hash")
    return Trainer(
        graph,
        copy.deepcopy(model),
        Options(**settings(epochs, evaluate_every=evaluate_every)),
        partition,
        **where,
    )


@contextmanager
def runner(asked: argparse.Namespace) -> Iterator[Callable[..., Ran]]:
    if asked.on == "processes":
        yield on_processes
        return
    with ray_nodes(MACHINES, spares=asked.kills // 4 + 2) as nodes:
        yield lambda *arguments: on_ray(nodes, asked.store, *arguments)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--on", choices=("processes", "ray"), default="processes")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument(
        "--redundancy",
        type=lambda given: given if given == "eager" else int(given),
        nargs="+",
        default=[1],
        help="several: one run after the other",
    )
    parser.add_argument("--store")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no kill after so many")
    parser.add_argument("--seed", type=int, default=1, help="of what is killed, and when")
    parser.add_argument("--kinds", nargs="+", choices=sorted(set(KINDS)), default=KINDS, help="in turn")
    parser.add_argument("--save", type=Path, help="keep the run with kills there, and run no undisturbed one")
    parser.add_argument("--check", type=Path, help="train undisturbed in this process, beside what is kept")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.check is not None:
        check(asked)
        return
    with runner(asked) as run:
        for redundancy in asked.redundancy:
            compare(asked, redundancy, run)


def compare(asked: argparse.Namespace, redundancy: Redundancy, run: Callable[..., Ran]) -> None:
    """A run with kills, and one without of as many epochs."""
    made: list[Killer] = []

    def killer(take_away: Callable[[str], None]) -> Killer:
        silent = WARM_SILENT_SECONDS if redundancy or asked.on == "processes" else SILENT_SECONDS
        made.append(Killer(asked.kills, redundancy, take_away, asked.seed, asked.kinds, silent))
        made[0].seconds = asked.seconds
        return made[0]

    disturbed = run(10**6, redundancy, killer)
    if asked.save is not None:
        asked.save.mkdir(parents=True, exist_ok=True)
        save_file(disturbed.weights, asked.save / "weights.safetensors")
        told = {"kills": [vars(each) for each in made[0].kills], "epoch": made[0].epoch}
        rest = {name: value for name, value in vars(disturbed).items() if name != "weights"}
        (asked.save / "run.json").write_text(json.dumps(told | rest, default=str))
        return
    quiet = run(len(disturbed.gaps), 0, lambda take_away: None)
    report(asked, quiet, disturbed, made[0])


def check(asked: argparse.Namespace) -> None:
    """The undisturbed run of one that was kept."""
    kept = json.loads((asked.check / "run.json").read_text())
    disturbed = Ran(
        load_file(asked.check / "weights.safetensors"), kept["losses"], kept["counters"], kept["gaps"]
    )
    killer = Killer(0, 0, lambda machine: None)
    killer.kills, killer.epoch = [Kill(**each) for each in kept["kills"]], kept["epoch"]
    report(asked, train(_trainer(asked.store, len(disturbed.gaps)), None), disturbed, killer)


def report(asked: argparse.Namespace, quiet: Ran, ran: Ran, killer: Killer) -> None:
    kills, epoch = [each for each in killer.kills if each.victims], killer.epoch
    counted = (
        "servers_lost",
        "epochs_lost",
        "servers_moved",
        "rows_compared",
        "rows_differ",
        "tasks_done_ahead",
    )
    found = {
        "epochs": len(ran.losses),
        "epoch_seconds": epoch,
        "epoch_seconds_without_copies": statistics.median(quiet.gaps[2:]),
        **{name: ran.counters.get(name, 0) for name in counted},
        "kills": [vars(each) | {"how": each.how, "most": each.most(epoch)} for each in kills],
        "holds": holds(quiet, ran, kills, epoch),
    }
    print(json.dumps(found, indent=1) if asked.json else _lines(found, kills, epoch))
    if not all(found["holds"].values()):
        sys.exit(1)


def holds(quiet: Ran, ran: Ran, kills: Sequence[Kill], epoch: float) -> dict[str, bool]:
    """What must be so, and whether it is."""
    return {
        "every kill was noticed and mended": bool(kills) and all(each.told for each in kills),
        "weights equal those of the undisturbed run, bit for bit": all(
            torch.equal(quiet.weights[name], ran.weights[name]) for name in quiet.weights
        ),
        "losses equal those of the undisturbed run": quiet.losses == ran.losses,
        "no epoch is lost": ran.counters["epochs_lost"] == 0,
        "rows that came twice do not differ": ran.counters.get("rows_differ", 0) == 0,
        "every pause is within its bound": all(each.pause <= each.most(epoch) for each in kills),
        "every server that woke after it was replaced was refused": all(
            each.refused for each in kills if each.kind == "stopped"
        ),
    }


def _lines(found: dict[str, Any], kills: Sequence[Kill], epoch: float) -> str:
    told = ", ".join(f"{name} {value}" for name, value in found.items() if name not in ("kills", "holds"))
    head = f"{'kind':10} {'how':5} {'kills':>5} {'median pause, s':>16} {'longest, s':>11} {'bound, s':>9} {'within':>7}"
    lines = [told, head]
    for kind in dict.fromkeys(each.kind for each in kills):
        for how in ("warm", "cold"):
            these = [each for each in kills if each.kind == kind and each.how == how]
            if these:
                paused, most = [each.pause for each in these], these[0].most(epoch)
                within = sum(each <= most for each in paused)
                lines.append(
                    f"{kind:10} {how:5} {len(these):5} {statistics.median(paused):16.2f} {max(paused):11.2f} "
                    f"{most:9.2f} {within:7}"
                )
    return "\n".join([*lines, *(f"{'yes' if so else 'NO':3} {what}" for what, so in found["holds"].items())])


if __name__ == "__main__":
    main()
