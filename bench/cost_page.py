"""Write the output in docs/cost.md anew, after a new calibration or new prices.

    siafu calibrate -o src/siafu/planning/data/reference.json     # on a quiet machine
    python bench/cost_page.py

Runs every `$ siafu plan …` of the page and `bench/plans.py`, shows the reference calibration, draws docs/plan.svg, and puts what came
of it in place of what stands there. Needs a minute. The output of `siafu train` stays.
"""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from siafu.planning.calibration import Calibration, describe

_ROOT = Path(__file__).resolve().parents[1]
_PAGE = _ROOT / "docs" / "cost.md"
_REFERENCE = _ROOT / "src" / "siafu" / "planning" / "data" / "reference.json"
_WIDTH = 130


def main() -> None:
    page = _PAGE.read_text()
    page = re.sub(r"```text\n(\$ siafu plan .*?)\n```", _planned, page, flags=re.DOTALL)
    page = re.sub(r"```text\nmachine .*?\n```", _calibration, page, flags=re.DOTALL)
    page = re.sub(r"\| graph \| choice .*?\n\n", _plans, page, flags=re.DOTALL)
    _PAGE.write_text(page)


def _planned(block: re.Match[str]) -> str:
    commands = [line for line in block[1].splitlines() if line.startswith("$ ")]
    shown = "\n".join(
        f"{command}\n{_wrapped(_siafu(command.removeprefix('$ siafu ')))}" for command in commands
    )
    return f"```text\n{shown}\n```"


def _siafu(arguments: str) -> str:
    """What a command prints; of one that is refused, its one line."""
    done = _run("-c", "from siafu.cli import main; main()", *arguments.split())
    return (done.stdout or done.stderr.splitlines()[-1]).rstrip()


def _calibration(_: re.Match[str]) -> str:
    return "```text\n" + _wrapped("\n".join(describe(Calibration.read(_REFERENCE)))) + "\n```"


def _plans(_: re.Match[str]) -> str:
    done = _run(str(_ROOT / "bench" / "plans.py"))
    done.check_returncode()
    return f"{done.stdout}\n"


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Python beside the page, with an empty cache: nobody has calibrated, so that the reference counts."""
    with tempfile.TemporaryDirectory() as cache:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=_PAGE.parent,
            env=os.environ | {"SIAFU_CACHE": cache},
            capture_output=True,
            text=True,
            check=False,
        )


def _wrapped(text: str) -> str:
    """Long lines of prose are broken; tables and commands stay."""
    lines: list[str] = []
    for line in text.splitlines():
        prose = len(line) > _WIDTH and not line.lstrip().startswith("siafu ")
        lines += textwrap.wrap(line, _WIDTH, subsequent_indent="  ") if prose else [line]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
