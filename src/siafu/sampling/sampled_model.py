"""SampledModel: a model on samples: which can be, and the loss and gradients of a batch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.nn import Layer
from siafu.nn.calling import call_with, in_columns
from siafu.nn.dropout import SampleDropout
from siafu.nn.gathers.gather import Mean, Sum
from siafu.nn.gathers.relation_sum import RelationSum
from siafu.nn.model import GNN
from siafu.nn.sample_graph import SampleGraph
from siafu.objective.objective import Objective, as_target
from siafu.program.constants import gathers_deep
from siafu.program.program import Program
from siafu.program.record.record import GatherSite, mode
from siafu.sampling.servers.column_rows import ColumnRows
from siafu.sampling.servers.moved import Moved
from siafu.sampling.sparse_features import SparseFeatures

_BATCHES = 2**32  # of an epoch at most: dropout's masks go by both numbers


@dataclass(frozen=True, slots=True, eq=False)
class SampledBatch:
    """A batch, ready to be computed.

    epoch, number: counted from 0; `number` within the epoch
    vertices: [N] of the sample, the batch's first
    size:     how many are the batch's
    graph:    the sample's
    x:        features of its vertices
    y:        [size, …] rows of the target
    edges:    how many were drawn
    read_bytes: of features that were read from disk for it, where these are counted
    """

    epoch: int
    number: int
    vertices: NDArray[np.int64]
    size: int
    graph: SampleGraph
    x: Tensor | SparseFeatures | ColumnRows
    y: Tensor
    edges: int
    read_bytes: int = 0

    @property
    def num_vertices(self) -> int:
        return len(self.vertices)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Loss of a batch, as a sum and what makes it a mean, and the gradients of that mean.

    buffers: the next values of those that follow the statistics of batch norms
    """

    loss_sum: float
    loss_terms: float
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]


class SampledModel:
    """Runs a model on batches.

    sites: its gathers
    depth: how many of them follow each other at most: so many hops its samples have
    """

    moved = Moved()  # nothing travels

    def __init__(
        self, model: nn.Module, program: Program, objective: Objective, learnt: frozenset[str]
    ) -> None:
        self._model, self._objective = model, objective
        self._running = _running(program)
        self._learnt = sorted(learnt - self._running)
        self._dtype = next(each.dtype for each in model.parameters() if each.is_floating_point())
        self.sites = tuple(program.cut.recording.sites)
        self.depth = _depth(program)
        _refuse_what_cannot_be_sampled(program, self.sites)

    @property
    def follows_batches(self) -> bool:
        """Whether buffers follow the statistics of batches."""
        return bool(self._running)

    @property
    def reads_edges(self) -> bool:
        """Whether it reads features or types of edges."""
        return any(
            site.features or isinstance(site.gather, RelationSum) or getattr(site.gather, "features", 0)
            for site in self.sites
        )

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
        """Whether its first gather is, or can be, of the features themselves, which get no gradient."""
        if not self.sliced or not isinstance(self._model, GNN):
            return False
        first: Any = self._model.convs[0]
        return first.apply_edge is None and (
            type(first).transform is Layer.transform or first.linear_first is not None
        )

    @property
    def first_layer(self) -> Layer | None:
        """The layer whose sums of features can be gathered before the model is run; None: there is none."""
        if not self.gathers_features or not isinstance(self._model, GNN) or self._model.input_dropout > 0:
            return None
        first: Any = self._model.convs[0]
        return first if isinstance(first.gather, Sum) and first.gather.takes_samples else None

    @property
    def multiplies_features(self) -> bool:
        """Whether all that it does with features can be a product."""
        layer, model = self.first_layer, self._model
        return (
            isinstance(model, GNN)
            and model.residuals is None
            and layer is not None
            and layer.linear_first is not None
        )

    @property
    def first_width(self) -> int:
        """Columns of its first layer, where there is one (`first_layer`)."""
        assert isinstance(self._model, GNN)
        config = self._model.config()
        alone = len(self._model.convs) == 1 and config["out_channels"] is not None
        return int(config["out_channels" if alone else "hidden_channels"])

    def terms_of(self, y: Tensor) -> float:
        """Number that makes a mean of the loss of some rows of the target."""
        return self._objective.terms(as_target(y, self._dtype))

    def run(
        self, batch: SampledBatch, weights: Mapping[str, Tensor], seed: int, *, over: float | None = None
    ) -> BatchResult:
        """Loss and gradients of a batch.

        over: what the gradients' loss is divided by; None: the batch's own terms
        """
        named = {name: self._lent(name, each) for name, each in weights.items()}
        key = torch.tensor([seed, batch.epoch + batch.number * _BATCHES], dtype=torch.int64)
        columns = batch.x.columns if isinstance(batch.x, ColumnRows) else None
        if columns is not None:
            columns.use(named)

        def run(given: tuple[Any, ...], options: dict[str, Any]) -> Any:
            return torch.func.functional_call(self._model, named, given, options)

        with torch.enable_grad(), mode(self._model, training=True):
            with SampleDropout(key, torch.from_numpy(batch.vertices)), _enough_rows(batch):
                out: Tensor = in_columns(call_with(self._model, batch.graph, batch.x, run))
            out = out[: batch.size]
            y = as_target(batch.y, out.dtype)
            total, terms = self._objective.loss(out, y), self._objective.terms(y)
            inputs = [named[name] for name in self._learnt]
            pulled = [] if columns is None else columns.sums
            mean = total / max(terms if over is None else over, 1e-30)
            found = torch.autograd.grad(mean, inputs + pulled, allow_unused=True)
        if columns is not None:
            columns.push(found[len(inputs) :])
        gradients = {
            name: gradient
            for name, gradient in zip(self._learnt, found[: len(inputs)], strict=True)
            if gradient is not None
        }
        return BatchResult(total.item(), terms, gradients, {name: named[name] for name in self._running})

    def _lent(self, name: str, weight: Tensor) -> Tensor:
        """A weight as the model may use it: buffers that norms change in place are copies."""
        if name in self._running:
            return weight.clone()
        return weight.detach().requires_grad_() if name in self._learnt else weight


