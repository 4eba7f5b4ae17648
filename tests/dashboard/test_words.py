"""Words of the dashboard's pages."""

from pathlib import Path

import siafu.dashboard

_WEB = Path(siafu.dashboard.__file__).parent / "web"


def test_a_run_is_not_said_to_wait_before_its_epochs_are_read() -> None:
    (line,) = [line for line in (_WEB / "run.html").read_text().splitlines() if 'id="waiting"' in line]
    assert " hidden>" in line


def test_the_test_score_of_the_best_epoch_has_a_clear_name() -> None:
    assert 'title: "Test at the best"' not in (_WEB / "runs.js").read_text()
    assert 'title: "Test at the best epoch"' in (_WEB / "runs.js").read_text()
    assert "at the best epoch`" in (_WEB / "run.js").read_text()
