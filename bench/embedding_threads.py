"""Speed-up of two threads over one in training embeddings, on a machine that other work may share (Linux).

    python bench/embedding_threads.py [--score NAME] [--dim N] [--epochs N] [--threads 1 2] [--products fp32]

FB15k-237 is kept beside the repository, or at $SIAFU_SHARED. Each number of threads runs in a process of its own, in turn, twice. Linux tells for each
thread how long it ran, and how long it waited for a core: what is left of the time is waiting for one another. Without other work the threads would
have taken what they ran and waited for one another, so the last column is triples a second on a machine of one's own, shared caches aside.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from embeddings import SCORES, load

from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_trainer import EmbeddingTrainer
from siafu.embedding.steps import epoch


class Times(NamedTuple):
    """Seconds of a thread: that it ran, that it waited for a core, and that passed."""

    ran: float
    queued: float
    passed: float

    @classmethod
    def now(cls) -> "Times":
        ran, queued, _ = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()
        return cls(int(ran) / 1e9, int(queued) / 1e9, time.perf_counter())

    def since(self, before: "Times") -> "Times":
        return Times(*(now - then for now, then in zip(self, before, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--score", choices=sorted(SCORES), default="distmult")
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--products", default="fp32")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--here", action="store_true", help="measure in this process")
    given = parser.parse_args()
    if given.here:
        measure(given)
        return
    print(
        f"{'threads':>7} {'triples/CPU s':>14} {'ran, s':>8} {'for a core, s':>14} {'for others, s':>14} {'triples/s alone':>16}"
    )
    for threads in given.threads * 2:
        subprocess.run(
            [sys.executable, __file__, "--here", *sys.argv[1:]],
            check=True,
            env={**os.environ, "SIAFU_THREADS": str(threads)},
        )


def measure(given: argparse.Namespace) -> None:
    shared = Path(os.environ.get("SIAFU_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    triples = load(shared)
    options = EmbedOptions(score=given.score, dim=given.dim, products=given.products, **SCORES[given.score])
    found: list[Times] = []
    run_lane = epoch._run_lane

    def timed(*lane: object) -> None:
        before = Times.now()
        run_lane(*lane)  # type: ignore[arg-type]
        found.append(Times.now().since(before))

    epoch._run_lane = timed  # type: ignore[assignment]
    trainer = EmbeddingTrainer(triples, options)
    trainer.run_epoch()  # compiles
    found.clear()
    cpu = time.process_time()
    for _ in range(given.epochs):
        trainer.run_epoch()
    cpu = time.process_time() - cpu
    ran, queued, passed = (sum(column) for column in zip(*found, strict=True))
    threads, done = int(os.environ["SIAFU_THREADS"]), given.epochs * len(triples.train)
    print(
        f"{threads:7} {done / cpu:14,.0f} {ran:8.2f} {queued:14.2f} {passed - ran - queued:14.2f} {threads * done / (passed - queued):16,.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
