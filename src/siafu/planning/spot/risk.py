"""Risk: the spread of time and dollars of a training whose machines may be lost."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from siafu.base.errors import BadInput
from siafu.planning.spot.replay import Replayed, SpotTraining, replay
from siafu.planning.spot.trace import Change, Trace, from_rate, from_trace

REPLACEMENT_SECONDS = 120.0
"""Until another machine comes in place of a lost one, where a rate is given and no trace: an assumption."""

DETECTION_SECONDS = 10.0
"""Until a machine that is silent is taken for lost: `siafu.cluster.runtime.LOST_AFTER_SECONDS`."""

WARM_DETECTION_SECONDS = 3.0
"""The same where warm copies wait: `siafu.cluster.runtime.LOST_SOON_SECONDS`."""

CHECKPOINT_SECONDS = 1.0
"""That a checkpoint takes, with the standstill before it: an assumption."""

MOST_RATE = 60.0
"""The most losses in an hour of one machine that are believed."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean of many replays, and the range that leaves out a twentieth at each end."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, found: Sequence[float]) -> "Spread":
        ordered = sorted(found)
        last = len(ordered) - 1
        return cls(sum(ordered) / len(ordered), ordered[round(0.05 * last)], ordered[round(0.95 * last)])


Moments = Callable[[int], Iterator[Change]]
"""The machines' changes, as they are with a seed."""


def of_traces(traces: Sequence[Trace], machines: int) -> Moments:
    """Traces in turn, each from a random moment on."""
    for trace in traces:
        if trace.most < machines:
            raise BadInput(
                f"the trace {trace.name} never has more than {trace.most} machines at once, and the training needs {machines}: "
                "ask for fewer servers, or take another trace"
            )

    def changes(seed: int) -> Iterator[Change]:
        trace = traces[seed % len(traces)]
        return from_trace(trace, random.Random(seed).random() * trace.seconds)

    return changes


def of_rate(rate: float, machines: int) -> Moments:
    """Losses at random.

    rate: losses in an hour of one machine
    """
    return lambda seed: from_rate(rate, machines, REPLACEMENT_SECONDS, random.Random(seed))


@dataclass(frozen=True, slots=True)
class Risk:
    """Replays of one training.

    whole: seconds of the training on machines that are never lost
    usd:   dollars of each
    """

    training: SpotTraining
    whole: float
    replays: tuple[Replayed, ...]
    usd: tuple[float, ...]

    @property
    def seconds(self) -> Spread:
        return Spread.of([each.seconds for each in self.replays])

    @property
    def dollars(self) -> Spread:
        return Spread.of(self.usd)

    @property
    def throughput(self) -> float:
        """Mean share of the throughput of machines that are never lost."""
        return sum(self.whole / each.seconds for each in self.replays) / len(self.replays)

    @property
    def value(self) -> float:
        """1 / (time × dollars), of the means."""
        return 1 / (self.seconds.mean * self.dollars.mean)

    def mean(self, of: Callable[[Replayed], float]) -> float:
        return sum(map(of, self.replays)) / len(self.replays)


@dataclass(frozen=True, slots=True)
class SpotPrices:
    """Dollars an hour.

    spot:    of a machine that may be lost, while it is held
    other:   of all others, from the start to the end
    standby: of Lambdas, while the training works on 0, 1, … of the machines; none: there are no such Lambdas
    """

    spot: float
    other: float
    standby: tuple[float, ...] = ()

    def usd(self, of: Replayed) -> float:
        standby = sum(seconds * price for seconds, price in zip(of.on, self.standby, strict=False))
        return (of.machine_seconds * self.spot + of.seconds * self.other + standby) / 3600


def assess(training: SpotTraining, moments: Moments, seeds: int, prices: SpotPrices, whole: float) -> Risk:
    """Replay a training many times.

    whole: seconds of the training on machines that are never lost
    """
    found = tuple(replay(training, moments(seed)) for seed in range(seeds))
    return Risk(training, whole, found, tuple(map(prices.usd, found)))
