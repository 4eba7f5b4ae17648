"""Metrics files: whole lines, each epoch once; and which epoch is the best."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.base.errors import BadInput
from siafu.objective.metric import ACCURACY, Metric
from siafu.report.files.metrics import EpochMetrics, MetricsFile, best_epoch, read_metrics


def metrics(epoch: int, val_accuracy: float | None = 0.5, val_loss: float | None = 1.0) -> EpochMetrics:
    return EpochMetrics(epoch, 1 / 3, val_loss, 0.1, val_accuracy, 0.2, 0.01, 0.02)


def unevaluated(epoch: int) -> EpochMetrics:
    return EpochMetrics(epoch, 0.5, None, None, None, None, 0.01, None)


def write(path: Path, epochs: int) -> None:
    file = MetricsFile(path)
    for epoch in range(1, epochs + 1):
        file.append(metrics(epoch))
    file.close()


def test_what_is_written_is_read_to_the_last_digit(tmp_path: Path) -> None:
    write(tmp_path / "m", 3)
    assert read_metrics(tmp_path / "m") == [metrics(1), metrics(2), metrics(3)]


def test_epochs_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    write(tmp_path / "m", 5)
    file = MetricsFile(tmp_path / "m")
    assert file.keep_until(2) == [metrics(1), metrics(2)]
    file.append(metrics(3))
    file.close()
    assert read_metrics(tmp_path / "m") == [metrics(1), metrics(2), metrics(3)]


@given(cut=st.integers(1, 400))
def test_a_torn_file_keeps_its_whole_lines(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("torn") / "m"
    write(path, 5)
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    assert len(read_metrics(path)) == data[:-cut].count(b"\n")


def test_fewer_epochs_than_the_checkpoint_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "m", 2)
    file = MetricsFile(tmp_path / "m")
    with pytest.raises(BadInput, match="ends at epoch 2 but the checkpoint is of epoch 4"):
        file.keep_until(4)
    file.close()


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    first = MetricsFile(tmp_path / "m")
    with pytest.raises(BadInput, match="another process"):
        MetricsFile(tmp_path / "m")
    first.close()


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="missing"):
        read_metrics(tmp_path / "m")


def test_the_best_epoch_has_the_highest_validation_accuracy() -> None:
    assert best_epoch([metrics(1, 0.5), metrics(2, 0.9, 9.0), metrics(3, 0.7)], ACCURACY) == metrics(
        2, 0.9, 9.0
    )


def test_of_equal_accuracies_the_lower_loss_is_better() -> None:
    assert best_epoch(
        [metrics(1, 0.5, 1.0), metrics(2, 0.5, 0.8), metrics(3, 0.5, 0.9)], ACCURACY
    ) == metrics(2, 0.5, 0.8)


def test_of_equals_the_earliest_is_best() -> None:
    assert best_epoch([metrics(1), metrics(2), metrics(3)], ACCURACY) == metrics(1)


def test_without_validation_the_last_evaluated_is_best() -> None:
    history = [metrics(1, None, None), metrics(2, None, None), unevaluated(3)]
    assert best_epoch(history, ACCURACY) == history[1]


def test_without_an_evaluation_there_is_no_best() -> None:
    assert best_epoch([unevaluated(1)], ACCURACY) is None


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 1.0, 2.0])), min_size=1))
def test_the_best_so_far_ends_as_the_first_of_the_highest(scores: list[tuple[float, float]]) -> None:
    history = [metrics(number, *score) for number, score in enumerate(scores, start=1)]
    expected = max(range(len(scores)), key=lambda place: (scores[place][0], -scores[place][1]))
    assert best_epoch(history, ACCURACY) == history[expected]


def test_where_smaller_is_better_the_lowest_is_best() -> None:
    history = [metrics(1, 0.5, 1.0), metrics(2, 0.2, 3.0), metrics(3, 0.2, 2.0), metrics(4, 0.9, 0.0)]
    assert best_epoch(history, Metric("error", larger_is_better=False)) == history[2]
