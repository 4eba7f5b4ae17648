"""`siafu bench`: speed, side by side with others in one run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from siafu.base.errors import BadInput
from siafu.base.option import argument, option
from siafu.cli.common import say
from siafu.cli.declared import add_commands, json_flag

if TYPE_CHECKING:
    from siafu.bench.epoch import TaskKind
    from siafu.bench.timing import Timing
    from siafu.graph import Graph

app = typer.Typer(help="Measure speed, side by side with others.", no_args_is_help=True)

_LISTED = "that `siafu datasets` lists."


_dataset = partial(argument, "[DATASET]", f"A store, or a dataset {_LISTED}", "reddit-small")
_repeat = partial(option, help="Repetitions; the best counts.", least=1)
_peers = partial(option, None, "The Python of an environment with DGL and PyG (docs/performance.md).")
_model = partial(option, "gcn", "The model.", choices=("gcn", "gat", "sage", "gin"), noun="model")
_hidden = partial(option, help="Width between the layers.", least=1)
_latency = partial(option, help="Of a message between Lambda and server.", least=0)
_mbps = partial(option, help="Megabits a second of a Lambda, each way.", least=1)
_results = partial(option, None, "A JSON file to add the results to; tables and plots are of all in it.")


def gather(
    dataset: str = _dataset(),
    width: int = option(128, "Columns of the gathered rows.", least=1),
    repeat: int = _repeat(5),
    peers: Path | None = _peers(),
    as_json: bool = json_flag(),
) -> None:
    """Measure the sum gather against torch CSR, a hand-written C kernel, DGL, and the memory's bandwidth."""
    from siafu.bench.gather import bench_gather

    graph, store = _graph(dataset)
    timings, memory = bench_gather(graph, store, width, repeat, peers)
    _table(f"sum gather, {width} wide, {graph!r}", timings)
    rate = memory["bytes_read"] / timings[0].best
    share = rate / memory["read_bandwidth"]
    typer.echo(
        f"The fp32 gather reads {rate / 1e9:.1f} GB/s of rows and ids: {share:.0%} of the {memory['read_bandwidth'] / 1e9:.1f} GB/s "
        "at which this machine reads memory in order (above 100 %: caches help)."
    )
    _json(as_json, {"bench": "gather", "width": width, **memory}, graph, timings)


def epoch(
    dataset: str = _dataset(),
    model: str = option("gcn", "The model.", choices=("gcn", "gat"), noun="model"),
    hidden: int | None = _hidden(None),
    repeat: int = _repeat(3),
    peers: Path | None = _peers(),
    as_json: bool = json_flag(),
) -> None:
    """Measure one epoch of two layers, forward and backward, against DGL and PyG."""
    from siafu.bench.epoch import bench_epoch

    graph, store = _graph(dataset)
    wide = hidden or (128 if model == "gcn" else 64)
    found = bench_epoch(graph, store, model, wide, repeat, peers)
    _table(f"one epoch, {model} {graph.num_features}-{wide}-{graph.num_classes}, {graph!r}", found.timings)
    _kinds(found.kinds)
    typer.echo(f"Threads were busy {found.busy_share:.1%} of the fp32 epochs.")
    setting = {
        "bench": "epoch",
        "model": model,
        "hidden": wide,
        "busy_share": found.busy_share,
        "kinds": [asdict(kind) for kind in found.kinds],
    }
    _json(as_json, setting, graph, found.timings)


def convergence(
    datasets: list[str] = argument("DATASETS...", f"Stores, or datasets {_LISTED}"),
    model: str = _model(),
    hidden: int = _hidden(16),
    layers: int = option(2, "How many layers.", least=1),
    dropout: float = option(0.5, "Share of values put to zero between layers."),
    epochs: int = option(100, "How often to go over the graph.", least=1),
    lr: float = option(0.01, "Learning rate."),
    normalize_features: bool = option(False, "Scale each vertex's features to sum to 1."),
    servers: int = option(2, "Graph servers.", least=1),
    intervals: int = option(8, "Intervals of each: the more, the looser.", least=1),
    seeds: int = option(3, "Trainings of each kind.", least=1),
    results: Path | None = _results(),
    plot: Path | None = option(None, "An SVG file to draw the learning curves in."),
) -> None:
    """Measure the effect of asynchrony on accuracy and on the number of epochs: pipe against async and its policies."""
    from siafu.bench import convergence as bench
    from siafu.bench.pictures.convergence_plot import plot as draw
    from siafu.graph.datasets import load

    setting = bench.ConvergenceSetting(
        model, hidden, layers, dropout, epochs, lr, normalize_features, servers, intervals, seeds
    )
    shown = _kept(bench, results, (bench.measure(load(name), setting, say) for name in datasets))
    _show(bench.table(shown), plot, lambda: draw(shown))


