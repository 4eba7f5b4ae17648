"""MRR on FB15k-237 against the bound on staleness, with relations updated at once, and with relations as stale as entities.

    python bench/embedding_staleness.py [--bound N ...] [--epochs N] [--dim N] [--score NAME]

One batch is computed at a time, and its updates are held back until as many later batches as the bound allows have been computed: every
batch but the first ones is as stale as it may be, whatever the number of cores. FB15k-237 is kept beside the repository, or at $SIAFU_SHARED.
"""

import argparse
import os
from collections import deque
from pathlib import Path

from embeddings import load

from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_trainer import EmbeddingTrainer
from siafu.embedding.evaluation import Evaluator
from siafu.embedding.steps.lane import EmbeddingLane, one_by_one
from siafu.graph.triples import Triples
from siafu.runtime.one_thread import one_thread


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bound", type=int, nargs="*", default=[1, 4, 16, 64])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--score", default="distmult")
    given = parser.parse_args()
    shared = Path(os.environ.get("SIAFU_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    triples = load(shared)
    options = EmbedOptions(score=given.score, dim=given.dim, epochs=given.epochs)
    print(f"{'bound':>6} {'relations at once':>18} {'relations stale':>16}")
    for bound in given.bound:
        found = [trained(triples, options, bound, stale=stale) for stale in (False, True)]
        print(f"{bound:6} {found[0]:18.4f} {found[1]:16.4f}", flush=True)


def trained(triples: Triples, options: EmbedOptions, bound: int, *, stale: bool) -> float:
    """The filtered test MRR."""
    trainer = EmbeddingTrainer(triples, options)
    free = [EmbeddingLane(options, trainer.tables, one_by_one) for _ in range(bound)]
    held: deque[tuple[EmbeddingLane, int | None]] = deque()
    with one_thread():
        for _ in range(options.epochs):
            for batch in trainer._batches():
                lane = free.pop()
                lane.load(*batch)
                lane.compute()
                held.append((lane, None if stale else lane.update_relations()))
                if len(held) == bound:
                    free.append(write_back(*held.popleft()))
            trainer.epoch += 1
        while held:
            write_back(*held.popleft())
    return Evaluator(triples, options).scores(trainer.embeddings, "test").mrr


def write_back(lane: EmbeddingLane, step: int | None) -> EmbeddingLane:
    if step is None:
        lane.update()
    else:
        lane.update_entities(step)
    return lane


if __name__ == "__main__":
    main()
