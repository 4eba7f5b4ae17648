"""Mistyped options are refused before PyTorch and Numba are loaded: each takes well under half a second of work."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from siafu import Graph

_REFUSED = """
import sys
from siafu.cli import main
for line in open("lines"):
    sys.argv = ["siafu", *line.split()]
    try:
        main()
    except SystemExit as ended:
        assert ended.code == 2, (line, ended.code)
    else:
        raise AssertionError(line)
    heavy = {"torch", "numba", "scipy"} & set(sys.modules)
    assert not heavy, (line, heavy)
"""


def _refused(lines: str) -> list[str]:
    Path("lines").write_text(lines)
    ended = subprocess.run([sys.executable, "-c", _REFUSED], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr.splitlines()


@pytest.mark.usefixtures("siafu")
def test_no_refusal_of_a_word_waits_for_pytorch() -> None:
    Path("a.file").touch()
    Path("a.run").mkdir()
    Path("a.run/config.json").touch()
    Path("a.run/metrics.jsonl").touch()
    Graph.from_edges([0, 1], [1, 2], x=np.ones((3, 2), np.float32)).save("bare.store")
    lines = """\
--no-such-option
train dmo
train nowhere/at.all
train ./a.run
train bare.store
train bare.store --split random:60/20/20
train demo --model gcm
train demo --heads 3
train demo --lr -1
train demo --groups 3
train demo --memory 5X
train demo --memory 8
train demo --out /proc/nowhere
train demo --scratch nowhere
train demo --out a.file
train demo --start nowhere
train demo --scheduler StpLR(3)
train demo --split foo
train demo --objective foo
train demo --precision f
train demo --act foo
train demo --norm foo
train demo --dropout 3
train demo --instance foo
train demo --prices nowhere
train demo --partition foo
train demo --reorder foo
train demo --redundancy 1
train demo --redundancy eager
train demo --redundancy 2 --servers 2 --cluster auto
sweep demo --vary model=gcm
sweep demo --vary hiden=3
sweep demo --vary hidden=3 --out a.file
sweep demo --vary hidden=3 --out a.run
sweep demo --vary hidden=3 --out /proc/nowhere
explain gcm demo
embed demo --out a.file
embed demo --out /proc/nowhere
embed demo --memory abc
embed demo --memory 8
embed demo --score dott
embed dmo
plan dmo
plan demo --model gcm
plan demo --instance foo
plan demo --deadline foo
partition demo --parts 2 --method foo
import nowhere.csv
import demo
generate foo
predict nowhere
predict bare.store
evaluate nowhere
evaluate bare.store
report nowhere
compare a b
info nowhere
"""
    told = _refused(lines)
    assert len(told) == len(lines.splitlines())
    assert all(line.startswith("siafu: ") for line in told)