def _depth(program: Program) -> int:
    """Gathers that follow each other, at most, from the features to the output."""
    return gathers_deep(program.cut) + sum(bool(group) for group in program.gathers)


def _running(program: Program) -> frozenset[str]:
    """Names of the buffers that follow the statistics of batch norms."""
    every = (step.running for group in program.reduces for step in group)
    return frozenset(name for running in every if running is not None for name in running.names)


@contextmanager
def _enough_rows(batch: SampledBatch) -> Iterator[None]:
    """Say in our words that a norm has a single row, of which there is no variance."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise BadInput(
            f"batch {batch.number + 1} of epoch {batch.epoch + 1} has one row for a batch norm, which needs two: choose another batch size"
        ) from error


def _refuse_what_cannot_be_sampled(program: Program, sites: tuple[GatherSite, ...]) -> None:
    if not sites:
        raise BadInput(
            "mode is sampled, and the model gathers nothing along the edges, so that there is nothing to sample: choose another mode"
        )
    if any(step.running is None or not step.running.names for group in program.reduces for step in group):
        raise BadInput(
            "mode is sampled, and the model takes means over all vertices that no buffer follows, which a sample has not: "
            "choose batch_norm or layer_norm, or another mode"
        )
    if program.of_vertices:
        raise BadInput(
            f"mode is sampled, and {min(program.of_vertices)} has a row for each vertex, which samples do not pick: choose another mode"
        )
    for site in sites:
        sums = isinstance(site.gather, Sum) and not isinstance(site.gather, Mean)
        if not site.gather.takes_samples or (site.apply_edge is not None and sums):
            what = "a sum of messages (apply_edge)" if site.apply_edge is not None else site.gather.title
            raise BadInput(
                f"mode is sampled, and {what} of layer {site.layer_name} cannot be estimated from a sample of the edges: "
                "choose another layer or another mode"
            )
