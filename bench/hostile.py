"""Hostile messages at every ZeroMQ socket of a run: does the run notice, and does its memory stay flat?

    python bench/hostile.py [--messages 100000] [--only inbox-tcp,post-ipc] [--json]

A training runs twice: undisturbed, and while other processes send so many messages to one of its sockets. Two kinds of
attackers: a *stranger*, who has no key and opens a connection for every message; and a *member* gone bad, who holds keys of the
run and floods one connection. Every fifth message is of each kind: random bytes; a true message cut short; a true message
replayed; one forged in another's name; a huge one. At the end strangers hold 400 connections half open.

Needs a checkout with `pip install -e '.[dev]'`: servers of the cluster are forked as the tests do it.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tests' forked servers

import numpy as np
import torch
from attackers import Door, Frames
from tests.cluster.cluster_runs import train_on_crew
from tests.toys import toy_graph
from tests.training_runs import Trained, train_in_pipeline

from siafu import nn
from siafu.cluster.post import letters
from siafu.cluster.post.letters import Letter, Postmark
from siafu.cluster.post.member import Member
from siafu.cluster.post.requests import LogLine
from siafu.pipeline.ids import RUN, Address, ServerId
from siafu.runtime.lambdas import Lambdas
from siafu.serverless.function.payload import Payload
from siafu.serverless.platforms.invoker import Invocation, Invoker, Tell
from siafu.serverless.platforms.platform import LocalPlatform
from siafu.wire import messages as say
from siafu.wire.codec import encode
from siafu.wire.keys import Keys, make_keys

EPOCHS = 6
SOCKETS = ("inbox-tcp", "inbox-ipc", "post-tcp", "post-ipc")
_BAD = Address("graph", ServerId(99))


@dataclass(frozen=True)
class Row:
    """What came of one attack. MB are of the process that listens."""

    socket: str
    transport: str
    attacker: str
    messages: int
    seconds: float
    refused: int
    rss_before_mb: float
    rss_peak_mb: float
    rss_after_mb: float
    run_equal: bool


class Siege:
    """An attack by a process of its own, and the memory of the process that is attacked, which is this one."""

    def __init__(self, attacker: str, count: int) -> None:
        self._command = [sys.executable, str(Path(__file__).with_name("attackers.py")), attacker, str(count)]
        self._process: subprocess.Popen[str] | None = None
        self.before = self.peak = self.after = 0
        self.seconds = 0.0
        self.error: str | None = None

    def begin(self, door: Door) -> None:
        self.before = self.peak = resident_bytes()
        self._began = time.perf_counter()
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        self._process.stdin.write(door.text())
        self._process.stdin.close()
        self._watch = threading.Thread(target=self._sample, daemon=True)
        self._watch.start()

    def _sample(self) -> None:
        assert self._process is not None
        while self._process.poll() is None:
            time.sleep(0.02)
            self.peak = max(self.peak, resident_bytes())
        self.seconds = time.perf_counter() - self._began

    @property
    def has_begun(self) -> bool:
        return self._process is not None

    def end(self) -> None:
        """Wait until it is over."""
        assert self._process is not None
        self._watch.join()
        if self._process.returncode:
            self.error = f"the attacker ended with {self._process.returncode}"
        self.after = resident_bytes()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Lambdas: their inbox


class Watched:
    """An invoker that shows a Lambda's first payload to somebody else."""

    def __init__(self, inner: Invoker, show: Callable[[Payload], None]) -> None:
        self._inner, self._show = inner, show

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def invoke(self, invocation: Invocation, tell: Tell) -> None:
        self._show(Payload.of(json.loads(json.dumps(invocation.payload))))
        self._inner.invoke(invocation, tell)


class WatchedPlatform(LocalPlatform):
    """Local Lambdas, reached over TCP if `listen` says so, whose payloads leak."""

    def __init__(self, listen: str | None, show: Callable[[Payload], None]) -> None:
        super().__init__()
        object.__setattr__(self, "listen", listen)
        object.__setattr__(self, "_show", show)

    def __reduce__(self) -> Any:
        raise TypeError("it stays in this process")

    def invoker(self, slots: int, warm: int) -> Invoker:
        return Watched(super().invoker(slots, warm), self._show)  # type: ignore[attr-defined]


def door_of_inbox(payload: Payload) -> Door:
    near = payload.graph.address.startswith("ipc:")
    other = payload.invocation + 1
    rows = {"rows/0": np.zeros((3, 16))}
    own = [
        say.AskWeights(2**40, ("w",)),
        say.Credit(2**40, 1),
        say.TaskOutputPart(2**40, 0, rows),
        say.TaskEnd(2**40, 1, 1, {"loss": np.zeros(())}),
        say.TaskReturn(2**40, "why not"),
    ]
    forged = [
        say.Hello(payload.run, other, 0, ()),
        say.Hello("another run", payload.invocation, 0, ()),
        say.Welcome(1),
        say.TaskOffer(1, "0", "float64", 2**62, 2**62, 0, 0, 0, (), (), 0, (), (), {}),
        say.Refused("no, I refuse"),
        say.Leave(other),
    ]
    keys = payload.keys.public, payload.keys.secret
    return Door(
        payload.graph.address, None if near else payload.graph.key, keys, _encoded(own), _encoded(forged)
    )


