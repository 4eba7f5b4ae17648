"""ServerPlan: what a graph, a model, options and a partition come to, before any row is held: the same on every machine."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.base.threads import thread_count
from siafu.graph import Graph
from siafu.graph.partition import Partition, auto_interval_count, gather_parts
from siafu.graph.stores.content import SPLITS
from siafu.kernels.advice.advisor import Advisor
from siafu.objective.objective import Objective, target_of
from siafu.objective.outputs_only import OutputsOnly
from siafu.objective.registry import objective_asked, objective_for
from siafu.options import Options
from siafu.pipeline.ids import LaneName, Mode
from siafu.pipeline.layout import Layout
from siafu.pipeline.schedule import Schedule, fused_gathers
from siafu.pipeline.setup import Setup
from siafu.program.cache.program_cache import compiled
from siafu.program.density import sampled_density
from siafu.program.program import Program
from siafu.program.record.record import state_of
from siafu.program.record.statistics import CUMULATIVE
from siafu.server.assembly import Blueprint
from siafu.server.costs.extent import Extent
from siafu.server.costs.graph_extent import extent_of
from siafu.server.focus import Focus, focus_of
from siafu.server.layout.layouts import laid_out
from siafu.server.memory.savings import Savings
from siafu.server.row_rules_choice import row_rules_of
from siafu.server.rows.feature_rows import FeatureRows, normalized
from siafu.server.schedules import Groups, schedule_evaluation, schedule_training
from siafu.weights.groups import ParameterGroup, parameter_groups
from siafu.weights.optimizer import Follows, Settings
from siafu.weights.policy import policy
from siafu.weights.store import WeightStore

Programs = dict[LaneName, Program]

_PER_THREAD = 4  # intervals that are worth a thread in an evaluation beside a training that has a focus


@dataclass(frozen=True, slots=True, eq=False)
class ServerPlan:
    """What every server of a run is made by.

    weights:         of the model, as it was given
    splits:          the vertex ids of each split that the graph has
    interval_counts: of each graph server
    settings:        of the optimizer
    objective:       what is learnt; `options` have it too, as an object, which every process knows
    savings:         how it spares memory
    rate_groups:     groups of parameters, as the options ask for
    paced:           whether the run decides the rates of every update
    advisor:         chooses how this process's servers walk their edges; None: the rules do
    focus:           vertices whose rows the training computes; None: all
    """

    graph: Graph
    partition: Partition
    options: Options
    programs: Programs
    weights: Mapping[str, Tensor]
    splits: Mapping[str, Tensor]
    interval_counts: Sequence[int]
    training: Schedule
    groups: Groups
    settings: Settings
    objective: Objective
    savings: Savings = Savings()
    rate_groups: tuple[ParameterGroup, ...] = ()
    paced: bool = False
    advisor: Advisor | None = None
    focus: Focus | None = None

    @classmethod
    def of(
        cls,
        graph: Graph,
        model: nn.Module,
        options: Options,
        partition: Partition,
        *,
        programs: Programs | None = None,
        interval_counts: Sequence[int] | None = None,
    ) -> "ServerPlan":
        """Compile the model and lay out its work.

        programs: those of another plan of this model on this graph; None: they are compiled
        """
        splits = rows_of(graph)
        _check(graph, model, options, splits)
        objective = objective_asked(graph, options)
        programs = programs or compile_programs(
            graph, model, splits["train"], objective, sparse=options.lambdas == "off"
        )
        if options.lambdas != "off":
            _refuse_rows_on_lambdas(programs["train"])
        programs = {lane: laid_out(each, options.layout, partition.parts) for lane, each in programs.items()}
        training, groups = schedule_training(programs["train"])
        weights = {name: tensor.detach().clone() for name, tensor in state_of(model).items()}
        running = _followed(programs["train"])
        rate_groups = _rate_groups(model, options, groups, [name for name in weights if name not in running])
        row_rules = row_rules_of(model, options, programs["train"].of_vertices & weights.keys())
        focus = focus_of(graph, programs["train"], splits["train"], partition.parts)
        return cls(
            graph,
            partition,
            replace(options, objective=objective, class_weights=None, label_smoothing=0.0, scheduler=None),
            programs,
            weights,
            splits,
            interval_counts or interval_counts_of(graph, partition, options, focus),
            training,
            groups,
            Settings(
                options.optimizer,
                options.lr,
                _weight_decay(model, options),
                running=running,
                groups={name: place for place, each in enumerate(rate_groups) for name in each.names},
                clip=options.clip,
                row_rules=row_rules,
            ),
            objective,
            rate_groups=rate_groups,
            paced=options.scheduler is not None or options.groups is not None,
            focus=focus,
        )

    @classmethod
    def to_infer(
        cls, graph: Graph, model: nn.Module, rows: Tensor | None, *, normalize: bool
    ) -> "ServerPlan":
        """A plan of one pass that trains nothing: a model's outputs.

        rows:      vertices whose outputs are wanted, ascending; None: all
        normalize: whether features are divided by the sums of their rows
        """
        objective = OutputsOnly()
        program = compiled(model, graph, objective, training=False, once=True)
        partition = Partition.whole(graph.num_vertices)
        options = Options(mode="sync", normalize_features=normalize, objective=objective)
        return cls(
            graph,
            partition,
            options,
            {"evaluate": program},
            {name: tensor.detach() for name, tensor in state_of(model).items()},
            {"test": torch.arange(graph.num_vertices) if rows is None else rows},
            interval_counts_of(graph, partition, options),
            schedule_evaluation(program),
            {},
            Settings("sgd", 0.0),
            objective,
        )

    def laid_out(self, layout: str) -> "ServerPlan":
        """The same plan with another layout of its gathers."""
        programs = {
            lane: laid_out(each, layout, self.partition.parts) for lane, each in self.programs.items()
        }
        training, _ = schedule_training(programs["train"], self.savings.fused)
        return replace(
            self, programs=programs, training=training, options=replace(self.options, layout=layout)
        )

    def evaluating(self) -> "ServerPlan":
        """The same plan without the training: evaluations alone."""
        program = self.programs["evaluate"]
        training = schedule_evaluation(program)
        return replace(self, programs={"evaluate": program}, training=training, groups={}, focus=None)

    @property
    def trains(self) -> bool:
        """Whether anything is learnt; else there is one pass, an evaluation's, and `training` is without meaning."""
        return "train" in self.programs

    @property
    def dtype(self) -> torch.dtype:
        """What to compute in."""
        return next(each.dtype for each in self.weights.values() if each.is_floating_point())

    @property
    def schedules(self) -> dict[LaneName, Schedule]:
        """The stages of an epoch and of an evaluation."""
        found: dict[LaneName, Schedule] = {"train": self.training} if self.trains else {}
        return found | {"evaluate": schedule_evaluation(self.programs["evaluate"], self.savings.fused)}

    @property
    def gathers_on_disk(self) -> dict[LaneName, frozenset[int]]:
        """Gathers of each lane, by place, whose tables are on disk if they can be."""
        cut = self.savings.disk
        return {
            lane: frozenset(
                depth for depth in fused_gathers(schedule.stages) if cut is not None and cut.reads(depth)
            )
            for lane, schedule in self.schedules.items()
        }

    def saving(self, savings: Savings) -> "ServerPlan":
        """The same plan, sparing memory."""
        if not self.trains:
            return replace(self, savings=savings)
        training, _ = schedule_training(self.programs["train"], savings.fused)
        return replace(self, savings=savings, training=training)

    def extent(self, lane: LaneName) -> Extent:
        """What costs are reckoned from."""
        found = extent_of(
            self.graph,
            self.weights,
            self.programs[lane],
            self.needed(lane),
            self.computed(lane),
            training=lane == "train",
        )
        return replace(found, savings=self.savings)

    def needed(self, lane: LaneName) -> list[Tensor]:
        """The vertices whose rows a lane's last phase computes."""
        return [self.splits["train"]] if lane == "train" else [*self.splits.values()]

    def computed(self, lane: LaneName) -> NDArray[np.int64] | None:
        """The vertices whose rows a lane's other phases compute; None: all."""
        return self.focus.vertices if self.focus is not None and lane == "train" else None

    def blueprint(self, *, on_lambdas: bool = False) -> Blueprint:
        """For the graph servers; on_lambdas: tensor tasks run elsewhere."""
        splits: dict[LaneName, Mapping[str, Tensor]] = {"evaluate": self.splits}
        if self.trains:
            splits["train"] = {"train": self.splits["train"]}
        return Blueprint(
            self.graph,
            self.partition,
            self.interval_counts,
            self.programs,
            self.schedules,
            splits,
            self.dtype,
            self.groups,
            self.options.seed,
            self.objective,
            multiplies=not on_lambdas,
            savings=self.savings,
            advisor=self.advisor,
            focus=self.focus,
        )

    @property
    def features(self) -> FeatureRows:
        """The rows that the model is trained on."""
        return FeatureRows(self.graph, self.dtype, self.options.normalize_features)

    def rows(self, vertices: NDArray[np.int64]) -> Tensor:
        """The features of some vertices, in the type to compute in."""
        return self.features.of(vertices)

    def setup(self, layout: Layout, *, rows_travel: bool) -> Setup:
        """What all machines agree on.

        rows_travel: to Lambdas, or between processes: gathers begin with the rows that are there. Else threads are
                     busy until the last rows are made, and a gather that one begins then is late for nothing
        """
        options = self.options
        return Setup(
            self.training,
            self.schedules["evaluate"],
            layout,
            options.weight_servers,
            cast(Mode, options.mode),
            policy(options.weights),
            options.staleness,
            options.update_every,
            self.savings.shared,
            self.paced,
            options.clip is not None,
            self.gather_parts if rows_travel else 0,
            rows_stay=not self.savings.in_place and self.savings.disk is None,
        )

    @property
    def gather_parts(self) -> int:
        """Into how many parts a gather may be cut that begins with some of its rows, where they travel; 0: it waits for all."""
        if self.options.mode != "pipe" or self.savings.disk is not None:
            return 0
        return gather_parts(self.graph.num_edges // sum(self.interval_counts))

    def weight_store(self, setup: Setup, server: int) -> WeightStore:
        """The tensors of one weight server."""
        return WeightPlan(self.weights, self.groups, self.settings)(setup, server)


@dataclass(frozen=True, slots=True, eq=False)
class WeightPlan:
    """What weight servers are made by: nothing of the graph.

    weights: of the model, as it was given; of those that are learnt only the names and numbers of rows count
    """

    weights: Mapping[str, Tensor]
    groups: Groups
    settings: Settings

    def __call__(self, setup: Setup, server: int) -> WeightStore:
        """The tensors of one weight server."""
        home = [
            name for group, owner in setup.homes.items() if owner == server for name in self.groups[group]
        ]
        learnt = {name for names in self.groups.values() for name in names}
        fixed = {name: tensor for name, tensor in self.weights.items() if name not in learnt}
        rows = {name: len(tensor) for name, tensor in self.weights.items() if tensor.ndim}
        return WeightStore(home, fixed, self.settings, tuple(self.weights), rows)


def rows_of(graph: Graph) -> dict[str, Tensor]:
    """The vertex ids of each split that the graph has."""
    parts = {split: getattr(graph, split) for split in SPLITS}
    return {split: torch.from_numpy(ids) for split, ids in parts.items() if ids is not None and len(ids)}


def compile_programs(
    graph: Graph,
    model: nn.Module,
    train: Tensor,
    objective: Objective | None = None,
    *,
    sparse: bool = True,
) -> Programs:
    """What `model` is compiled to, for training on the rows `train` and for evaluation.

    objective: what is learnt; None: what the graph's labels are for
    sparse:    products can be taken with features without their zeros: tensor tasks run on the servers
    """
    objective = objective or objective_for(graph)
    terms = objective.terms(target_of(objective, graph)[train])
    if not 0 < terms < math.inf:
        raise BadInput(
            f"objective {objective.name} divides the training rows' losses by {terms}: let `terms` give a number above 0"
        )
    scale = 1.0 / terms
    return {
        "train": compiled(model, graph, objective, training=True, loss_scale=scale, sparse=sparse),
        "evaluate": compiled(model, graph, objective, training=False, sparse=sparse),
    }


def model_input(graph: Graph, *, normalize: bool) -> Tensor:
    """The features that a model is trained on."""
    from siafu.nn import features

    return normalized(features(graph)) if normalize else features(graph)


def _check(graph: Graph, model: nn.Module, options: Options, splits: Mapping[str, Tensor]) -> None:
    if "train" not in splits:
        raise BadInput(
            f"graph {graph.name!r} has no training split: draw one with --split random:60/20/20 (in Python split='random:60/20/20'), or give the graph its train vertices"
        )
    if options.patience is not None and "val" not in splits:
        raise BadInput(f"patience needs a validation split, and graph {graph.name!r} has none: leave it out")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise BadInput("the model has no parameters to train")


def _refuse_rows_on_lambdas(program: Program) -> None:
    if program.of_vertices:
        raise BadInput(
            f"{min(program.of_vertices)} has a row for each vertex, and Lambdas would fetch all of them for every task: "
            "train it without lambdas"
        )


def interval_counts_of(
    graph: Graph,
    partition: Partition,
    options: Options,
    focus: Focus | None = None,
    threads: int | None = None,
) -> list[int]:
    """How many intervals each server has; threads: of the machine; None: of this one."""
    if options.intervals is not None:
        return [options.intervals] * partition.parts
    threads = max(1, (threads or thread_count()) // partition.parts)
    numbers = 0.0 if graph.x is None else graph.num_features * sampled_density(graph, gathered=True)
    share = (graph.num_vertices // partition.parts, graph.num_edges // partition.parts)
    count = auto_interval_count(*share, threads, numbers=numbers)
    if focus is not None:
        # Evaluations go over all vertices, and run beside the training: an interval for each thread is enough for them.
        fewer = auto_interval_count(len(focus.vertices), focus.edges, threads, numbers=numbers)
        count = max(fewer, min(count // _PER_THREAD, threads), 1)
    return [count] * partition.parts


def _followed(program: Program) -> dict[str, Follows]:
    """How the buffers that follow statistics do."""
    found: dict[str, Follows] = {}
    for step in (step for group in program.reduces for step in group if step.running is not None):
        assert step.running is not None
        count = step.running.count
        momentum = None if step.running.momentum == CUMULATIVE else step.running.momentum
        for name in step.running.names:
            calls = 1 + max(step.running.later, found[name].calls - 1 if name in found else 0)
            found[name] = Follows(calls=calls) if name == count else Follows(momentum, count, calls)
    return found


def _rate_groups(
    model: nn.Module, options: Options, groups: Groups, parameters: Iterable[str]
) -> tuple[ParameterGroup, ...]:
    """Parameters that are learnt, by the rates that they are updated with."""
    learnt = {name for names in groups.values() for name in names}
    names = [name for name in parameters if name in learnt]
    if options.groups is not None:
        return parameter_groups(names, options.groups, options.lr, options.weight_decay)
    decays = _weight_decay(model, options)
    by_decay: dict[float, list[str]] = {}
    for name in names:
        by_decay.setdefault(decays.get(name, 0.0), []).append(name)
    return tuple(ParameterGroup(tuple(found), options.lr, decay) for decay, found in by_decay.items())


def _weight_decay(model: nn.Module, options: Options) -> dict[str, float]:
    """What falls on each parameter."""
    named = dict(model.named_parameters())
    if options.decay == "all":
        return dict.fromkeys(named, options.weight_decay)
    layers = getattr(model, "convs", None)
    if not isinstance(layers, nn.ModuleList) or len(layers) == 0:
        raise BadInput(
            "decay is 'first' but the model does not list its layers in `convs`: choose decay='all'"
        )
    first = {id(parameter) for parameter in layers[0].parameters()}
    return {name: options.weight_decay for name, parameter in named.items() if id(parameter) in first}
