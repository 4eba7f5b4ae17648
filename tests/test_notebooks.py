"""Notebooks of the examples run from top to bottom, in a kernel of their own."""

import sys
from pathlib import Path

import pytest

_NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert len(_NOTEBOOKS) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_it_is(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin"
    )  # `!siafu` is this environment's
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute(cwd=str(tmp_path))
    wrong = [
        output for cell in book.cells for output in cell.get("outputs", ()) if output.output_type == "error"
    ]
    assert not wrong