def _encoded(messages: list[Any]) -> list[Frames]:
    return [[bytes(frame) for frame in encode(each)] for each in messages]


def train_on_lambdas(listen: str | None, siege: Siege | None) -> Trained:
    """A short training; the attack begins with its first Lambda and is over before its last epoch."""
    doors: list[Door] = []

    def show(payload: Payload) -> None:
        if not doors:
            doors.append(door_of_inbox(payload))

    ended = threading.Event()

    def after_epoch() -> None:
        if siege is None or not doors or ended.is_set():
            return
        if not siege.has_begun:
            siege.begin(doors[0])
        else:
            ended.set()
            siege.end()

    graph = toy_graph()
    torch.manual_seed(1)
    model = nn.GCN(graph.num_features, 8, 2, graph.num_classes, dropout=0.5).double()
    lambdas = Lambdas(2, WatchedPlatform(listen, show))
    return train_in_pipeline(
        graph,
        model,
        computed_by=lambdas,
        after_epoch=after_epoch,
        held=siege is not None,
        epochs=EPOCHS,
        servers=2,
        intervals=4,
    )


# A cluster: the driver's post


def train_on_cluster(*, apart: bool, siege: Siege | None, refused: list[int]) -> Any:
    keys = make_keys()

    def heard(trainer: Any, event: Any) -> None:
        if siege is None:
            return
        post = trainer.runtime._post
        if not siege.has_begun:
            siege.begin(door_of_post(post, keys, apart=apart))
        elif not refused:
            siege.end()
            refused.append(post.refusals.total())

    return train_on_crew(
        "gcn", heard=heard, crew={"apart": apart}, epochs=EPOCHS, mode="sync", lost_after=120.0
    )


def door_of_post(post: Any, keys: Keys, *, apart: bool) -> Door:
    """The driver's; the attacker is a graph server that it knows, and that has no part in the run."""
    here = post.member
    word = "a word that only servers know"
    post.meet([Member(_BAD, 1, here.machine, here.far, here.near, keys.public, word)])
    lines = [Letter(LogLine(_BAD, f"line {number}")) for number in range(3)]
    true = [letters.encode(Postmark(_BAD, 1, number), line) for number, line in enumerate(lines)]
    others = [
        Postmark(RUN, 1, 0),
        Postmark(Address("graph", ServerId(0)), 1, 0),
        Postmark(_BAD, 7, 0),
        Postmark(_BAD, 1, 2**40),
    ]
    forged = [letters.encode(stamp, lines[0]) for stamp in others]
    near = not apart
    proof = (keys.public, word) if near else (keys.public, keys.secret)
    plain = [[bytes(frame) for frame in each] for each in true]
    return Door(
        here.near if near else here.far,
        None if near else here.key,
        proof,
        plain,
        [[bytes(frame) for frame in each] for each in forged],
    )


# All of them


def measure(name: str, attacker: str, count: int, calm: dict[str, Any]) -> Row:
    socket_name, _, transport = name.partition("-")
    siege, refused = Siege(attacker, count), []
    if socket_name == "inbox":
        listen = "127.0.0.1" if transport == "tcp" else None
        if name not in calm:
            calm[name] = train_on_lambdas(listen, None)
        found: Any = train_on_lambdas(listen, siege)
        refused.append(found.counters["lambda"]["messages_refused"])
    else:
        if name not in calm:
            calm[name] = train_on_cluster(apart=transport == "tcp", siege=None, refused=[])
        found = train_on_cluster(apart=transport == "tcp", siege=siege, refused=refused)
    if siege.error is not None:
        raise SystemExit(f"{name}, {attacker}: {siege.error}")
    return Row(
        socket_name,
        "TCP with CURVE" if transport == "tcp" else "Unix socket",
        attacker,
        count,
        round(siege.seconds, 1),
        refused[-1],
        *(round(each / 1e6, 1) for each in (siege.before, siege.peak, siege.after)),
        equal(calm[name], found),
    )


def equal(calm: Any, found: Any) -> bool:
    """Whether losses and weights are the same to the bit."""
    return bool(
        calm.losses == found.losses
        and calm.weights.keys() == found.weights.keys()
        and all(torch.equal(each, found.weights[name]) for name, each in calm.weights.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--only", default=",".join(SOCKETS))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    calm: dict[str, Any] = {}
    if not asked.json:
        print(
            "| socket | transport | attacker | messages | seconds | refused | RSS before, MB | peak | after | run equal |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|")
    for name in asked.only.split(","):
        for attacker in ("stranger", "member"):
            row = measure(name, attacker, asked.messages, calm)
            told = asdict(row)
            line = json.dumps(told) if asked.json else "| " + " | ".join(map(str, told.values())) + " |"
            print(line, flush=True)


if __name__ == "__main__":
    main()
