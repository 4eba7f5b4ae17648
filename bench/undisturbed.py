"""Overhead of surviving losses while nothing is lost: closed epochs and warm copies, beside epochs that do not close.

    python bench/undisturbed.py virtual [--json]                    # 4 × c5n.2xlarge in virtual time
    python bench/undisturbed.py ray STORE [--rounds 5] [--epochs 20] [--seconds S] [--json]

`open`: an interval enters the next epoch as soon as it has the next weights; the run hears of the epoch's end beside that. After a loss such
a run would have to go back to a checkpoint. `closed`: as `siafu train` does. `copies`: closed, with `--redundancy 1`.

`virtual`: the pipeline's own machines. In `open` the state of weights and optimizer does not travel. A warm copy waits for a call: it gets no
letter and runs no task, so `copies` is `closed` there, and has no line.

`ray`: a Ray cluster of 4 nodes on this machine, 4 graph servers and 1 weight server with a warm copy each, one run. Blocks of epochs take turns:
the run's machine is told to close epochs or not, and copies are stopped by SIGSTOP but in the blocks that are to have them. The best block of
each kind counts. CPU seconds are those of the driver and the servers, in `copies` with the copies' own. Weights and their state travel to the
run in all three kinds.
"""

import argparse
import itertools
import json
import os
import signal
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # this folder's other files, and the tests' Ray nodes

KINDS = ("open", "closed", "copies")
TRAININGS = (
    ("reddit-small", "gcn", 128, 2),
    ("reddit-small", "gat", 128, 2),
    ("products", "gcn", 128, 3),
    ("products", "sage", 128, 3),
)
FIRST = 3  # epochs of a block that do not count: the ones before are still under way


def in_virtual_time() -> list[dict[str, Any]]:
    """Seconds of an epoch on 4 × c5n.2xlarge, closed and not."""
    from siafu.bench.spot import SpotSetting
    from siafu.pipeline.run_machine.run import RunMachine
    from siafu.virtual import virtual_post, virtual_run
    from siafu.virtual.virtual import simulate

    class OpenRun(RunMachine):
        _most_open = 2  # type: ignore[assignment]

    state_sizes, found = virtual_post._STATE_SIZES, []
    for dataset, model, hidden, layers in TRAININGS:
        offer, estimates = SpotSetting(dataset, model, hidden, layers).offer()
        fleet = offer.setup.fleet
        told: dict[str, Any] = {"dataset": dataset, "model": f"{model}, {layers} × {hidden}"}
        for mode, closes in itertools.product(("pipe", "sync"), (False, True)):
            virtual_run.RunMachine = RunMachine if closes else OpenRun  # type: ignore[misc]
            virtual_post._STATE_SIZES = state_sizes if closes else 0
            ran = simulate(
                estimates.request.shape,
                estimates.workload_for(offer.setup),
                estimates.machine(fleet.rental.instance),
                servers=fleet.servers,
                mode=mode,  # type: ignore[arg-type]
                epochs=6,
            )
            told[f"{mode} {'closed' if closes else 'open'}"] = ran.seconds_per_epoch
        found.append(told)
    return found


class Blocks:
    """Blocks of epochs in turn, each kind as often as the others."""

    def __init__(self, trainer: Any, epochs: int, rounds: int, seconds: float) -> None:
        self._trainer, self._epochs = trainer, epochs
        self._order = [kind for each in range(rounds) for kind in (KINDS, KINDS[::-1])[each % 2]]
        self._end = time.monotonic() + seconds
        self._ended, self._place = 0, -1
        self._since, self._cpu, self._cpu_copies = 0.0, 0.0, 0.0
        self.found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        self.copies_cpu: list[float] = []

    def epoch_ended(self) -> bool:
        """An epoch is recorded: go on to the next block where this was its last; whether all are done."""
        now, within = time.monotonic(), self._ended % (self._epochs + FIRST)
        self._ended += 1
        if within == FIRST - 1 and self._place >= 0:
            self._since, self._cpu = now, self._cpu_seconds(self._kind)
            self._cpu_copies = sum(map(_cpu, self._copies))
        if within != self._epochs + FIRST - 1:
            return False
        if self._place >= 0:
            spent = self._cpu_seconds(self._kind) - self._cpu
            self.found[self._kind].append(((now - self._since) / self._epochs, spent / self._epochs))
            if self._kind == "copies":
                copies = sum(map(_cpu, self._copies)) - self._cpu_copies
                self.copies_cpu.append(copies / (now - self._since) / len(self._copies))
        self._place += 1
        if self._place == len(self._order) or now > self._end:
            self._signal(signal.SIGCONT)
            return True
        self._trainer._runtime._run._run.most_open = 2 if self._kind == "open" else 1
        self._signal(signal.SIGCONT if self._kind == "copies" else signal.SIGSTOP)
        return False

    @property
    def _kind(self) -> str:
        return self._order[self._place]

    @property
    def _copies(self) -> list[int]:
        from bench.kills import _process

        return [_process(each) for seats in self._trainer._runtime.seats._seats.values() for each in seats]

    def _signal(self, number: int) -> None:
        for process in self._copies:
            os.kill(process, number)

    def _cpu_seconds(self, kind: str) -> float:
        from bench.kills import _process

        own = [os.getpid(), *map(_process, self._trainer._runtime.servers.values())]
        return sum(map(_cpu, own + (self._copies if kind == "copies" else [])))


