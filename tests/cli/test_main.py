"""The command itself."""

import errno
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import siafu
from siafu import cli
from siafu.cli import app


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.strip() == f"siafu {siafu.__version__}"


def test_help_loads_neither_torch_nor_numba() -> None:
    program = (
        "import sys; from typer.testing import CliRunner; from siafu.cli import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0; "
        "assert CliRunner().invoke(app, ['train', '--help']).exit_code == 0; "
        "sys.exit(bool({'torch', 'numba'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


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
