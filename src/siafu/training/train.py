"""siafu.train: training a model on a whole graph."""

import json
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from siafu.base.errors import BadInput, Interrupted
from siafu.base.hardware.machine import architecture, memory_bytes, peak_rss_bytes
from siafu.base.threads import thread_count
from siafu.base.version import __version__
from siafu.cost.prices import price_book
from siafu.cost.run_prices import RunPrices
from siafu.graph import Graph
from siafu.graph.class_counts import lopsided_split
from siafu.graph.foreign import graph_of
from siafu.graph.stores.fingerprint import fingerprint
from siafu.graph.stores.remote import is_address
from siafu.graph.stores.store import is_store
from siafu.nn.precision import set_precision
from siafu.objective.registry import objective_asked
from siafu.options import Named, Options, Session
from siafu.report.files.checkpoint import is_whole, save_tensors
from siafu.report.files.checkpoint_state import CheckpointState
from siafu.report.files.journal import Journal
from siafu.report.files.metrics import EpochMetrics
from siafu.report.files.run_directory import RunDirectory
from siafu.report.files.sampling import Sampling
from siafu.report.files.tensorboard import TensorBoardLog
from siafu.report.files.trace_file import TraceFile
from siafu.report.progress import Progress, ProgressLine
from siafu.report.run_cost import RunCost
from siafu.report.signals import StopRequest
from siafu.runtime.happenings import Rewound
from siafu.server.run_advisor import advisor_of
from siafu.training.keywords import Keywords, keywords_of
from siafu.training.lambda_choice import lambdas_on
from siafu.training.no_module import refuse_no_module
from siafu.training.placement import choose_partition, describe_partition
from siafu.training.records.checkpoint import Checkpoint
from siafu.training.records.facts import facts_of
from siafu.training.records.failure import story_of_failure
from siafu.training.records.model_description import describe_model
from siafu.training.records.resumption import refuse_fewer_epochs, restore
from siafu.training.redundancy import checked_redundancy
from siafu.training.run import NO_LAMBDAS, Run
from siafu.training.start import start_from
from siafu.training.trainer import Trainer

if TYPE_CHECKING:
    from siafu.serverless.platforms.platform import Platform


@keywords_of(Keywords)
def train(graph: Graph, model: nn.Module, asked: Keywords) -> Run:
    """Train `model` on the whole of `graph`, in place; it ends with the weights of its best epoch.

    `graph` may be PyG's `Data`, and `model` any module with a `forward(x, edge_index, …)`: see docs/from-pyg.md.

    The best epoch is the one of highest validation accuracy, or of the best that another objective measures; of equals the
    one of lowest validation loss; of equals the earliest. Without a validation split it is the last. Only training rows
    enter the loss.

    {keywords}

    With `out`, SIGINT and SIGTERM save a checkpoint at the end of an epoch, at most two later, and raise `Interrupted`;
    so does the dashboard's stop button (see `siafu.report.files.stop_file`).
    """
    if asked.progress is True:
        taken = graph_of(graph, "train")
        with ProgressLine(asked.epochs, metric=objective_asked(taken, asked).metric) as line:
            if lopsided := lopsided_split(_with_split(taken, asked)):
                line.prepared([lopsided], [])
            return _trained(taken, model, replace(asked, progress=line))
    return _trained(graph, model, asked)


