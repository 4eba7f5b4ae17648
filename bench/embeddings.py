"""Quality and speed of embeddings on FB15k-237, which is kept beside the repository, or at $SIAFU_SHARED.

    python bench/embeddings.py [--score NAME] [--epochs N] [--dim N] [--lr RATE] [--batch N] [--exact] [--staleness N] [--precision fp32|mixed|bf16]
        [--partitions P --buffer C --order NAME] [--peers]

Prints, for each score: filtered test MRR and Hits@10, triples a CPU second and a second, CPU seconds of the filtered evaluation.
--peers also runs the prototype (../shared/prototypes/embed_in_memory.py) with the same batches and negatives, in a process of its own.
CPU seconds are those of the process over all threads; the first epoch, which compiles, runs twice and counts once.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from siafu.embedding.disk.disk_trainer import DiskTrainer
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_trainer import EmbeddingTrainer
from siafu.embedding.evaluation import Evaluator
from siafu.graph.triples import Triples

SCORES: dict[str, dict[str, Any]] = {
    "distmult": {},
    "complex": {},
    "transe": {},
    "rotate": {"loss": "logistic", "margin": 6.0, "adversarial": 1.0},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--score", choices=sorted(SCORES), action="append")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--staleness", type=int, default=16)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--buffer", type=int)
    parser.add_argument("--order", default="beta")
    parser.add_argument("--peers", action="store_true")
    given = parser.parse_args()
    shared = Path(os.environ.get("SIAFU_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    triples = load(shared)
    print(
        f"{'':10} {'MRR':>7} {'Hits@10':>8} {'triples/CPU s':>14} {'triples/s':>10} {'evaluation, CPU s':>18}"
    )
    for score in given.score or ["distmult", "complex"]:
        options = EmbedOptions(
            score=score,
            dim=given.dim,
            epochs=given.epochs,
            exact=given.exact,
            staleness=given.staleness,
            precision=given.precision,
            batch=given.batch,
            partitions=given.partitions,
            buffer=given.buffer,
            order=given.order,
            **SCORES[score] | ({} if given.lr is None else {"lr": given.lr}),
        )
        measure(triples, options)
    if given.peers:
        prototype(shared, given.epochs, given.dim)


def load(shared: Path) -> Triples:
    with np.load(shared / "data" / "kg" / "kg_FB15K237.npz") as found:
        parts = [np.ascontiguousarray(found[split].astype(np.int32)) for split in ("train", "valid", "test")]
        counts = (int(found["num_entities"]), int(found["num_relations"]))
    return Triples(parts[0], parts[1], parts[2], *counts, name="FB15k-237")


def measure(triples: Triples, options: EmbedOptions) -> None:
    trainer_of(triples, replace(options, epochs=1)).run_epoch()  # compiles
    trainer = trainer_of(triples, options)
    evaluator = Evaluator(triples, options)
    cpu, began = time.process_time(), time.perf_counter()
    for _ in range(options.epochs):
        trainer.run_epoch()
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
    evaluator.scores(trainer.embeddings, "valid")  # compiles, and lists the known triples
    ranking = time.process_time()
    found = evaluator.scores(trainer.embeddings, "test")
    ranking = time.process_time() - ranking
    done = options.epochs * len(triples.train)
    print(
        f"{options.score:10} {found.mrr:7.4f} {found.hits[10]:8.4f} {done / cpu:14,.0f} {done / seconds:10,.0f} {ranking:18.2f}",
        flush=True,
    )
    if isinstance(trainer, DiskTrainer):
        traffic = trainer.buffer.scratch.traffic
        print(
            f"{'':10} {trainer.buffer.swaps} swaps, {traffic.bytes_read / 1e9:.2f} GB read, {traffic.bytes_written / 1e9:.2f} GB written"
        )


def trainer_of(triples: Triples, options: EmbedOptions) -> EmbeddingTrainer | DiskTrainer:
    if options.partitions is None:
        return EmbeddingTrainer(triples, options)
    return DiskTrainer(triples, options, Path(gettempdir()))


def prototype(shared: Path, epochs: int, dim: int) -> None:
    script = shared / "prototypes" / "embed_in_memory.py"
    options = f"--epochs {epochs} --d {dim} --B 1000 --chunks 2 --n 500 --lr 0.1 --scale 0.05".split()
    subprocess.run(
        [sys.executable, str(script), *options], check=True, env={**os.environ, "SIAFU_SHARED": str(shared)}
    )


if __name__ == "__main__":
    main()
