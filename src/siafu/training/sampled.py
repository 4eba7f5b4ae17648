"""Training on mini-batches: its memory, and its runtime, made of a plan."""

from collections.abc import Callable
from functools import cached_property

from torch import nn

from siafu.base.activity import Activity
from siafu.base.threads import thread_count
from siafu.objective.objective import target_of
from siafu.pipeline.records import Best
from siafu.pipeline.run_options import RunOptions
from siafu.runtime.happenings import Snapshot
from siafu.sampling.batch_graphs import BatchGraphs
from siafu.sampling.batch_loader import BatchLoader, planned_batches
from siafu.sampling.batch_memory import batch_memory, batches_ahead, largest_sample
from siafu.sampling.fanouts import DEFAULT_BATCH, fanouts_for
from siafu.sampling.sampled_model import SampledModel
from siafu.sampling.sampled_runtime import EpochRates, SampledRuntime
from siafu.sampling.sampler import Sampler
from siafu.sampling.whole_evaluation import WholeEvaluation
from siafu.server.memory.listing import RunListing
from siafu.server.plan import ServerPlan


class SampledTraining:
    """Parts of a training on mini-batches that others do without. A model that cannot be sampled is refused when it is made.

    fanouts: of each layer, from the last to the first
    batch:   vertices of a batch
    """

    def __init__(self, plan: ServerPlan, model: nn.Module) -> None:
        self._plan = plan
        learnt = frozenset(name for names in plan.groups.values() for name in names)
        self._model = SampledModel(model, plan.programs["train"], plan.objective, learnt)
        self.fanouts = fanouts_for(plan.options.fanout, self._model.depth)
        self.batch = min(plan.options.batch or DEFAULT_BATCH, len(plan.splits["train"]))

    @cached_property
    def listing(self) -> RunListing:
        """Every array of the training: of the evaluations' pass, and of batches."""
        besides = tuple(batch_memory(self._plan, self.fanouts, self.batch))
        return RunListing.of(self._plan.evaluating(), besides=besides)

    def told(self) -> str:
        """The batches, in words."""
        most, _ = largest_sample(self._plan.graph, self.fanouts, self.batch)
        count = -(-len(self._plan.splits["train"]) // self.batch)
        drawn = ", ".join("all" if each < 0 else str(each) for each in self.fanouts)
        batches = "1 batch" if count == 1 else f"{count:,} batches"
        return (
            f"{batches} of {self.batch:,} vertices an epoch, at most {drawn} in-edges of a vertex drawn, "
            f"{most:,} vertices in a sample at most; evaluations are of the whole graph"
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
    ) -> SampledRuntime:
        """The run, ready to go.

        evaluating: the plan of the evaluations, as it fits memory
        """
        plan, threads, activity = self._plan, thread_count(), Activity()
        if traced:
            activity.keep_spans()
        seed, sites = plan.options.seed, self._model.sites
        loader = BatchLoader(
            Sampler(plan.graph, self.fanouts, seed),
            BatchGraphs(
                plan.graph,
                [site.gather for site in sites],
                plan.dtype,
                sliced=self._model.sliced,
                edge_rows=any(site.features for site in sites),
                turned=not self._model.gathers_features,
            ),
            plan.rows,
            target_of(plan.objective, plan.graph),
            activity,
            threads=threads,
            ahead=batches_ahead(),
        )
        return SampledRuntime(
            self._model,
            loader,
            planned_batches(
                plan.splits["train"].numpy(), self.batch, seed, range(start.epochs, options.epochs)
            ),
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
        )
