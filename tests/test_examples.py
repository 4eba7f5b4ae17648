"""Every example is short, and does what it says."""

import re
import runpy
from pathlib import Path

import pytest

_EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))
_NAMED = {path.stem: path for path in _EXAMPLES}


def _said(
    name: str, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.chdir(directory)
    runpy.run_path(str(_NAMED[name]), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_at_most_sixty_lines_and_says_how_to_run_it(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    assert f"python examples/{path.name}" in text.split('"""')[1]


def test_arrays_of_ones_own_are_learnt_and_the_run_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said("own_arrays", tmp_path, monkeypatch, capsys)
    assert float(re.findall(r"test accuracy ([\d.]+)", said)[0]) > 0.9
    assert (tmp_path / "runs" / "own-arrays" / "summary.json").exists()


def test_a_layer_of_ones_own_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said("own_layer", tmp_path, monkeypatch, capsys)
    assert "[4000, 8]" in said
    assert float(re.findall(r"test accuracy ([\d.]+)", said)[0]) > 0.8


def test_weights_of_pyg_come_in_and_go_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said("pyg_weights", tmp_path, monkeypatch, capsys)
    theirs, ours = re.findall(r"test accuracy ([\d.]+)", said)
    assert theirs == ours
    assert float(re.findall(r"differ by (\S+)", said)[0]) < 1e-5


def test_lambdas_of_this_machine_give_the_losses_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said("local_lambdas", tmp_path, monkeypatch, capsys)
    assert float(re.findall(r"differ by (\S+)", said)[0]) < 1e-5
    assert int(re.findall(r"(\d+) invocations", said)[0]) >= 1


def test_two_servers_give_the_loss_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said("two_servers", tmp_path, monkeypatch, capsys)
    one, two = (float(loss) for loss in re.findall(r"loss ([\d.]+)", said))
    assert one == pytest.approx(two, rel=1e-5)
    assert "c5.2xlarge; elsewhere" in said
