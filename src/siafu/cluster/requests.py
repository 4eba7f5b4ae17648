"""What the processes of a cluster say to each other about themselves: who is there, who is not, and why."""

from dataclasses import dataclass

from siafu.cluster.member import Member
from siafu.pipeline.events import Event
from siafu.pipeline.ids import Address


@dataclass(frozen=True, slots=True)
class Alive(Event):
    """Driver → server, and back by being acknowledged: I am there."""


@dataclass(frozen=True, slots=True)
class Replaced(Event):
    """Driver → server: from now on this is who is at its address."""

    member: Member


@dataclass(frozen=True, slots=True)
class Unreachable(Event):
    """Server → driver: another, in that life, takes nothing from me."""

    sender: Address
    server: Address
    life: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """Server → driver: I cannot go on.

    given: it is what the user gave that is wrong
    """

    sender: Address
    why: str
    given: bool


@dataclass(frozen=True, slots=True)
class Leaving(Event):
    """Server → driver: my machine is about to be taken away.

    why: in words, with the time where it is known
    """

    sender: Address
    why: str


@dataclass(frozen=True, slots=True)
class LogLine(Event):
    """Server → driver: for the run's directory."""

    sender: Address
    text: str
