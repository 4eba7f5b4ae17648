"""Lane: one program on one graph server: what its tasks read, make and leave for each other."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from siafu.kernels import near_cache_bytes
from siafu.nn.tally import Tally
from siafu.program.program import GatherStep, Program, TensorPhase
from siafu.server.interval_rows import IntervalRows, WeightGradients
from siafu.server.local_gather import LocalGather
from siafu.server.phase_runner import PhaseRunner

_LEAST_ROWS = 1024  # of a block: fewer, and the calls cost more than the cache saves

Weights = Mapping[str, Tensor]
Seeds = Callable[[int], int]
"""From a dropout's number in the model to the seed it draws from in this epoch."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a task gives besides rows.

    gradients: of the weights that its phase reads, by name
    loss:      its rows' part of the loss; None: the task has none
    tallies:   of its rows, by split, where an evaluation ends; else None
    """

    gradients: dict[str, Tensor] = field(default_factory=dict)
    loss: float | None = None
    tallies: dict[str, Tally] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """What a server's vertices should be, for those that the last phase computes.

    rows:   [n] own rows, ascending; None: all own rows
    y:      what they should be
    splits: [n] booleans by split: whether a row is of it
    """

    rows: Tensor | None
    y: Tensor
    splits: dict[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some rows of an interval that a tensor phase computes together: few enough to stay in a core's cache.

    first, last: own rows
    inside:      the same rows, counted from the interval's first
    labelled:    those of them that the last phase computes, counted from `first`; None: all
    y, splits:   of these, as in `Labels`
    """

    first: int
    last: int
    inside: slice
    labelled: Tensor | None
    y: Tensor
    splits: dict[str, Tensor]


