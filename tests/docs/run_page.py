"""Run the code blocks of one page, in order, in the current directory: `python -m tests.docs.run_page PAGE`.

All in one process, so that PyTorch is loaded once: `siafu …` is called as a function, Python blocks share their names, other commands
go to the shell. `cat FILE` with output makes the file, so that a page can show what it is talking about. A training that does
not say how long it takes five epochs.
"""

import os
import re
import subprocess
import sys
import tomllib
import traceback
from pathlib import Path
from typing import Any

from tests.docs.blocks import Block, blocks, commands, words
from tests.docs.output import missing_lines

_SHELL = {"|", "<", ">", ">>", "&", ";", "||"}
_PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def main() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    page = Path(sys.argv[1])
    before = Path(__file__).parent / "before" / f"{page.stem.lower().replace('-', '_')}.py"
    if before.exists():
        exec(compile(before.read_text(), str(before), "exec"), names)
    for block in blocks(page):
        if block.skipped:
            continue
        try:
            if block.kind == "python":
                _run_python(block, names)
            else:
                for command, output in commands(block):
                    if block.compared and output:
                        _compare(command, output)
                    else:
                        _run_command(command, output)
        except BaseException:
            traceback.print_exc()
            print(f"{block} failed", file=sys.stderr)
            os._exit(1)  # whatever the block has started does not hold us up
    print("all blocks ran")


def _run_python(block: Block, names: dict[str, Any]) -> None:
    # Line numbers are those of the page.
    exec(compile("\n" * (block.line - 1) + block.text, block.page.name, "exec"), names)


def _compare(command: str, output: str) -> None:
    """Run a command as it stands, in a process of its own, and look for what the page shows."""
    line = [sys.executable, "-m", "siafu", *words(command)[1:]]
    ran = subprocess.run(line, capture_output=True, text=True)
    printed = ran.stderr + ran.stdout
    print(f"$ {command}\n{printed}", flush=True)
    assert ran.returncode == 0, printed
    missing = missing_lines(output, printed)
    assert not missing, f"{command} does not print {missing}, but\n{printed}"


def _run_command(command: str, output: str) -> None:
    for part in command.split(" && "):
        given = words(part)
        if not given:
            continue
        print(f"$ {part}", flush=True)
        if given[0] == "siafu" and not _SHELL & set(given):
            _run_siafu(given if given[1] != "train" or "--epochs" in given else [*given, "--epochs", "5"])
        elif given[:2] == ["pip", "install"]:
            _check_install(given[2:])
        elif given[0] == "cat" and output and not Path(given[1]).exists():
            Path(given[1]).write_text(output + "\n")
        else:
            subprocess.run(["bash", "-euc", part], check=True)


def _run_siafu(given: list[str]) -> None:
    from siafu.cli import main as siafu

    sys.argv = given
    try:
        siafu()
    except SystemExit as ended:
        assert not ended.code, f"exit code {ended.code}"


def _check_install(given: list[str]) -> None:
    """Nothing is installed: but what is named must be there to install."""
    extras = tomllib.loads(_PROJECT.read_text())["project"]["optional-dependencies"]
    for word in given:
        for named in re.findall(r"(?:siafu|\.)\[([^\]]+)\]", word):
            unknown = set(named.split(",")) - set(extras)
            assert not unknown, f"pyproject.toml has no extra {unknown}"


if __name__ == "__main__":
    main()
