"""SampledPlan: how the mini-batches of a training are made: their vertices, draws and features, wherever they are computed."""

import copy
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from siafu.objective.objective import target_of
from siafu.sampling.batch_graphs import BatchGraphs
from siafu.sampling.batch_loader import OneServer
from siafu.sampling.batches import epoch_batches
from siafu.sampling.disk.feature_order import EpochOrder, FeatureOrder
from siafu.sampling.fanouts import DEFAULT_BATCH, fanouts_for
from siafu.sampling.first_gather import FirstGather
from siafu.sampling.first_input import FirstInput, first_input
from siafu.sampling.sampled_model import SampledModel
from siafu.sampling.sampler import Sampler
from siafu.sampling.sparse_features import SparseFeatures, SparseTable
from siafu.server.plan import ServerPlan


class SampledPlan:
    """Parts of batches, made of a plan and a model. A model that cannot be sampled is refused.

    plan:    of the whole graph on one server
    servers: that share every batch
    fanouts: of each layer, from the last to the first
    batch:   vertices of a batch
    order:   of batches whose features come through a buffer; None: random, and features are at hand
    learnt:  names of the weights that are learnt
    """

    order: FeatureOrder | None = None

    def __init__(self, plan: ServerPlan, model: nn.Module, servers: int) -> None:
        self.plan, self.servers = plan, servers
        self.learnt = frozenset(name for names in plan.groups.values() for name in names)
        self.model = SampledModel(model, plan.programs["train"], plan.objective, self.learnt)
        self.fanouts = fanouts_for(plan.options.fanout, self.model.depth)
        self.batch = min(plan.options.batch or DEFAULT_BATCH, len(plan.splits["train"]))

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Vertices of every batch of an epoch."""
        if self.order is not None:
            return self.ordered(epoch).batches
        vertices = self.plan.splits["train"].numpy()
        return epoch_batches(vertices, self.batch, self.plan.options.seed, epoch)

    def ordered(self, epoch: int) -> EpochOrder:
        """The batches of an epoch in the order that there is, and what is in memory for each."""
        assert self.order is not None
        vertices = self.plan.splits["train"].numpy()
        return self.order.epoch(vertices, self.batch, self.plan.options.seed, epoch)

    def in_order(self, order: FeatureOrder) -> "SampledPlan":
        """The same with an order of the batches."""
        found = copy.copy(self)
        found.order = order
        found.__dict__.pop("first_input", None)
        return found

    @cached_property
    def y(self) -> Tensor:
        """[V, …] the target."""
        return target_of(self.plan.objective, self.plan.graph)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of features, as it is stored."""
        stored = self.plan.features.stored
        return int(stored.shape[1]) * stored.itemsize

    @property
    def reads_places(self) -> bool:
        """Whether edges have weights, features or types, which are read at their places."""
        graph = self.plan.graph
        return graph.edge_weight is not None or graph.edge_attr is not None or graph.edge_type is not None

    @cached_property
    def first_input(self) -> FirstInput:
        """How the first layer gets its features."""
        if self.model.first_layer is None:
            return "rows"
        if self.servers > 1 or self.order is not None:  # features without their zeros would be in memory
            return "gathered"
        return first_input(
            self.plan.graph,
            self.fanouts,
            self.batch,
            self.model.first_width,
            multiplies=self.model.multiplies_features,
        )

    def one_server(self) -> OneServer:
        """Loads batches, or shares of them, whose features are at hand."""
        first = self.first_input
        return OneServer(
            self.graphs(),
            self._sparse_rows() if first == "sparse" else self.plan.rows,
            self.y,
            self.first_gather() if first == "gathered" else None,
        )

    def sampler(self) -> Sampler:
        leaves = self.first_input == "gathered"
        return Sampler(self.plan.graph, self.fanouts, self.plan.options.seed, leaves=leaves)

    def graphs(self) -> BatchGraphs:
        return BatchGraphs(
            self.plan.graph,
            [site.gather for site in self.model.sites],
            self.plan.dtype,
            sliced=self.model.sliced,
            edge_rows=self.model.reads_edges,
            turned=self.first_input == "sparse" or not self.model.gathers_features,
        )

    def first_gather(self) -> FirstGather:
        plan, layer = self.plan, self.model.first_layer
        assert layer is not None
        return FirstGather(plan.graph, layer, plan.dtype, normalize=plan.options.normalize_features)

    def _sparse_rows(self) -> Callable[[NDArray[np.int64]], SparseFeatures]:
        table = SparseTable(self.plan.features, self.plan.graph.num_vertices)
        return lambda vertices: SparseFeatures(table, vertices)
