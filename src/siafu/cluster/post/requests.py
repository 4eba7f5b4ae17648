"""Events between the processes of a cluster about the processes themselves: who is there, who is lost, and why."""

from dataclasses import dataclass

from siafu.cluster.post.member import Member
from siafu.pipeline.events import Event
from siafu.pipeline.ids import Address


@dataclass(frozen=True, slots=True)
class Alive(Event):
    """Driver → server: a sign of life; its acknowledgement is the server's."""


@dataclass(frozen=True, slots=True)
class Replaced(Event):
    """Driver → server: this member replaces the one at its address."""

    member: Member


@dataclass(frozen=True, slots=True)
class Departed(Event):
    """Driver → server: the member at this address is gone, in that life, and nobody takes its place yet."""

    address: Address
    life: int


@dataclass(frozen=True, slots=True)
class StateWanted(Event):
    """Driver → server: a question whether anything is under way there.

    number: of the question
    """

    number: int


@dataclass(frozen=True, slots=True)
class StateTold(Event):
    """The answer to StateWanted.

    handled: events that its machine has handled
    busy:    whether a task, a letter or a report is under way
    waiting: pending work and its causes, in words
    """

    sender: Address
    number: int
    handled: int
    busy: bool
    waiting: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerUnreachable(Event):
    """Server → driver: another server, in that life, acknowledges nothing."""

    sender: Address
    server: Address
    life: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ServerFailed(Event):
    """Server → driver: the server cannot go on.

    given: the user's input is wrong
    """

    sender: Address
    why: str
    given: bool


@dataclass(frozen=True, slots=True)
class Leaving(Event):
    """Server → driver: the server's machine is about to be taken away.

    why: in words, with the time where it is known
    """

    sender: Address
    why: str


@dataclass(frozen=True, slots=True)
class LogLine(Event):
    """Server → driver: a line for the run's directory."""

    sender: Address
    text: str
