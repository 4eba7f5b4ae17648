"""Happenings: epochs, checkpoints, losses and the outcome of a run, as its runtime gives them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from siafu.base.activity import Taken
from siafu.pipeline.events import Measures
from siafu.pipeline.ids import Epoch, Incarnation, Version
from siafu.pipeline.instructions import Stop


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Weights and optimizer state after some epochs. They never change.

    best: weights of the best of these epochs; None: the best epoch is of an earlier session
    """

    epochs: Epoch
    version: Version
    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    counters: Mapping[str, Any]
    best: Mapping[str, Tensor] | None = None


@dataclass(frozen=True, slots=True)
class EpochActivity:
    """Work for an epoch, and counts since the record before it.

    threads:  spans and busy seconds of the servers' threads in this epoch: one for each process
    lambdas:  the same of Lambdas; () where there are none
    staleness: number of entries of intervals into epochs, by the number of epochs ahead of the slowest interval
    bytes_scattered: bytes sent to ghosts
    lambda_counts: counts of controllers; None: there are no Lambdas
    latencies: seconds of each task on Lambdas
    disk:     traffic of scratch files, as `DiskTraffic.counts` has it; {}: no table is on disk
    """

    threads: tuple[Taken, ...] = ()
    lambdas: tuple[Taken, ...] = ()
    staleness: Mapping[str, int] = field(default_factory=dict)
    bytes_scattered: int = 0
    lambda_counts: Mapping[str, float] | None = None
    latencies: tuple[float, ...] = ()
    disk: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One epoch, as it ended.

    training, evaluation: sums of its tasks' measures; None: it was not evaluated
    seconds:          epoch time, from the end of the epoch before, without the evaluation
    evaluate_seconds: time of the evaluation's tasks, divided by the number of threads
    busy_seconds:     time of all tasks since the run began, over all threads, by kind
    activity:         work for the epoch
    incarnation:      of the run, when it ended
    """

    epoch: Epoch
    training: Measures
    evaluation: Measures | None
    seconds: float
    evaluate_seconds: float
    busy_seconds: Mapping[str, float]
    activity: EpochActivity = EpochActivity()
    incarnation: Incarnation = Incarnation(0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, and its last snapshot; None: it diverged."""

    stop: Stop
    last: Snapshot | None


@dataclass(frozen=True, slots=True)
class Rewound:
    """A server was lost: records of epochs after `epochs` are void; of an exact run, none is.

    lost: the server, the cause, and the time until all went on, in words
    """

    epochs: Epoch
    lost: str


Happening = EpochRecord | Snapshot | Outcome | Rewound
