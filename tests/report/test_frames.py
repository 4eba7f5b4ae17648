"""Metrics as columns and frames."""

from pathlib import Path

import pytest

import siafu
from siafu.base.errors import BadInput
from siafu.report.files.metrics import EpochMetrics
from siafu.report.frames import columns_of
from tests.sessions import gcn
from tests.toys import toy_graph


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=4, evaluate_every=2, out=path)
    return path


def test_what_only_some_epochs_have_is_missing_in_the_others() -> None:
    history = [
        EpochMetrics(1, 0.5, None, None, None, None, 0.1, None, busy_seconds={"train T0": 1.0}),
        EpochMetrics(2, 0.25, None, None, None, None, 0.1, None, lambdas={"latency_ms": {"p50": 3.0}}),
    ]
    columns = columns_of(history)
    assert columns["epoch"] == [1, 2]
    assert columns["busy_seconds.train T0"] == [1.0, None]
    assert columns["lambdas.latency_ms.p50"] == [None, 3.0]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_has_a_row_for_each_epoch(run: Path, library: str) -> None:
    pytest.importorskip(library)
    frame = siafu.read_metrics(run, to=library)
    columns = siafu.read_metrics(run)
    assert list(frame.columns) == list(columns)
    assert list(frame["train_loss"]) == columns["train_loss"]
    assert frame.shape[0] == 4


def test_a_file_that_is_cut_off_gives_its_whole_lines(run: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((run / "config.json").read_bytes())
    (tmp_path / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes()[:-30])
    assert siafu.read_metrics(tmp_path)["epoch"] == [1, 2, 3]


def test_other_libraries_and_places_that_are_no_run_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="choose one of pandas, polars"):
        siafu.read_metrics(run, to="excel")
    with pytest.raises(BadInput, match="no run at"):
        siafu.read_metrics(tmp_path / "nowhere")
