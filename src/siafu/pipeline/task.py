"""Task: one stage of one interval in one epoch."""

from dataclasses import dataclass

from siafu.pipeline.ids import Epoch, IntervalId, LaneName
from siafu.pipeline.schedule import Stage

Priority = tuple[int, bool, int, int]


@dataclass(frozen=True, slots=True)
class Task:
    """One stage of one interval in one epoch.

    epoch: of an evaluation, the epoch that it measures
    """

    lane: LaneName
    epoch: Epoch
    stage: Stage
    interval: IntervalId

    @property
    def priority(self) -> Priority:
        """Of the tasks that are ready, the one with the lowest key runs first.

        The earliest epoch, since others wait for it; then backward before forward, which frees rows; then the
        earlier stage (the lower layer forward, the deeper one backward), whose rows more tasks wait for.
        """
        return (self.epoch, self.stage.direction == "forward", self.stage.id, self.interval)

    @property
    def fresh_priority(self) -> Priority:
        """The same for asynchronous epochs, where nothing keeps a gather from running too early.

        In the order of stages: a gather then finds the rows of its own epoch wherever that costs no one a wait.
        """
        return (self.epoch, True, self.stage.id, self.interval)

    def __str__(self) -> str:
        """In words, where epochs are counted from 1."""
        return f"{self.stage} of interval {self.interval}, {self.lane} epoch {self.epoch + 1}"


def entry_priority(epoch: Epoch, interval: IntervalId) -> Priority:
    """When an asynchronous interval asks for its weights: no sooner than its first task would run, so that they are new."""
    return (epoch, True, 0, interval)