def _trained(graph: Graph, model: nn.Module, asked: Keywords) -> Run:
    graph = _with_split(graph_of(graph, "train"), asked)
    refuse_no_module(model)
    start_from(model, asked.start)
    path = None if asked.out is None else Path(asked.out)
    if path is None:
        _refuse_without_directory(asked)
    elif asked.resume:
        asked = _as_before(asked, RunDirectory(path))
    else:
        RunDirectory(path).refuse_to_replace(overwrite=asked.overwrite)  # before anything is compiled
    precise = _precise(graph, model, asked)
    options, laid_out, why = _ordered(graph, model, asked)
    walked = _walked(laid_out, RunDirectory(path) if path is not None and asked.resume else None)
    platform = _platform(asked.lambdas)
    run_prices = RunPrices.of(
        price_book(asked.prices),
        asked.instance,
        1 if asked.cluster is None else asked.servers,
        like=(thread_count(), memory_bytes()[0], architecture()),
        lambdas=platform.prices if platform is not None and platform.paid else None,
    )
    trainer = Trainer(
        walked,
        model,
        options,
        choose_partition(walked, asked.servers, asked.partition),
        lambdas=None if platform is None else lambdas_on(platform, asked.lambda_count),
        redundancy=checked_redundancy(asked, asked),
        cluster=_checked_cluster(asked.cluster, graph, options),
        traced=asked.trace != "off" and path is not None,
        memory=asked.memory,
        scratch=None if asked.scratch is None else Path(asked.scratch),
        callbacks=(asked.callbacks,) if callable(asked.callbacks) else asked.callbacks,
        advisor=advisor_of(walked, asked.advisor, options.epochs),
    )
    if not asked.resume:
        trainer.refuse_more_than_budget()  # before a run that is there is overwritten
    config = _config(walked, model, trainer, asked.dataset)
    if graph.class_names:
        config["graph"]["class_names"] = list(graph.class_names)
    if graph.feature_names:
        config["graph"]["feature_names"] = list(graph.feature_names)
    listener = asked.progress if isinstance(asked.progress, Progress) else Progress()
    for reason in (precise, why):
        if reason is not None:
            listener.prepared([], [reason])
    if path is None:
        return _in_memory(trainer, config, listener, run_prices)
    log = TensorBoardLog(path / "tensorboard", listener) if asked.tensorboard else None
    config["graph"]["fingerprint"] = fingerprint(graph)
    if asked.resume:
        directory = RunDirectory.resume(path, config, partial(refuse_fewer_epochs, options.epochs))
    else:
        directory = RunDirectory.start(path, config, overwrite=asked.overwrite)
    try:
        return _saved(trainer, config, log or listener, directory, asked, run_prices)
    finally:
        if log is not None:
            log.close()
        directory.close()


def _refuse_without_directory(asked: Keywords) -> None:
    if asked.resume:
        raise BadInput("nothing to resume: name the run's directory (out, on the command line --out)")
    if asked.tensorboard:
        raise BadInput(
            "TensorBoard's files go into the run's directory: name one (out, on the command line --out)"
        )


def _platform(lambdas: str | Named) -> "Platform | None":
    """Where Lambdas run; None: there are none. An account or function that is wrong is refused here."""
    if not isinstance(lambdas, str):
        return cast("Platform", lambdas)
    if lambdas == "off":
        return None

    from siafu.serverless.platforms.platform import AwsPlatform, LocalPlatform

    return LocalPlatform() if lambdas == "local" else AwsPlatform.of()


def _with_split(graph: Graph, asked: Keywords) -> Graph:
    if asked.split is not None and asked.cluster is not None:
        raise BadInput(
            f"split {asked.split!r} is drawn in this process, and a cluster's machines read the graph for themselves: "
            "draw it with 'siafu import --split', or save graph.split(…) as a store"
        )
    return graph.split_as(asked.split, asked.split_seed).replace(source=graph.source)


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
        from siafu.graph.generate.shapes import SHAPES

        by_name = f"'siafu generate {graph.name} -o PATH', " if graph.name in SHAPES else ""
        raise BadInput(
            f"graph {graph.name!r} is no store, and a cluster's machines must read it for themselves: write one with "
            f"{by_name}graph.save(PATH) or 'siafu import', on a disk or at an address that all of them reach, and load that"
        )
    return cluster


def _in_memory(trainer: Trainer, config: dict[str, Any], progress: Progress, prices: RunPrices) -> Run:
    cost = RunCost(prices, trainer.history)
    progress.prepared(*trainer.prepare())
    cost.tell(progress)
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
    asked: Session,
    prices: RunPrices,
) -> Run:
    began = time.perf_counter()
    spent, peak = restore(trainer, directory)
    cost = RunCost(prices, trainer.history, spent + time.perf_counter() - began)
    if directory.finished and trainer.done:
        if is_whole(directory.model):
            return Run.load(directory.path, trainer.model, trainer.objective)
        return _ended(trainer, config, cost, peak, directory)
    progress.prepared(*trainer.prepare(asked.checkpoint_every, directory.logs))
    cost.tell(progress)

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
        _journal(trainer, directory, asked.trace, progress) as journal,
    ):
        for event in trainer.run():
            if isinstance(event, Checkpoint):
                save(event)
            elif isinstance(event, Rewound):
                journal.keep_until(event.epochs)
                progress.rewound(event.epochs, event.lost)
            else:
                metrics = cost.note()
                journal.add(metrics, trainer.activity)
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