class Lane:
    """A program's tables on one server; every method runs one task, on one interval, in the calling thread.

    bounds:    the server's intervals, as ranges of own rows
    vertices:  [n] global ids of the own vertices
    constants: rows that never change, [n, …] each, in the type to compute in or in bfloat16
    gathers:   for each graph phase, its gathers on this server's edges
    labels:    of the rows that the last phase computes
    """

    def __init__(
        self,
        program: Program,
        bounds: Sequence[tuple[int, int]],
        vertices: Tensor,
        constants: dict[str, Tensor],
        gathers: Sequence[Sequence[LocalGather]],
        labels: Labels,
        *,
        training: bool,
    ) -> None:
        self.program, self.bounds, self.gathers = program, bounds, gathers
        self._vertices, self.constants = vertices, constants
        self.begin_anew()
        self._runners = [PhaseRunner(phase, training=training) for phase in program.phases]
        self._lasting = self._lasting_rows()
        self._itemsize = max(4, *(each.element_size() for each in constants.values()))
        self._whole = [_blocks(first, last, max(1, last - first), labels)[0] for first, last in bounds]
        self._blocks = [
            [_blocks(first, last, self._block_size(phase), labels) for first, last in bounds]
            for phase in program.phases
        ]

    @property
    def activation_bytes(self) -> int:
        """Memory that the gathers' tables take, and what phases leave for later ones and for their backward pass."""
        tables = sum(local.held_bytes for group in self.gathers for local in group)
        shapes = [self.program.shapes[name] for name in self._lasting]
        shapes += [shape for run in self._runners for shape in run.kept_shapes]
        return tables + len(self._vertices) * self._itemsize * sum(math.prod(shape) for shape in shapes)

    def begin_anew(self) -> None:
        """Forget what tasks have left for others: gradients of a pass that was broken off would be added to the next's."""
        self._rows = [IntervalRows(last - first) for first, last in self.bounds]

    def forward(self, phase: int, interval: int, weights: Weights, key: Tensor) -> Done:
        """A tensor phase that is not the last: rows come in, rows go out along the edges."""
        run = self._runners[phase]
        for block in self._blocks[phase][interval]:
            made, kept = run.forward(self.inputs(phase, interval, block), weights, self.ids(block), key)
            self.put_kept(phase, interval, block, kept)
            self.put_outputs(phase, interval, block, made)
        return Done()

    def put_kept(self, phase: int, interval: int, block: Block, kept: Sequence[Tensor]) -> None:
        """What a phase wants for its backward pass."""
        for k, each in enumerate(kept):
            self._rows[interval].put(_kept(phase, k), block.inside, each)

    def kept(self, phase: int, interval: int, block: Block) -> list[Tensor]:
        """What a phase's forward pass kept of some rows."""
        count = len(self._runners[phase].kept_shapes)
        return [self._rows[interval].get(_kept(phase, k), block.inside) for k in range(count)]

    def reread_outputs(self, phase: int, interval: int, block: Block) -> dict[int, Tensor]:
        """What a phase made of some rows, by its place among the outputs, where its backward pass reads it."""
        outputs, rows = self.program.phases[phase].outputs, self._rows[interval]
        return {k: rows.get(outputs[k], block.inside) for k in self._runners[phase].reads_outputs}

    def put_outputs(self, phase: int, interval: int, block: Block, made: Sequence[Tensor]) -> None:
        """Rows that a phase made: what lasts is stored, what goes along edges is sent."""
        rows = self._rows[interval]
        outputs = dict(zip(self.program.phases[phase].outputs, made, strict=True))
        for name, each in outputs.items():
            if name in self._lasting:
                rows.put(name, block.inside, each)
        for gather, local in self._steps(phase):
            sent = (outputs[n] if n in outputs else self._row(n, rows, block) for n in gather.sent)
            local.send(block.first, block.last, tuple(sent))

    def gather(self, phase: int, interval: int, weights: Weights, seeds: Seeds) -> Done:
        """The graph phase before tensor phase `phase`, for one interval's vertices."""
        first, last = self.bounds[interval]
        for gather, local in self._steps(phase - 1):
            found = local.forward(first, last, weights=weights, **_dropout(gather, seeds))
            self._rows[interval].lend(gather.out, found)
        return Done()

    def learn(self, interval: int, weights: Weights, key: Tensor) -> Done:
        """The last tensor phase with the loss and its gradient."""
        phase = len(self.program.phases) - 1
        run, total, gradients = self._runners[phase], 0.0, WeightGradients()
        for block in self._blocks[phase][interval]:
            inputs, ids = self.labelled_inputs(interval, block), self.labelled_ids(block)
            loss, of_rows, of_weights = run.last(inputs, weights, ids, key, block.y)
            total += loss
            gradients.add(of_weights)
            self.put_last_gradients(interval, block, of_rows)
        return Done(gradients.sums, total)

    def put_last_gradients(self, interval: int, block: Block, of_rows: Sequence[Tensor]) -> None:
        """The gradients of what the last phase read, for its labelled rows."""
        phase = len(self.program.phases) - 1
        for name, gradient in zip(self.program.phases[phase].differentiated, of_rows, strict=True):
            local = self._gatherer(phase, name)
            if local is not None:
                local.send_back(block.first, block.last, gradient)
            else:
                spread = _spread(gradient, block.labelled, block.last - block.first)
                self._rows[interval].add(_gradient(name), block.inside, spread)

    def gather_back(self, phase: int, interval: int, weights: Weights, seeds: Seeds) -> Done:
        """The adjoint of `gather`: the gradients of what tensor phase `phase - 1` sent."""
        first, last = self.bounds[interval]
        gradients = WeightGradients()
        for gather, local in self._steps(phase - 1):
            found = local.backward(first, last, weights=weights, **_dropout(gather, seeds))
            for name, gradient in zip(gather.sent, found.sent, strict=True):
                if name in gather.differentiated:
                    self._rows[interval].add_whole(_gradient(name), gradient)
            gradients.add(found.weights)
        return Done(gradients.sums)

    def backward(self, phase: int, interval: int, weights: Weights, key: Tensor) -> Done:
        """The adjoint of `forward`."""
        run, gradients = self._runners[phase], WeightGradients()
        for block in self._blocks[phase][interval]:
            of_rows, of_weights = run.backward(
                self.inputs(phase, interval, block),
                self.reread_outputs(phase, interval, block),
                self.kept(phase, interval, block),
                weights,
                self.ids(block),
                key,
                self.output_gradients(phase, interval, block),
            )
            gradients.add(of_weights)
            self.put_gradients(phase, interval, block, of_rows)
        self.end_backward(phase, interval)
        return Done(gradients.sums)

    def put_gradients(self, phase: int, interval: int, block: Block, of_rows: Sequence[Tensor]) -> None:
        """The gradients of what a phase read: added to those of others, or sent back along the edges."""
        rows = self._rows[interval]
        for name, gradient in zip(self.program.phases[phase].differentiated, of_rows, strict=True):
            local = self._gatherer(phase, name)
            if local is None:
                rows.add(_gradient(name), block.inside, gradient)
                continue
            if rows.has(_gradient(name)):
                gradient = gradient + rows.get(_gradient(name), block.inside)
            local.send_back(block.first, block.last, gradient)

    def end_backward(self, phase: int, interval: int) -> None:
        """All blocks have their gradients: send back what no block did, and forget what is used up."""
        step = self.program.phases[phase]
        passed_by = self._send_back_unread(phase, interval)
        used = (*step.outputs, *step.differentiated, *passed_by)
        self._rows[interval].forget(_gradient(name) for name in used if self._is_used_up(phase, name))

    def _send_back_unread(self, phase: int, interval: int) -> list[str]:
        """Send back the gradients of what was gathered for `phase` and read by later ones alone; its names."""
        if phase == 0:
            return []
        first, last = self.bounds[interval]
        read = self.program.phases[phase].differentiated
        unread = [(gather.out, local) for gather, local in self._steps(phase - 1) if gather.out not in read]
        for name, local in unread:
            local.send_back(first, last, self._rows[interval].get(_gradient(name), slice(None)))
        return [name for name, _ in unread]

    def tally(self, interval: int, weights: Weights, key: Tensor) -> Done:
        """The last tensor phase of an evaluation: how good its rows are."""
        phase = len(self.program.phases) - 1
        run = self._runners[phase]
        tallies: dict[str, Tally] = {}
        for block in self._blocks[phase][interval]:
            inputs, ids = self.labelled_inputs(interval, block), self.labelled_ids(block)
            (logits,), _ = run.forward(inputs, weights, ids, key)
            for split, tally in tallies_of_block(block, logits).items():
                tallies[split] = tallies.get(split, Tally()) + tally
        return Done(tallies=tallies)

    def is_constant(self, name: str) -> bool:
        """Whether rows of that name are the same in every epoch."""
        return name in self.constants

    def whole(self, interval: int) -> Block:
        """All rows of an interval."""
        return self._whole[interval]

    def inputs(self, phase: int, interval: int, block: Block) -> list[Tensor]:
        """What a phase reads of some rows."""
        return [self._row(name, self._rows[interval], block) for name in self.program.phases[phase].inputs]

    def output_gradients(self, phase: int, interval: int, block: Block) -> list[Tensor]:
        """The gradients of what a phase made of some rows."""
        rows = self._rows[interval]
        return [rows.get(_gradient(name), block.inside) for name in self.program.phases[phase].outputs]

    def ids(self, block: Block) -> Tensor:
        return self._vertices[block.first : block.last]

    def labelled_inputs(self, interval: int, block: Block) -> list[Tensor]:
        """What the last phase reads of those rows that it computes."""
        last = len(self.program.phases) - 1
        return [_pick(each, block.labelled) for each in self.inputs(last, interval, block)]

    def labelled_ids(self, block: Block) -> Tensor:
        return _pick(self.ids(block), block.labelled)

    def _block_size(self, phase: TensorPhase) -> int:
        """Rows that make the widest of a phase's tables about as large as a core's cache."""
        shapes = [self.program.shapes[name] for name in (*phase.inputs, *phase.outputs)]
        widest = max([1, *(math.prod(shape) for shape in shapes)])
        return max(_LEAST_ROWS, near_cache_bytes() // (widest * self._itemsize))

    def _lasting_rows(self) -> set[str]:
        """Rows that a phase makes and that are read again later, other than through edges."""
        phases = self.program.phases
        read_later = {name for phase in phases for name in phase.inputs}
        read_later |= {
            name
            for depth, group in enumerate(self.program.gathers)
            for step in group
            for name in step.sent
            if name not in phases[depth].outputs
        }
        read_back = {
            phase.outputs[k]
            for phase, run in zip(phases, self._runners, strict=True)
            for k in run.reads_outputs
        }
        return read_back | {name for phase in phases for name in phase.outputs if name in read_later}

    def _steps(self, before: int) -> list[tuple[GatherStep, LocalGather]]:
        """The gathers that come after tensor phase `before`."""
        return list(zip(self.program.gathers[before], self.gathers[before], strict=True))

    def _gatherer(self, phase: int, name: str) -> LocalGather | None:
        """Whose rows those are, if they are gathered just before `phase`."""
        if phase == 0:
            return None
        return next((local for gather, local in self._steps(phase - 1) if gather.out == name), None)

    def _is_used_up(self, phase: int, name: str) -> bool:
        """Whether no earlier phase reads the gradient of these rows after the backward task of `phase`."""
        return name in self.program.phases[phase].outputs or self._gatherer(phase, name) is not None

    def _row(self, name: str, rows: IntervalRows, block: Block) -> Tensor:
        constant = self.constants.get(name)
        if constant is None:
            return rows.get(name, block.inside)
        # Stored in half the memory, they are widened where they are used: a block at a time, in the cache.
        picked = constant[block.first : block.last]
        return picked.float() if picked.dtype == torch.bfloat16 else picked


def tallies_of_block(block: Block, logits: Tensor) -> dict[str, Tally]:
    """How good a block's labelled rows are, by split."""
    return {split: Tally.of(logits[mask], block.y[mask]) for split, mask in block.splits.items()}


def _blocks(first: int, last: int, size: int, labels: Labels) -> list[Block]:
    """An interval cut in blocks of about `size` rows; one if it is empty."""
    count = max(1, round((last - first) / size))
    bounds = [first + (last - first) * k // count for k in range(count + 1)]
    return [_block(lo, hi, first, labels) for lo, hi in itertools.pairwise(bounds)]


def _block(first: int, last: int, start: int, labels: Labels) -> Block:
    if labels.rows is None:
        lo, hi, picked = first, last, None
    else:
        lo, hi = (int(k) for k in torch.searchsorted(labels.rows, torch.tensor([first, last])))
        picked = labels.rows[lo:hi] - first
    splits = {split: mask[lo:hi] for split, mask in labels.splits.items()}
    return Block(first, last, slice(first - start, last - start), picked, labels.y[lo:hi], splits)


def _kept(phase: int, number: int) -> str:
    return f"kept/{phase}/{number}"


def _gradient(name: str) -> str:
    return f"gradient/{name}"


def _dropout(gather: GatherStep, seeds: Seeds) -> Any:
    share = gather.site.dropout
    return {"dropout": share, "seed": seeds(gather.site.dropout_site)} if share else {}


def _pick(rows: Tensor, which: Tensor | None) -> Tensor:
    return rows if which is None else rows.index_select(0, which)


def _spread(rows: Tensor, which: Tensor | None, count: int) -> Tensor:
    """`rows` at the places `which` of `count`, zero elsewhere."""
    if which is None:
        return rows
    return rows.new_zeros((count, *rows.shape[1:])).index_copy_(0, which, rows)
