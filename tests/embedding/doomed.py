"""Trainings that are killed at a chosen call, each in a process of its own.

python -m tests.embedding.doomed DIRECTORY POINT…   prints how each ended; its run is DIRECTORY/POINT
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import siafu
from siafu.embedding import embedding_session, embedding_trainer
from siafu.embedding.disk.partition_buffer import PartitionBuffer
from siafu.embedding.steps.lane import EmbeddingLane
from siafu.embedding.steps.row_updates import RowOptimizer
from siafu.report.files import large_tensors
from tests.embedding.knowledge import SMALL, families

OPTIONS: dict[str, Any] = {
    **SMALL,
    "exact": True,
    "epochs": 4,
    "dropout": 0.2,
    "evaluate_every": 1,
    "checkpoint_every": 1e-9,
}
"""Of every run here; within an epoch its state is saved wherever that can be."""

ON_DISK: dict[str, Any] = {"partitions": 6, "buffer": 3, "order": "beta"}

POINTS: dict[str, tuple[Any, str, int]] = {
    "load": (EmbeddingLane, "load", 30),
    "compute": (EmbeddingLane, "compute", 30),
    "update": (RowOptimizer, "update", 61),  # of the relations, and not yet of the entities
    "save": (large_tensors, "_blocks", 45),
    "disk-compute": (EmbeddingLane, "compute", 60),
    "disk-swap": (PartitionBuffer, "admit", 17),
    "disk-write": (PartitionBuffer, "_write_slot", 25),  # by the thread that moves partitions
    "disk-save": (PartitionBuffer, "read_range", 150),
}
"""Where a run is killed: before which call, of whose, by number."""


def options_at(point: str) -> dict[str, Any]:
    if point in ("disk-swap", "disk-write"):
        return OPTIONS | ON_DISK | {"checkpoint_every": 0}  # an epoch that rests at every state swaps nothing
    return OPTIONS | (ON_DISK if point.startswith("disk") else {})


def rest_often() -> None:
    """Save every few batches, however long it takes."""
    embedding_session._REST = 0
    embedding_trainer._LEG = 4


def _train_doomed(point: str, out: Path) -> None:
    owner, name, number = POINTS[point]
    usual, calls = getattr(owner, name), 0

    def doomed(*args: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return usual(*args, **keywords)

    setattr(owner, name, doomed)
    rest_often()
    siafu.embed(families(), out=out, **options_at(point))


def main() -> None:
    directory = Path(sys.argv[1])
    for point in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            _train_doomed(point, directory / point)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(point, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
