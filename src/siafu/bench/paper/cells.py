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
    PublishedRow,
)
from siafu.bench.paper.reproduce import PaperEpoch, epoch
from siafu.pipeline.ids import Mode

CLOSE = 0.25
_TIMED: tuple[Backend, ...] = ("lambda", "gpu")
_TITLES: dict[Backend, str] = {"lambda": "Lambdas", "cpu": "CPU", "gpu": "GPU"}
_VALUED: tuple[Backend, ...] = ("lambda", "cpu")
CALIBRATED = ("GCN amazon", "GAT amazon")
"""The two rows of Table 4 that constants were fitted to."""


@dataclass(frozen=True, slots=True)
class PaperRatio:
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


def all_cells() -> list[PaperRatio]:
    return [*table_4(), *figure_6(), *figure_8(), *table_2(), *table_5()]


def run_of(row: PublishedRow, backend: Backend) -> PaperEpoch:
    """An epoch of a row, as long as it takes with the more epochs that asynchrony needs."""
    asynchronous = backend == "lambda" and row.graph != "reddit-large"
    mode: Mode = "async" if asynchronous else "pipe"
    found = epoch(row.model, row.graph, row.instance, row.servers, backend, mode)
    more = EPOCHS_OF_ASYNC.get((row.model, row.graph), 1.0) if asynchronous else 1.0
    return PaperEpoch(found.seconds * more, found.dollars * more, found.run)


def table_4() -> Iterator[PaperRatio]:
    for row in TABLE_4:
        found = {backend: run_of(row, backend) for backend in BACKENDS}
        name = f"{row.model.upper()} {row.graph}"
        for one in _TIMED:
            published, predicted = (
                row.seconds[one] / row.seconds["cpu"],
                found[one].seconds / found["cpu"].seconds,
            )
            yield PaperRatio("Table 4", name, f"time, {_TITLES[one]} : CPU", published, predicted)
        for one in _VALUED:
            published, predicted = row.value(one) / row.value("gpu"), found[one].value / found["gpu"].value
            yield PaperRatio("Table 4", name, f"value, {_TITLES[one]} : GPU", published, predicted)


def figure_6() -> Iterator[PaperRatio]:
    for graph, published in FIGURE_6.items():
        row = next(each for each in TABLE_4 if (each.model, each.graph) == ("gcn", graph))
        pipe = epoch("gcn", graph, row.instance, row.servers, "lambda", "pipe")
        for staleness, share in enumerate(published):
            found = epoch("gcn", graph, row.instance, row.servers, "lambda", "async", staleness)
            yield PaperRatio(
                "Figure 6", graph, f"epoch, S={staleness} : pipe", share, found.seconds / pipe.seconds
            )


def figure_8() -> Iterator[PaperRatio]:
    fewest, *others = FIGURE_8_SERVERS
    for backend, (performance, value) in FIGURE_8.items():
        mode: Mode = "async" if backend == "lambda" else "pipe"
        least = epoch("gcn", "amazon", "c5n.2xlarge", fewest, backend, mode)
        for place, servers in enumerate(others, 1):
            more = epoch("gcn", "amazon", "c5n.2xlarge", servers, backend, mode)
            row, listed = f"{_TITLES[backend]}, {fewest} → {servers} servers", servers == FIGURE_8_SERVERS[-1]
            faster, worth = performance[place] / performance[0], value[place] / value[0]
            yield PaperRatio("Figure 8", row, "performance", faster, least.seconds / more.seconds, listed)
            yield PaperRatio("Figure 8", row, "value", worth, more.value / least.value, listed=False)


def table_2() -> Iterator[PaperRatio]:
    for graph, (one, few), (other, many), backend, published in TABLE_2:
        first = epoch("gcn", graph, one, few, backend, "pipe")
        second = epoch("gcn", graph, other, many, backend, "pipe")
        what = f"value, {many} {other} : {few} {one}"
        yield PaperRatio("Table 2", graph, what, published, second.value / first.value, listed=False)


def table_5() -> Iterator[PaperRatio]:
    for graph, published in TABLE_5.items():
        row = next(each for each in TABLE_4 if (each.model, each.graph) == ("gcn", graph))
        ours, gpu = run_of(row, "lambda"), run_of(row, "gpu")
        (seconds, dollars), (gpu_seconds, gpu_dollars) = published["lambda"], published["gpu"]
        time, cost = ours.seconds / gpu.seconds, ours.dollars / gpu.dollars
        yield PaperRatio("Table 5", graph, "time, Lambdas : GPU", seconds / gpu_seconds, time, listed=False)
        yield PaperRatio("Table 5", graph, "cost, Lambdas : GPU", dollars / gpu_dollars, cost, listed=False)
