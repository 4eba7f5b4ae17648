"""Timings: taken, printed and kept."""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput, SiafuError


@dataclass(frozen=True)
class Timing:
    """One contender's times. The best stands for it: a shared machine only ever adds time.

    who:            what was measured
    seconds:        of each repetition
    peak_rss_bytes: of its process, 0 where it shares one with others
    """

    who: str
    seconds: list[float]
    peak_rss_bytes: int = 0

    @property
    def best(self) -> float:
        return min(self.seconds)


def measure(who: str, work: Callable[[], object], repeats: int) -> Timing:
    """Run `work` once to warm up, then `repeats` times."""
    work()
    seconds = []
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return told(Timing(who, seconds))


def told(timing: Timing) -> Timing:
    """`timing`, after a line about it on stderr."""
    print(f"{timing.who}: {timing.best:.3f} s", file=sys.stderr, flush=True)
    return timing


def measure_peer(python: Path, who: str, arguments: list[str], repeats: int) -> Timing:
    """Run `peer.py` under another interpreter; its first repetition warms up and is left out."""
    if not python.exists():
        raise BadInput(
            f"no interpreter at {python}: make the peers' environment first (docs/performance.md says how)"
        )
    script = Path(__file__).with_name("peer.py")
    asked = [str(python), str(script), *arguments[:4], str(repeats + 1), *arguments[4:]]
    found = answer_of(asked, who)
    return told(Timing(who, found["seconds"][1:], found["peak_rss_bytes"]))


def answer_of(command: list[str], who: str) -> dict[str, Any]:
    """The JSON object that a process prints as its last line."""
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        lines = answer.stderr.strip().splitlines()
        causes = [line for line in lines if "Error" in line] or lines or [f"exit code {answer.returncode}"]
        raise SiafuError(f"{who} failed: {causes[-1].strip()}")
    found: dict[str, Any] = json.loads(answer.stdout.strip().splitlines()[-1])
    return found


def as_json(setting: dict[str, Any], timings: list[Timing]) -> str:
    """One line of JSON: what was measured and every time."""
    return json.dumps(setting | {"timings": [asdict(timing) | {"best": timing.best} for timing in timings]})
