"""`sync` and `pipe` give the same bits in every repetition, on any number of threads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.cluster_runs import train_on_crew
from tests.repetitions import MODELS, fingerprint

# (threads that run tasks, threads that PyTorch would use)
THREADS = ((1, 1), (2, 2), (2, 8), (4, 4))
TIMES = 4


def repeated(tasks: int, products: int, times: int) -> dict[str, list[str]]:
    """What a process of its own finds."""
    threads = {"SIAFU_THREADS": str(tasks), "OMP_NUM_THREADS": str(products)}
    told = subprocess.run(
        [sys.executable, "-m", "tests.repetitions", str(times)],
        env=os.environ | threads,
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[str]] = json.loads(told.stdout)
    return found


@pytest.mark.slow
def test_two_hundred_and_fifty_six_trainings_have_one_result_each() -> None:
    found = [repeated(*threads, TIMES) for threads in THREADS]
    seen = {name: [each for process in found for each in process[name]] for name in found[0]}
    assert len(seen) == 2 * len(MODELS)
    assert sum(map(len, seen.values())) == 256
    assert {name: len(set(prints)) for name, prints in seen.items()} == dict.fromkeys(seen, 1)


@pytest.mark.slow
def test_servers_on_a_cluster_have_the_same_result_with_any_number_of_threads() -> None:
    prints = {
        fingerprint(train_on_crew("gcn", epochs=4, mode=mode, crew={"threads": threads}).weights)
        for mode in ("sync", "pipe")
        for threads in (1, 2, 4)
    }
    assert len(prints) == 1
