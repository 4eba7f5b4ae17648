"""What happens in a run, as whoever runs it hears of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from siafu.base.activity import Taken
from siafu.pipeline.events import Measures
from siafu.pipeline.ids import Epoch, Version
from siafu.pipeline.instructions import Stop


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The weights and the optimizer's state after some epochs. Nothing in it changes any more.

    best: the weights of the best of these epochs; None: none of this session's was better than those before
    """

    epochs: Epoch
    version: Version
    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    counters: Mapping[str, Any]
    best: Mapping[str, Tensor] | None = None


@dataclass(frozen=True, slots=True)
class Doings:
    """What was done for an epoch, and since the record before it.

    threads:  on the servers' threads, for this epoch: one for each process
    lambdas:  on Lambdas, likewise; () where there are none
    staleness: how often an interval entered an epoch since then, by how many epochs it was ahead of the slowest
    bytes_scattered: since then
    lambda_counts: what controllers counted since then; None: there are no Lambdas
    latencies: seconds of the tasks that Lambdas did since then
    """

    threads: tuple[Taken, ...] = ()
    lambdas: tuple[Taken, ...] = ()
    staleness: Mapping[str, int] = field(default_factory=dict)
    bytes_scattered: int = 0
    lambda_counts: Mapping[str, float] | None = None
    latencies: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One epoch, as it ended.

    training, evaluation: what its tasks measured, added up; None: it was not evaluated
    seconds:          from the end of the epoch before, without the evaluation
    evaluate_seconds: what the evaluation's tasks took, shared out over the threads
    busy_seconds:     what all tasks took since the run began, over all threads, by kind
    doings:           what was done for it
    """

    epoch: Epoch
    training: Measures
    evaluation: Measures | None
    seconds: float
    evaluate_seconds: float
    busy_seconds: Mapping[str, float]
    doings: Doings = Doings()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, and where it stood then; None: it diverged."""

    stop: Stop
    last: Snapshot | None


@dataclass(frozen=True, slots=True)
class Rewound:
    """A server was lost: the run goes on from `epochs`, and what was recorded of later ones is void.

    lost: which, why, and how long it took until all went on, in words
    """

    epochs: Epoch
    lost: str


Happening = EpochRecord | Snapshot | Outcome | Rewound
