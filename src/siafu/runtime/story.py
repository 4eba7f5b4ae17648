"""Story: a bounded log of the events and instructions of a run's machines, in order.

An entry costs a reading of the clock and an append. Its words are made when it is read.
"""

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from siafu.base.activity import About
from siafu.pipeline.events import Event
from siafu.pipeline.ids import Address
from siafu.pipeline.instructions import Instruction, Send
from siafu.pipeline.task import Task
from siafu.runtime.story_words import said

MOST_ENTRIES = 10_000
LONGEST_TEXT = 500
_TRIES = 10
_now = time.time  # found once: every event and every instruction is noted


class _OfLambdas(NamedTuple):
    """An event or instruction of the controller of Lambdas, and the task that it is about."""

    what: Any
    about: About | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One event or instruction.

    time:       seconds since 1970
    at:         the machine of the event or instruction: "graph server 0", "run", "Lambdas"
    what:       the event's or instruction's name
    text:       the same in words
    epoch:      counted from 1; None: of none
    interval, stage: None: of none
    to:         the other server, if it is about two
    invocation: the Lambda, if it is about one
    """

    time: float
    at: str
    what: str
    text: str
    interval: int | None = None
    epoch: int | None = None
    stage: int | None = None
    to: str | None = None
    invocation: int | None = None

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.time))
        return f"{clock}.{int(self.time % 1 * 1000):03d}  {self.at}: {self.text}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter of entries; None: any value.

    epoch:  counted from 1
    server: "graph server 0", "weight server 1": its own entries, and those of others about it
    """

    interval: int | None = None
    epoch: int | None = None
    stage: int | None = None
    server: str | None = None
    invocation: int | None = None

    def takes(self, entry: Entry) -> bool:
        if self.server is not None and self.server not in (entry.at, entry.to):
            return False
        return all(
            wanted is None or wanted == found
            for wanted, found in (
                (self.interval, entry.interval),
                (self.epoch, entry.epoch),
                (self.stage, entry.stage),
                (self.invocation, entry.invocation),
            )
        )


class Story:
    """The log of one process. Any thread may write and read.

    most: number of entries that are kept, the latest
    """

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self._entries: deque[tuple[float, Address | None, Any]] = deque(maxlen=most)
        self._append = self._entries.append

    def note(self, address: Address, what: Event | Instruction) -> None:
        """Add an event or instruction of a host: its `watch`."""
        self._append((_now(), address, what))

    def note_lambdas(self, what: Any, about: About | None) -> None:
        """Add an event or instruction of the controller of Lambdas."""
        self._append((_now(), None, _OfLambdas(what, about)))

    def of(
        self,
        *,
        interval: int | None = None,
        epoch: int | None = None,
        stage: int | None = None,
        server: str | None = None,
        invocation: int | None = None,
    ) -> list[Entry]:
        """Entries of an interval, an epoch (counted from 1), a stage, a server, a Lambda."""
        wanted = Wanted(interval, epoch, stage, server, invocation)
        return [each for each in map(_entry, self._taken()) if wanted.takes(each)]

    def lines(self, last: int | None = None) -> list[str]:
        """The last so many entries, or all, in words."""
        found = self._taken()
        return [str(_entry(each)) for each in (found if last is None else found[-last:] if last else [])]

    def _taken(self) -> list[tuple[float, Address | None, Any]]:
        for _ in range(_TRIES):
            try:
                return list(self._entries)
            except RuntimeError:  # another thread noted something meanwhile
                continue
        return []


STANDS_STILL = (
    "the run stands still: it has not ended, and nothing is under way. That is a fault of Siafu: report it, "
    "with the run's directory, and go on from the last checkpoint with --resume"
)


def stuck(why: str, story: Story, waiting: Iterable[str], *, last: int = 5, most: int = 12) -> str:
    """An error's message: the reason, the last entries, and what waits."""
    waits = list(waiting)
    more = [f"and {len(waits) - most} more"] if len(waits) > most else []
    return "\n".join([why, "Last:", *story.lines(last), "Waiting:", *waits[:most], *more])


def _entry(noted: tuple[float, Address | None, Any]) -> Entry:
    moment, address, what = noted
    return _lambda_entry(moment, what) if address is None else _pipeline_entry(moment, address, what)


def _pipeline_entry(moment: float, address: Address, what: Event | Instruction) -> Entry:
    told = what.message if isinstance(what, Send) else what
    task = getattr(told, "task", None)
    about = task if isinstance(task, Task) else told
    stage = task.stage.id if isinstance(task, Task) else getattr(told, "stage", None)
    epoch = getattr(about, "epoch", None)
    return Entry(
        moment,
        str(address),
        type(told).__name__ if told is what else f"Send {type(told).__name__}",
        fit(said(what)),
        getattr(about, "interval", None),
        None if epoch is None else epoch + 1,
        stage,
        _other(what, told),
    )


def _other(what: Event | Instruction, told: Any) -> str | None:
    if isinstance(what, Send):
        return str(what.to)
    other = getattr(told, "sender", None)
    if other is None and isinstance(getattr(told, "server", None), Address):
        other = told.server
    return None if other is None else str(other)


def _lambda_entry(moment: float, noted: _OfLambdas) -> Entry:
    what, about = noted
    interval, epoch = (None, None) if about is None else (about.interval, about.epoch + 1)
    of = "" if about is None else f", interval {interval}, epoch {epoch}"
    return Entry(
        moment,
        "Lambdas",
        type(what).__name__,
        fit(said(what) + of),
        interval,
        epoch,
        to=None if about is None else about.server,
        invocation=getattr(what, "invocation", None),
    )


def fit(text: str) -> str:
    """Text for one line of a file or a terminal: no control characters, not endless."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: LONGEST_TEXT + 1])
    return shown if len(shown) <= LONGEST_TEXT else shown[: LONGEST_TEXT - 1] + "…"
