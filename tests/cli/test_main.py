"""The command itself."""

import subprocess
import sys

from typer.testing import CliRunner

import siafu
from siafu.cli import app


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.strip() == f"siafu {siafu.__version__}"


def test_help_loads_neither_torch_nor_numba() -> None:
    program = (
        "import sys; from typer.testing import CliRunner; from siafu.cli import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0; "
        "sys.exit(bool({'torch', 'numba'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
