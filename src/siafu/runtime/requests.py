"""What hosts say to each other besides the machines' own events. The runtime's, not the pipeline's."""

from dataclasses import dataclass

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
    """Run → server: what you counted; of a weight server, also your part of `version` and the optimizer's state.

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
    """Run → graph server: tell of every task from now on."""


@dataclass(frozen=True, slots=True)
class Did(Event):
    """Graph server → run, before it says that an epoch is finished: what it did since it last told.

    told: as JSON; the tensors come with it: see `siafu.runtime.doings`
    """

    sender: Address
    told: str
