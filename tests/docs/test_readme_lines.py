"""Lines of the README that its page cannot run as they are: each in a process that sees what the line names, and no more.

The page's other lines run in `test_code_blocks.py`, with what the first command installs.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import blocks, words
from tests.docs.installed import HIDING, hidden_modules
from tests.toys import toy_graph

_REPOSITORY = Path(__file__).resolve().parents[2]
_BLOCK = next(block for block in blocks(_REPOSITORY / "README.md") if block.left_out)
_LINES = [
    line
    for line in _BLOCK.text.splitlines()
    if any(line.startswith(beginning) for beginning in _BLOCK.left_out)
]
_SHORTER = {"siafu train": ["--epochs", "2"], "siafu generate": ["--scale", "0.005"]}
_NOT_STARTED = {"siafu cluster": ["--dry-run"]}  # tests/cli/test_cluster.py starts the same cluster


def extras(line: str) -> list[str]:
    """Extras that a line names in its comment."""
    return [each for named in re.findall(r"\.\[([\w,]+)\]", line) for each in named.split(",")]


def environment(line: str, directory: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{_REPOSITORY / 'src'}:{_REPOSITORY}:{HIDING}",
        "HIDDEN_MODULES": hidden_modules(*extras(line)),
        "SIAFU_DATA": str(directory / "data"),
        "SIAFU_STATE": str(directory / "state"),
    }


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which `pubmed` and `reddit.store` are small, so that nothing is fetched."""
    directory = tmp_path_factory.mktemp("readme")
    toy_graph().save(directory / "data" / "pubmed")
    toy_graph().save(directory / "reddit.store")
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("line", _LINES, ids=lambda line: line.partition("#")[0].strip())
def test_a_line_runs_with_what_it_names(line: str, here: Path) -> None:
    given = words(line)
    start = " ".join(given[:2])
    if start == "siafu generate":
        given[given.index("reddit.store")] = "made.store"
    given += _SHORTER.get(start, []) + _NOT_STARTED.get(start, [])
    given += ["--port", "0"] if start == "siafu dashboard" else []
    process = subprocess.Popen(
        [sys.executable, "-m", "siafu", *given[1:]],
        cwd=here,
        env=environment(line, here),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if start == "siafu dashboard":
        assert process.stdout is not None
        assert "http://127.0.0.1" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out[-2000:] + err[-2000:]


@pytest.mark.slow
def test_a_line_that_names_an_extra_says_so_without_it(here: Path) -> None:
    (line,) = [line for line in _LINES if extras(line) == ["cluster"]]
    ended = subprocess.run(
        [sys.executable, "-m", "siafu", *words(line)[1:]],
        cwd=here,
        env=environment("", here),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    assert "pip install 'siafu[cluster]'" in ended.stderr
