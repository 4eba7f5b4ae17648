"""Cells: every ratio that the paper published and that is predicted, side by side."""

from collections.abc import Iterator
from dataclasses import dataclass

from siafu.bench.paper.published import (
    BACKENDS,
    EPOCHS_OF_ASYNC,
    FIGURE_6,
    FIGURE_8,
    FIGURE_8_SERVERS,
    TABLE_2,
    TABLE_4,
    TABLE_5,
    Backend,
    Row,
)
from siafu.bench.paper.reproduce import Epoch, epoch
from siafu.pipeline.ids import Mode

CLOSE = 0.25
_TIMED: tuple[Backend, ...] = ("lambda", "gpu")
_VALUED: tuple[Backend, ...] = ("lambda", "cpu")
CALIBRATED = ("GCN amazon", "GAT amazon")
"""The two rows of Table 4 that constants were fitted to."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A published ratio and its prediction.

    where: the table or figure; row: of it; what: the ratio
    listed: whether it is one of those that the aim is set for: Table 4, Figure 6, and 4 to 16 servers in Figure 8
    """

    where: str
    row: str
    what: str
    published: float
    predicted: float
    listed: bool = True

    @property
    def ratio(self) -> float:
        return self.predicted / self.published

    @property
    def close(self) -> bool:
        return abs(self.ratio - 1) <= CLOSE


def all_cells() -> list[Cell]:
    return [*table_4(), *figure_6(), *figure_8(), *table_2(), *table_5()]


def run_of(row: Row, backend: Backend) -> Epoch:
    """An epoch of a row, as long as it takes with the more epochs that asynchrony needs."""
    asynchronous = backend == "lambda" and row.graph != "reddit-large"
    mode: Mode = "async" if asynchronous else "pipe"
    found = epoch(row.model, row.graph, row.instance, row.servers, backend, mode)
    more = EPOCHS_OF_ASYNC.get((row.model, row.graph), 1.0) if asynchronous else 1.0
    return Epoch(found.seconds * more, found.dollars * more, found.run)


def table_4() -> Iterator[Cell]:
    for row in TABLE_4:
        found = {backend: run_of(row, backend) for backend in BACKENDS}
        name = f"{row.model.upper()} {row.graph}"
        for one in _TIMED:
            yield Cell(
                "Table 4",
                name,
                f"time, {_title(one)} : CPU",
                row.seconds[one] / row.seconds["cpu"],
                found[one].seconds / found["cpu"].seconds,
            )
        for one in _VALUED:
            yield Cell(
                "Table 4",
                name,
                f"value, {_title(one)} : GPU",
                row.value(one) / row.value("gpu"),
                found[one].value / found["gpu"].value,
            )


def figure_6() -> Iterator[Cell]:
    for graph, published in FIGURE_6.items():
        row = next(each for each in TABLE_4 if (each.model, each.graph) == ("gcn", graph))
        pipe = epoch("gcn", graph, row.instance, row.servers, "lambda", "pipe")
        for staleness, share in enumerate(published):
            found = epoch("gcn", graph, row.instance, row.servers, "lambda", "async", staleness)
            yield Cell("Figure 6", graph, f"epoch, S={staleness} : pipe", share, found.seconds / pipe.seconds)


def figure_8() -> Iterator[Cell]:
    fewest, *others = FIGURE_8_SERVERS
    for backend, (performance, value) in FIGURE_8.items():
        mode: Mode = "async" if backend == "lambda" else "pipe"
        least = epoch("gcn", "amazon", "c5n.2xlarge", fewest, backend, mode)
        for place, servers in enumerate(others, 1):
            more = epoch("gcn", "amazon", "c5n.2xlarge", servers, backend, mode)
            row, listed = f"{_title(backend)}, {fewest} → {servers} servers", servers == FIGURE_8_SERVERS[-1]
            yield Cell(
                "Figure 8",
                row,
                "performance",
                performance[place] / performance[0],
                least.seconds / more.seconds,
                listed,
            )
            yield Cell(
                "Figure 8", row, "value", value[place] / value[0], more.value / least.value, listed=False
            )


def table_2() -> Iterator[Cell]:
    for graph, (one, few), (other, many), backend, published in TABLE_2:
        first = epoch("gcn", graph, one, few, backend, "pipe")
        second = epoch("gcn", graph, other, many, backend, "pipe")
        yield Cell(
            "Table 2",
            graph,
            f"value, {many} {other} : {few} {one}",
            published,
            second.value / first.value,
            listed=False,
        )


def table_5() -> Iterator[Cell]:
    for graph, published in TABLE_5.items():
        row = next(each for each in TABLE_4 if (each.model, each.graph) == ("gcn", graph))
        ours, gpu = run_of(row, "lambda"), run_of(row, "gpu")
        (seconds, dollars), (gpu_seconds, gpu_dollars) = published["lambda"], published["gpu"]
        yield Cell(
            "Table 5",
            graph,
            "time, Lambdas : GPU",
            seconds / gpu_seconds,
            ours.seconds / gpu.seconds,
            listed=False,
        )
        yield Cell(
            "Table 5",
            graph,
            "cost, Lambdas : GPU",
            dollars / gpu_dollars,
            ours.dollars / gpu.dollars,
            listed=False,
        )


def _title(backend: Backend) -> str:
    return {"lambda": "Lambdas", "cpu": "CPU", "gpu": "GPU"}[backend]
