"""Cut: a recorded model taken apart at its gathers, and what can be computed once taken out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from siafu.base.errors import BadInput
from siafu.program.record.record import GatherSite, Recording
from siafu.program.record.row_axis import row_axis
from siafu.program.record.rows_first import TURNED_BACK
from siafu.program.record.statistics import RunningStatistics, is_moments

_GATHER = torch.ops.siafu.gather.default


@dataclass(frozen=True, eq=False, slots=True)
class CutGather:
    """A gather that runs in every epoch: `sent` rows go along edges, `out` comes of them."""

    site: GatherSite
    sent: tuple[fx.Node, ...]
    out: fx.Node


@dataclass(frozen=True, eq=False, slots=True)
class CutReduce:
    """Statistics over all vertices, taken in every epoch: of `sent` rows, `out` comes of them.

    variance: whether they have a variance besides the mean
    running:  buffers that follow them; None: none do
    """

    sent: fx.Node
    out: fx.Node
    variance: bool
    running: RunningStatistics | None


@dataclass(frozen=True, eq=False, slots=True)
class CutPhase:
    """The operations between two gathers, or between a gather and statistics over all vertices.

    inputs:  rows that come in: constants, what gathers gave, what earlier phases made
    outputs: rows that go along edges next, that a later phase reads, or that come out of the model
    weights: names of the weights it reads
    totals:  statistics that it reads
    """

    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    weights: tuple[str, ...]
    totals: tuple[fx.Node, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Cut:
    """phases[0] · gathers[0] and reduces[0] · phases[1] · gathers[1] and reduces[1] · … · phases[-1]

    Of a program that was read from a file there are the constants and what they are made of, and no phases: these have
    become tensor programs.

    constants: rows that depend on the features alone and that some phase reads: computed once
    folded:    gathers among what makes them: they never run again
    """

    recording: Recording
    phases: tuple[CutPhase, ...]
    gathers: tuple[tuple[CutGather, ...], ...]
    reduces: tuple[tuple[CutReduce, ...], ...]
    constants: tuple[fx.Node, ...]
    folded: tuple[GatherSite, ...]


def cut(recording: Recording, trainable: Iterable[str]) -> Cut:
    """Take `recording` apart; what depends on no trainable weight and on no dropout is computed once."""
    return _Cutter(recording, set(trainable)).cut()


def row_shape(node: fx.Node) -> tuple[int, ...] | None:
    """Shape of a node's row for one vertex; None: it has no row for each."""
    if "row" in node.meta:
        known: tuple[int, ...] | None = node.meta["row"]  # of a program that was read from a file
        return known
    value = node.meta.get("val")
    value = value[0] if isinstance(value, (tuple, list)) and value else value
    axis = row_axis(value)
    if axis is None:
        return None
    assert isinstance(value, Tensor)
    return tuple(int(size) for dim, size in enumerate(value.shape) if dim != axis)


def is_row(node: fx.Node) -> bool:
    """Whether a node has one row for each vertex."""
    return row_shape(node) is not None


def is_gather(node: fx.Node) -> bool:
    return node.target is _GATHER


def changing_nodes(recording: Recording, trainable: set[str]) -> set[fx.Node]:
    """The nodes that depend on a trainable weight or on dropout: they run in every epoch."""
    # A weight with a row for each vertex runs in every epoch, learnt or not: whoever has the vertex picks its row.
    weights = [
        node
        for name, node in recording.weights.items()
        if name in trainable | recording.moving or is_row(node)
    ]
    changing = {*weights, recording.vertices, recording.key}
    for node in _operations(recording):
        depends = any(each in changing for each in node.all_input_nodes) and not _is_size(node)
        if depends or TURNED_BACK in node.meta or is_moments(node):
            changing.add(node)
    return changing


def _operations(recording: Recording) -> list[fx.Node]:
    return [node for node in recording.graph.nodes if node.op not in ("placeholder", "output")]


