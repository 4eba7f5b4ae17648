"""Training on mini-batches: its memory, and its runtime, made of a plan."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from siafu.base.activity import Activity
from siafu.base.errors import BadInput
from siafu.base.hardware.memory import budget_bytes
from siafu.base.storage.mapped import mapped_file
from siafu.base.threads import thread_count
from siafu.graph.partition import Partition
from siafu.options import groups_of
from siafu.pipeline.run_machine.records import Best
from siafu.pipeline.run_machine.run_options import RunOptions
from siafu.runtime.happenings import Snapshot
from siafu.sampling.batch_loader import BatchLoader, Load, planned_batches
from siafu.sampling.batch_memory import batch_memory, batches_ahead, batches_on_servers, largest_sample
from siafu.sampling.disk.buffered_load import BufferedLoader
from siafu.sampling.disk.feature_order import FeatureOrder
from siafu.sampling.disk.order_choice import MOST_GROUPS, OrderBytes, groups_for, order_bytes
from siafu.sampling.first_gather import FirstGather
from siafu.sampling.sampled_plan import SampledPlan
from siafu.sampling.sampled_runtime import EpochRates, LoadsBatches, RunsBatches, SampledRuntime
from siafu.sampling.servers.moved import RemoteVertices
from siafu.sampling.servers.sample_layout import SampleLayout, products_of, sample_layout, spread
from siafu.sampling.servers.served_batch import ServedModel
from siafu.sampling.servers.server_loads import ByColumns, ByVertices, sliced_features
from siafu.sampling.whole_evaluation import WholeEvaluation
from siafu.server.memory.listing import RunListing
from siafu.server.plan import ServerPlan

if TYPE_CHECKING:
    from siafu.cluster.driven_cluster import DrivenCrew
    from siafu.sampling.servers.served_cluster import ServedCluster

_PRICED = 4
"""Batches by which the layout of the features is priced."""
_LEAST_SHARE = 0.25
"""Of the memory, that a buffer of features takes where other arrays can be on disk."""


class SampledTraining:
    """Parts of a training on mini-batches that others do without. A model that cannot be sampled is refused when it is made.

    fanouts: of each layer, from the last to the first
    batch:   vertices of a batch
    layout:  of the features of several servers: vertices or columns
    """

    def __init__(
        self,
        plan: ServerPlan,
        model: nn.Module,
        partition: Partition,
        *,
        cluster: bool = False,
        memory: str | None = None,
    ) -> None:
        """Ready to be run.

        partition: which server owns a vertex; the plan itself, whose evaluations run here, has one server
        cluster:   servers are processes of their own
        memory:    a size that this process may take; None: what is free
        """
        self._plan, self._partition, self._cluster = plan, partition, cluster
        self._parts = SampledPlan(plan, model, partition.parts)
        self._model, self.fanouts, self.batch = self._parts.model, self._parts.fanouts, self._parts.batch
        if self._model.follows_batches and (partition.parts > 1 or plan.options.staleness):
            raise BadInput(
                "a batch norm follows whole batches, one after the other: leave out servers and staleness, or choose layer_norm"
            )
        if cluster:
            self._refuse_what_no_cluster_does()
        self._prices = None if cluster or partition.parts == 1 else self._priced()
        self.layout = "vertices" if self._prices is None else self._laid_out(self._prices)
        self._read: OrderBytes | None = None
        self._order(memory)

    @property
    def batch_order(self) -> str:
        """The order of the batches that was chosen, as an option asks for it."""
        order = self._parts.order
        return "random" if order is None else f"buffer:{order.groups}"

    def _order(self, memory: str | None) -> None:
        """Choose the order of the batches."""
        plan, asked = self._plan, self._plan.options.batch_order
        if asked == "random" or self._cluster or self._partition.parts > 1:
            return
        features = plan.graph.num_vertices * self._parts.row_bytes
        groups = groups_of(asked)
        if not groups:
            on_disk = mapped_file(plan.features.stored) is not None and self._parts.first_input != "sparse"
            if asked == "auto" and not on_disk:
                return
            spared = self._spared(memory)
            if asked == "auto" and (spared is None or spared >= features):
                return
            groups = groups_for(features, features if spared is None else spared)
        if groups is None:
            if asked == "auto":
                return
            raise BadInput(
                f"batch_order is {asked}, and memory is too little for a {MOST_GROUPS}th of the features: give more, or leave it out"
            )
        order = FeatureOrder(plan.graph.num_vertices, groups)
        parts = self._parts.in_order(order)
        read = order_bytes(parts, order)
        if asked == "auto" and read.ordered >= read.random:
            return
        self._parts, self._read = parts, read
        self.__dict__.pop("listing", None)  # it lacks the buffer

    def _spared(self, memory: str | None) -> int | None:
        """Bytes that a buffer of features may take: what all other arrays leave, and at least a share; None: any amount."""
        listing = self.listing
        budget = budget_bytes(memory, listing.taken)
        if budget is None:
            return None
        return max(budget - listing.listed.peak, round(_LEAST_SHARE * (budget - listing.taken)))

    @cached_property
    def listing(self) -> RunListing:
        """Every array of the training in this process: of the evaluations' pass, and of batches, unless servers have them."""
        servers = self._partition.parts
        plan = self._plan.laid_out(self.layout)
        if self._cluster:
            return RunListing.of(plan.evaluating())
        buffered = 0 if self._parts.order is None else self._parts.order.most_rows * self._parts.row_bytes
        besides = tuple(
            batch_memory(plan, self.fanouts, self.batch, self._parts.first_input, servers, buffered=buffered)
        )
        return RunListing.of(plan.evaluating(), besides=besides)

    def told(self) -> str:
        """The batches, in words."""
        most, _ = largest_sample(self._plan.graph, self.fanouts, self.batch)
        count = -(-len(self._plan.splits["train"]) // self.batch)
        drawn = ", ".join("all" if each < 0 else str(each) for each in self.fanouts)
        batches = "1 batch" if count == 1 else f"{count:,} batches"
        served = "" if self._prices is None else f"; {self._prices.told(self.layout)}"
        if self._read is not None and self._parts.order is not None:
            served = f"; {self._read.told(self._parts.order.groups)}"
        return (
            f"{batches} of {self.batch:,} vertices an epoch, at most {drawn} in-edges of a vertex drawn, "
            f"{most:,} vertices in a sample at most; evaluations are of the whole graph{served}"
        )

    def runtime(
        self,
        evaluating: ServerPlan,
        start: Snapshot,
        options: RunOptions,
        *,
        best: Best | None,
        rates: EpochRates | None,
        checkpoint_due: Callable[[], bool],
        traced: bool,
        crew: "DrivenCrew | None" = None,
        log: Path | None = None,
    ) -> SampledRuntime:
        """The run, ready to go.

        evaluating: the plan of the evaluations, as it fits memory
        crew:       starts servers on a cluster; None: batches are computed here
        log:        a directory for the servers' logs
        """
        plan, threads, activity = self._plan, thread_count(), Activity()
        if traced:
            activity.keep_spans()
        seed = plan.options.seed
        several = self._partition.parts > 1
        cluster = None if crew is None else self._served_cluster(crew, log)
        loader: LoadsBatches
        model: RunsBatches
        if cluster is not None:
            model, loader = cluster, cluster
        elif self._parts.order is not None:
            epochs = range(start.epochs, options.epochs)
            model = self._model
            loader = BufferedLoader(self._parts, activity, epochs, threads=threads, ahead=batches_ahead())
        else:
            load: Load[Any] = self._several() if several else self._parts.one_server()
            model = ServedModel(self._model) if several else self._model
            loader = BatchLoader(
                self._parts.sampler(), load, activity, threads=threads, ahead=batches_ahead()
            )
        return SampledRuntime(
            model,
            loader,
            planned_batches(self._parts.batches, range(start.epochs, options.epochs)),
            WholeEvaluation(evaluating, activity, threads=threads),
            plan.settings,
            options,
            plan.objective.score,
            start,
            activity,
            seed,
            best=best,
            rates=rates,
            checkpoint_due=checkpoint_due,
            staleness=plan.options.staleness,
            random_bytes=None if self._read is None else self._read.random / self._read.batches,
            cluster=cluster,
        )

    def _served_cluster(self, crew: "DrivenCrew", log: Path | None) -> "ServedCluster":
        from siafu.sampling.servers.served_cluster import ServedCluster

        servers = self._partition.parts
        return ServedCluster(crew, servers, self._parts.learnt, ahead=batches_on_servers(servers), log=log)

    def _refuse_what_no_cluster_does(self) -> None:
        if self._partition.parts == 1:
            raise BadInput(
                "mode sampled shares every batch among servers, and servers is 1: leave cluster out, or give servers"
            )
        if self._plan.options.layout == "columns":
            raise BadInput(
                "layout is columns, and on a cluster servers of mode sampled have features by vertices: leave it out, or leave cluster out"
            )

    def _several(self) -> ByVertices | ByColumns:
        """Loads batches in shares."""
        plan, servers = self._plan, self._partition.parts
        if self.layout == "vertices":
            return ByVertices(
                servers,
                self._parts.one_server(),
                RemoteVertices(self._partition.owner),
                self._parts.row_bytes,
                places=self._parts.reads_places,
            )
        tables, layer = sliced_features(plan.features, servers), self._model.first_layer
        firsts = None
        if self._parts.first_input == "gathered":
            assert layer is not None
            firsts = [FirstGather(plan.graph, layer, plan.dtype, x=each.stored) for each in tables]
        return ByColumns(
            tables, self._parts.graphs(), self._parts.y, firsts, layer, places=self._parts.reads_places
        )

    def _priced(self) -> SampleLayout:
        """Both layouts of the features, by some batches of the first epoch."""
        plan, sampler = self._plan, self._parts.sampler()
        batches = self._parts.batches(0)
        samples = [
            (sampler.sample(each, 0, number), len(each))
            for number, each in enumerate(spread(batches, _PRICED))
        ]
        products = products_of(
            self._model,
            self._parts.graphs(),
            sampler.sample(batches[0][:1]),
            plan.features.width,
            plan.weights,
            self._parts.y[batches[0][:1]],
            self._model.first_layer if self._parts.first_input == "gathered" else None,
            plan.dtype,
        )
        return sample_layout(
            samples,
            len(batches),
            self._partition.parts,
            RemoteVertices(self._partition.owner),
            self._parts.row_bytes,
            products,
            plan.weights,
            self._parts.learnt,
            places=self._parts.reads_places,
        )

    def _laid_out(self, prices: SampleLayout) -> str:
        asked = self._plan.options.layout
        if asked != "auto" and prices.columns is None and asked != "vertices":
            raise BadInput(
                f"layout is {asked}, and the model does something else with features than to multiply them: leave it out, or choose vertices"
            )
        return prices.chosen if asked == "auto" else asked