def _journal(trainer: Trainer, directory: RunDirectory, trace: str, progress: Progress) -> Journal:
    """What writes while the run goes on. An earlier session's trace goes on too, or is gone if none is wanted now."""
    if trace == "off":
        directory.trace_path.unlink(missing_ok=True)
        return Journal(directory.metrics, None, progress.troubled)
    sampling, done = Sampling(trainer.options.epochs, full=trace == "full"), trainer.epoch
    return Journal(
        directory.metrics,
        lambda: TraceFile(directory.trace_path, sampling, keep_until=done),
        progress.troubled,
    )


def _finished(
    trainer: Trainer, config: dict[str, Any], seconds: float, peak: int, path: Path | None, cost: RunCost
) -> Run:
    trainer.finish()
    counters = trainer.counters() | trainer.memory_counts()
    bill = cost.bill(seconds, peak, counters.get("lambda", NO_LAMBDAS))
    return Run(trainer.model, trainer.history, config, counters, seconds, peak, trainer.objective, path, bill)


def _as_before(asked: Keywords, directory: RunDirectory) -> Keywords:
    """Choices that a run made when it began: sums in another order would not go on bit for bit."""
    saved = directory.config().get("training") if directory.exists else None
    if not isinstance(saved, dict):
        return asked
    found, order = saved.get("intervals"), saved.get("reorder", "off")
    if asked.intervals is None and isinstance(found, int):
        asked = replace(asked, intervals=found)
    if asked.layout == "auto":
        asked = replace(asked, layout=saved.get("layout", "vertices"))
    if asked.batch_order == "auto":
        asked = replace(asked, batch_order=saved.get("batch_order", "random"))
    if asked.precision == "auto":
        asked = replace(asked, precision=directory.config()["model"].get("precision", "fp32"))
    return replace(asked, reorder=order) if asked.reorder in ("auto", "off") else asked


def _precise(graph: Graph, model: nn.Module, asked: Keywords) -> str | None:
    """Give the model the precision that was asked for; why that, if it had to be found."""
    if asked.precision is None:
        return None
    from siafu.training.precision_choice import choose_precision

    chosen = choose_precision(
        graph,
        model,
        asked.precision,
        asked.options(),
        on_cluster=asked.cluster is not None,
        memory=asked.memory,
    )
    set_precision(model, chosen.precision)
    return chosen.reason


def _ordered(graph: Graph, model: nn.Module, asked: Keywords) -> tuple[Options, Graph, str | None]:
    """Options with the order that the vertices are walked in, by its name; the graph, with its layout; and why."""
    options = asked.options()
    if options.reorder == "off":
        return options, graph, None
    from siafu.training.order_choice import choose_order  # orders take a moment to load

    on_cluster = asked.cluster is not None
    chosen = choose_order(graph, model, options, on_cluster=on_cluster, memory=asked.memory)
    return replace(options, reorder=chosen.order), chosen.graph, chosen.reason


def _walked(graph: Graph, resumed: RunDirectory | None) -> Graph:
    """The graph in the order that training walks it in: its layout, unless the run began before there was one."""
    began_without = resumed is not None and resumed.exists and "order" not in _graph_before(resumed)
    if graph.layout is None or began_without:
        return graph
    return graph.layout.replace(source=graph.source)


def _graph_before(directory: RunDirectory) -> dict[str, Any]:
    """Description of the graph when the run began."""
    found = directory.config().get("graph")
    return found if isinstance(found, dict) else {}


def _config(graph: Graph, model: nn.Module, trainer: Trainer, dataset: str | None) -> dict[str, Any]:
    config: dict[str, Any] = {
        "siafu": __version__,
        "torch": torch.__version__,
        "dataset": dataset or graph.source,
        "graph": {
            "name": graph.name,
            "vertices": graph.num_vertices,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": graph.num_classes,
            "metric": trainer.objective.metric.name,
        },
        "model": describe_model(model),
        "objective": trainer.objective.as_json(),
        "training": trainer.options.as_json()
        | {
            "intervals": trainer.plan.interval_counts[0],
            "partition": trainer.partition.method,
            "layout": trainer.plan.options.layout,
            "batch_order": trainer.batch_order,
        },
        "partition": describe_partition(trainer.partition),
    }
    if graph.renumbered is not None:
        config["graph"] |= {"order": graph.renumbered.method}
    # As it comes back from a file, where tuples are lists.
    plain: dict[str, Any] = json.loads(json.dumps(config))
    return plain
