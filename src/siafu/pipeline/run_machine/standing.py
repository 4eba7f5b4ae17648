"""RunStanding: how far a run has come at a limit where all intervals stand still."""

from collections.abc import Iterable
from typing import Literal

from siafu.pipeline.events import Settle, Settled
from siafu.pipeline.ids import ServerId


class RunStanding:
    """At a limit the weights settle, then a checkpoint is saved if one is due, and the run goes on or ends.

    state:     going: not at a limit; settling: weight servers apply what is left; settled; saving: a checkpoint is made
    settle:    the last thing that weight servers were asked; None: nothing yet
    unsettled: the weight servers that have not answered
    """

    def __init__(self) -> None:
        self.state: Literal["going", "settling", "settled", "saving"] = "going"
        self.settle: Settle | None = None
        self.unsettled: set[ServerId] = set()

    def begin(self, settle: Settle, servers: Iterable[ServerId]) -> None:
        """These weight servers are asked to settle."""
        self.state, self.settle, self.unsettled = "settling", settle, set(servers)

    def take(self, event: Settled) -> bool:
        """A weight server has settled: whether that is news."""
        if event.settle != self.settle or event.server not in self.unsettled:
            return False
        self.unsettled.remove(event.server)
        return True
