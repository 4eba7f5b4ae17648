"""siafu.train: training a model on a whole graph."""

import json
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from siafu.base.errors import BadInput, Interrupted
from siafu.base.machine import architecture, memory_bytes, peak_rss_bytes
from siafu.base.threads import thread_count
from siafu.base.version import __version__
from siafu.cost.prices import price_book
from siafu.cost.run_prices import RunPrices
from siafu.graph import Graph
from siafu.graph.fingerprint import fingerprint
from siafu.graph.partition import Partition
from siafu.graph.remote import is_address
from siafu.graph.store import is_store
from siafu.options import LAMBDAS, Options
from siafu.report.files.checkpoint import is_whole, load_tensors, save_tensors
from siafu.report.files.checkpoint_state import CheckpointState
from siafu.report.files.journal import Journal
from siafu.report.files.metrics import EpochMetrics
from siafu.report.files.run_directory import RunDirectory
from siafu.report.files.sampling import Sampling, TraceMode, trace_mode
from siafu.report.files.tensorboard import TensorBoardLog
from siafu.report.files.trace_file import TraceFile
from siafu.report.progress import Progress
from siafu.report.run_cost import RunCost
from siafu.report.score import Target
from siafu.report.signals import StopRequest
from siafu.runtime.happenings import Rewound
from siafu.serverless.platforms.platform import AwsPlatform, LocalPlatform, Platform
from siafu.training.facts import facts_of
from siafu.training.failure import story_of_failure
from siafu.training.placement import choose_partition, describe_partition
from siafu.training.run import NO_LAMBDAS, Run
from siafu.training.trainer import Checkpoint, Trainer, lambdas_on


