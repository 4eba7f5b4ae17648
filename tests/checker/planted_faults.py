"""A register of machines with one fault each. The checker must catch every one of them."""

from collections.abc import Callable
from typing import Any

from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.run import RunMachine
from siafu.pipeline.weight_server import WeightServer
from tests.checker.simulation import Machines

FAULTS: dict[str, tuple[Machines, str | None]] = {}
"""The fault: the machines that have it, and the mode in which it shows; None: in any."""


def fault(mode: str | None = None) -> Callable[[type[Any]], type[Any]]:
    """Register a machine under its docstring."""

    def note(machine: type[Any]) -> type[Any]:
        role = {GraphServer: "graph", WeightServer: "weight", RunMachine: "run"}[machine.__mro__[1]]
        assert machine.__doc__ is not None
        FAULTS[machine.__doc__] = (Machines(**{role: machine}), mode)
        return machine

    return note
