"""Epochs of mini-batches with features on disk beside features in memory.

    python bench/sampling_disk.py STORE [--groups 16] [--epochs 3] [--drop-every SECONDS]

STORE: such as `siafu generate products --scale 0.2` makes. GraphSAGE of two layers, 128 wide, fanout 15,10, batches of 1,024. Three ways, each
in a process of its own:

    memory: features in memory, batches in random order
    random: features in the store's file, batches in random order
    buffer: features in the store's file, batches in the order of a buffer (`--batch-order buffer:GROUPS`)

Before every epoch the system is told to drop the file's pages, and with `--drop-every` again and again, as if it had no memory for them. Bytes that came from the disk
are the process's `read_bytes` of /proc/self/io. The first epoch, which compiles, is not counted; of the others the median is.
"""

import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import siafu
from siafu.base.storage.mapped import mapped_file
from siafu.training.pace import EpochEnd


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store")
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--drop-every", type=float)
    parser.add_argument("--way", help="measure this one alone, in this process")
    asked = parser.parse_args()
    ways = {"memory": "random", "random": "random", "buffer": f"buffer:{asked.groups}"}
    if asked.way is not None:
        in_memory = asked.way == "memory"
        print(
            json.dumps(
                measured(asked.store, ways[asked.way], asked.epochs, asked.drop_every, in_memory=in_memory)
            )
        )
        return
    print("| features | epoch, s | CPU s | from disk, MB | as counted, MB |")
    print("|---|---|---|---|---|")
    for way in ways:
        command = [sys.executable, *sys.argv, "--way", way]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        seconds, cpu, read, counted = json.loads(told.splitlines()[-1])
        by_count = "" if counted is None else f"{counted / 1e6:,.0f}"
        print(f"| {way} | {seconds:.2f} | {cpu:.2f} | {read / 1e6:,.0f} | {by_count} |", flush=True)


def measured(
    store: str, order: str, epochs: int, drop_every: float | None, *, in_memory: bool
) -> tuple[float, float, float, float | None]:
    """Seconds, CPU seconds, bytes from disk and bytes as they are counted, of an epoch."""
    graph = siafu.load(store)
    features: Any = graph.x
    if in_memory:
        graph = graph.replace(x=np.array(features))
    torch.manual_seed(0)
    model = siafu.nn.GraphSAGE(graph.num_features, 128, 2, graph.num_classes, dropout=0.5)
    marks: list[tuple[float, int]] = []

    def between(end: EpochEnd) -> None:
        drop(features)
        marks.append((time.process_time(), from_disk()))

    drop(features)
    if drop_every is not None and not in_memory:
        threading.Thread(target=drop_again, args=(features, drop_every), daemon=True).start()
    run = siafu.train(
        graph, model, mode="sampled", fanout=[15, 10], batch=1024, lr=0.003, epochs=epochs + 2,
        evaluate_every=epochs + 2, batch_order=order, callbacks=[between],
    )  # fmt: skip
    middle = [each.seconds for each in run.history[1:-1]]
    cpus, reads = zip(*marks, strict=True)
    counted = run.counters.get("feature_bytes_read")
    return (
        statistics.median(middle),
        (cpus[-2] - cpus[0]) / epochs,
        (reads[-2] - reads[0]) / epochs,
        None if counted is None else counted / (epochs + 2),
    )


def drop(features: Any) -> None:
    """Have the system forget the pages of the features' file."""
    file: Any = mapped_file(features)
    file._mmap.madvise(mmap.MADV_DONTNEED)
    number = os.open(file.filename, os.O_RDONLY)
    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(number)


def drop_again(features: Any, seconds: float) -> None:
    while True:
        time.sleep(seconds)
        drop(features)


def from_disk() -> int:
    """Bytes that this process has had read from disks."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, value = line.split(": ")
        if name == "read_bytes":
            return int(value)
    return 0


if __name__ == "__main__":
    main()
