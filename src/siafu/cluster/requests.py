"""What servers and the driver say to each other besides the machines' own events. The runtime's, not the pipeline's."""

from dataclasses import dataclass

from siafu.cluster.member import Member
from siafu.pipeline.events import Event
from siafu.pipeline.ids import Address, Version


@dataclass(frozen=True, slots=True)
class WeightsWanted(Event):
    """Graph server → weight server: send me a version that you hold."""

    sender: Address
    version: Version


@dataclass(frozen=True, slots=True)
class WeightsSent(Event):
    """Weight server → graph server: the tensors of a version come with it."""

    version: Version


@dataclass(frozen=True, slots=True)
class ReportWanted(Event):
    """Driver → server: what you counted; of a weight server, also your part of `version` and the optimizer's state.

    number: of the request
    last:   the run is over: Lambdas may go, and what they cost is wanted, too
    """

    number: int
    version: Version
    last: bool


@dataclass(frozen=True, slots=True)
class Report(Event):
    """The answer: counters as JSON; the tensors come with it."""

    number: int
    sender: Address
    counters: str


@dataclass(frozen=True, slots=True)
class TraceWanted(Event):
    """Driver → graph server: tell of every task from now on."""


@dataclass(frozen=True, slots=True)
class Did(Event):
    """Graph server → driver, before it says that an epoch is finished: what it did since it last told.

    told: as JSON; the tensors come with it: see `siafu.cluster.doings`
    """

    sender: Address
    told: str


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
