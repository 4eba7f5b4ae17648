"""The names of things that pass between the machines. All are counted from 0."""

from dataclasses import dataclass
from typing import Literal, NewType

Epoch = NewType("Epoch", int)
Version = NewType("Version", int)
"""How many updates made the weights. Version v of the model is every phase's parameters after v updates."""

IntervalId = NewType("IntervalId", int)
"""An interval's number among those of all graph servers, server by server."""

ServerId = NewType("ServerId", int)
StageId = NewType("StageId", int)
"""A stage's place in its schedule."""

PhaseId = NewType("PhaseId", int)
Incarnation = NewType("Incarnation", int)
"""How often the run was started again after a server was lost. What an earlier one sent is void."""

Life = NewType("Life", int)
"""Of those that were at an address one after the other, which. What an earlier one sent is void."""

FIRST_LIFE = Life(1)

LaneName = Literal["train", "evaluate"]
Direction = Literal["forward", "backward"]
Mode = Literal["sync", "pipe", "async"]
Role = Literal["graph", "weight", "run", "copy"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a machine is: its role, and which of that role it is. A copy has the number of its graph server."""

    role: Role
    index: ServerId

    def __str__(self) -> str:
        if self.role == "copy":
            return f"copy of graph server {self.index}"
        return "run" if self.role == "run" else f"{self.role} server {self.index}"


RUN = Address("run", ServerId(0))


@dataclass(frozen=True, slots=True)
class Anchor:
    """A point where epochs and versions meet: `version` has every gradient of the epochs before `epoch`."""

    epoch: Epoch
    version: Version

    def version_of(self, epoch: Epoch) -> Version:
        """The weights that `epoch` uses where every epoch makes one version."""
        return Version(self.version + epoch - self.epoch)
