"""SampledRuntime: a run on mini-batches, whose updates and evaluations are this process's; `events` gives what happens, as other runtimes do."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from siafu.base.activity import About, Activity
from siafu.base.compiling import working_clock
from siafu.base.kept_memory import kept_memory
from siafu.objective.score import Score
from siafu.pipeline.events import Measures
from siafu.pipeline.ids import Epoch, Version
from siafu.pipeline.instructions import Stop, StopReason
from siafu.pipeline.run_machine.records import Best
from siafu.pipeline.run_machine.run_options import RunOptions
from siafu.runtime.happenings import EpochActivity, EpochRecord, Happening, Outcome, Rewound, Snapshot
from siafu.runtime.one_thread import one_thread
from siafu.runtime.story import Story
from siafu.sampling.batch_loader import SERVER, Planned, ReadyBatch
from siafu.sampling.sampled_model import BatchResult
from siafu.sampling.servers.moved import Moved
from siafu.sampling.whole_evaluation import WholeEvaluation
from siafu.weights.clipping import clipped, norms_of
from siafu.weights.optimizer import Settings, step

if TYPE_CHECKING:
    from siafu.sampling.servers.served_cluster import ServedCluster

EpochRates = Callable[[int], tuple[float, ...]]
"""Rates of an epoch's updates, of all groups of parameters."""


class RunsBatches(Protocol):
    """A model on batches, in one share or in several, here or on servers.

    moved: bytes that travelled for the batches so far
    """

    moved: Moved

    def run(self, batch: Any, weights: Mapping[str, Tensor], seed: int) -> BatchResult: ...


class LoadsBatches(Protocol):
    """Prepares batches, as `BatchLoader`."""

    def batches(self, planned: Iterator[Planned]) -> Iterator[Any]: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Counts:
    """Sums over the batches of an epoch, or of a session."""

    loss_sum: float = 0.0
    loss_terms: float = 0.0
    batches: int = 0
    vertices: int = 0
    edges: int = 0
    read_bytes: int = 0

    behind: Counter[str] = field(default_factory=Counter)

    def add(self, batch: ReadyBatch, result: BatchResult, behind: int) -> None:
        self.behind[str(behind)] += 1
        self.loss_sum += result.loss_sum
        self.loss_terms += result.loss_terms
        self.batches += 1
        self.vertices += batch.num_vertices
        self.edges += batch.edges
        self.read_bytes += batch.read_bytes

    @property
    def loss(self) -> float:
        """Mean over all rows."""
        return self.loss_sum / self.loss_terms if self.loss_terms else 0.0


