"""Objectives by name, and the one of a graph or of a run."""

from collections.abc import Mapping
from typing import Any

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.objective.objective import Objective
from siafu.objective.vertex_classes import VertexClasses
from siafu.objective.vertex_labels import VertexLabels

OBJECTIVES: dict[str, Objective] = {each.name: each for each in (VertexClasses(), VertexLabels())}
"""Objectives by the names that `siafu.train(objective=NAME)` and `--objective NAME` take."""


def objective_named(name: str) -> Objective:
    """The objective of that name."""
    if name not in OBJECTIVES:
        raise BadInput(f"unknown objective {name!r}: choose one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


def objective_for(graph: Graph, asked: str | Objective | None = None) -> Objective:
    """The objective that was asked for; None: the one that the graph's labels are for."""
    if asked is None:
        return OBJECTIVES["labels" if graph.multi_label else "classes"]
    if isinstance(asked, str):
        return objective_named(asked)
    if not isinstance(asked, Objective):
        raise BadInput(
            f"objective is {asked!r}: give a name ({', '.join(OBJECTIVES)}) or an object of a subclass of Objective"
        )
    return asked


def objective_of_run(config: Mapping[str, Any]) -> Objective:
    """The objective of the run that has this config.json; of an earlier Siafu's run, the one with its metric."""
    described = config.get("objective")
    if not isinstance(described, Mapping):
        several = config["graph"]["metric"] == VertexLabels.metric.name
        return OBJECTIVES["labels" if several else "classes"]
    name = described.get("name")
    if not isinstance(name, str) or name not in OBJECTIVES:
        raise BadInput(
            f"the run learnt objective {name!r}, which is not one of siafu's: give it with siafu.Run.load(path, objective=…)"
        )
    return OBJECTIVES[name]
