"""StageCosts: what every task and message of a sampled run takes, worked out once."""

import math
from dataclasses import dataclass, replace

from siafu.kernels import block_size
from siafu.pipeline.ids import LaneName, PhaseId, StageId
from siafu.pipeline.schedule import Stage
from siafu.pipeline.stage_kind import COLUMNS
from siafu.server.costs.work import Work
from siafu.virtual.costs import LambdaKind, Machine, task_seconds
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.server_sample import ServerSample
from siafu.virtual.workload import Workload

_OPTIMIZER_PASSES = 19  # numbers that Adam's operations read and write for each parameter
_OPTIMIZER_CALLS = 12  # of operations, for each tensor of parameters


@dataclass(frozen=True, slots=True)
class TaskCost:
    """A task of one stage, of one simulated interval.

    work:    of one real interval
    seconds: of a core, for all the intervals that it stands for
    sent:    bytes of rows that one simulated message carries to the servers that its receiver stands for
    packing: core seconds of the sender for it; of the receiver as much
    """

    work: Work
    seconds: float
    sent: float
    packing: float


class StageCosts:
    """Costs by lane and stage, and of gradients and updates."""

    def __init__(self, workload: Workload, shape: GraphShape, machine: Machine, sample: ServerSample) -> None:
        self.workload, self.shape, self.machine, self.sample = workload, shape, machine, sample
        self._found: dict[tuple[LaneName, StageId], TaskCost] = {}
        for stage in workload.training.stages:
            self._found["train", stage.id] = self._cost(stage)

    def of(self, lane: LaneName, stage: StageId) -> TaskCost | None:
        """None: an evaluation's, which no one pays for here."""
        return self._found.get((lane, stage))

    def server_seconds(self, kind: LambdaKind, size: float) -> float:
        """What a task on a Lambda costs a core of its server at one end: `size` bytes packed or taken."""
        return (kind.server_task_seconds + size / kind.server_bytes_s) * self.sample.intervals_each

    def gradient_bytes(self, phase: PhaseId) -> float:
        """Bytes of the gradients that one simulated gradient stands for."""
        return self.workload.parameter_bytes[phase] * self.sample.intervals_each * self.sample.servers_each

    def update_seconds(self, phases: list[PhaseId]) -> float:
        """The optimizer's step on a weight server's parameters."""
        core, workload = self.machine.core, self.workload
        size = sum(workload.parameter_bytes[phase] for phase in phases)
        tensors = sum(workload.parameter_tensors[phase] for phase in phases)
        calls = _OPTIMIZER_CALLS * tensors * core.call_seconds
        return self.machine.task_seconds + _OPTIMIZER_PASSES * size / core.stream + calls

    @property
    def weight_bytes(self) -> float:
        return sum(self.workload.parameter_bytes.values())

    def _cost(self, stage: Stage) -> TaskCost:
        sample, machine = self.sample, self.machine
        whole = self.workload.work["train", stage.id]
        parts = sample.servers * sample.intervals
        work = whole.share(whole.rows / parts, whole.edges / parts)
        if work.gathers:
            work = self._placed(work, whole=stage.kind == COLUMNS)
        sent = self._sent(stage, work)
        packing = machine.message_seconds * sample.receivers_each + sent / machine.core.memory
        return TaskCost(work, task_seconds(work, machine) * sample.intervals_each, sent, packing)

    def _placed(self, work: Work, *, whole: bool) -> Work:
        """A gather on a server with so many rows of its own and ghosts; whole: with all vertices and edges."""
        servers = 1 if whole else self.sample.servers
        own, edges = self.shape.vertices / servers, self.shape.edges / servers
        columns = own + self.shape.ghosts_of_server(servers)
        visit = self._visit(own, columns, edges, max(work.row_bytes)) if work.blocked else 0.0
        return replace(work, table_bytes=columns * sum(work.row_bytes), visit=visit)

    def _visit(self, own: float, columns: float, edges: float, row_bytes: float) -> float:
        """Edges that a visit of a row finds in a block of sources; 0: blocks do not pay."""
        cache = int(self.machine.near_cache)
        size = block_size(int(own), int(edges), int(row_bytes), sources=int(columns), cache=cache)
        return 0.0 if size is None else edges / own / math.ceil(columns / size)

    def _sent(self, stage: Stage, work: Work) -> float:
        """Bytes that a simulated interval sends to one simulated receiver, for all that both stand for."""
        sample = self.sample
        if sample.servers == 1 or not stage.sends:
            return 0.0
        found = work.sum_bytes * sample.intervals_each * (sample.servers - 1)
        if stage.scatters:
            found += self._ghosts(stage) / sample.simulated_intervals * work.ghost_bytes
        return found / (sample.simulated_servers - 1)

    def _ghosts(self, stage: Stage) -> float:
        """Rows that a server receives, and sends, after a stage."""
        servers, shape = self.sample.servers, self.shape
        last = stage.phase == self._last
        if stage.everywhere:
            return self._exchanged(needed=last and (stage.kind == COLUMNS) == (stage.direction == "forward"))
        ghosts = shape.ghosts_of_server(servers)
        if stage.direction == "backward" and last:
            return ghosts * shape.train
        if stage.direction == "forward" and stage.phase == self._last - 1:
            return shape.ghosts_of_server(servers, reading=shape.train_edges)
        return ghosts

    def _exchanged(self, *, needed: bool) -> float:
        """Rows of which every other server gets, or has, some columns; needed: those that enter the loss."""
        rows = self.shape.vertices * (self.shape.train if needed else 1.0)
        return rows * (1 - 1 / self.sample.servers)

    @property
    def _last(self) -> int:
        """The phase that makes the loss: only rows that enter it are gathered for."""
        return max(stage.phase for stage in self.workload.training.stages)