@dataclass(slots=True, eq=False)
class SampledRuntime:
    """Computes and updates batch by batch, while other threads prepare those that follow; evaluates the whole graph.

    planned:    every batch of the epochs to come, in order
    settings:   of the optimizer
    options:    how long it goes on
    score:      how good an evaluation's measures are
    start:      weights and state to start from
    best:       the best epoch of earlier sessions
    seed:       what dropout is drawn from
    rates:      of every epoch; None: those of the settings
    checkpoint_due: called after every epoch: whether to make a checkpoint
    staleness:  updates that a batch's weights are behind, where as many batches of the epoch precede it
    random_bytes: of features that a batch would read from disk in random order, about; None: none are counted
    cluster:    the servers that prepare and compute batches; None: this process does
    """

    model: RunsBatches
    loader: LoadsBatches
    planned: Iterator[Planned]
    evaluation: WholeEvaluation
    settings: Settings
    options: RunOptions
    score: Callable[[Measures], Score]
    start: Snapshot
    activity: Activity
    seed: int
    best: Best | None = None
    rates: EpochRates | None = None
    checkpoint_due: Callable[[], bool] = lambda: False
    staleness: int = 0
    random_bytes: float | None = None
    cluster: "ServedCluster | None" = None
    story: Story = field(default_factory=Story)
    _best_weights: Mapping[str, Tensor] | None = None
    _stop_wanted: bool = False
    _told: bool = False
    _done: _Counts = field(default_factory=_Counts)

    def events(self) -> Iterator[Happening]:
        """Run; every epoch's record, every checkpoint, and last the outcome. Close the iterator to stop at once."""
        with one_thread(), kept_memory():  # a batch's blocks come and go
            try:
                with closing(self.loader.batches(self.planned)) as batches:  # type: ignore[type-var]
                    yield from self._epochs(batches)
            finally:
                self.loader.close()
                self.evaluation.close()

    def _epochs(self, batches: Iterator[ReadyBatch]) -> Iterator[Happening]:
        weights: Mapping[str, Tensor] = dict(self.start.weights)
        state: Mapping[str, Tensor] = dict(self.start.optimizer)
        epoch, marked = self.start.epochs, working_clock()
        following = next(batches, None)
        while True:
            found, computed = _Counts(), deque[tuple[ReadyBatch, BatchResult]]()
            while computed or (following is not None and following.epoch == epoch):
                if following is not None and following.epoch == epoch:
                    computed.append((following, self._computed(following, weights, len(computed), found)))
                    following = next(batches, None)
                    if len(computed) <= self.staleness:
                        continue
                weights, state = self._updated(*computed.popleft(), weights, state)
            trained = working_clock()
            if not math.isfinite(found.loss):
                yield Outcome(self._stop("diverged", epoch, None), None)
                return
            evaluated = self._evaluate(epoch, weights)
            now = working_clock()
            if self.cluster is not None and (lost := self.cluster.replaced()):
                yield Rewound(epoch, "; ".join(lost) + "; no epoch is lost")
            yield self._record(epoch, found, evaluated, trained - marked, now - trained)
            marked, epoch = working_clock(), Epoch(epoch + 1)
            snapshot = self._snapshot(epoch, weights, state)
            reason = self._reason(epoch)
            if reason is not None:
                yield Outcome(self._stop(reason, epoch, snapshot.version), snapshot)
                return
            if self.checkpoint_due():
                yield snapshot
                marked = working_clock()

    def _computed(
        self, batch: ReadyBatch, weights: Mapping[str, Tensor], behind: int, found: _Counts
    ) -> BatchResult:
        """Gradients of a batch, with weights that so many updates of earlier batches are missing in."""
        about, began = About(SERVER, batch.epoch, batch.number), time.perf_counter()
        result = self.model.run(batch, weights, self.seed)
        self.activity.note(about, "compute", 0, began, time.perf_counter())
        found.add(batch, result, behind)
        self._done.add(batch, result, behind)
        return result

    def _updated(
        self,
        batch: ReadyBatch,
        result: BatchResult,
        weights: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Weights and state after a batch's update."""
        about, began = About(SERVER, batch.epoch, batch.number), time.perf_counter()
        gradients: Mapping[str, Tensor] = result.gradients
        if self.settings.clip is not None:
            places = {name: place for place, name in enumerate(weights)}
            gradients = clipped(gradients, norms_of(gradients, places), self.settings.clip)
        rates = () if self.rates is None else self.rates(batch.epoch)
        next_weights, next_state = step(weights, gradients, state, self.settings, rates)
        self.activity.note(about, "update", 0, began, time.perf_counter())
        return next_weights | result.buffers, next_state

    def _evaluate(self, epoch: Epoch, weights: Mapping[str, Tensor]) -> Measures | None:
        """Measures of the epoch's weights, if they are due; the best weights are kept."""
        if not self.options.is_evaluated(epoch) and not self._patience_ends(epoch + 1):
            return None
        measures = self.evaluation.run(weights, epoch)
        score = self.score(measures)
        if self.best is None or score.beats(self.best.score):
            self.best, self._best_weights = Best(epoch, score), dict(weights)
        return measures

    def _record(
        self, epoch: Epoch, found: _Counts, evaluated: Measures | None, seconds: float, evaluating: float
    ) -> EpochRecord:
        taken, traffic = self.activity.take(epoch), self.evaluation.traffic
        moved = {} if traffic is None else traffic.drain()
        return EpochRecord(
            epoch,
            (found.loss,),
            evaluated,
            seconds,
            evaluating,
            dict(self.activity.busy_seconds),
            EpochActivity(threads=(taken,), staleness=dict(found.behind), disk=moved),
        )

    def _reason(self, done: Epoch) -> StopReason | None:
        if done >= self.options.epochs:
            return "finished"
        if self._patience_ends(done):
            return "patience"
        if self._told:
            return "told"
        return "asked" if self._stop_wanted else None

    def _patience_ends(self, done: int) -> bool:
        patience, best = self.options.patience, self.best
        return patience is not None and best is not None and done - (best.epoch + 1) >= patience

    def _snapshot(self, epoch: Epoch, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Snapshot:
        return Snapshot(epoch, Version(epoch), weights, state, self.counters(), self._best_weights)

    def _stop(self, reason: StopReason, epochs: Epoch, version: Version | None) -> Stop:
        return Stop(reason, epochs, version, None if self.best is None else self.best.epoch)

    def stop_soon(self) -> None:
        """End the run at the epoch's end, after a checkpoint. May be called from a signal's handler."""
        self._stop_wanted = True

    def close_epoch(self, record: EpochRecord, *, stop: bool) -> None:
        """The record of an epoch was seen: the next may begin, or the run ends."""
        self._told |= stop

    def waiting(self) -> list[str]:
        """Nothing waits: one thread computes, the others prepare batches."""
        return []

    def counters(self) -> dict[str, Any]:
        """Counters of this session."""
        done = self._done
        moved = self.model.moved
        return {
            **({} if self.cluster is None else self.cluster.counters()),
            "max_staleness_seen": max(map(int, done.behind), default=0),
            "staleness_histogram": dict(done.behind),
            "row_age_histogram": {},
            "weight_versions_peak": 1 + max(map(int, done.behind), default=0),
            "gradients_applied": done.batches,
            "bytes_scattered": moved.total,
            **{f"bytes_of_{name}": count for name, count in asdict(moved).items()},
            "sampled_vertices": done.vertices,
            "sampled_edges": done.edges,
            **self._features_read(),
        }

    def _features_read(self) -> dict[str, int]:
        if self.random_bytes is None:
            return {}
        would = round(self.random_bytes * self._done.batches)
        return {"feature_bytes_read": self._done.read_bytes, "feature_bytes_random_order": would}
