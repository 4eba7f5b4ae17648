"""Trainer: one training as a run of the pipeline, made of a graph, a model and options."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn

from siafu.base.errors import BadInput, Diverged
from siafu.base.hardware.memory import budget_bytes
from siafu.base.threads import thread_count
from siafu.base.words import counted
from siafu.graph import Graph
from siafu.graph.partition import Partition
from siafu.kernels.advice.advisor import Advisor
from siafu.objective.objective import Objective
from siafu.options import Options
from siafu.pipeline.ids import Anchor, Epoch, LaneName, Version
from siafu.pipeline.run_machine.records import Best
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.run_machine.run_options import RunOptions
from siafu.pipeline.setup import Setup
from siafu.program.headline import headline, unused_edge_data
from siafu.program.program import Program
from siafu.program.record.record import state_of
from siafu.report.files.metrics import EpochMetrics, best_epoch
from siafu.runtime.counters.counting import added
from siafu.runtime.happenings import EpochActivity, EpochRecord, Happening, Outcome, Rewound, Snapshot
from siafu.runtime.local import LocalRuntime
from siafu.runtime.one_thread import one_thread
from siafu.runtime.story import Entry
from siafu.sampling.sampled_runtime import SampledRuntime
from siafu.server.assembly import assemble
from siafu.server.layout.layout_choice import decided
from siafu.server.layout.layouts import VERTICES
from siafu.server.memory.fitting import Fit, fit, fit_apart
from siafu.server.memory.listing import RunListing
from siafu.server.memory.measures import Choice
from siafu.server.memory.memory_list import MemoryList
from siafu.server.memory.server_part import parts_of
from siafu.server.plan import ServerPlan
from siafu.tables import DiskTraffic, ScratchDirectory
from siafu.training.lambda_choice import lambdas_asked
from siafu.training.pace import Callback, Pace
from siafu.training.records.checkpoint import Checkpoint, CheckpointDue
from siafu.training.records.checkpoint_tensors import refuse_others, saved_rates, under
from siafu.training.records.epoch_metrics import metrics_of
from siafu.training.sampled import SampledTraining
from siafu.weights.optimizer import check_state

if TYPE_CHECKING:
    from siafu.cluster.runtime import ClusterRuntime
    from siafu.runtime.lambdas import Lambdas


class Trainer:
    """A training: `prepare` it, `run` it, and it gives what happens; then `finish` gives the model its best weights.

    history:   what each epoch measured
    busy_seconds: what tasks took from the start to the last epoch in `history`, over all threads, by kind
    activity:    what was done for the last epoch in `history`
    plan:      what the model was compiled to, and how its work is laid out
    """

    def __init__(
        self,
        graph: Graph,
        model: nn.Module,
        options: Options,
        partition: Partition,
        programs: dict[LaneName, Program] | None = None,
        lambdas: "Lambdas | None" = None,
        cluster: str | None = None,
        traced: bool = False,
        memory: str | None = None,
        scratch: Path | None = None,
        callbacks: Sequence[Callback] = (),
        advisor: Advisor | None = None,
        redundancy: int | Literal["eager"] = 0,
    ) -> None:
        """Ready to be prepared.

        programs: those of another training of this model on this graph; None: they are compiled
        lambdas:  what computes tensor tasks; None: as `options` say, on threads or on this machine's Lambdas
        cluster:  the address of a Ray cluster to run on; None: in this process
        traced:   whether `activity` tells of every task
        memory:   a size that this process may take; None: what is free
        scratch:  a directory for tables that do not fit, on a cluster one of each server's machine; None: all are in memory
        callbacks: called after every epoch
        advisor:  chooses how this process's servers walk their edges, or says that a cluster's have one of their own; None: the rules do
        redundancy: number of warm copies of each server of a cluster; "eager": one, which runs forward tasks beforehand
        """
        self._redundancy = redundancy
        self.model, self.options = model, options
        self.history: list[EpochMetrics] = []
        self.busy_seconds: Mapping[str, float] = {}
        self.activity = EpochActivity()
        self.partition = partition
        if options.mode == "sampled":  # its servers share batches; evaluations run here
            partition = Partition.whole(graph.num_vertices)
        self.plan = replace(
            ServerPlan.of(graph, model, options, partition, programs=programs),
            advisor=advisor if cluster is None else None,
        )
        self._sampled = (
            SampledTraining(self.plan, model, self.partition, cluster=cluster is not None, memory=memory)
            if options.mode == "sampled"
            else None
        )
        if self._sampled is not None:
            self.plan = self.plan.laid_out(self._sampled.layout)
        elif options.layout == "auto":
            travels = cluster is not None and partition.parts > 1 and options.mode != "async"
            budget = None if memory is None else budget_bytes(memory)
            self.plan = decided(self.plan, budget) if travels else self.plan.laid_out(VERTICES)
        self.stopped = self.callback_failed = False
        self._pace = self._paced(callbacks)
        self._best_weights: Mapping[str, Tensor] = self.plan.weights
        self._start = Snapshot(Epoch(0), Version(0), self.plan.weights, {}, {})
        self._earlier: dict[str, Any] = {}
        self._runtime: LocalRuntime | ClusterRuntime | SampledRuntime | None = None
        self._cluster, self._traced, self._memory = cluster, traced, memory
        self._advised = advisor is not None
        self._lambdas = lambdas or lambdas_asked(options)
        self._moved: Mapping[str, float] = DiskTraffic().counts()
        self._scratch = scratch
        if scratch is not None and cluster is None:
            ScratchDirectory(scratch)  # refused now if it is not there

    def _paced(self, callbacks: Sequence[Callback]) -> Pace | None:
        """The pace of the run, if it has one; the plan then knows it."""
        options = self.options
        if options.scheduler is None and options.groups is None and not callbacks:
            return None
        if options.update_every is not None:
            raise BadInput(
                "callbacks are for updates that are an epoch's, and update_every makes others: leave one out"
            )
        self.plan = replace(self.plan, paced=True)
        return Pace(options.optimizer, self.plan.rate_groups, options.scheduler, callbacks)

    @property
    def epoch(self) -> int:
        """How many are done."""
        return len(self.history)

    @property
    def objective(self) -> Objective:
        """What is learnt."""
        return self.plan.objective

    @property
    def on_cluster(self) -> bool:
        """Whether its servers are processes of other machines, which read the graph for themselves."""
        return self._cluster is not None

    @property
    def done(self) -> bool:
        best = best_epoch(self.history, self.objective.metric)
        patience = self.options.patience
        stopped = patience is not None and best is not None and self.epoch - best.epoch >= patience
        return self.epoch >= self.options.epochs or stopped or self.stopped

    @property
    def batch_order(self) -> str:
        """The order of mini-batches, as `batch_order` asks for it."""
        return "random" if self._sampled is None else self._sampled.batch_order

    @property
    def programs(self) -> dict[LaneName, Program]:
        """What the model was compiled to, for training and for evaluation."""
        return self.plan.programs

    def run(self) -> Iterator[EpochMetrics | Checkpoint | Rewound]:
        """Train; every epoch as it ends, a checkpoint now and then, one at the end, and what was lost in between."""
        runtime = self._runtime
        if runtime is None:
            return
        with closing(cast(Generator[Happening], runtime.events())) as events:
            for event in events:
                match event:
                    case EpochRecord():
                        self.busy_seconds, self.activity = event.busy_seconds, event.activity
                        self._moved = added(self._moved, event.activity.disk)
                        self.history.append(self._metrics(event))
                        yield self.history[-1]
                        self._close_epoch(runtime, event)
                    case Snapshot():
                        yield self._checkpoint(event)
                    case Rewound():
                        taken_back = self.history[event.epochs :]
                        del self.history[event.epochs :]
                        if taken_back and self._pace is not None and self._pace.closes:
                            self._pace.go_back(self.history)
                        yield event
                    case Outcome():
                        # Lambdas have gone home since: their bills are in it now.
                        counters = {**runtime.counters(), **self._moved}
                        self._earlier = added(self._start.counters, counters)
                        self._end(event)
                        if event.last is not None:
                            yield self._checkpoint(replace(event.last, counters=counters))

    def _metrics(self, record: EpochRecord) -> EpochMetrics:
        moved: dict[str, Any] = dict(record.activity.disk)
        found = replace(metrics_of(record, self.objective), **moved)
        return found if self._pace is None else replace(found, lr=self._pace.lr(record.epoch))

    def _close_epoch(
        self, runtime: "LocalRuntime | ClusterRuntime | SampledRuntime", record: EpochRecord
    ) -> None:
        """Let callbacks see an epoch, and the next begin."""
        if self._pace is None or not self._pace.closes:
            return
        self.callback_failed = True
        stop = self._pace.close(self.history)
        self.callback_failed = False
        self.stopped |= stop
        runtime.close_epoch(record, stop=stop)

    def stop_soon(self) -> None:
        """End `run` at the end of an epoch, after a checkpoint. May be called from a signal's handler."""
        if self._runtime is not None:
            self._runtime.stop_soon()

    def story(self) -> tuple[list[Entry], list[str]]:
        """What happened to the machines, and what waits for what."""
        runtime = self._runtime
        return ([], []) if runtime is None else (runtime.story.of(), runtime.waiting())

    def counters(self) -> dict[str, Any]:
        """What was counted, in this and in earlier sessions."""
        return self._earlier

    def finish(self) -> None:
        """Give the model the weights of its best epoch, and keep what the advisor found."""
        if self.plan.advisor is not None:
            self.plan.advisor.keep()
        with torch.no_grad():
            for name, tensor in state_of(self.model).items():
                tensor.copy_(self._best_weights[name])
        self.model.eval()

    def restore(
        self, tensors: dict[str, Tensor], counters: dict[str, Any], history: list[EpochMetrics]
    ) -> None:
        """Be again as when a checkpoint was taken."""
        parts = ("model", "best", "optimizer", "pace")
        weights, best, optimizer, pace = (under(f"{part}.", tensors) for part in parts)
        if len(weights) + len(best) + len(optimizer) + len(pace) != len(tensors):
            raise ValueError("it has tensors that belong to no part of a checkpoint")
        for part in (weights, best):
            refuse_others(part, self.plan.weights)
        learnt = {name: weights[name] for names in self.plan.groups.values() for name in names}
        updated = self.options.mode != "async" and len(history) > 0
        check_state(optimizer, learnt, self.plan.settings, updated=updated)
        if self._pace is not None and self._pace.closes:
            self._pace.go_back(history, saved_rates(pace, self._pace.num_groups))
        self.history = history
        self._best_weights, self._earlier = best, counters
        epoch = Epoch(len(history))
        self._start = Snapshot(epoch, Version(epoch), weights, optimizer, counters)

    def prepare(
        self, checkpoint_every: float | None = None, log: Path | None = None
    ) -> tuple[list[str], list[str]]:
        """Make everything ready; what will run and what it needs, in words, and the reasons.

        checkpoint_every: seconds between checkpoints; 0: after every epoch; None: only at the end
        log:              a directory for the logs of servers on other machines
        """
        if self.done:
            return [], []
        program = self.programs["train"]
        due = CheckpointDue(checkpoint_every)
        placed = self._prepare_here(due) if self._cluster is None else self._prepare_cluster(due, log)
        if self._sampled is not None:  # batches run the model as it is: nothing was chosen for them
            return placed, []
        unused = unused_edge_data(program, self.plan.graph)
        advice = [] if self.plan.advisor is None else self.plan.advisor.reasons()
        if self._runtime is not None and not isinstance(self._runtime, LocalRuntime | SampledRuntime):
            advice = self._runtime.reasons
        return [headline(program), *unused, *placed], [*program.choices, *advice]

    def _prepare_cluster(self, due: CheckpointDue, log: Path | None) -> list[str]:
        from siafu.cluster.on_ray.ray_crew import RayCrew
        from siafu.cluster.runtime import ClusterRuntime

        assert self._cluster is not None
        if self._sampled is not None:
            return self._prepare_sampled(self._sampled, due, self._cluster, log)
        chosen = self._fit_servers()
        crew = RayCrew(
            self._cluster, self.plan, self.model, self._lambdas, memory=self._memory, advised=self._advised
        )
        runtime = ClusterRuntime(
            self.plan,
            crew,
            self._run_machine,
            self._start,
            log=log,
            checkpoint_due=due,
            redundancy=self._redundancy,
            traced=self._traced,
        )
        lines = [*runtime.prepare(), *chosen]
        self._runtime = runtime
        return lines if self._lambdas is None else [*lines, self._lambdas.among_servers()]

    def _fit_servers(self) -> list[str]:
        """Have each server of a cluster spare what it must to be within `memory`; the choice, in words."""
        if self._memory is None:
            return []
        parts = parts_of(self.plan.graph, self.plan.partition)
        self.plan, told = fit_apart(
            self.plan, parts, self._memory, on_lambdas=self._lambdas is not None, scratch=self._scratch
        )
        return told

    @cached_property
    def fit(self) -> Fit:
        """The plan as it fits this process's memory, chosen before any array is allocated."""
        if self._sampled is not None:
            listing = self._sampled.listing
        else:
            listing = RunListing.of(self.plan, on_lambdas=self._lambdas is not None)
        scratch = None if self._scratch is None else ScratchDirectory(self._scratch)
        return fit(listing, budget_bytes(self._memory, listing.taken), scratch)

    @property
    def memory_choice(self) -> Choice:
        """The measures by which the training spares memory."""
        return self.fit.choice

    @property
    def memory_list(self) -> MemoryList:
        """Every array of the training in this process, listed before any of them is allocated."""
        return self.fit.choice.listed

    def memory_counts(self) -> dict[str, int | None]:
        """Bytes that this process may take and was planned to take; none on a cluster, whose servers have budgets of their own."""
        if self.on_cluster:
            return {}
        return {"memory_budget_bytes": self.fit.budget, "memory_planned_bytes": self.memory_list.peak}

    def refuse_more_than_budget(self) -> None:
        """Refuse a training whose arrays cannot all be held in this process; none of them is allocated yet."""
        if self.on_cluster and self._sampled is None:
            return
        fewer = "fewer servers in this process, " if self.options.servers > 1 else ""
        self.fit.refuse_misfit(
            "training",
            f"narrower layers (hidden), {fewer}rows in bf16 (precision), a cluster or a machine with more",
            memory=self._memory,
        )

    def _prepare_here(self, due: CheckpointDue) -> list[str]:
        self.refuse_more_than_budget()
        if self._sampled is not None:
            return self._prepare_sampled(self._sampled, due)
        plan = self.plan = self.fit.plan
        with one_thread():  # what is folded has the same bits wherever it is made
            blueprint = plan.blueprint(on_lambdas=self._lambdas is not None)
            assembly = assemble(blueprint, plan.features, plan.weights)
        setup = plan.setup(assembly.layout, rows_travel=self._lambdas is not None)
        self._runtime = LocalRuntime(
            setup,
            self._run_machine(setup),
            assembly.workers,
            tuple(plan.weight_store(setup, server) for server in range(setup.weight_servers)),
            self._start,
            threads=thread_count(),
            lambdas=self._lambdas,
            checkpoint_due=due,
            traced=self._traced,
        )
        lines = [_placed(self.memory_list, plan.partition, plan.interval_counts), *self.fit.told()]
        return lines if self._lambdas is None else [*lines, str(self._lambdas)]

    def _prepare_sampled(
        self,
        sampled: SampledTraining,
        due: CheckpointDue,
        cluster: str | None = None,
        log: Path | None = None,
    ) -> list[str]:
        crew = None
        if cluster is not None:
            from siafu.sampling.servers.ray_sample_crew import RaySampleCrew

            crew = RaySampleCrew(cluster, self.plan, self.model, self.partition, self._memory)
        self._runtime = sampled.runtime(
            self.fit.plan,
            self._start,
            self._run_options,
            best=self._best_before,
            rates=None if self._pace is None else self._pace.rates,
            checkpoint_due=due,
            traced=self._traced,
            crew=crew,
            log=log,
        )
        placed = f"{self.memory_list.peak / 1e6:,.0f} MB of memory; {counted(thread_count(), 'thread')}"
        return [sampled.told(), placed, *self.fit.told()]

    @property
    def _run_options(self) -> RunOptions:
        options = self.options
        return RunOptions(
            options.epochs,
            options.evaluate_every,
            options.patience,
            exact_above=options.exact_above,
            closes=self._pace is not None and self._pace.closes,
        )

    @property
    def _best_before(self) -> Best | None:
        """The best epoch of earlier sessions."""
        metric = self.objective.metric
        best = best_epoch(self.history, metric)
        return None if best is None else Best(Epoch(best.epoch - 1), best.score(metric))

    def _run_machine(self, setup: Setup) -> RunMachine:
        return RunMachine(
            setup,
            self._run_options,
            self.objective.score,
            start=Anchor(self._start.epochs, self._start.version),
            best=self._best_before,
            exact=self._was_exact(),
            rates=None if self._pace is None else self._pace.rates,
        )

    def _was_exact(self) -> bool:
        """Whether an earlier session had come to exact epochs."""
        above, metric = self.options.exact_above, self.objective.metric
        return above is not None and any(epoch.score(metric).reaches(above) for epoch in self.history)

    def _checkpoint(self, snapshot: Snapshot) -> Checkpoint:
        if snapshot.best is not None:
            self._best_weights = snapshot.best
        tensors = {f"model.{name}": tensor for name, tensor in snapshot.weights.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self._best_weights.items()}
        tensors |= {f"optimizer.{name}": tensor for name, tensor in snapshot.optimizer.items()}
        if self._pace is not None and self._pace.closes:
            tensors["pace.rates"] = self._pace.state()
        counters = {**snapshot.counters, **self._moved}
        return Checkpoint(snapshot.epochs, tensors, added(self._start.counters, counters))

    def _end(self, outcome: Outcome) -> None:
        if outcome.stop.reason == "diverged":
            raise Diverged(
                f"the loss is not a number in epoch {outcome.stop.epochs + 1}: training diverged; "
                f"choose a learning rate below {self.options.lr:g} (lr, on the command line --lr)"
            )


def _placed(listed: MemoryList, partition: Partition, counts: Sequence[int]) -> str:
    servers = "1 graph server" if len(counts) == 1 else f"{len(counts)} graph servers ({partition.method})"
    intervals = "1 interval" if counts[0] == 1 else f"{counts[0]} intervals"
    each = " each" if len(counts) > 1 else ""
    return f"{servers} with {intervals}{each}, {listed.peak / 1e6:,.0f} MB of memory; {counted(thread_count(), 'thread')}"
