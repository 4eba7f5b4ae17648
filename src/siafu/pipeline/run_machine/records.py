"""Records: what a run knows of its epochs: which are trained, which are evaluated, and which is the best."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from siafu.objective.score import Score
from siafu.pipeline.events import Measures
from siafu.pipeline.ids import Epoch, LaneName, ServerId, Version


@dataclass(frozen=True, slots=True)
class Best:
    """The epoch whose weights are kept."""

    epoch: Epoch
    score: Score


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The evaluation after an epoch: of which version, and what it measured."""

    version: Version
    measures: Measures


class Records:
    """What a run knows of the epochs since `start`.

    trained:  how many epochs all servers have finished, and are closed where epochs are
    recorded: how many of them have their evaluation too, if they are to have one
    """

    def __init__(self, start: Epoch, num_servers: int, score: Callable[[Measures], Score]) -> None:
        self.trained = start
        self.recorded = start
        self.best: Best | None = None
        self._best_before: Best | None = None
        self._num_servers = num_servers
        self._score = score
        self._parts: dict[tuple[LaneName, Epoch], dict[ServerId, Measures]] = {}
        self._training: dict[Epoch, Measures] = {}
        self._evaluations: dict[Epoch, Evaluation] = {}

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        assert self.recorded <= self.trained, f"{self.recorded} recorded, {self.trained} trained"
        known = {*self._training, *self._evaluations, *(epoch for _, epoch in self._parts)}
        assert min(known, default=self.recorded) >= self.recorded, f"{min(known)} is recorded, and still kept"
        assert all(parts for parts in self._parts.values()), f"{self._parts}"
        whole = [key for key in self._parts if self._total(*key) is not None]
        assert all(lane == "train" and epoch >= self.trained for lane, epoch in whole), f"{whole} are there"

    def take(self, lane: LaneName, server: ServerId, epoch: Epoch, measures: Measures) -> Measures | None:
        """A server has finished an epoch: the measures of all, once they are there."""
        self._parts.setdefault((lane, epoch), {})[server] = measures
        return self._total(lane, epoch)

    def _total(self, lane: LaneName, epoch: Epoch) -> Measures | None:
        """The measures of all servers; None: some have not finished."""
        parts = self._parts.get((lane, epoch), {})
        if len(parts) < self._num_servers:
            return None
        # In the order of servers, so that the sum has the same bits whatever the order of events.
        return tuple(map(sum, zip(*(parts[each] for each in sorted(parts) if parts[each]), strict=True)))

    def has(self, lane: LaneName, server: ServerId, epoch: Epoch) -> bool:
        """Whether that was taken before."""
        if server in self._parts.get((lane, epoch), {}):
            return True
        if lane == "evaluate":
            return epoch in self._evaluations or epoch < self.recorded
        return epoch in self._training or epoch < self.trained

    def close(self) -> bool:
        """The first epoch that is not closed is trained, if all servers have finished it: whether they have."""
        measures = self._total("train", self.trained)
        if measures is None:
            return False
        self.add_training(self.trained, measures)
        return True

    def forget(self, server: ServerId) -> None:
        """A server is lost: it finishes again what is not closed, and an evaluation that has not ended."""
        for parts in self._parts.values():
            parts.pop(server, None)
        self._parts = {key: parts for key, parts in self._parts.items() if parts}

    def forget_open(self) -> None:
        """All begin again: what is not closed is done again, and so is an evaluation that has not ended."""
        self._parts.clear()

    def add_training(self, epoch: Epoch, measures: Measures) -> None:
        self._parts.pop(("train", epoch), None)
        self._training[epoch] = measures
        while self.trained in self._training:
            self.trained = Epoch(self.trained + 1)

    def add_evaluation(self, epoch: Epoch, evaluation: Evaluation) -> bool:
        """Whether it is the best so far."""
        self._parts.pop(("evaluate", epoch), None)
        self._evaluations[epoch] = evaluation
        score = self._score(evaluation.measures)
        if self.best is not None and not score.beats(self.best.score):
            return False
        self._best_before, self.best = self.best, Best(epoch, score)
        return True

    def take_back(self, epoch: Epoch) -> None:
        """The last evaluation was the best, and its model is lost: it is done again."""
        del self._evaluations[epoch]
        self.best = self._best_before

    def score(self, measures: Measures) -> Score:
        return self._score(measures)

    def is_evaluated(self, epoch: Epoch) -> bool:
        return epoch in self._evaluations or epoch < self.recorded

    def next_record(self, due: bool) -> tuple[Measures, Evaluation | None] | None:
        """What is known of the next epoch to record, if that is all there will be."""
        epoch = self.recorded
        if epoch >= self.trained or (due and epoch not in self._evaluations):
            return None
        self.recorded = Epoch(epoch + 1)
        return self._training.pop(epoch), self._evaluations.pop(epoch, None)


def diverged(measures: Measures) -> bool:
    """Whether the loss, the first of the measures, is not a number."""
    return bool(measures) and not math.isfinite(measures[0])