def train(
    graph: Graph,
    model: nn.Module,
    *,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    decay: str = "all",
    optimizer: str = "adam",
    seed: int = 0,
    patience: int | None = None,
    normalize_features: bool = False,
    evaluate_every: int = 1,
    mode: str = "pipe",
    staleness: int = 0,
    servers: int = 1,
    intervals: int | None = None,
    partition: str | Partition = "auto",
    weights: str = "stash",
    weight_servers: int = 1,
    update_every: int | None = None,
    exact_above: float | None = None,
    lambdas: str | Platform = "off",
    lambda_count: int | str | None = None,
    cluster: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_every: float = 10.0,
    trace: str = "sampled",
    tensorboard: bool = False,
    dataset: str | None = None,
    instance: str | None = None,
    prices: str | Path | None = None,
    progress: Progress | None = None,
) -> "Run":
    """Train `model` on the whole of `graph`, in place; it ends with the weights of its best epoch.

    The best epoch is the one of highest validation accuracy; of equals the one of lowest validation loss; of
    equals the earliest. Without a validation split it is the last. Only training rows enter the loss.

    lr, weight_decay, optimizer: "adam", "adamw" or "sgd" with PyTorch's other settings
    decay:              what weight decay falls on: "all" parameters, or those of the "first" layer (as in the
                        paper on GCN)
    seed:               of dropout, whose masks depend on nothing else: not on mode, servers or intervals
    patience:           stop when this many epochs in a row were not better than the best
    normalize_features: divide each vertex's features by the sum of their magnitudes
    evaluate_every:     epochs from one evaluation to the next; the last is always evaluated
    mode:               "sync": a barrier after every step; "pipe": tasks overlap, the result is the same; "async": gathers
                        read what is there, within `staleness`; the first epoch is exact
    staleness:          async: how many epochs an interval may be ahead of the slowest
    servers:            graph servers, each with a part of the graph; all in this process
    intervals:          parts of a server's vertices that pass through the pipeline one by one; None: as many as pay, or
                        with `resume` as many as there were
    partition:          which vertices a server owns: a method's name (see `siafu partition`) or a `Partition`; "auto": the
                        one saved in the graph's store, or the best method there is
    weights:            versions of the weights that may be in use at a time: "stash", any number; "2bw", two; "flush", one
    weight_servers:     how many share the weights and the optimizer's work
    update_every:       async: how many intervals' gradients make an update, whoever's come first; None: those of one epoch
    exact_above:        async: go on exactly once the validation accuracy is at least this
    lambdas:            where tensor tasks run: "off", on this process's threads; "local", on Lambdas: processes of this
                        machine under AWS's own runtime client, which pull their rows and weights over the network;
                        "aws", on the function that `siafu lambda deploy` makes; or a `siafu.serverless.platforms.platform`
    lambda_count:       how many of them at most; "auto": as many as prove best, found anew after every epoch; None: one a
                        core, on AWS "auto"
    cluster:            run the servers on a Ray cluster: "auto", the one that runs on this machine, or its address. The graph
                        must be a store that all its machines reach at the same path. A server that is lost is replaced
    out:                the run's directory (see `siafu.report.files.run_directory`); None: nothing is saved
    resume:             go on with the run in `out` from its last checkpoint, as if it had never stopped
    overwrite:          replace the run that is in `out`
    checkpoint_every:   seconds from one checkpoint to the next; 0: after every epoch
    trace:              which epochs `out` gets a trace of: "sampled", the first few, some more and the last; "full", all
                        that fit; "off", none
    tensorboard:        write metrics for TensorBoard, too, in `out`/tensorboard
    dataset:            what `siafu.load` takes to get `graph` again, kept for `siafu evaluate` and `predict`; None:
                        what it was loaded from
    instance:           what it runs on, so that its cost is known: "c5.2xlarge", or "c5.2xlarge:spot"; None: it is told what it
                        would cost on the type most like this machine
    prices:             a price file (docs/cost.md); None: $SIAFU_PRICES, and the prices that come with Siafu
    progress:           told of every epoch

    With `out`, SIGINT and SIGTERM save a checkpoint at the end of an epoch, at most two later, and raise `Interrupted`;
    so does the dashboard's stop button (see `siafu.report.files.stop_file`).
    """
    if not isinstance(graph, Graph):
        raise BadInput(
            f"train takes a siafu.Graph, not {type(graph).__name__}: make one with Graph.from_pyg, from_dgl or from_edges"
        )
    path = None if out is None else Path(out)
    if resume and path is None:
        raise BadInput("nothing to resume: name the run's directory (out, on the command line --out)")
    if resume and path is not None and intervals is None:
        intervals = _intervals_before(RunDirectory(path))
    method = partition if isinstance(partition, str) else partition.method
    where = lambdas if isinstance(lambdas, str) else lambdas.name
    options = Options(
        epochs,
        lr,
        weight_decay,
        decay,
        optimizer,
        seed,
        patience,
        normalize_features,
        evaluate_every,
        mode,
        staleness,
        servers,
        intervals,
        method,
        weights,
        weight_servers,
        update_every,
        exact_above,
        where,
        lambda_count,
    )
    if not checkpoint_every >= 0:
        raise BadInput(f"checkpoint_every is {checkpoint_every}: give seconds, from 0 up")
    tracing = trace_mode(trace)
    if tensorboard and path is None:
        raise BadInput(
            "TensorBoard's files go into the run's directory: name one (out, on the command line --out)"
        )
    listener = progress or Progress()
    given = choose_partition(graph, servers, partition)
    platform = _platform(lambdas)
    run_prices = RunPrices.of(
        price_book(prices),
        instance,
        1 if cluster is None else servers,
        like=(thread_count(), memory_bytes()[0], architecture()),
        lambdas=platform.prices if platform is not None and platform.paid else None,
    )
    trainer = Trainer(
        graph,
        model,
        options,
        given,
        lambdas=None if platform is None else lambdas_on(platform, lambda_count),
        cluster=_checked_cluster(cluster, graph, options),
        traced=tracing != "off" and path is not None,
    )
    if not resume:
        trainer.refuse_more_than_free()  # before a run that is there is overwritten
    config = _config(graph, model, trainer, dataset)
    if path is None:
        return _in_memory(trainer, config, listener, run_prices)
    log = TensorBoardLog(path / "tensorboard", listener) if tensorboard else None
    config["graph"]["fingerprint"] = fingerprint(graph)
    if resume:
        directory = RunDirectory.resume(path, config)
    else:
        directory = RunDirectory.start(path, config, overwrite=overwrite)
    try:
        return _saved(trainer, config, log or listener, directory, checkpoint_every, tracing, run_prices)
    finally:
        if log is not None:
            log.close()
        directory.close()


