"""Calling the real command, in this process or in one of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from siafu.cli import main

_COMMAND = "from siafu.cli import main; main()"


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """The JSON object that is the last line of stdout."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


class Siafu:
    """`siafu` as a function: `siafu("train", store, epochs=5)` is `siafu train STORE --epochs 5`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *words: object, **options: object) -> Finished:
        """Run the command here, to its end."""
        self._capfd.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["siafu", *arguments(*words, **options)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capfd.readouterr()
        return Finished(ended.value.code if isinstance(ended.value.code, int) else 1, out, err)

    def refused(self, *words: object, **options: object) -> str:
        """The one line that a command with bad input says before it ends with code 2."""
        ended = self(*words, **options)
        last = ended.err.splitlines()[-1]
        assert ended.code == 2, ended
        assert last.startswith("siafu: "), ended
        assert "Traceback" not in ended.err
        return last


def arguments(*words: object, **options: object) -> list[str]:
    """The words of a command line; `True` is a flag, `None` is left out."""
    given = [str(word) for word in words]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            given.append(flag)
        elif value is not None:
            given += [flag, str(value)]
    return given


def spawn(*words: object, **options: object) -> subprocess.Popen[str]:
    """Start the command in a process of its own, to send signals to."""
    line = [sys.executable, "-c", _COMMAND, *arguments(*words, **options)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
