"""`siafu bench`: speed, side by side with others in one run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from siafu.bench.epoch import TaskKind
    from siafu.bench.timing import Timing
    from siafu.graph import Graph

app = typer.Typer(help="Measure speed, side by side with others.", no_args_is_help=True)

Dataset = Annotated[str, typer.Argument(help="A store, or a dataset that `siafu datasets` lists.")]
Repeat = Annotated[int, typer.Option(min=1, help="Repetitions; the best counts.")]
Peers = Annotated[
    Path | None, typer.Option(help="The Python of an environment with DGL and PyG (docs/performance.md).")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]


@app.command("gather")
def gather(
    dataset: Dataset = "reddit-small",
    width: Annotated[int, typer.Option(min=1, help="Columns of the gathered rows.")] = 128,
    repeat: Repeat = 5,
    peers: Peers = None,
    json: Json = False,
) -> None:
    """The sum gather: against torch CSR, a hand-written C kernel, DGL, and the memory's bandwidth."""
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
    _json(json, {"bench": "gather", "width": width, **memory}, graph, timings)


@app.command("epoch")
def epoch(
    dataset: Dataset = "reddit-small",
    model: Annotated[str, typer.Option(help="gcn or gat.")] = "gcn",
    hidden: Annotated[int | None, typer.Option(min=1, help="Width between the layers.")] = None,
    repeat: Repeat = 3,
    peers: Peers = None,
    json: Json = False,
) -> None:
    """One epoch of two layers, forward and backward: against DGL and PyG."""
    from siafu.base.errors import BadInput
    from siafu.bench.epoch import bench_epoch

    if model not in ("gcn", "gat"):
        raise BadInput(f"no model {model!r} to measure: choose gcn or gat")
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
    _json(json, setting, graph, found.timings)


@app.command("convergence")
def convergence(
    datasets: Annotated[list[str], typer.Argument(help="Stores, or datasets that `siafu datasets` lists.")],
    model: Annotated[str, typer.Option(help="gcn, gat, sage or gin.")] = "gcn",
    hidden: Annotated[int, typer.Option(min=1, help="Width between the layers.")] = 16,
    layers: Annotated[int, typer.Option(min=1, help="How many layers.")] = 2,
    dropout: Annotated[float, typer.Option(help="Share of values put to zero between layers.")] = 0.5,
    epochs: Annotated[int, typer.Option(min=1, help="How often to go over the graph.")] = 100,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.01,
    normalize_features: Annotated[
        bool, typer.Option("--normalize-features", help="Scale each vertex's features to sum to 1.")
    ] = False,
    servers: Annotated[int, typer.Option(min=1, help="Graph servers.")] = 2,
    intervals: Annotated[int, typer.Option(min=1, help="Intervals of each: the more, the looser.")] = 8,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each kind.")] = 3,
    results: Annotated[
        Path | None,
        typer.Option(help="A JSON file to add the results to; tables and plots are of all in it."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="An SVG file to draw the learning curves in.")] = None,
) -> None:
    """What asynchrony does to accuracy, and to the epochs it takes: pipe against async and its policies."""
    from siafu import nn
    from siafu.base.errors import BadInput
    from siafu.base.files import replacing
    from siafu.bench import convergence as bench
    from siafu.bench.convergence_plot import plot as draw
    from siafu.graph.datasets import load

    if model not in nn.MODELS:
        raise BadInput(f"no model {model!r}: choose one of {', '.join(nn.MODELS)}")
    setting = bench.Setting(
        model, hidden, layers, dropout, epochs, lr, normalize_features, servers, intervals, seeds
    )
    found: list[bench.Convergence] = []
    for name in datasets:
        found.append(bench.measure(load(name), setting, lambda line: typer.echo(line, err=True)))
        if results is not None:
            bench.save(found, results)
    shown = found if results is None else bench.read(results)
    typer.echo(bench.table(shown))
    if plot is not None:
        with replacing(plot) as file:
            file.write(draw(shown).encode())


