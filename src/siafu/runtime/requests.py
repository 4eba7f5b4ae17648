"""Events between hosts besides those of the machines. They are the runtime's, not the pipeline's."""

from dataclasses import dataclass

from siafu.pipeline.events import Event
from siafu.pipeline.ids import Address, Version


@dataclass(frozen=True, slots=True)
class WeightsWanted(Event):
    """Graph server → weight server: a request for a version that it holds."""

    sender: Address
    version: Version


@dataclass(frozen=True, slots=True)
class WeightsSent(Event):
    """Weight server → graph server: the tensors of a version come with it."""

    version: Version


@dataclass(frozen=True, slots=True)
class ReportWanted(Event):
    """Run → server: a request for its counters; of a weight server, also its part of `version` and of the optimizer's state.

    number: of the request
    last:   the run is over: Lambdas are dismissed, and their cost is part of the report
    """

    number: int
    version: Version
    last: bool


@dataclass(frozen=True, slots=True)
class Report(Event):
    """The answer to ReportWanted: counters as JSON, with tensors."""

    number: int
    sender: Address
    counters: str


@dataclass(frozen=True, slots=True)
class TraceWanted(Event):
    """Run → graph server: report every task from now on."""


@dataclass(frozen=True, slots=True)
class ActivityReported(Event):
    """Graph server → run, before each EpochFinished: its activity since the last report.

    told: JSON, with tensors: see `siafu.runtime.counters.server_activity`
    """

    sender: Address
    told: str
