"""Trainer: one training as a run of the pipeline, made of a graph, a model and options."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from siafu.base.activity import together
from siafu.base.errors import Diverged
from siafu.base.memory import refuse_more_than_free
from siafu.base.threads import thread_count
from siafu.graph import Graph
from siafu.graph.content import SPLITS
from siafu.graph.partition import Partition
from siafu.options import Options
from siafu.pipeline.events import Measures
from siafu.pipeline.ids import Anchor, Epoch, Version
from siafu.pipeline.ids import Lane as LaneName
from siafu.pipeline.records import Best, Score
from siafu.pipeline.run import RunMachine
from siafu.pipeline.run_options import RunOptions
from siafu.pipeline.setup import Setup
from siafu.program.headline import headline
from siafu.program.program import Program
from siafu.program.record.record import state_of
from siafu.report.files.metrics import EpochMetrics, best_epoch
from siafu.report.lambda_metrics import lambda_metrics
from siafu.runtime.counting import added
from siafu.runtime.happenings import Doings, EpochRecord, Outcome, Rewound, Snapshot
from siafu.runtime.lambdas import Lambdas
from siafu.runtime.local import LocalRuntime
from siafu.runtime.one_thread import one_thread
from siafu.runtime.story import Entry
from siafu.server.assembly import Assembly, assemble
from siafu.server.need import least_bytes
from siafu.server.plan import Plan, model_input
from siafu.server.worker import tallies_of
from siafu.serverless.platforms.platform import LocalPlatform, Platform
from siafu.weights.optimizer import check_state

if TYPE_CHECKING:
    from siafu.cluster.runtime import ClusterRuntime


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """With its tensors, its counters and the history up to its epoch, training goes on as if it had never stopped."""

    epoch: int
    tensors: dict[str, Tensor]
    counters: dict[str, Any]


class Trainer:
    """A training: `prepare` it, `run` it, and it gives what happens; then `finish` gives the model its best weights.

    history:   what each epoch measured
    busy_seconds: what tasks took from the start to the last epoch in `history`, over all threads, by kind
    doings:    what was done for the last epoch in `history`
    plan:      what the model was compiled to, and how its work is laid out
    """

    def __init__(
        self,
        graph: Graph,
        model: nn.Module,
        options: Options,
        partition: Partition,
        programs: dict[LaneName, Program] | None = None,
        lambdas: Lambdas | None = None,
        cluster: str | None = None,
        traced: bool = False,
    ) -> None:
        """Ready to be prepared.

        programs: those of another training of this model on this graph; None: they are compiled
        lambdas:  what computes tensor tasks; None: as `options` say, on threads or on this machine's Lambdas
        cluster:  the address of a Ray cluster to run on; None: in this process
        traced:   whether `doings` tell of every task
        """
        self.model, self.options = model, options
        self.history: list[EpochMetrics] = []
        self.busy_seconds: Mapping[str, float] = {}
        self.doings = Doings()
        self.plan = Plan.of(graph, model, options, partition, programs=programs)
        self._best_weights: Mapping[str, Tensor] = self.plan.weights
        self._start = Snapshot(Epoch(0), Version(0), self.plan.weights, {}, {})
        self._earlier: dict[str, Any] = {}
        self._runtime: LocalRuntime | ClusterRuntime | None = None
        self._cluster, self._traced = cluster, traced
        self._lambdas = lambdas or _lambdas(options)

    @property
    def epoch(self) -> int:
        """How many are done."""
        return len(self.history)

    @property
    def on_cluster(self) -> bool:
        """Whether its servers are processes of other machines, which read the graph for themselves."""
        return self._cluster is not None

    @property
    def done(self) -> bool:
        best = best_epoch(self.history)
        patience = self.options.patience
        stopped = patience is not None and best is not None and self.epoch - best.epoch >= patience
        return self.epoch >= self.options.epochs or stopped

    @property
    def programs(self) -> dict[LaneName, Program]:
        """What the model was compiled to, for training and for evaluation."""
        return self.plan.programs

    def run(self) -> Iterator[EpochMetrics | Checkpoint | Rewound]:
        """Train; every epoch as it ends, a checkpoint now and then, one at the end, and what was lost in between."""
        runtime = self._runtime
        if runtime is None:
            return
        for event in runtime.events():
            match event:
                case EpochRecord():
                    self.busy_seconds, self.doings = event.busy_seconds, event.doings
                    self.history.append(_metrics(event))
                    yield self.history[-1]
                case Snapshot():
                    yield self._checkpoint(event)
                case Rewound():
                    del self.history[event.epochs :]
                    yield event
                case Outcome():
                    counters = runtime.counters()  # Lambdas have gone home since: their bills are in it now
                    self._earlier = added(self._start.counters, counters)
                    self._end(event)
                    if event.last is not None:
                        yield self._checkpoint(replace(event.last, counters=counters))

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
        """Give the model the weights of its best epoch."""
        with torch.no_grad():
            for name, tensor in state_of(self.model).items():
                tensor.copy_(self._best_weights[name])
        self.model.eval()

    def restore(
        self, tensors: dict[str, Tensor], counters: dict[str, Any], history: list[EpochMetrics]
    ) -> None:
        """Be again as when a checkpoint was taken."""
        weights, best, optimizer = (_under(f"{part}.", tensors) for part in ("model", "best", "optimizer"))
        if len(weights) + len(best) + len(optimizer) != len(tensors):
            raise ValueError("it has tensors that belong to no part of a checkpoint")
        for part in (weights, best):
            _refuse_others(part, self.plan.weights)
        learnt = {name: weights[name] for names in self.plan.groups.values() for name in names}
        updated = self.options.mode != "async" and len(history) > 0
        check_state(optimizer, learnt, self.plan.settings, updated=updated)
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
        due = _Due(checkpoint_every)
        placed = self._prepare_here(due) if self._cluster is None else self._prepare_cluster(due, log)
        return [headline(program), *placed], list(program.choices)

    def _prepare_cluster(self, due: "_Due", log: Path | None) -> list[str]:
        from siafu.cluster.ray_crew import RayCrew
        from siafu.cluster.runtime import ClusterRuntime

        assert self._cluster is not None
        crew = RayCrew(self._cluster, self.plan, self.model, self._lambdas)
        runtime = ClusterRuntime(
            self.plan,
            crew,
            self._run_machine,
            self._start,
            log=log,
            checkpoint_due=due,
            traced=self._traced,
        )
        lines = runtime.prepare()
        self._runtime = runtime
        return lines if self._lambdas is None else [*lines, self._lambdas.among_servers()]

    def refuse_more_than_free(self) -> None:
        """Refuse a training whose rows cannot all be held in this process; nothing of them is allocated yet."""
        if self.on_cluster:
            return
        fewer = "fewer servers in this process, " if self.options.servers > 1 else ""
        refuse_more_than_free(
            least_bytes(self.plan, on_lambdas=self._lambdas is not None),
            "training",
            f"choose narrower layers (hidden), {fewer}rows in bf16 (precision), a cluster or a machine with more",
        )

    def _prepare_here(self, due: "_Due") -> list[str]:
        self.refuse_more_than_free()
        plan = self.plan
        x = model_input(plan.graph, normalize=self.options.normalize_features)
        with one_thread():  # what is folded has the same bits wherever it is made
            assembly = assemble(plan.blueprint(), x.to(plan.dtype), plan.weights)
        setup = plan.setup(assembly.layout)
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
        lines = [_placed(assembly, plan.partition, plan.interval_counts)]
        return lines if self._lambdas is None else [*lines, str(self._lambdas)]

    def _run_machine(self, setup: Setup) -> RunMachine:
        options = self.options
        best = best_epoch(self.history)
        return RunMachine(
            setup,
            RunOptions(
                options.epochs,
                options.evaluate_every,
                options.patience,
                exact_above=options.exact_above,
            ),
            _score,
            start=Anchor(self._start.epochs, self._start.version),
            best=None
            if best is None
            else Best(Epoch(best.epoch - 1), Score(best.val_accuracy, best.val_loss)),
            exact=self._was_exact(),
        )

    def _was_exact(self) -> bool:
        """Whether an earlier session had come to exact epochs."""
        above = self.options.exact_above
        return above is not None and any((epoch.val_accuracy or 0.0) >= above for epoch in self.history)

    def _checkpoint(self, snapshot: Snapshot) -> Checkpoint:
        if snapshot.best is not None:
            self._best_weights = snapshot.best
        tensors = {f"model.{name}": tensor for name, tensor in snapshot.weights.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self._best_weights.items()}
        tensors |= {f"optimizer.{name}": tensor for name, tensor in snapshot.optimizer.items()}
        return Checkpoint(snapshot.epochs, tensors, added(self._start.counters, snapshot.counters))

    def _end(self, outcome: Outcome) -> None:
        if outcome.stop.reason == "diverged":
            raise Diverged(
                f"the loss is not a number in epoch {outcome.stop.epochs + 1}: training diverged; "
                f"choose a learning rate below {self.options.lr:g} (lr, on the command line --lr)"
            )


def _lambdas(options: Options) -> Lambdas | None:
    if options.lambdas == "off":
        return None
    return lambdas_on(LocalPlatform(), options.lambda_count)


def lambdas_on(platform: Platform, count: int | str | None) -> Lambdas:
    """As many as wanted: a number, "auto", or None, what is usual there: where they cost nothing, one a core."""
    one_a_core = count is None and not platform.paid
    if count is None:
        count = "auto" if platform.paid else thread_count()
    return Lambdas(None if isinstance(count, str) else count, platform, one_a_core)


class _Due:
    """Whether a checkpoint is due: when called, and the last time it was is long enough ago."""

    def __init__(self, every: float | None) -> None:
        self._every, self._last = every, time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if self._every is None or now - self._last < self._every:
            return False
        self._last = now
        return True


def _placed(assembly: Assembly, partition: Partition, counts: Sequence[int]) -> str:
    servers = "1 graph server" if len(counts) == 1 else f"{len(counts)} graph servers ({partition.method})"
    intervals = "1 interval" if counts[0] == 1 else f"{counts[0]} intervals"
    each = " each" if len(counts) > 1 else ""
    needed = max(worker.activation_bytes for worker in assembly.workers) / 1e6
    return f"{servers} with {intervals}{each}, {needed:,.1f} MB of rows{each}; {thread_count()} threads"


def _score(measures: Measures) -> Score:
    val = tallies_of(measures).get("val")
    return Score(None, None) if val is None else Score(val.accuracy, val.loss)


def _metrics(record: EpochRecord) -> EpochMetrics:
    tallies = {} if record.evaluation is None else tallies_of(record.evaluation)
    accuracies = {
        f"{split}_accuracy": tallies[split].accuracy if split in tallies else None for split in SPLITS
    }
    return EpochMetrics(
        epoch=record.epoch + 1,
        train_loss=record.training[0],
        val_loss=tallies["val"].loss if "val" in tallies else None,
        **accuracies,
        seconds=record.seconds,
        evaluate_seconds=record.evaluate_seconds if tallies else None,
        time=time.time(),
        busy_seconds=together(record.doings.threads),
        staleness=dict(record.doings.staleness),
        bytes_scattered=record.doings.bytes_scattered,
        lambdas=lambda_metrics(record.doings),
    )


def _refuse_others(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not those of this model: their names, shapes and types."""
    if unknown := sorted(found.keys() - wanted.keys()):
        raise ValueError(f"it has {unknown[0]}, which the model has not")
    for name, tensor in wanted.items():
        if name not in found or found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            raise ValueError(f"it has no {name} of shape {list(tensor.shape)} and {tensor.dtype}")


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
