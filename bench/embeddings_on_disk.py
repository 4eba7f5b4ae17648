"""A table of vectors in memory, and the same in partitions on disk: time, CPU time, traffic, and how much of it was hidden.

    python bench/embeddings_on_disk.py [--entities N] [--triples N] [--dim N] [--partitions P --buffer C --order NAME] [--scratch DIR]
        [--only memory|disk] [--share S] [--memory GB] [--products fp32|bf16]

Triples are random, heads and tails drawn by a power law: what is learnt means nothing, but reads, products and updates are those of
a real graph. Each way runs in a process of its own, for one epoch after a short one that compiles. --share 0.05 ends the epoch after a twentieth
of its triples, or on disk with the state of the buffer in which that is reached: for tables whose epoch takes hours. --memory chooses
partitions and buffer as `siafu embed` does.
"""

import argparse
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile, gettempdir

import numpy as np

from siafu.base.hardware.memory import own_bytes
from siafu.embedding.disk.disk_trainer import DiskTrainer
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_memory import disk_list, on_disk
from siafu.embedding.embedding_trainer import EmbeddingTrainer
from siafu.graph.triples import Triples

_BLOCK = 1 << 20  # triples that are drawn at a time


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entities", type=int, default=400_000)
    parser.add_argument("--triples", type=int, default=4_000_000)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--buffer", type=int, default=4)
    parser.add_argument("--order", default="comet")
    parser.add_argument("--scratch", type=Path, default=Path(gettempdir()))
    parser.add_argument("--only", choices=("memory", "disk"))
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--memory", type=float)
    parser.add_argument("--products", default="fp32")
    given = parser.parse_args()
    if given.only is None:
        for way in ("memory", "disk"):
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", way], check=True)
        return
    triples = made(given.entities, given.triples, given.scratch)
    options = EmbedOptions(dim=given.dim, products=given.products)
    if given.only == "disk":
        options = laid_out(triples, replace(options, order=given.order), given)
        print(f"{options.partitions} partitions, {options.buffer} in memory, {options.order}", flush=True)
    base = own_bytes()
    trainer_of(made(10_000, 20_000, given.scratch), options, given.scratch).run_epoch()  # compiles
    peak = AnonPeak()
    began = time.perf_counter()
    trainer = trainer_of(triples, options, given.scratch)
    print(f"tables made in {time.perf_counter() - began:.1f} s", flush=True)
    enough = given.share * given.triples
    cpu, began = time.process_time(), time.perf_counter()
    trainer.run_epoch(lambda: given.share < 1 and trainer.losses.triples >= enough)
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
    done = trainer.losses.triples or given.triples  # counted anew when the epoch is over
    print(
        f"{given.only}: {done:,} triples in {seconds:.1f} s, {cpu:.1f} CPU s, {done / cpu:,.0f} triples a CPU second, "
        f"peak memory {peak.stop() / 1e9:.2f} GB",
        flush=True,
    )
    if isinstance(trainer, DiskTrainer):
        buffer, traffic = trainer.buffer, trainer.buffer.scratch.traffic
        listed = disk_list(triples, options)
        print(
            f"  foretold {(base + sum(listed.values())) / 1e9:.2f} GB: {base / 1e9:.2f} before, "
            + ", ".join(f"{name} {size / 1e9:.2f}" for name, size in listed.items())
        )
        print(
            f"  {buffer.swaps} swaps, {traffic.bytes_read / 1e9:.1f} GB read, {traffic.bytes_written / 1e9:.1f} GB written; "
            f"the disk took {buffer.moving_seconds:.1f} s, of which training waited {buffer.waited_seconds:.1f} s"
        )


def laid_out(triples: Triples, options: EmbedOptions, given: argparse.Namespace) -> EmbedOptions:
    if given.memory is None:
        return replace(options, partitions=given.partitions, buffer=given.buffer)
    chosen = on_disk(triples, options, int(given.memory * 1e9) - own_bytes())
    if chosen is None:
        raise SystemExit(f"no number of partitions fits {given.memory} GB")
    return chosen


def made(entities: int, count: int, scratch: Path) -> Triples:
    """Triples in a file that is mapped into memory, as those of a store are."""
    random = np.random.default_rng(0)
    with TemporaryFile(dir=scratch) as file:
        file.truncate(12 * count)
        rows = np.memmap(file, np.int32, "r+", shape=(count, 3)).view(np.ndarray)
    for first in range(0, count, _BLOCK):
        block = rows[first : first + _BLOCK]
        # Numbers are spread over the partitions by a multiplication, so that often-named entities do not meet in one.
        rank = (entities * random.random((2, len(block))) ** 3).astype(np.int64)
        block[:, 0], block[:, 2] = rank * 7_368_787 % entities
        block[:, 1] = random.integers(0, 100, len(block))
    return Triples(rows, rows[:0], rows[:0], entities, 100)


class AnonPeak:
    """The most memory that no file backs, sampled every 5 ms."""

    def __init__(self) -> None:
        self._most, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._done.wait(0.005):
            self._most = max(self._most, own_bytes())

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return self._most


def trainer_of(triples: Triples, options: EmbedOptions, scratch: Path) -> EmbeddingTrainer | DiskTrainer:
    if options.partitions is None:
        return EmbeddingTrainer(triples, options)
    return DiskTrainer(triples, options, scratch)


if __name__ == "__main__":
    main()
