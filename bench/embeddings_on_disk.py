"""A table of vectors in memory, and the same in partitions on disk: time, CPU time, traffic, and how much of it was hidden.

    python bench/embeddings_on_disk.py [--entities N] [--triples N] [--dim N] [--partitions P --buffer C --order NAME] [--scratch DIR]
        [--only memory|disk] [--share S]

Triples are random, heads and tails drawn by a power law: what is learnt means nothing, but reads, products and updates are those of
a real graph. Each way runs in a process of its own, for one epoch after a short one that compiles. --share 0.05 ends the epoch after a twentieth
of its triples, or on disk with the state of the buffer in which that is reached: for tables whose epoch takes hours.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from tempfile import gettempdir

import numpy as np

from siafu.base.hardware.machine import peak_rss_bytes
from siafu.embedding.disk.disk_trainer import DiskTrainer
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_trainer import EmbeddingTrainer
from siafu.graph.triples import Triples


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
    given = parser.parse_args()
    if given.only is None:
        for way in ("memory", "disk"):
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", way], check=True)
        return
    on_disk = {"partitions": given.partitions, "buffer": given.buffer, "order": given.order}
    options = EmbedOptions(dim=given.dim, **on_disk if given.only == "disk" else {})
    trainer_of(made(10_000, 20_000), options, given.scratch).run_epoch()  # compiles
    trainer = trainer_of(made(given.entities, given.triples), options, given.scratch)
    enough = given.share * given.triples
    cpu, began = time.process_time(), time.perf_counter()
    trainer.run_epoch(lambda: given.share < 1 and trainer.losses.triples >= enough)
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
    done = trainer.losses.triples or given.triples  # counted anew when the epoch is over
    print(
        f"{given.only}: {done:,} triples in {seconds:.1f} s, {cpu:.1f} CPU s, {done / cpu:,.0f} triples a CPU second, "
        f"peak memory {peak_rss_bytes() / 1e9:.2f} GB",
        flush=True,
    )
    if isinstance(trainer, DiskTrainer):
        buffer, traffic = trainer.buffer, trainer.buffer.scratch.traffic
        print(
            f"  {buffer.swaps} swaps, {traffic.bytes_read / 1e9:.1f} GB read, {traffic.bytes_written / 1e9:.1f} GB written; "
            f"the disk took {buffer.moving_seconds:.1f} s, of which training waited {buffer.waited_seconds:.1f} s"
        )


def made(entities: int, count: int) -> Triples:
    random = np.random.default_rng(0)
    # Numbers are spread over the partitions by a multiplication, so that often-named entities do not meet in one.
    rank = (entities * random.random((2, count)) ** 3).astype(np.int64)
    ends = rank * 7_368_787 % entities
    rows = np.stack([ends[0], random.integers(0, 100, count), ends[1]], axis=1).astype(np.int32)
    return Triples(rows, rows[:0], rows[:0], entities, 100)


def trainer_of(triples: Triples, options: EmbedOptions, scratch: Path) -> EmbeddingTrainer | DiskTrainer:
    if options.partitions is None:
        return EmbeddingTrainer(triples, options)
    return DiskTrainer(triples, options, scratch)


if __name__ == "__main__":
    main()
