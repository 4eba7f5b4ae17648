"""Ctrl-C before a command has got anywhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import Siafu

# Ctrl-C as the first module of the command line is looked for.
_INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "siafu.cli":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
from siafu.__main__ import main
main()
"""


def test_while_the_command_is_loaded_it_is_one_line() -> None:
    ended = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "siafu: interrupted while starting\n")


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


_LOADED = """
import os, sys
before = set(sys.modules)
import siafu.__main__
print(sorted(set(sys.modules) - before))
"""


def test_nothing_is_loaded_before_ctrl_c_is_taken() -> None:
    ended = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True)
    assert ended.stdout == "['siafu', 'siafu.__main__']\n", ended


def test_while_a_graph_is_loaded_nothing_was_trained(siafu: Siafu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siafu.load", _interrupt)
    ended = siafu("train", "demo")
    assert ended.code == 130
    assert "interrupted before the first epoch: nothing was trained" in ended.err


def test_any_command_says_that_it_was_interrupted(
    siafu: Siafu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    monkeypatch.setattr("siafu.graph.importing.importer.import_graph", _interrupt)
    ended = siafu("import", tmp_path / "edges.csv", output=tmp_path / "my.store")
    assert ended.code == 130
    assert ended.err.endswith("siafu: interrupted\n")


def test_while_the_command_line_is_read_it_is_one_line(siafu: Siafu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.core.TyperGroup.parse_args", _interrupt)
    ended = siafu("datasets")
    assert (ended.code, ended.err) == (130, "siafu: interrupted\n")
