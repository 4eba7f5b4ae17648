"""A register of machines with one fault each. The checker must catch every one of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.run import RunMachine
from siafu.pipeline.weight_server import WeightServer
from tests.checker.simulation import Machines


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """Machines of which one has a fault.

    mode:  the mode in which it shows; None: in any
    shows: the seed at which a search for it begins: near one that shows it, where few do
    """

    machines: Machines
    mode: str | None
    shows: int


FAULTS: dict[str, PlantedFault] = {}
"""By what is wrong."""


def fault(mode: str | None = None, shows: int = 0) -> Callable[[type[Any]], type[Any]]:
    """Register a machine under its docstring."""

    def note(machine: type[Any]) -> type[Any]:
        role = {GraphServer: "graph", WeightServer: "weight", RunMachine: "run"}[machine.__mro__[1]]
        assert machine.__doc__ is not None
        FAULTS[machine.__doc__] = PlantedFault(Machines(**{role: machine}), mode, shows)
        return machine

    return note
