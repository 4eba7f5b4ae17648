"""The command itself."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import siafu
from siafu import cli
from siafu.cli import app


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.strip() == f"siafu {siafu.__version__}"


def loads(*names: str, arguments: list[list[str]], code: int) -> bool:
    """Whether commands that end with this code have loaded any of these packages, in a process of their own."""
    program = (
        "import sys; from typer.testing import CliRunner; from siafu.cli import app; "
        f"codes = [getattr(found.exception, 'exit_code', found.exit_code) for found in (CliRunner().invoke(app, each) for each in {arguments!r})]; "
        f"assert set(codes) == {{{code}}}, codes; "
        f"sys.exit(bool({set(names)!r} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert not found.stderr
    return found.returncode == 1


@pytest.mark.slow
def test_help_loads_neither_torch_nor_numba() -> None:
    asked = [["--help"], ["train", "--help"]]
    assert not loads("torch", "numba", arguments=asked, code=0)


@pytest.mark.slow
def test_a_path_where_nothing_is_is_refused_before_torch_and_numba_are_loaded(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    asked = [["train", nothing], ["explain", "gcn", nothing], ["predict", nothing], ["evaluate", nothing]]
    assert not loads("torch", "numba", arguments=asked, code=2)


@pytest.mark.slow
def test_a_size_and_a_split_that_are_none_are_refused_before_torch_is_loaded() -> None:
    size, split = ["train", "demo", "--memory", "lots"], ["train", "demo", "--split", "random:60/20"]
    assert not loads("torch", "numba", arguments=[size], code=2)
    assert not loads("torch", arguments=[split], code=2)


@pytest.mark.slow
def test_directories_that_cannot_be_used_are_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").touch()
    out = ["train", "demo", "--out", str(tmp_path / "full")]
    scratch = ["train", "demo", "--scratch", str(tmp_path / "none")]
    assert not loads("torch", arguments=[out, scratch], code=2)


@pytest.mark.slow
def test_an_unknown_name_is_refused_before_torch_and_numba_are_loaded() -> None:
    asked = [["train", "no-such-data"], ["explain", "gcn", "no-such-data"]]
    assert not loads("torch", "numba", "numpy", arguments=asked, code=2)


@pytest.mark.slow
def test_training_on_threads_loads_no_code_of_lambdas_and_none_that_imports_data(tmp_path: Path) -> None:
    siafu.load("demo")  # who makes it imports the code that writes stores
    asked = ["train", "demo", "--epochs", "1", "--out", str(tmp_path / "run"), "--quiet"]
    program = (
        "import gc, sys; from siafu.cli import main; sys.argv = ['siafu', *sys.argv[1:]]\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 100_000, gc.get_freeze_count()\n"
        "assert 'torch' in sys.modules\n"
        "print([each for each in sys.modules if each.startswith(('zmq', 'siafu.serverless.inbox', 'siafu.graph.importing'))])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, *asked], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]", found.stdout


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (OSError(errno.EISDIR, os.strerror(errno.EISDIR), "here"), 2, "siafu: here: Is a directory\n"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 2, "siafu: No space left on device\n"),
        (OSError(errno.EIO, os.strerror(errno.EIO), "here"), 1, "siafu: here: Input/output error\n"),
        (OSError("lost"), 1, "siafu: lost\n"),
        (MemoryError(), 1, "siafu: not enough memory (an allocation failed): use a machine with more\n"),
    ],
)
def test_an_error_of_the_system_is_one_line(
    error: Exception,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    assert capsys.readouterr().err == line
