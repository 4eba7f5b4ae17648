"""A register of machines with one fault each. The checker must catch every one of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from siafu.pipeline.graph_copy import GraphCopy
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.weight_server import WeightServer
from tests.checker.scenario import Scenario, eager_scenario, losing_scenario, random_scenario
from tests.checker.simulation import Machines


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """Machines of which one has a fault.

    mode:  the mode in which it shows; None: in any
    shows: the seed at which a search for it begins: near one that shows it, where few do
    losing: it shows where servers are lost, and the others go on, or all begin again, or eager copies take over; None: anywhere
    """

    machines: Machines
    mode: str | None
    shows: int
    losing: Literal["within", "again", "eager"] | None = None

    def scenario(self, seed: int) -> Scenario:
        """One of those in which it should show."""
        if self.losing is None:
            return random_scenario(seed, mode=self.mode)
        if self.losing == "eager":
            return eager_scenario(seed, mode=self.mode)
        return losing_scenario(seed, mode=self.mode, within=self.losing == "within")


FAULTS: dict[str, PlantedFault] = {}
"""By what is wrong."""


def fault(
    mode: str | None = None, shows: int = 0, *, losing: Literal["within", "again", "eager"] | None = None
) -> Callable[[type[Any]], type[Any]]:
    """Register a machine under its docstring."""

    def note(machine: type[Any]) -> type[Any]:
        roles = {GraphServer: "graph", GraphCopy: "copy", WeightServer: "weight", RunMachine: "run"}
        role = roles[machine.__mro__[1]]
        assert machine.__doc__ is not None
        FAULTS[machine.__doc__] = PlantedFault(Machines(**{role: machine}), mode, shows, losing)
        return machine

    return note