def accuracy(
    datasets: list[str] = argument("DATASETS...", f"Stores, or datasets {_LISTED}"),
    model: str = _model(),
    hidden: int = _hidden(64),
    layers: int = option(2, "How many layers.", least=1),
    dropout: float = option(0.5, "Share of values put to zero between layers."),
    epochs: int = option(200, "How often to go over the graph, at most.", least=1),
    patience: int = option(30, "Stop after so many epochs that were no better.", least=1),
    lr: list[float] | None = option(
        None,
        "Learning rate; may be given again: every way tries all of them with its first seed, and takes the one that is first near the best accuracy.",
        unset="0.01",
    ),
    normalize_features: bool = option(False, "Scale each vertex's features to sum to 1."),
    intervals: int = option(8, "Intervals of the asynchronous training: the more, the looser.", least=1),
    fanout: str = option("10,10", "In-edges of a vertex that are drawn, from the last layer to the first."),
    batch: int = option(512, "Training vertices of a mini-batch.", least=1),
    seeds: int = option(3, "Trainings of each kind.", least=1),
    instance: str = option("c5n.2xlarge", "Type of machine whose price dollars are of."),
    peers: Path | None = _peers(),
    results: Path | None = _results(),
    plot: Path | None = option(None, "An SVG file to draw accuracy over time in."),
) -> None:
    """Measure seconds, dollars, epochs and best accuracy of a model trained on the whole graph, asynchronously, and on samples."""
    from siafu.bench import accuracy as bench
    from siafu.bench.accuracy_trial import AccuracySetting
    from siafu.bench.pictures.accuracy_plot import plot as draw
    from siafu.cost.prices import price_book
    from siafu.graph.datasets import load

    setting = AccuracySetting(
        model,
        hidden,
        layers,
        dropout,
        epochs,
        patience,
        lr or [0.01],
        normalize_features,
        intervals,
        fanout,
        batch,
        seeds,
    )
    machine = price_book().instance(instance)
    shown = _kept(
        bench, results, (bench.measure(load(name), setting, machine, say, peers) for name in datasets)
    )
    _show(bench.table(shown), plot, lambda: draw(shown))


def lambda_(
    part: list[str] | None = option(
        None, "modes, tricks, tuning or overhead; may be given again.", unset="all"
    ),
    scale: float = option(0.01, "Of the generated amazon graph."),
    model: str = _model(),
    hidden: int = _hidden(128),
    layers: int = option(3, "How many layers.", least=2),
    intervals: int = option(32, "Of the graph server.", least=1),
    count: int = option(8, "Lambdas, where it is not their number that is tried.", least=1),
    latency_ms: float = _latency(50),
    mbps: float = _mbps(200),
    repeat: int = _repeat(4, help="Epochs that count; the best does."),
    store: Path | None = option(None, "A graph to use instead of a generated amazon, not for overhead."),
    overhead: Path | None = option(None, "reddit-small at scale 0.25 as a store.", unset="it is generated"),
    results: Path | None = _results(),
    plot: Path | None = option(None, "An SVG file to draw the results in."),
    as_json: bool = json_flag(),
) -> None:
    """Measure how Lambdas hide the network: modes, each trick switched off, the autotuner; and their overhead."""
    from siafu.bench import lambdas as bench
    from siafu.bench.pictures.lambda_chart import chart

    far = bench.LambdaSetting(
        "amazon", scale, hidden, layers, intervals, count, latency_ms, mbps, epochs=repeat + 2, model=model
    )
    settings = {"tuning": bench.smaller(far), "overhead": bench.NEAR}
    stores = {"overhead": overhead}
    measured = (
        bench.measure(name, settings.get(name, far), stores.get(name, store), say)
        for name in part or bench.PARTS
    )
    shown = _kept(bench, results, measured)
    _show(bench.table(shown), plot, lambda: chart(shown))
    if as_json:
        typer.echo(bench.as_json(shown))


def predict(
    datasets: list[str] | None = argument(
        "[DATASETS]...",
        "Datasets or stores; without any: cora, pubmed, and generated amazon-x0.01, reddit-small-x0.25.",
        None,
    ),
    calibration: Path | None = option(
        None, "What `siafu calibrate` measured.", unset="measure now, which takes a minute"
    ),
    count: int = option(4, "Local Lambdas.", least=1),
    latency_ms: float = _latency(20),
    mbps: float = _mbps(400),
    as_json: bool = json_flag(),
) -> None:
    """Compare epoch times that virtual time predicts with measured ones: GCN and GAT, on threads and on Lambdas."""
    from siafu.bench import predict as bench
    from siafu.planning.calibration import Calibration, calibrate

    found = Calibration.read(calibration) if calibration is not None else calibrate(say)
    far = bench.Far(count, latency_ms, mbps)
    predictions = bench.predict(found, datasets or bench.GRAPHS, far, say)
    typer.echo(bench.table(predictions))
    if as_json:
        typer.echo(bench.as_json(found, predictions))


