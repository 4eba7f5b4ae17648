"""LightGCN with the settings of its authors: recall@20, ndcg@20 and seconds, epoch by epoch.

    python bench/ranks.py [PAIRS.npz] [--epochs N] [--sampling pairs|users] [--first normal|xavier] [--lr X] [--batch N] [--every N]

Without a file: gowalla, from $SIAFU_SHARED/data/kg/rec_gowalla.npz. Published, 3 layers, 1,000 epochs: recall@20 .1824, ndcg@20 .1547. The authors'
code printed .1071 and .0894 in its epoch "5", which is its sixth: it counted from 0, and its rows began as `--first xavier` draws them. Later
they began as `normal` does, the default here.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch

import siafu
from siafu.training.linking.ranks import RankEpoch


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shared = Path(os.environ.get("SIAFU_SHARED", "../shared")) / "data"
    parser.add_argument("pairs", nargs="?", type=Path, default=shared / "kg" / "rec_gowalla.npz")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--sampling", default="users", choices=("pairs", "users"))
    parser.add_argument("--first", default="normal", choices=("normal", "xavier"))
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    data = siafu.Interactions.load(asked.pairs)
    before = time.process_time()

    def tell(epoch: RankEpoch) -> None:
        test = {name: round(value, 4) for name, value in (epoch.test or {}).items()}
        spent = time.process_time() - before
        print(
            f"epoch {epoch.epoch}: loss {epoch.loss:.4f} {test} {epoch.seconds:.1f} s, {spent:.0f} CPU s so far",
            flush=True,
        )

    torch.manual_seed(asked.seed)
    model = siafu.nn.LightGCN(data.graph.num_vertices)
    if asked.first == "xavier":  # of users and of items apart: two tables, there
        for part in (model.rows[: data.num_users], model.rows[data.num_users :]):
            torch.nn.init.xavier_uniform_(part.detach())
    run = siafu.train_ranks(
        data,
        model,
        epochs=asked.epochs,
        sampling=asked.sampling,
        lr=asked.lr,
        batch=asked.batch,
        evaluate_every=asked.every,
        seed=asked.seed,
        progress=tell,
    )
    print(json.dumps(run.summary()))


if __name__ == "__main__":
    main()
