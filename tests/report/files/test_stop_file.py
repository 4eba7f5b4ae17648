"""Requests to stop that lie in a run's directory."""

import os
from pathlib import Path

import pytest

import siafu
from siafu.base.errors import BadInput, Interrupted
from siafu.report.files.metrics import EpochMetrics
from siafu.report.files.stop_file import StopFile
from siafu.report.progress import Progress
from tests.sessions import FOREVER, epochs_in, gcn, losses
from tests.toys import toy_graph


class AskAt(Progress):
    """Leaves a request when it hears of an epoch."""

    def __init__(self, epoch: int, directory: Path) -> None:
        self.epoch, self.directory = epoch, directory

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        if metrics.epoch == self.epoch:
            StopFile(self.directory).ask()


def test_a_request_is_there_until_it_is_cleared(tmp_path: Path) -> None:
    stop = StopFile(tmp_path)
    assert not stop.there
    stop.ask()
    stop.ask()
    assert stop.there
    stop.clear()
    stop.clear()
    assert not stop.there


def test_a_link_in_its_place_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "stop").symlink_to(tmp_path / "elsewhere")
    StopFile(tmp_path).ask()
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_that_has_gone_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot write"):
        StopFile(tmp_path / "gone").ask()


def test_a_training_that_is_asked_to_stop_saves_and_goes_on_later_as_if_it_never_had(tmp_path: Path) -> None:
    graph, out = toy_graph(), tmp_path / "run"
    with pytest.raises(Interrupted) as caught:
        siafu.train(graph, gcn(graph), epochs=FOREVER, out=out, progress=AskAt(3, out))
    assert caught.value.exit_code == 143
    done = len(epochs_in(out))
    assert 3 <= done < FOREVER  # epochs go on while a busy machine gets round to telling of the third
    assert not os.path.lexists(out / "stop")
    resumed = siafu.train(graph, gcn(graph), epochs=done + 3, out=out, resume=True)
    assert losses(resumed) == losses(siafu.train(graph, gcn(graph), epochs=done + 3))


def test_a_request_from_before_stops_no_later_session(tmp_path: Path) -> None:
    graph, out = toy_graph(), tmp_path / "run"
    siafu.train(graph, gcn(graph), epochs=2, out=out)
    StopFile(out).ask()
    run = siafu.train(graph, gcn(graph), epochs=4, out=out, resume=True)
    assert len(run.history) == 4
