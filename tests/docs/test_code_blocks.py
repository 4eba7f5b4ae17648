"""Every block of code that a reader may copy runs, or the page says why it is not run here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks, commands
from tests.docs.installed import HIDING, hidden_modules

_REPOSITORY = Path(__file__).resolve().parents[2]
_PAGES = [_REPOSITORY / "README.md", *sorted((_REPOSITORY / "docs").glob("*.md"))]
_WITH_CODE = [page for page in _PAGES if any(not block.skipped for block in blocks(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", _WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    only_base = page.name == "README.md"  # a newcomer has what its first command installs, and no more
    environment = {
        **os.environ,
        "PYTHONPATH": f"{_REPOSITORY / 'src'}:{_REPOSITORY}" + (f":{HIDING}" if only_base else ""),
        "HIDDEN_MODULES": hidden_modules() if only_base else "",
        "SIAFU_STATE": str(tmp_path / "state"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    directory = tmp_path / "scratch"
    directory.mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.docs.run_page", str(page)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]


def test_an_installation_without_extras_has_no_ray_but_all_that_local_lambdas_and_the_dashboard_need() -> (
    None
):
    hidden = set(hidden_modules().split(","))
    assert {"ray", "boto3", "pyarrow", "pytest", "torch_geometric"} <= hidden
    assert not {"torch", "numba", "awslambdaric", "starlette", "uvicorn", "zmq", "siafu"} & hidden
    assert "ray" not in hidden_modules("cluster").split(",")


def test_a_hidden_module_seems_not_to_be_installed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(HIDING), "HIDDEN_MODULES": "numba,ray"}
    ran = subprocess.run(
        [sys.executable, "-c", "import ray"], env=environment, capture_output=True, text=True
    )
    assert "ModuleNotFoundError: No module named 'ray'" in ran.stderr


def test_most_blocks_are_run_and_every_other_has_a_reason() -> None:
    every = [block for page in _PAGES for block in blocks(page)]
    skipped = [block for block in every if block.skipped]
    told = "\n".join(f"{block}: {block.why_not}" for block in skipped)
    assert len(skipped) <= len(every) / 2, told


def test_what_is_said_not_to_run_is_there(tmp_path: Path) -> None:
    for page in _PAGES:
        for block in blocks(page):
            for beginning in block.left_out:
                assert beginning in block.text, f"{block} has no command {beginning!r}"


def _page(tmp_path: Path, text: str) -> list[Block]:
    (tmp_path / "page.md").write_text(text)
    return blocks(tmp_path / "page.md")


def test_fenced_and_indented_blocks_are_found_where_they_stand(tmp_path: Path) -> None:
    text = "# A\n\n```python\nx = 1\n```\n\n    siafu train demo   # c\n    siafu doctor\n\n```json\n{}\n```\n\n    not a command\n"
    first, second = _page(tmp_path, text)
    assert (first.kind, first.line, first.text) == ("python", 4, "x = 1\n")
    assert second.kind == "shell"
    assert [command for command, _ in commands(second)] == ["siafu train demo   # c", "siafu doctor"]


def test_a_console_block_has_commands_and_their_output(tmp_path: Path) -> None:
    (block,) = _page(tmp_path, "```console\n$ cat a.csv\nx,y\n1,2\n$ siafu import \\\n  a.csv\n```\n")
    assert commands(block) == [("cat a.csv", "x,y\n1,2"), ("siafu import    a.csv", "")]


def test_a_page_says_what_is_not_run(tmp_path: Path) -> None:
    text = (
        "<!-- not run: costs money -->\n```sh\nsiafu lambda deploy\n```\n"
        '<!-- not run "siafu b": long -->\n\n    siafu a\n    siafu b c\n\n```python\nz = y\n```\n'
    )
    whole, part, after = _page(tmp_path, text)
    assert (whole.skipped, whole.why_not) == (True, "costs money")
    assert not part.skipped
    assert [command for command, _ in commands(part)] == ["siafu a"]
    assert not after.skipped


def test_a_block_that_fails_fails_its_page(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    line = [sys.executable, "-m", "tests.docs.run_page", str(tmp_path / "page.md")]
    ran = subprocess.run(
        line,
        env={**os.environ, "PYTHONPATH": f"{_REPOSITORY / 'src'}:{_REPOSITORY}"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert 'File "page.md", line 6' in ran.stderr
