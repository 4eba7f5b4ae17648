"""Host: drives one machine of the pipeline: it receives letters, gives the machine its events, and obeys its instructions."""

import json
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from siafu.pipeline.events import Event
from siafu.pipeline.ids import RUN, Address, Incarnation
from siafu.pipeline.instructions import Instruction
from siafu.pipeline.stamp import Fences, Stamp
from siafu.runtime.letter import Letter
from siafu.runtime.post import Post
from siafu.runtime.requests import Report, ReportWanted

_NOTHING = Letter(Event())
_BUSY_SECONDS = 1.0  # to wait for a host that is at an event when somebody asks what it waits for


Watch = Callable[[Address, Event | Instruction], None]


def unwatched(address: Address, what: Event | Instruction) -> None:
    """Ignore it."""


class StateMachine(Protocol):
    """A state machine of the pipeline: events in, instructions out."""

    @property
    def fences(self) -> Fences: ...

    def handle(self, event: Event) -> list[Instruction]: ...
    def waiting(self) -> list[str]: ...


class Host(ABC):
    """Obeys one machine's instructions. Any thread may call; one thread at a time uses the machine.

    lock:   held while the machine is used and its instructions are obeyed
    events: number of events that the machine has handled
    watch:  called with every event and instruction, before it is handled
    """

    def __init__(self, address: Address, machine: StateMachine, post: Post, watch: Watch = unwatched) -> None:
        self.address, self.post, self._watch = address, post, watch
        self.lock = threading.RLock()
        self._machine = machine
        self._waiting: deque[tuple[Event, Letter, Stamp | None]] = deque()
        self._working = False
        self.events = 0

    @property
    def incarnation(self) -> Incarnation:
        return self._machine.fences.incarnation

    def hear(self, sender: Address, letter: Letter) -> None:
        """Take a letter, unless it is void."""
        with self.lock:
            if self._is_void(letter.event, letter.stamp):
                return
            self._take(letter)
        self._pass_on(letter)

    def _is_void(self, event: Event, stamp: Stamp | None) -> bool:
        """Whether an event is of another incarnation, or from or for an earlier life. The lock is held."""
        fences = self._machine.fences
        if stamp is None or not fences.is_void(stamp, event):
            return False
        fences.voided += 1
        return True

    @abstractmethod
    def _take(self, letter: Letter) -> None:
        """Keep what came beside an event. The lock is held."""

    @abstractmethod
    def _pass_on(self, letter: Letter) -> None:
        """Answer a letter, or give its event to the machine."""

    def send(
        self,
        to: Address,
        event: Event,
        tensors: dict[str, Any] | None = None,
        places: tuple[int, ...] = (),
    ) -> None:
        """Hand a letter to the post."""
        stamp = self._machine.fences.stamp(to)
        self.post.send(to, Letter(event, tensors or {}, places, stamp=stamp))

    def deliver(self, event: Event, letter: Letter = _NOTHING, stamp: Stamp | None = None) -> None:
        """Give an event to the machine, and obey its instructions; events that follow come after it.

        stamp: of an event that no letter brought; None: it is never void
        """
        with self.lock:
            self._waiting.append((event, letter, stamp or letter.stamp))
            if self._working:
                return
            self._working = True
            try:
                while self._waiting:
                    first, came, stamped = self._waiting.popleft()
                    if self._is_void(first, stamped):
                        continue
                    self.events += 1
                    self._watch(self.address, first)
                    for instruction in self._machine.handle(first):
                        self._watch(self.address, instruction)
                        self._obey(instruction, came)
            finally:
                self._working = False
        self.post.flush()

    def waiting(self) -> list[str]:
        """Events that the machine or the host waits for, in words."""
        if not self.lock.acquire(timeout=_BUSY_SECONDS):
            return [f"{self.address}: is at an event for more than {_BUSY_SECONDS:.0f} s"]
        try:
            return self._machine.waiting() + self._own_waiting()
        finally:
            self.lock.release()

    def _own_waiting(self) -> list[str]:
        """Waits of the host that the machine does not know of. The lock is held."""
        return []

    def answer(self, wanted: ReportWanted) -> None:
        """Send the counters to the run."""
        with self.lock:
            counters, tensors = self._report(wanted)
        said = Report(wanted.number, self.address, json.dumps(counters))
        self.send(RUN, said, tensors)
        self.post.flush()

    @abstractmethod
    def _obey(self, what: Instruction, came: Letter) -> None:
        """Obey an instruction that followed from a letter. The lock is held."""

    def _report(self, wanted: ReportWanted) -> tuple[dict[str, Any], dict[str, Any]]:
        """Counters of this incarnation, and tensors."""
        raise NotImplementedError(f"{self.address} has nothing to report")
