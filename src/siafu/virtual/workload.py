"""Workload: what a model's epoch has to do on a graph, stage by stage, from the programs that would run."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from siafu.graph.graph import Graph
from siafu.nn import GNN, build
from siafu.pipeline.ids import LaneName, PhaseId, StageId
from siafu.pipeline.schedule import Schedule
from siafu.program.program import Program
from siafu.program.record.record import state_of
from siafu.server.costs.extent import Extent
from siafu.server.costs.work import Work
from siafu.server.layout.layouts import VERTICES, laid_out
from siafu.server.layout.traffic import Crossings, PhaseTraffic, RowTraffic
from siafu.server.plan import Programs, compile_programs, rows_of
from siafu.server.schedules import Groups, schedule_evaluation, schedule_training
from siafu.server.stages.registry import stages_of
from siafu.virtual.graph_shape import GraphShape

ATTENTION = ("gat", "gatv2", "transformer")
"""Models with heads."""
_FLOAT = 4


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model that is to be built.

    name:  "gcn", "gat", "gatv2", "transformer", "sage" or "gin"
    heads: with attention: of every layer but the last, together `hidden` wide
    precision: how rows are stored while gathered: "fp32" or "bf16"
    """

    name: str = "gcn"
    hidden: int = 64
    layers: int = 2
    dropout: float = 0.5
    heads: int = 8
    precision: str = "fp32"

    def build(self, features: int, classes: int) -> GNN:
        """The model, for so many features and classes."""
        options = {"act": "elu", "heads": self.heads, "out_heads": 1} if self.name in ATTENTION else {}
        config = {
            "in_channels": features,
            "hidden_channels": self.hidden,
            "num_layers": self.layers,
            "out_channels": classes,
            "dropout": self.dropout,
            "precision": self.precision,
        }
        return build(self.name, config | options)


@dataclass(frozen=True)
class Workload:
    """The stages of an epoch and of an evaluation, and what each has to do on the whole graph.

    work:             by lane and stage
    parameter_bytes:  of each phase whose parameters are updated together; parameter_tensors: how many they are
    """

    training: Schedule
    evaluation: Schedule
    work: Mapping[tuple[LaneName, StageId], Work]
    parameter_bytes: Mapping[PhaseId, float]
    parameter_tensors: Mapping[PhaseId, int]


def workload_of(
    model: ModelShape, shape: GraphShape, layout: str = VERTICES, *, servers: int = 1
) -> Workload:
    """Compile the model as `siafu.train` would and say what its stages cost on a graph of that shape.

    layout:  of gathers, as the option names it
    servers: that share columns
    """
    programs, numbers = _compiled(model, shape.features, shape.classes)
    placed = {lane: laid_out(program, layout, servers) for lane, program in programs.items()}
    return workload_from(placed, numbers, shape)


def traffic_of(model: ModelShape, shape: GraphShape, servers: int) -> tuple[PhaseTraffic, ...]:
    """Bytes of an epoch's rows between servers, in either layout, by the ghosts that the shape has."""
    programs, _ = _compiled(model, shape.features, shape.classes)
    ghosts, own = servers * shape.ghosts_of_server(servers), shape.vertices / servers
    reading = servers * shape.ghosts_of_server(servers, reading=shape.train_edges)
    whole = Crossings([own] * servers, ghosts, ghosts)
    last = Crossings([own * shape.train] * servers, reading, ghosts * shape.train)
    return RowTraffic(programs["train"], _FLOAT, True, whole, last).phases()


def edgeless(features: int, classes: int) -> Graph:
    """A graph that models can be compiled for: no edges of a graph matter to that."""
    return Graph.from_csr(
        np.zeros(3, np.int64),
        np.zeros(0, np.int32),
        x=np.zeros((2, features), np.float32),
        y=np.zeros(2, np.int64),
        train=np.arange(2),
        num_classes=classes,
        name="shape",
    )


@lru_cache(maxsize=32)
def _compiled(model: ModelShape, features: int, classes: int) -> tuple[Programs, Mapping[str, int]]:
    """A model's programs, and how many numbers each of its weights has; no graph's edges matter to them."""
    module, graph = model.build(features, classes), edgeless(features, classes)
    programs = compile_programs(graph, module, rows_of(graph)["train"])
    return programs, {name: each.numel() for name, each in state_of(module).items()}


def workload_from(programs: Programs, numbers: Mapping[str, int], shape: GraphShape) -> Workload:
    """What compiled programs have to do on a graph; numbers: in each weight."""
    training, groups = schedule_training(programs["train"])
    evaluation = schedule_evaluation(programs["evaluate"])
    extents = extents_of(programs, numbers, shape)
    schedules: dict[LaneName, Schedule] = {"train": training, "evaluate": evaluation}
    work = {
        (lane, stage.id): stages_of(stage.kind).work(extent, stage)
        for lane, extent in extents.items()
        for stage in schedules[lane].stages
    }
    return Workload(
        training,
        evaluation,
        work,
        _parameter_bytes(groups, numbers),
        {phase: len(names) for phase, names in groups.items()},
    )


def extents_of(programs: Programs, numbers: Mapping[str, int], shape: GraphShape) -> dict[LaneName, Extent]:
    """Rows and weights of each lane on a graph of that shape; numbers: in each weight."""
    return {
        "train": _extent(programs["train"], numbers, shape, shape.train, shape.train_edges, training=True),
        "evaluate": _extent(
            programs["evaluate"], numbers, shape, shape.labelled, shape.labelled, training=False
        ),
    }


def _parameter_bytes(groups: Groups, numbers: Mapping[str, int]) -> dict[PhaseId, float]:
    return {phase: float(_FLOAT * sum(numbers[name] for name in names)) for phase, names in groups.items()}


def _extent(
    program: Program,
    numbers: Mapping[str, int],
    shape: GraphShape,
    needed: float,
    needed_edges: float,
    *,
    training: bool,
) -> Extent:
    """needed, needed_edges: shares of the rows and edges that the last phase and the gather before it go over"""
    vertices, edges = float(shape.vertices), float(shape.edges)
    return Extent(
        program, numbers, vertices, edges, vertices * needed, edges * needed_edges, training, _FLOAT
    )