def paper(
    plot: Path | None = option(None, "An SVG file to draw all ratios in."), as_json: bool = json_flag()
) -> None:
    """Predict the Dorylus paper's tables and figures in virtual time, with its machines and prices, beside the published numbers."""
    from siafu.bench.paper import report
    from siafu.bench.paper.cells import all_cells
    from siafu.bench.paper.chart import chart
    from siafu.bench.paper.tasks import figure_10

    cells, tasks = all_cells(), figure_10()
    _show(report.markdown(cells, tasks), plot, lambda: chart(cells))
    if as_json:
        typer.echo(report.as_json(cells, tasks))


def spot(
    traces: list[Path] | None = argument(
        "[TRACES]...", "Files of machines that came and went (docs/spot.md).", None
    ),
    dataset: str = option("products", f"A store, or a dataset {_LISTED} It need not be there."),
    model: str = option("sage", "The model.", choices=("gcn", "gat", "sage", "gin"), noun="model"),
    hidden: int = _hidden(128),
    layers: int = option(3, "How many layers.", least=1),
    servers: int = option(4, "Graph servers; the first is on demand.", least=2),
    epochs: int = option(2000, "How often to go over the graph.", least=1),
    instance: str = option("c5n.2xlarge", "Type of the machines."),
    rate: list[float] | None = option(
        None,
        "Losses in an hour of one machine; may be given again.",
        unset="0.1, 0.5, 1, 2 and 5, without traces",
    ),
    seeds: int = option(1000, "Replays of each trace and rate.", least=20),
    as_json: bool = json_flag(),
) -> None:
    """Replay preemptions of real machines, or rates of them: on demand, with checkpoints, with closed epochs, with copies."""
    from siafu.bench import spot as bench
    from siafu.planning.spot.trace import read_trace

    read = [read_trace(path) for path in traces or []]
    rates = rate or ([] if read else [0.1, 0.5, 1.0, 2.0, 5.0])
    setting = bench.SpotSetting(dataset, model, hidden, layers, servers, epochs, instance)
    found = list(bench.measure(setting, read, rates, seeds))
    typer.echo(bench.as_json(found) if as_json else bench.report(found, setting, seeds))


def _kept(bench: Any, results: Path | None, measured: Iterable[Any]) -> list[Any]:
    """Results, and those that are in the file already; each is saved as soon as it is there."""
    found = []
    for each in measured:
        found.append(each)
        if results is not None:
            bench.save(found, results)
    return found if results is None else list(bench.read(results))


def _show(table: str, plot: Path | None, draw: Callable[[], str]) -> None:
    from siafu.base.storage.files import replace_text

    typer.echo(table)
    if plot is not None:
        replace_text(plot, draw())


def _graph(dataset: str) -> "tuple[Graph, Path]":
    from siafu.graph import is_store, read_store
    from siafu.graph.datasets import cached_store, load

    store = next((path for path in (Path(dataset), cached_store(dataset)) if is_store(path)), None)
    if store is not None:
        return read_store(store, verify=False), store
    graph = load(dataset)
    if not is_store(cached_store(dataset)):
        raise BadInput(f"{dataset} is not a store, which the peers read: save it as one with 'siafu import'")
    return graph, cached_store(dataset)


def _table(title: str, timings: "list[Timing]") -> None:
    rows = []
    for timing in timings:
        every = " ".join(f"{seconds:.2f}" for seconds in timing.seconds)
        memory = f"{timing.peak_rss_bytes / 1e9:.2f}" if timing.peak_rss_bytes else ""
        rows.append((timing.who, f"{timing.best:.3f}", every, memory, f"{timing.best / timings[0].best:.2f}"))
    _print_table(title, ("", "best s", "all s", "GB", "siafu fp32 is … × as fast"), rows)


def _kinds(kinds: "list[TaskKind]") -> None:
    rows = []
    for kind in kinds:
        limit, ratio = (f"{kind.limit:.3f}", f"{kind.seconds / kind.limit:.2f}") if kind.limit else ("", "")
        rows.append((kind.name, f"{kind.seconds:.3f}", limit, ratio))
    title = "where an fp32 epoch goes; limit: products at their peak, gathers at their own cache's bandwidth"
    _print_table(title, ("stage", "s", "limit s", "×"), rows)


def _print_table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _json(wanted: bool, setting: dict[str, Any], graph: "Graph", timings: "list[Timing]") -> None:
    if wanted:
        from siafu.bench.timing import as_json

        counts = {"vertices": graph.num_vertices, "edges": graph.num_edges, "features": graph.num_features}
        typer.echo(as_json(setting | counts, timings))


add_commands(app, gather, epoch, convergence, accuracy, lambda_, predict, paper, spot)
