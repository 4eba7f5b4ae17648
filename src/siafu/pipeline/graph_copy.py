"""GraphCopy: the machine of an eager copy, which runs a graph server's forward tasks in time that would be idle."""

from collections.abc import Callable
from typing import Any

from siafu.pipeline.ahead import Ahead
from siafu.pipeline.events import Begin, Event, Ready, RowsArrived, RunAhead, TaskDone
from siafu.pipeline.ids import FIRST_LIFE, RUN, Address, Anchor, Epoch, Life, ServerId
from siafu.pipeline.instructions import Abandon, Instruction, KeepResult, KeepRows, Send
from siafu.pipeline.setup import Setup
from siafu.pipeline.stamp import Fences
from siafu.pipeline.track import Track


class GraphCopy:
    """An eager copy of one graph server.

    It gets the rows that its server gets and runs the same forward tasks with the same weights, so that it can begin with
    their results if it takes the server's place. It sends nothing but `Ready`, and nobody waits for it: what it lacks is
    not done when the epoch ends, and then it begins the next.

    duplicates: events that had come before, or came too late to matter
    """

    def __init__(self, setup: Setup, server: ServerId, life: Life = FIRST_LIFE) -> None:
        self.setup = setup
        self.server = server
        self.address = Address("copy", server)
        self.fences = Fences(self.address, life)
        self.duplicates = 0
        self._at: Anchor | None = None
        self._track: Track | None = None
        self._handlers: dict[type[Event], Callable[[Any, list[Instruction]], None]] = {
            Begin: self._begin,
            RunAhead: self._run_ahead,
            RowsArrived: self._rows_arrived,
            TaskDone: self._task_done,
        }

    def handle(self, event: Event) -> list[Instruction]:
        out: list[Instruction] = []
        self._handlers[type(event)](event, out)
        return out

    def is_early(self, event: RowsArrived | RunAhead) -> bool:
        """Whether an event is of an epoch after its own. Rows must wait then: tasks may read those of the epoch before."""
        return event.epoch > self._epoch

    @property
    def ahead(self) -> Ahead | None:
        """Tasks done of its epoch; None: nothing yet."""
        return None if self._track is None or self._at is None else self._track.ahead(self._at)

    def waiting(self) -> list[str]:
        """Pending work and its causes, in words; epochs are counted from 1."""
        return [] if self._track is None else [f"{self.address}: {line}" for line in self._track.waiting()]

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself. Tests call it after every event."""
        if self._track is not None:
            self._track.validate()

    @property
    def _epoch(self) -> int:
        return -1 if self._at is None else self._at.epoch

    def _begin(self, event: Begin, out: list[Instruction]) -> None:
        self.fences.begin(event.incarnation, event.lives)
        self._at = self._track = None
        out += [Abandon(), Send(RUN, Ready(self.address))]

    def _run_ahead(self, event: RunAhead, out: list[Instruction]) -> None:
        forward = self.setup.ahead
        if forward is None or event.epoch <= self._epoch:
            self.duplicates += 1
            return
        own = self.setup.layout.owned(self.server)
        self._at = Anchor(event.epoch, event.version)
        self._track = Track("train", forward, self.setup.layout, own, event.epoch, self._oldest_read)
        out.append(Abandon())
        for interval in own:
            self._track.enter(interval, event.epoch, event.version, ServerId(0), out)

    def _oldest_read(self, epoch: Epoch) -> int:
        return epoch

    def _rows_arrived(self, event: RowsArrived, out: list[Instruction]) -> None:
        found: list[Instruction] = []
        track, here = self._track, event.epoch == self._epoch
        if track is None or not here or not track.take_rows(event.stage, event.interval, event.epoch, found):
            self.duplicates += 1
            return
        out += [KeepRows(event.lane, event.epoch, event.stage, event.interval), *found]

    def _task_done(self, event: TaskDone, out: list[Instruction]) -> None:
        if self._track is None or not self._track.is_running(event.task):
            self.duplicates += 1
            return
        out.append(KeepResult(event.task))
        self._track.finish(event.task, out)