def _cpu(process: int) -> float:
    """Seconds that a process has computed."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def on_ray(store: str, rounds: int, epochs: int, seconds: float) -> dict[str, Any]:
    from tests.cluster.ray_nodes import ray_nodes

    from bench import kills
    from siafu.pipeline.run_machine.run import RunMachine
    from siafu.training import trainer as training

    class SwitchedRun(RunMachine):
        """Closes epochs or not, as it is told."""

        most_open = 1

        @property
        def _most_open(self) -> int:
            return self.most_open

    training.RunMachine = SwitchedRun  # type: ignore[misc]
    kills.WEIGHT_SERVERS = 1
    with ray_nodes(kills.MACHINES, spares=0) as nodes:
        trainer = kills._trainer(store, 10**6, evaluate_every=10**6, cluster=nodes.address, redundancy=1)
        for line in trainer.prepare()[0]:
            kills.say(line)
        blocks = Blocks(trainer, epochs, rounds, seconds)
        copies = len(blocks._copies)
        with closing(trainer.run()) as events:
            for event in events:
                if isinstance(event, kills.EpochMetrics) and blocks.epoch_ended():
                    break
        return {
            "store": Path(store).name,
            "epochs_of_a_block": epochs,
            "blocks": {kind: len(each) for kind, each in blocks.found.items()},
            "seconds": {kind: [each[0] for each in found] for kind, found in blocks.found.items()},
            "cpu_seconds": {kind: [each[1] for each in found] for kind, found in blocks.found.items()},
            "copies": copies,
            "cpu_share_of_a_copy": statistics.median(blocks.copies_cpu),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("where", choices=("virtual", "ray"))
    parser.add_argument("store", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20, help="of a block that count")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no block after so many")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.where == "ray" and asked.store is None:
        parser.error("give the STORE to train on")
    if asked.where == "virtual":
        rows = in_virtual_time()
        print(json.dumps(rows) if asked.json else "\n".join(map(_virtual_line, rows)))
        return
    found = on_ray(asked.store, asked.rounds, asked.epochs, asked.seconds)
    print(json.dumps(found) if asked.json else _ray_lines(found))


def _virtual_line(row: dict[str, Any]) -> str:
    modes = (
        f"{mode} {row[f'{mode} open'] * 1e3:.1f} ms open, {row[f'{mode} closed'] * 1e3:.1f} ms closed "
        f"({_more(row[f'{mode} closed'], row[f'{mode} open'])})"
        for mode in ("pipe", "sync")
    )
    return f"{row['dataset']:13} {row['model']:14} " + "; ".join(modes)


def _ray_lines(found: dict[str, Any]) -> str:
    lines = [f"{found['store']}: {found['blocks']} blocks of {found['epochs_of_a_block']} epochs"]
    for what in ("seconds", "cpu_seconds"):
        best = {kind: min(each) for kind, each in found[what].items() if each}
        middle = {kind: statistics.median(each) for kind, each in found[what].items() if each}
        lines += [
            f"{what:12} {kind:7} best {best[kind] * 1e3:7.2f} ms ({_more(best[kind], best['open'])}), "
            f"median {middle[kind] * 1e3:7.2f} ms ({_more(middle[kind], middle['open'])})"
            for kind in best
        ]
    lines.append(f"{found['copies']} copies, each of which used {found['cpu_share_of_a_copy']:.2%} of a core")
    return "\n".join(lines)


def _more(ours: float, others: float) -> str:
    return f"{ours / others - 1:+.1%}"


if __name__ == "__main__":
    main()
