"""How long commands take to start, with warm caches: from the process's start to the first epoch's end, or to the end.

    python bench/startup.py [TIMES] [DATASET]

Wall-clock and CPU seconds, the best of TIMES starts (default 5). A first start, which is not counted, fills the caches.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

Times = tuple[float, float]
"""Wall-clock and CPU seconds."""


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    dataset = sys.argv[2] if len(sys.argv) > 2 else "cora"
    with tempfile.TemporaryDirectory() as directory:
        run = str(Path(directory) / "run")
        train = ["train", dataset, "--epochs", "2", "--out", run, "--overwrite"]
        demo = ["train", "demo", "--out", f"{directory}/demo", "--overwrite"]
        _to_line(train, "epoch 1/")
        _to_end(demo)
        rows = {
            f"train {dataset}, to the first epoch's end": lambda: _to_line(train, "epoch 1/"),
            f"train {dataset} of 2 epochs, to its end": lambda: _to_end(train),
            "train demo, to its end": lambda: _to_end(demo),
            "predict": lambda: _to_end(["predict", run]),
            "--help": lambda: _to_end(["--help"]),
            "train with an option out of range": lambda: _to_end(["train", dataset, "--lr", "-1"]),
            "train with a model that is not there": lambda: _to_end(["train", dataset, "--model", "gcm"]),
            "embed into a file": lambda: _to_end(["embed", dataset, "--out", __file__]),
            "train of a path that is not there": lambda: _to_end(["train", f"{directory}/nothing"]),
            "train of a name that is not there": lambda: _to_end(["train", "nothing-of-that-name"]),
            "predict of a run that is not there": lambda: _to_end(["predict", f"{directory}/nothing"]),
        }
        for name, measure in rows.items():
            wall, cpu = min(measure() for _ in range(times))
            print(f"{name:42} {wall:6.2f} s wall {cpu:6.2f} s CPU", flush=True)


def _to_end(arguments: list[str]) -> Times:
    before, began = os.times(), time.perf_counter()
    _start(arguments).communicate()
    wall, after = time.perf_counter() - began, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu


def _to_line(arguments: list[str], beginning: str) -> Times:
    """Until stderr shows a line that begins so; CPU seconds are those of the whole command."""
    before, began = os.times(), time.perf_counter()
    process = _start(arguments)
    assert process.stderr is not None
    found = next((time.perf_counter() for line in process.stderr if line.startswith(beginning)), None)
    assert found is not None, f"no line begins with {beginning!r}"
    process.communicate()
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return found - began, cpu


def _start(arguments: list[str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "siafu", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


if __name__ == "__main__":
    main()