@app.command("lambda")
def lambdas(
    part: Annotated[
        list[str] | None,
        typer.Option(help="modes, tricks, tuning or overhead; may be given again. [default: all]"),
    ] = None,
    scale: Annotated[float, typer.Option(help="Of the generated amazon graph.")] = 0.01,
    model: Annotated[str, typer.Option(help="gcn, gat, sage or gin.")] = "gcn",
    hidden: Annotated[int, typer.Option(min=1, help="Width between the layers.")] = 128,
    layers: Annotated[int, typer.Option(min=2, help="How many layers.")] = 3,
    intervals: Annotated[int, typer.Option(min=1, help="Of the graph server.")] = 32,
    count: Annotated[
        int, typer.Option(min=1, help="Lambdas, where it is not their number that is tried.")
    ] = 8,
    latency_ms: Annotated[float, typer.Option(min=0, help="Of a message between Lambda and server.")] = 50,
    mbps: Annotated[float, typer.Option(min=1, help="Megabits a second of a Lambda, each way.")] = 200,
    repeat: Annotated[int, typer.Option(min=1, help="Epochs that count; the best does.")] = 4,
    store: Annotated[
        Path | None, typer.Option(help="A graph to use instead of a generated amazon, not for overhead.")
    ] = None,
    overhead: Annotated[
        Path | None, typer.Option(help="reddit-small at scale 0.25 as a store. [default: it is generated]")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="A JSON file to add the results to; tables and plots are of all in it."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="An SVG file to draw the results in.")] = None,
    json: Json = False,
) -> None:
    """What hides the network from Lambdas: modes, each trick switched off, the autotuner; and their overhead."""
    from siafu import nn
    from siafu.base.errors import BadInput
    from siafu.base.files import replacing
    from siafu.bench import lambdas as bench
    from siafu.bench.lambda_chart import chart

    if model not in nn.MODELS:
        raise BadInput(f"no model {model!r}: choose one of {', '.join(nn.MODELS)}")
    far = bench.Setting(
        "amazon", scale, hidden, layers, intervals, count, latency_ms, mbps, epochs=repeat + 2, model=model
    )
    found: list[bench.Part] = []
    for name in part or bench.PARTS:
        setting = {"tuning": bench.smaller(far), "overhead": bench.NEAR}.get(name, far)
        at = overhead if name == "overhead" else store
        found.append(bench.measure(name, setting, at, lambda line: typer.echo(line, err=True)))
        if results is not None:
            bench.save(found, results)
    shown = found if results is None else bench.read(results)
    typer.echo(bench.table(shown))
    if plot is not None:
        with replacing(plot) as file:
            file.write(chart(shown).encode())
    if json:
        typer.echo(bench.as_json(shown))


@app.command("predict")
def predict(
    datasets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Datasets or stores. [default: cora, pubmed, and generated amazon-x0.01, reddit-small-x0.25]"
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="What `siafu calibrate` measured. [default: measure now, which takes a minute]"),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Local Lambdas.")] = 4,
    latency_ms: Annotated[float, typer.Option(min=0, help="Of a message between Lambda and server.")] = 20,
    mbps: Annotated[float, typer.Option(min=1, help="Megabits a second of a Lambda, each way.")] = 400,
    json: Json = False,
) -> None:
    """How well virtual time foretells epochs: GCN and GAT, on threads and on Lambdas, predicted and measured."""
    from siafu.bench import predict as bench
    from siafu.planning.calibration import Calibration, calibrate

    def told(line: str) -> None:
        typer.echo(line, err=True)

    found = Calibration.read(calibration) if calibration is not None else calibrate(told)
    far = bench.Far(count, latency_ms, mbps)
    predictions = bench.predict(found, datasets or bench.GRAPHS, far, told)
    typer.echo(bench.table(predictions))
    if json:
        typer.echo(bench.as_json(found, predictions))


@app.command("paper")
def paper(
    plot: Annotated[Path | None, typer.Option(help="An SVG file to draw all ratios in.")] = None,
    json: Json = False,
) -> None:
    """The Dorylus paper's tables and figures in virtual time, with its machines and prices, beside what it published."""
    from siafu.base.files import replacing
    from siafu.bench.paper.cells import all_cells
    from siafu.bench.paper.chart import chart
    from siafu.bench.paper.report import as_json, markdown
    from siafu.bench.paper.tasks import figure_10

    cells, tasks = all_cells(), figure_10()
    typer.echo(markdown(cells, tasks))
    if plot is not None:
        with replacing(plot) as file:
            file.write(chart(cells).encode())
    if json:
        typer.echo(as_json(cells, tasks))


def _graph(dataset: str) -> "tuple[Graph, Path]":
    from siafu.base.errors import BadInput
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
    from rich.console import Console
    from rich.table import Table

    table = Table("", "best s", "all s", "GB", "siafu fp32 is … × as fast", title=title, title_justify="left")
    for timing in timings:
        every = " ".join(f"{seconds:.2f}" for seconds in timing.seconds)
        memory = f"{timing.peak_rss_bytes / 1e9:.2f}" if timing.peak_rss_bytes else ""
        table.add_row(timing.who, f"{timing.best:.3f}", every, memory, f"{timing.best / timings[0].best:.2f}")
    Console().print(table)


def _kinds(kinds: "list[TaskKind]") -> None:
    from rich.console import Console
    from rich.table import Table

    title = "where an fp32 epoch goes; limit: products at their peak, gathers at their own cache's bandwidth"
    table = Table("stage", "s", "limit s", "×", title=title, title_justify="left")
    for kind in kinds:
        limit, ratio = (f"{kind.limit:.3f}", f"{kind.seconds / kind.limit:.2f}") if kind.limit else ("", "")
        table.add_row(kind.name, f"{kind.seconds:.3f}", limit, ratio)
    Console().print(table)


def _json(wanted: bool, setting: dict[str, Any], graph: "Graph", timings: "list[Timing]") -> None:
    if wanted:
        from siafu.bench.timing import as_json

        counts = {"vertices": graph.num_vertices, "edges": graph.num_edges, "features": graph.num_features}
        typer.echo(as_json(setting | counts, timings))
