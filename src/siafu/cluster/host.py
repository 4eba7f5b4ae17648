"""Host: one server of a cluster: its machine, its letters, and what both ask of it."""

import json
import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.cluster.letters import Letter
from siafu.cluster.member import Member
from siafu.cluster.post import Post
from siafu.cluster.requests import (
    Alive,
    Failed,
    Leaving,
    LogLine,
    Replaced,
    Report,
    ReportWanted,
    Unreachable,
)
from siafu.cluster.spot import SpotNotice, SpotWatch
from siafu.pipeline.events import Begin, Event
from siafu.pipeline.ids import RUN, Address, Incarnation
from siafu.pipeline.instructions import Instruction
from siafu.wire.tensors import Array

DRIVER_SILENT_SECONDS = 60.0
"""A server that hears nothing of the driver for so long ends: nobody waits for it."""

_NOTHING = Letter(Alive(Incarnation(-1)))


class Machine(Protocol):
    incarnation: Incarnation

    def handle(self, event: Event) -> list[Instruction]: ...


class Host(ABC):
    """A server that lives until it is told to stop, fails, or is left alone by the driver.

    The machine is used by one thread at a time: the post's, or one that has a result.

    alone_after: seconds without a word from the driver until it ends
    """

    def __init__(
        self, address: Address, life: int, machine: str, *, alone_after: float = DRIVER_SILENT_SECONDS
    ) -> None:
        self.address, self._alone_after = address, alone_after
        self.post = Post(address, life, machine, self._hear, self.fail, self._stuck)
        self._machine: Machine | None = None
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Event, Letter]] = deque()
        self._ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._spot = SpotWatch(self._leave)
        self._log = logging.getLogger(f"siafu.{address.role}-{address.index}")

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(-1) if self._machine is None else self._machine.incarnation

    def start(self, machine: Machine, members: Iterable[Member]) -> None:
        """Be a server: from now on letters are heard."""
        self._machine = machine
        self.post.meet(members)
        self.post.start()
        self._spot.start()
        self.say(f"started, life {self.post.member.life}, {self.post.member.far}")

    def wait(self) -> None:
        """Until it is over: told to stop, or failed, or alone."""
        while True:
            try:
                ended = self._ended.get(timeout=1.0)
            except queue.Empty:
                if self.post.silence(RUN) < self._alone_after:
                    continue
                ended = None
            self.close()
            if ended is not None:
                raise ended
            return

    def stop(self) -> None:
        """End, once what was said is heard."""
        self._ended.put(None)

    def close(self) -> None:
        self._spot.stop()
        self.post.stop(1.0)

    def _leave(self, notice: SpotNotice) -> None:
        why = f"AWS will {notice.action} its machine at {notice.time}"
        self.send(RUN, Leaving(self.incarnation, self.address, why))

    def fail(self, error: BaseException) -> None:
        """It cannot go on: tell the driver."""
        given = isinstance(error, BadInput)
        why = " ".join(f"{type(error).__name__}: {error}".split())[:2000]
        self.send(RUN, Failed(self.incarnation, self.address, str(error) if given else why, given))
        self._ended.put(error)

    def say(self, text: str) -> None:
        """A line for the run's directory."""
        self.send(RUN, LogLine(self.incarnation, self.address, text))

    def send(
        self, to: Address, event: Event, tensors: Mapping[str, Array] | None = None, *places: int
    ) -> None:
        self.post.send(to, Letter(event, tensors or {}, places))

    # What comes

    def _hear(self, sender: Address, letter: Letter) -> None:
        match letter.event:
            case Alive():
                pass
            case Replaced() as replaced:
                self.post.meet([replaced.member])
            case ReportWanted() as wanted:
                self._answer(wanted)
            case Begin() as begin:
                self._begin(begin, letter)
            case event:
                self._heard(sender, event, letter)

    def _answer(self, wanted: ReportWanted) -> None:
        with self._lock:
            counters, tensors = self._report(wanted)
        said = Report(self.incarnation, wanted.number, self.address, json.dumps(counters))
        self.send(RUN, said, tensors)

    def _begin(self, begin: Begin, letter: Letter) -> None:
        self.say(f"incarnation {begin.incarnation} begins after epoch {begin.start.epoch}")
        self.deliver(begin, letter)

    def _heard(self, sender: Address, event: Event, letter: Letter) -> None:
        self.deliver(event, letter)

    def deliver(self, event: Event, letter: Letter = _NOTHING) -> None:
        """Give an event to the machine, and do what it says, until nothing follows from it."""
        assert self._machine is not None
        with self._lock:
            self._waiting.append((event, letter))
            while self._waiting:
                first, came = self._waiting.popleft()
                for instruction in self._machine.handle(first):
                    self._obey(instruction, came)

    def _stuck(self, member: Member, seconds: float) -> None:
        if member.address != RUN:
            self.send(RUN, Unreachable(self.incarnation, self.address, member.address, member.life, seconds))

    @abstractmethod
    def _obey(self, what: Instruction, came: Letter) -> None:
        """Do what the machine says. The lock is held."""

    @abstractmethod
    def _report(self, wanted: ReportWanted) -> tuple[dict[str, Any], dict[str, Array]]:
        """Counters of this incarnation, and tensors."""


def arrays(tensors: Mapping[str, Tensor], prefix: str = "") -> dict[str, Array]:
    """Tensors as the wire carries them."""
    return {prefix + name: each.detach().contiguous().numpy() for name, each in tensors.items()}


def tensors_of(came: Mapping[str, Array], prefix: str = "") -> dict[str, Tensor]:
    """What came, as tensors of our own."""
    return {
        name.removeprefix(prefix): torch.from_numpy(np.array(each))
        for name, each in came.items()
        if name.startswith(prefix)
    }
