"""What metrics and trace cost: time, space, and how long the report takes to open.

    python bench/reporting.py [--epochs 1000] [--intervals 64] [--repeats 3] [--dataset demo] [--trace sampled]

Trains the same run in turns with and without metrics and trace, and compares the best times of each: processor seconds, which
other processes disturb little, and seconds by the clock, which want a quiet machine. Then writes the report of the
last run and opens it in Chromium, with the network off.
"""

import argparse
import dataclasses
import inspect
import shutil
import tempfile
import time
from pathlib import Path

import siafu
from siafu import Graph
from siafu.options import Options
from siafu.report.files.journal import Journal
from siafu.report.files.metrics import EpochMetrics
from siafu.report.files.run_directory import RunDirectory
from siafu.report.files.run_record import read_run
from siafu.report.files.sampling import Sampling
from siafu.report.files.trace_file import TraceFile
from siafu.report.pages.run_report import run_report
from siafu.training.placement import choose_partition
from siafu.training.trainer import Trainer


def main() -> None:
    given = _arguments()
    graph = siafu.load(given.dataset)
    with tempfile.TemporaryDirectory(prefix="siafu-reporting-") as scratch:
        with_it, without = [], []
        path = Path(scratch) / "run"
        for _ in range(given.repeats):
            without.append(_train(graph, given, None))
            shutil.rmtree(path, ignore_errors=True)
            with_it.append(_train(graph, given, path))
        print(f"{graph.name}, {given.epochs:,} epochs × {given.intervals} intervals, trace {given.trace}")
        for place, unit in enumerate(("processor seconds", "seconds")):
            most, least = (min(each[place] for each in times) for times in (with_it, without))
            print(
                f"{unit}: {most:.2f} with metrics and trace, {least:.2f} without: {100 * (most / least - 1):+.2f} %"
            )
        for name in ("metrics.jsonl", "trace.json"):
            print(f"{name}: {(path / name).stat().st_size / 1e6:.2f} MB")
        page = run_report(read_run(path))
        (path / "report.html").write_text(page)
        print(f"report.html: {len(page) / 1e6:.2f} MB, opens in {_seconds_to_open(path / 'report.html')}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--intervals", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dataset", default="demo")
    parser.add_argument("--trace", default="sampled", choices=("sampled", "full"))
    return parser.parse_args()


def _train(graph: Graph, given: argparse.Namespace, path: Path | None) -> tuple[float, float]:
    """Processor seconds and seconds of all epochs; what comes before and after them is left out."""
    model = siafu.nn.GCN(graph.num_features, 64, 2, graph.num_classes)
    options = _options(epochs=given.epochs, intervals=given.intervals)
    trainer = Trainer(graph, model, options, choose_partition(graph, 1, "auto"), traced=path is not None)
    trainer.prepare()
    if path is None:
        return _measured(trainer, None)
    directory = RunDirectory.start(path, _config(graph))
    sampling = Sampling(given.epochs, full=given.trace == "full")
    try:
        with Journal(directory.metrics, lambda: TraceFile(directory.trace_path, sampling), print) as journal:
            found = _measured(trainer, journal)
    finally:
        directory.close()
    return found


def _options(**changes: object) -> Options:
    """Those of `siafu.train`, but for `changes`."""
    usual = {name: each.default for name, each in inspect.signature(siafu.train).parameters.items()}
    return Options(**{field.name: (usual | changes)[field.name] for field in dataclasses.fields(Options)})


def _measured(trainer: Trainer, journal: Journal | None) -> tuple[float, float]:
    busy, began = time.process_time(), time.perf_counter()
    for event in trainer.run():
        if journal is not None and isinstance(event, EpochMetrics):
            journal.add(event, trainer.activity)
    if journal is not None:
        journal.sync()
    return time.process_time() - busy, time.perf_counter() - began


def _config(graph: Graph) -> dict[str, object]:
    return {"graph": {"name": graph.name, "metric": "accuracy"}, "model": {"name": "gcn"}, "training": {}}


def _seconds_to_open(page: Path) -> str:
    """From the command to open it until all charts are drawn: the median of three."""
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        return "– (no Chromium here)"
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu"]
        )
        for _ in range(3):
            context = browser.new_context(offline=True)
            tab = context.new_page()
            began = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector("body[data-drawn]")
            tab.evaluate(
                "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
            )
            found.append(time.perf_counter() - began)
            context.close()
        browser.close()
    return f"{sorted(found)[1]:.2f} s"


if __name__ == "__main__":
    main()