def _platform(lambdas: str | Platform) -> Platform | None:
    """Where Lambdas run; None: there are none. An account or function that is wrong is refused here."""
    if not isinstance(lambdas, str):
        return lambdas
    if lambdas not in LAMBDAS:
        raise BadInput(f"lambdas is {lambdas!r}: choose one of {', '.join(LAMBDAS)}")
    if lambdas == "off":
        return None
    return LocalPlatform() if lambdas == "local" else AwsPlatform.of()


def _checked_cluster(cluster: str | None, graph: Graph, options: Options) -> str | None:
    """What can never work is refused before any process starts."""
    if cluster is None:
        return None
    count = options.lambda_count
    if isinstance(count, int) and count < options.servers:
        raise BadInput(
            f"lambda_count is {count}, and each of {options.servers} graph servers on a cluster has Lambdas of its own: "
            f"give at least {options.servers}, or auto"
        )
    if graph.source is None or not (is_address(graph.source) or is_store(Path(graph.source))):
        raise BadInput(
            f"graph {graph.name!r} is no store, and a cluster's machines must read it for themselves: write one with "
            "graph.save(PATH) or 'siafu import', on a disk or at an address that all of them reach, and load that"
        )
    return cluster


def _in_memory(trainer: Trainer, config: dict[str, Any], progress: Progress, prices: RunPrices) -> Run:
    cost = RunCost(prices, trainer.history)
    progress.prepared(*trainer.prepare())
    progress.priced(cost.told)
    for event in trainer.run():
        if isinstance(event, EpochMetrics):
            progress.epoch_ended(cost.note())
        elif isinstance(event, Rewound):
            progress.rewound(event.epochs, event.lost)
    return _finished(trainer, config, cost.seconds, peak_rss_bytes(), None, cost)


def _saved(
    trainer: Trainer,
    config: dict[str, Any],
    progress: Progress,
    directory: RunDirectory,
    checkpoint_every: float,
    tracing: TraceMode,
    prices: RunPrices,
) -> Run:
    began = time.perf_counter()
    spent, peak = _restore(trainer, directory)
    cost = RunCost(prices, trainer.history, spent + time.perf_counter() - began)
    if directory.finished and trainer.done:
        if is_whole(directory.model):
            return Run.load(directory.path, trainer.model)
        return _ended(trainer, config, cost, peak, directory)
    progress.prepared(*trainer.prepare(checkpoint_every, directory.logs))
    progress.priced(cost.told)

    def save(checkpoint: Checkpoint) -> None:
        journal.sync()
        epoch = checkpoint.epoch
        state = CheckpointState(
            epoch,
            cost.seconds,
            max(peak, peak_rss_bytes()),
            checkpoint.counters,
            directory.metrics.checksum(epoch),
        )
        save_tensors(directory.checkpoint, checkpoint.tensors, state.as_json())

    def stop(number: signal.Signals) -> None:
        progress.stopping(number)
        trainer.stop_soon()

    directory.write_facts(facts_of(trainer))
    directory.reopen()
    with (
        StopRequest(stop) as request,
        story_of_failure(trainer, directory),
        _journal(trainer, directory, tracing, progress) as journal,
    ):
        for event in trainer.run():
            if isinstance(event, Checkpoint):
                save(event)
            elif isinstance(event, Rewound):
                journal.keep_until(event.epochs)
                progress.rewound(event.epochs, event.lost)
            else:
                metrics = cost.note()
                journal.add(metrics, trainer.doings)
                progress.epoch_ended(metrics)
                if directory.stop_file.there:
                    request.act_as(signal.SIGTERM)
        if request.signal is not None and not trainer.done:
            raise Interrupted(
                f"stopped by {request.signal.name} after epoch {trainer.epoch} and saved in {directory.path}; "
                "to go on, train again with resume",
                request.signal,
            )
        journal.sync()
        return _ended(trainer, config, cost, peak, directory)