class _Cutter:
    def __init__(self, recording: Recording, trainable: set[str]) -> None:
        self.recording = recording
        self.nodes = _operations(recording)
        self.name_of = {node: name for name, node in recording.weights.items()}
        for node in self.nodes:
            _refuse_mixing(node)
        self.changing = changing_nodes(recording, trainable)

    def cut(self) -> Cut:
        output = self.recording.output
        if not is_row(output):
            raise BadInput(
                "the model's output has no row for each vertex: take the features from siafu.nn.features(graph) and map rows"
            )
        if output not in self.changing:
            raise BadInput("the model's output depends on no trainable parameter: there is nothing to train")
        depth = self._depths()
        last = max(depth.values(), default=0)
        phase = self._phases(depth, last)
        gathers = tuple(
            tuple(self._gather(node) for node, deep in depth.items() if deep == number and is_gather(node))
            for number in range(1, last + 1)
        )
        reduces = tuple(
            tuple(self._reduce(node) for node, deep in depth.items() if deep == number and is_moments(node))
            for number in range(1, last + 1)
        )
        sent = [row for group in gathers for each in group for row in each.sent]
        sent += [each.sent for group in reduces for each in group]
        phases = tuple(self._phase(number, phase, last, set(sent)) for number in range(last + 1))
        constants = [row for each in phases for row in each.inputs if row not in self.changing]
        constants += [row for row in sent if row not in self.changing]
        folded = [node for node in _ancestors(constants) if is_gather(node)]
        sites = self.recording.sites
        return Cut(
            self.recording,
            phases,
            gathers,
            reduces,
            tuple(dict.fromkeys(constants)),
            tuple(sites[number] for number in sorted(_site(node) for node in folded)),
        )

    def _depths(self) -> dict[fx.Node, int]:
        """Number of cuts, itself counted, from the features to each gather that runs every epoch and to each statistic."""
        below: dict[fx.Node, int] = {}
        depth = {}
        for node in self.nodes:
            below[node] = max((below.get(each, 0) for each in node.all_input_nodes), default=0)
            if _is_cut(node) and node in self.changing:
                below[node] += 1
                depth[node] = below[node]
        return depth

    def _phases(self, depth: dict[fx.Node, int], last: int) -> dict[fx.Node, int]:
        """The phase of each operation on rows that runs every epoch: the last that is early enough for its readers.

        So a vertex's part of a layer (`apply_vertex`) is computed after the gather, together with what follows.
        """
        phase = {self.recording.output: last}
        for node in reversed(self.nodes):
            if node not in self.changing or not is_row(node) or _is_cut(node):
                continue
            readers = [
                depth[user] - 1 if _is_cut(user) else phase[user]
                for user in node.users
                if user in phase or user in depth
            ]
            phase[node] = min([*readers, phase.get(node, last)])
        for node in self.nodes:
            # The parts of an operation with several results are taken where it runs.
            if node in phase and isinstance(node.meta.get("val"), (tuple, list)):
                for part in node.users:
                    phase[part] = phase[node]
        if is_gather(self.recording.output):
            del phase[self.recording.output]
        return phase

    def _gather(self, node: fx.Node) -> CutGather:
        sent: Any = node.args[0]
        return CutGather(self.recording.sites[_site(node)], tuple(sent), node)

    def _reduce(self, node: fx.Node) -> CutReduce:
        sent, site, variance = node.args
        assert isinstance(sent, fx.Node) and isinstance(site, int)
        return CutReduce(sent, node, bool(variance), self._running(site))

    def _running(self, site: int) -> RunningStatistics | None:
        every = self.recording.running
        if site not in every:
            return None
        taken = [int(str(node.args[1])) for node in self.nodes if is_moments(node)]
        # Sites of norms count down: later calls have lower ones.
        return every[site].before(every[each] for each in taken if each < site and each in every)

    def _phase(self, number: int, phase: dict[fx.Node, int], last: int, sent: set[fx.Node]) -> CutPhase:
        own = [node for node in self.nodes if phase.get(node) == number]
        inside = set(own)
        read = [each for node in own for each in node.all_input_nodes if is_row(each) and each not in inside]
        output = self.recording.output
        if number == last and output not in inside:
            read.append(output)
        rows_of_weights = [self.name_of[each] for each in read if each in self.name_of]
        read = [each for each in read if each is not self.recording.vertices and each not in self.name_of]
        outputs = [
            node
            for node in own
            if node in sent or any(phase.get(user, number) != number for user in node.users)
        ]
        if number == last:
            outputs.append(output)
        small = _ancestors(own, stop=is_row)
        weights = [self.name_of[node] for node in small if node in self.name_of] + rows_of_weights
        return CutPhase(
            tuple(dict.fromkeys(read)),
            tuple(dict.fromkeys(outputs)),
            tuple(name for name in self.recording.weights if name in set(weights)),
            tuple(node for node in self.nodes if node in small and is_moments(node)),
        )


def _site(node: fx.Node) -> int:
    site = node.args[2]
    assert isinstance(site, int)
    return site


def _ancestors(nodes: Iterable[fx.Node], stop: Any = lambda node: False) -> set[fx.Node]:
    """`nodes` and all that they are computed of, as far as `stop`."""
    found: set[fx.Node] = set(nodes)
    waiting = list(found)
    while waiting:
        for each in waiting.pop().all_input_nodes:
            if each not in found and not stop(each):
                found.add(each)
                waiting.append(each)
    return found


def _refuse_mixing(node: fx.Node) -> None:
    """Only a gather looks at other vertices' rows: without row in, no row out, and the other way round."""
    if _picks_rows(node):
        raise BadInput(
            f"the model's {node.target} picks or moves rows of vertices: outside of a gather each vertex is computed alone"
        )
    rows_in = any(is_row(each) for each in node.all_input_nodes)
    if rows_in and not is_row(node) and not _is_size(node) and not is_moments(node):
        raise BadInput(
            f"the model's {node.target} mixes the rows of different vertices: outside of a gather each vertex is computed alone"
        )


_ALONG: dict[Any, int] = {
    getattr(torch.ops.aten, name).default: 1
    for name in ("cumsum", "cumprod", "flip", "sort", "_softmax", "_log_softmax")
}
"""Operations along dimensions, with the place of these among their arguments."""


def _picks_rows(node: fx.Node) -> bool:
    """Whether an operation that keeps rows takes some of them, or looks along them."""
    axis = row_axis(node.args[0].meta.get("val")) if node.args and isinstance(node.args[0], fx.Node) else None
    if axis is None or not isinstance(node.args[0], fx.Node):
        return False
    ndim = node.args[0].meta["val"].ndim
    if node.target is torch.ops.aten.slice.Tensor:
        given: list[Any] = [*node.args[1:], *[0, None, None, 1][len(node.args) - 1 :]]
        dim, start, end, step = given
        all_of_them = start in (None, 0) and step == 1 and (not isinstance(end, int) or end >= 2**62)
        return isinstance(dim, int) and dim % ndim == axis and not all_of_them
    place = _ALONG.get(node.target)
    if place is None:
        return False
    along = node.args[place] if len(node.args) > place else -1
    dims = along if isinstance(along, (list, tuple)) else [along]
    return any(isinstance(dim, int) and dim % ndim == axis for dim in dims)


def _is_cut(node: fx.Node) -> bool:
    return is_gather(node) or is_moments(node)


def _is_size(node: fx.Node) -> bool:
    """Whether a node is a number of rows, or made of it."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))
