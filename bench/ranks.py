"""LightGCN with the settings of its authors: recall@20, ndcg@20 and seconds, epoch by epoch.

    python bench/ranks.py [PAIRS.npz] [--epochs N] [--sampling pairs|users]

Without a file: gowalla, from $SIAFU_SHARED/data/kg/rec_gowalla.npz. Published, 3 layers: recall@20 .1824, ndcg@20 .1547.
"""

import argparse
import json
import os
import time
from pathlib import Path

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

    run = siafu.train_ranks(data, epochs=asked.epochs, sampling=asked.sampling, progress=tell)
    print(json.dumps(run.summary()))


if __name__ == "__main__":
    main()
