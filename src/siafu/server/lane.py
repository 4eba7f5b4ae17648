"""Lane: one program on one graph server: what its tasks read, make and leave for each other."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from siafu.nn.tally import Tally
from siafu.program.program import GatherStep, Program, TensorPhase
from siafu.server.local_gather import LocalGather
from siafu.server.phase_runner import PhaseRunner

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


class Lane:
    """A program's tables on one server; every method runs one task, on one interval, in the calling thread.

    bounds:    the server's intervals, as ranges of own rows
    vertices:  [n] global ids of the own vertices
    constants: rows that never change, [n, …] each
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
        self._vertices, self._constants, self._labels = vertices, constants, labels
        self._rows: list[dict[str, Tensor]] = [{} for _ in bounds]
        self._kept: list[dict[int, list[Tensor]]] = [{} for _ in bounds]
        self._gradients: list[dict[str, Tensor]] = [{} for _ in bounds]
        self._runners = [PhaseRunner(phase, training=training) for phase in program.phases]
        self._lasting = self._lasting_rows()
        self._itemsize = next(iter(constants.values())).element_size()
        self._labelled = [self._labelled_rows(first, last) for first, last in bounds]

    @property
    def activation_bytes(self) -> int:
        """Memory that the gathers' tables take, and what phases leave for later ones and for their backward pass."""
        tables = sum(local.held_bytes for group in self.gathers for local in group)
        shapes = [self.program.shapes[name] for name in self._lasting]
        shapes += [shape for run in self._runners for shape in run.kept_shapes]
        return tables + len(self._vertices) * self._itemsize * sum(math.prod(shape) for shape in shapes)

    def forward(self, phase: int, interval: int, weights: Weights, key: Tensor) -> Done:
        """A tensor phase that is not the last: rows come in, rows go out along the edges."""
        step, run = self.program.phases[phase], self._runners[phase]
        made, kept = run.forward(self._inputs(step, interval), weights, self._ids(interval), key)
        outputs = dict(zip(step.outputs, made, strict=True))
        self._rows[interval] |= {name: each for name, each in outputs.items() if name in self._lasting}
        self._kept[interval][phase] = kept
        first, last = self.bounds[interval]
        for gather, local in self._steps(phase):
            sent = (outputs[name] if name in outputs else self._row(name, interval) for name in gather.sent)
            local.send(first, last, tuple(sent))
        return Done()

    def gather(self, phase: int, interval: int, weights: Weights, seeds: Seeds) -> Done:
        """The graph phase before tensor phase `phase`, for one interval's vertices."""
        first, last = self.bounds[interval]
        for gather, local in self._steps(phase - 1):
            self._rows[interval][gather.out] = local.forward(
                first, last, weights=weights, **_dropout(gather, seeds)
            )
        return Done()

    def learn(self, interval: int, weights: Weights, key: Tensor) -> Done:
        """The last tensor phase with the loss and its gradient."""
        phase = len(self.program.phases) - 1
        step, run = self.program.phases[phase], self._runners[phase]
        rows, y, _ = self._labelled[interval]
        inputs = [_pick(each, rows) for each in self._inputs(step, interval)]
        loss, of_rows, gradients = run.last(inputs, weights, _pick(self._ids(interval), rows), key, y)
        first, last = self.bounds[interval]
        for name, gradient in zip(step.differentiated, of_rows, strict=True):
            local = self._gatherer(phase, name)
            if local is not None:
                local.send_back(first, last, gradient)
            else:
                self._add_gradient(interval, name, _spread(gradient, rows, last - first))
        return Done(gradients, loss)

    def gather_back(self, phase: int, interval: int, weights: Weights, seeds: Seeds) -> Done:
        """The adjoint of `gather`: the gradients of what tensor phase `phase - 1` sent."""
        first, last = self.bounds[interval]
        gradients: dict[str, Tensor] = {}
        for gather, local in self._steps(phase - 1):
            of_sent, of_weights = local.backward(first, last, weights=weights, **_dropout(gather, seeds))
            for name, gradient in zip(gather.sent, of_sent, strict=True):
                if name in gather.differentiated:
                    self._add_gradient(interval, name, gradient)
            for name, gradient in of_weights.items():
                gradients[name] = gradients[name] + gradient if name in gradients else gradient
        return Done(gradients)

    def backward(self, phase: int, interval: int, weights: Weights, key: Tensor) -> Done:
        """The adjoint of `forward`."""
        step, run = self.program.phases[phase], self._runners[phase]
        found, rows = self._gradients[interval], self._rows[interval]
        of_rows, gradients = run.backward(
            self._inputs(step, interval),
            {k: rows[step.outputs[k]] for k in run.reads_outputs},
            self._kept[interval].pop(phase),
            weights,
            self._ids(interval),
            key,
            [found.pop(name) for name in step.outputs],
        )
        first, last = self.bounds[interval]
        for name, gradient in zip(step.differentiated, of_rows, strict=True):
            self._add_gradient(interval, name, gradient)
        if phase > 0:
            for gather, local in self._steps(phase - 1):
                local.send_back(first, last, found.pop(gather.out))
        return Done(gradients)

    def tally(self, interval: int, weights: Weights, key: Tensor) -> Done:
        """The last tensor phase of an evaluation: how good its rows are."""
        phase = len(self.program.phases) - 1
        step, run = self.program.phases[phase], self._runners[phase]
        rows, y, splits = self._labelled[interval]
        inputs = [_pick(each, rows) for each in self._inputs(step, interval)]
        (logits,), _ = run.forward(inputs, weights, _pick(self._ids(interval), rows), key)
        return Done(tallies={split: Tally.of(logits[mask], y[mask]) for split, mask in splits.items()})

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

    def _inputs(self, step: TensorPhase, interval: int) -> list[Tensor]:
        return [self._row(name, interval) for name in step.inputs]

    def _row(self, name: str, interval: int) -> Tensor:
        first, last = self.bounds[interval]
        return self._constants[name][first:last] if name in self._constants else self._rows[interval][name]

    def _ids(self, interval: int) -> Tensor:
        first, last = self.bounds[interval]
        return self._vertices[first:last]

    def _add_gradient(self, interval: int, name: str, gradient: Tensor) -> None:
        found = self._gradients[interval]
        found[name] = found[name] + gradient if name in found else gradient

    def _labelled_rows(self, first: int, last: int) -> tuple[Tensor | None, Tensor, dict[str, Tensor]]:
        labels = self._labels
        if labels.rows is None:
            return None, labels.y[first:last], {s: mask[first:last] for s, mask in labels.splits.items()}
        lo, hi = (int(k) for k in torch.searchsorted(labels.rows, torch.tensor([first, last])))
        masks = {split: mask[lo:hi] for split, mask in labels.splits.items()}
        return labels.rows[lo:hi] - first, labels.y[lo:hi], masks


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
