"""Objectives by name, and the one of a graph or of a run."""

from collections.abc import Mapping
from typing import Any, Protocol

from siafu.base.choices import refuse_other_objective
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.objective.objective import Objective
from siafu.objective.regression import Regression
from siafu.objective.vertex_classes import VertexClasses
from siafu.objective.vertex_labels import VertexLabels

OBJECTIVES: dict[str, Objective] = {
    each.name: each for each in (VertexClasses(), VertexLabels(), Regression())
}
"""Objectives by the names that `siafu.train(objective=NAME)` and `--objective NAME` take."""


class ObjectiveOptions(Protocol):
    """Options that say what is learnt: `siafu.options.Options`."""

    @property
    def objective(self) -> str | Objective | None: ...
    @property
    def class_weights(self) -> Any: ...
    @property
    def label_smoothing(self) -> float: ...


def objective_named(name: str) -> Objective:
    """The objective of that name."""
    refuse_other_objective(name, OBJECTIVES)
    return OBJECTIVES[name]


def objective_for(graph: Graph, asked: str | Objective | None = None) -> Objective:
    """The objective that was asked for; None: the one that the graph's labels are for."""
    if asked is None:
        return OBJECTIVES["regression" if graph.has_quantities else graph.kind_of_labels]
    if isinstance(asked, str):
        return objective_named(asked).on(graph)
    if not isinstance(asked, Objective):
        raise BadInput(
            f"objective is {asked!r}: give a name ({', '.join(OBJECTIVES)}) or an object of a subclass of Objective"
        )
    return asked.on(graph)


def objective_asked(graph: Graph, options: "ObjectiveOptions") -> Objective:
    """The objective that options ask for, with its settings."""
    asked = options.objective
    if options.class_weights is None and not options.label_smoothing:
        return objective_for(graph, asked)
    name = "class_weights" if options.class_weights is not None else "label_smoothing"
    asked = objective_for(graph).name if asked is None else asked
    if asked != VertexClasses.name:
        named = asked if isinstance(asked, str) else getattr(asked, "name", "another")
        raise BadInput(f"{name} is for objective classes, and this one is {named}: leave it out")
    return VertexClasses(options.class_weights, options.label_smoothing).on(graph)


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
    if name == VertexClasses.name:
        return VertexClasses(described.get("class_weights"), described.get("label_smoothing") or 0.0)
    if name == Regression.name:
        return Regression(error=described.get("error") or "mse")
    return OBJECTIVES[name]
