"""LaneStatistics: statistics over all vertices that one program takes on one graph server, and gradients of them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from siafu.program.program import Program, ReduceStep
from siafu.program.record.statistics import RunningStatistics
from siafu.server.statistics import LocalStatistics

Weights = Mapping[str, Tensor]


class LaneStatistics:
    """Statistics that tasks of each interval read, and gradients of them that tasks leave.

    groups:    for each place between two tensor phases, statistics over all vertices; (): there are none anywhere
    intervals: how many the server has
    leads:     its first interval is the first of all: it gives the statistics that buffers of the model follow
    """

    def __init__(
        self, program: Program, groups: Sequence[Sequence[LocalStatistics]], intervals: int, *, leads: bool
    ) -> None:
        self.groups = groups or [() for _ in program.reduces]
        self._program, self._intervals, self._leads = program, intervals, leads
        self.begin_anew()

    @property
    def held_bytes(self) -> int:
        return sum(each.held_bytes for group in self.groups for each in group)

    def begin_anew(self) -> None:
        """Forget what tasks have left for others."""
        for group in self.groups:
            for statistic in group:
                statistic.begin_anew()
        # By interval and name: statistics that its tasks read, gradients of them so far, and of those that are complete.
        self._totals: list[dict[str, Tensor]] = [{} for _ in range(self._intervals)]
        self._moved: list[dict[str, Tensor]] = [{} for _ in range(self._intervals)]
        self._returned: list[dict[str, Tensor]] = [{} for _ in range(self._intervals)]

    def after(self, phase: int) -> list[tuple[ReduceStep, LocalStatistics]]:
        """The statistics of what tensor phase `phase` made or had."""
        if phase == len(self._program.reduces):
            return []
        return list(zip(self._program.reduces[phase], self.groups[phase], strict=True))

    def take(self, phase: int, interval: int, epoch: int) -> None:
        """Statistics that tensor phase `phase`, and perhaps later ones, read: all intervals' sums are here."""
        for reduce, statistic in self.after(phase - 1) if phase else ():
            self._totals[interval][reduce.out] = statistic.total(epoch)

    def take_gradients(self, phase: int, interval: int, epoch: int) -> None:
        """Gradients of the statistics of what `phase` made, for its backward task."""
        for reduce, statistic in self.after(phase):
            if reduce.differentiated:
                self._returned[interval][reduce.out] = statistic.total_gradient(epoch)

    def totals(self, phase: int, interval: int) -> dict[str, Tensor]:
        """Statistics that a phase reads, by name."""
        return {name: self._totals[interval][name] for name in self._program.phases[phase].totals}

    def among(self, weights: Weights, phase: int, interval: int) -> Weights:
        """Weights and statistics that a phase reads."""
        totals = self.totals(phase, interval)
        return {**weights, **totals} if totals else weights

    def settled(self, phase: int, interval: int, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gradients of weights alone. Those of statistics are added up until the phase that first read them; then they go out.

        With the weights' go the statistics that buffers of the model follow, from one interval of all.
        """
        step, moved, found = self._program.phases[phase], self._moved[interval], dict(gradients)
        for name in step.moved:
            gradient = found.pop(name)
            moved[name] = moved[name] + gradient if name in moved else gradient
        for reduce, statistic in self.after(phase - 1) if phase else ():
            if reduce.differentiated:
                statistic.put_gradient(interval, moved.pop(reduce.out, None))
            if reduce.running is not None and self._leads and interval == 0:
                came = _followed(reduce.running, self._totals[interval][reduce.out], statistic.count())
                found |= {name: found[name] + each if name in found else each for name, each in came.items()}
        return found

    def adjoint(
        self,
        reduce: ReduceStep,
        statistic: LocalStatistics,
        interval: int,
        count: int,
        values: Tensor | None,
        besides: Tensor | None,
    ) -> Tensor:
        """Gradients of `count` rows that come from one statistic, and `besides`; values: the rows, where it is of a variance."""
        totals, returned = self._totals[interval][reduce.out], self._returned[interval][reduce.out]
        return statistic.adjoint(count, values, totals, returned, besides)


def _followed(running: RunningStatistics, total: Tensor, count: int) -> dict[str, Tensor]:
    """One call's part of what buffers follow in an epoch, by the buffers' names: parts are added; count: rows that they are of."""
    found = {}
    if running.mean is not None:
        found[running.mean] = total[0] * running.kept
    if running.variance is not None:
        found[running.variance] = total[1] * (count / max(1, count - 1)) * running.kept
    if running.count is not None:
        found[running.count] = torch.ones((), dtype=torch.int64)
    return found