def _ended(
    trainer: Trainer, config: dict[str, Any], cost: RunCost, peak: int, directory: RunDirectory
) -> Run:
    """The run, with its weights and its summary written: it has finished."""
    run = _finished(trainer, config, cost.seconds, max(peak, peak_rss_bytes()), directory.path, cost)
    summary = run.summary()
    save_tensors(directory.model, run.model.state_dict(), {"files": directory.checksums(summary)})
    directory.write_summary(summary)
    return run


def _journal(trainer: Trainer, directory: RunDirectory, tracing: TraceMode, progress: Progress) -> Journal:
    """What writes while the run goes on. An earlier session's trace goes on too, or is gone if none is wanted now."""
    if tracing == "off":
        directory.trace_path.unlink(missing_ok=True)
        return Journal(directory.metrics, None, progress.troubled)
    sampling, done = Sampling(trainer.options.epochs, full=tracing == "full"), trainer.epoch
    return Journal(
        directory.metrics,
        lambda: TraceFile(directory.trace_path, sampling, keep_until=done),
        progress.troubled,
    )


def _restore(trainer: Trainer, directory: RunDirectory) -> tuple[float, int]:
    """Bring the trainer to the last checkpoint; the seconds and the memory that this much has taken."""
    if not directory.checkpoint.exists():
        directory.metrics.keep_until(0)
        return 0.0, 0
    old = directory.may_lack_checksums
    tensors, found = _checkpoint_of(directory, old)
    state = CheckpointState.read(found, directory.checkpoint, may_lack_checksum=old)
    history = directory.metrics.read_until(state.epoch)
    try:
        trainer.restore(tensors, state.counters, history)
    except (RuntimeError, KeyError, ValueError) as error:
        raise BadInput(f"{directory.checkpoint} is of another model or optimizer: {error}") from error
    directory.metrics.check(state.epoch, state.metrics_crc32)
    directory.metrics.keep_until(state.epoch)
    return state.seconds, state.peak_rss_bytes


def _checkpoint_of(directory: RunDirectory, old: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        return load_tensors(directory.checkpoint, may_lack_checksum=old)
    except BadInput as error:
        left = f"; the weights of its best epoch are whole, in {directory.model}: evaluate and predict still work"
        raise BadInput(f"{error}{left if is_whole(directory.model) else ''}") from error


def _finished(
    trainer: Trainer, config: dict[str, Any], seconds: float, peak: int, path: Path | None, cost: RunCost
) -> Run:
    trainer.finish()
    counters = trainer.counters()
    bill = cost.bill(seconds, peak, counters.get("lambda", NO_LAMBDAS))
    return Run(trainer.model, trainer.history, config, counters, seconds, peak, path, bill)


def _intervals_before(directory: RunDirectory) -> int | None:
    """How many a server had when the run began: sums in another order would not go on bit for bit."""
    saved = directory.config().get("training") if directory.exists else None
    found = saved.get("intervals") if isinstance(saved, dict) else None
    return found if isinstance(found, int) else None


def _config(graph: Graph, model: nn.Module, trainer: Trainer, dataset: str | None) -> dict[str, Any]:
    config = {
        "siafu": __version__,
        "torch": torch.__version__,
        "dataset": dataset or graph.source,
        "graph": {
            "name": graph.name,
            "vertices": graph.num_vertices,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": graph.num_classes,
            "metric": Target.of(graph).metric,
        },
        "model": _describe(model),
        "training": asdict(trainer.options)
        | {"intervals": trainer.plan.interval_counts[0], "partition": trainer.plan.partition.method},
        "partition": describe_partition(trainer.plan.partition),
    }
    # As it comes back from a file, where tuples are lists.
    plain: dict[str, Any] = json.loads(json.dumps(config))
    return plain


def _describe(model: nn.Module) -> dict[str, Any]:
    from siafu.nn import MODELS

    for name, kind in MODELS.items():
        if type(model) is kind:
            return {"name": name, "config": model.config()}
    return {"name": f"{type(model).__module__}.{type(model).__qualname__}", "config": None}
