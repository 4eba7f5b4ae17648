"""SampledModel: a model on samples: which can be, and the loss and gradients of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.nn import Layer
from siafu.nn.calling import call_with
from siafu.nn.dropout import SampleDropout
from siafu.nn.gather import Mean, Sum
from siafu.nn.model import GNN
from siafu.nn.sample_graph import SampleGraph
from siafu.objective.objective import Objective, as_target
from siafu.program.constants import gathers_deep
from siafu.program.program import Program
from siafu.program.record.record import GatherSite, mode

_BATCHES = 2**32  # of an epoch at most: dropout's masks go by both numbers


@dataclass(frozen=True, slots=True, eq=False)
class SampledBatch:
    """A batch, ready to be computed.

    epoch, number: counted from 0; `number` within the epoch
    vertices: [N] of the sample, the batch's first
    size:     how many are the batch's
    graph:    the sample's, with its features
    y:        [size, …] rows of the target
    edges:    how many were drawn
    """

    epoch: int
    number: int
    vertices: NDArray[np.int64]
    size: int
    graph: SampleGraph
    y: Tensor
    edges: int


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Loss of a batch, as a sum and what makes it a mean, and the gradients of that mean."""

    loss_sum: float
    loss_terms: float
    gradients: dict[str, Tensor]


class SampledModel:
    """Runs a model on batches.

    sites: its gathers
    depth: how many of them follow each other at most: so many hops its samples have
    """

    def __init__(
        self, model: nn.Module, program: Program, objective: Objective, learnt: frozenset[str]
    ) -> None:
        self._model, self._objective, self._learnt = model, objective, learnt
        self.sites = tuple(program.cut.recording.sites)
        self.depth = _depth(program)
        _refuse_what_cannot_be_sampled(program, self.sites)

    @property
    def sliced(self) -> bool:
        """Whether its layers can each be run on fewer rows than the one before: it is a row of layers and nothing else."""
        model = self._model
        return (
            isinstance(model, GNN)
            and type(model).forward is GNN.forward
            and len(model.convs) == self.depth
            and all(isinstance(each, Layer) and type(each).forward is Layer.forward for each in model.convs)
        )

    @property
    def gathers_features(self) -> bool:
        """Whether its first gather is of the features themselves, which get no gradient."""
        if not self.sliced or not isinstance(self._model, GNN):
            return False
        first: Any = self._model.convs[0]
        return type(first).transform is Layer.transform or first.linear_first is False

    def run(self, batch: SampledBatch, weights: Mapping[str, Tensor], seed: int) -> BatchResult:
        """Loss and gradients of a batch."""
        named = {
            name: each.detach().requires_grad_() if name in self._learnt else each
            for name, each in weights.items()
        }
        key = torch.tensor([seed, batch.epoch + batch.number * _BATCHES], dtype=torch.int64)
        x = torch.from_numpy(batch.graph.x)

        def run(given: tuple[Any, ...], options: dict[str, Any]) -> Any:
            return torch.func.functional_call(self._model, named, given, options, tie_weights=False)

        with torch.enable_grad(), mode(self._model, training=True):
            with SampleDropout(key, torch.from_numpy(batch.vertices)):
                out: Tensor = call_with(self._model, batch.graph, x, run)
            out = out[: batch.size]
            y = as_target(batch.y, out.dtype)
            total, terms = self._objective.loss(out, y), self._objective.terms(y)
            inputs = [named[name] for name in sorted(self._learnt)]
            found = torch.autograd.grad(total / max(terms, 1e-30), inputs, allow_unused=True)
        gradients = {
            name: gradient
            for name, gradient in zip(sorted(self._learnt), found, strict=True)
            if gradient is not None
        }
        return BatchResult(total.item(), terms, gradients)


def _depth(program: Program) -> int:
    """Gathers that follow each other, at most, from the features to the output."""
    return gathers_deep(program.cut) + sum(bool(group) for group in program.gathers)


def _refuse_what_cannot_be_sampled(program: Program, sites: tuple[GatherSite, ...]) -> None:
    if any(program.reduces):
        raise BadInput(
            "mode is sampled, and the model takes means over all vertices (batch norm or the like), which a sample has not: "
            "choose layer_norm, or another mode"
        )
    for site in sites:
        sums = isinstance(site.gather, Sum) and not isinstance(site.gather, Mean)
        if not site.gather.takes_samples or (site.apply_edge is not None and sums):
            what = "a sum of messages (apply_edge)" if site.apply_edge is not None else site.gather.title
            raise BadInput(
                f"mode is sampled, and {what} of layer {site.layer_name} cannot be estimated from a sample of the edges: "
                "choose another layer or another mode"
            )
