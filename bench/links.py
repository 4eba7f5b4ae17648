"""Links of a graph, held out at random: Hits@100 of a GCN over several splits.

    python bench/links.py GRAPH.npz [--seeds N] [--epochs N] [--hidden N] [--layers N] [--decoder dot|mlp|distmult] [--lr X] [--dropout X]
          [--batch N] [--hide] [--raw]

GRAPH.npz as bench/pyg_models.py reads it. 10 % of the links are for validation, 20 % for the test, as in Chamberlain et al., "Graph Neural
Networks for Link Prediction with Subgraph Sketching", ICLR 2023, whose GCN has 66.79 ± 1.65 on cora and 53.02 ± 1.39 on pubmed. The
epoch is the one of most validation hits.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
from pyg_models import read

import siafu
from siafu.graph.links import split_links


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--decoder", default="dot")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--hide", action="store_true")
    parser.add_argument("--patience", type=int, default=50)
    asked = parser.parse_args()
    graph = read(asked.graph, most_features=None)
    print(graph)
    hits = []
    for seed in range(asked.seeds):
        torch.manual_seed(seed)
        before = time.process_time()
        model = siafu.nn.GCN(
            graph.num_features, asked.hidden, asked.layers, asked.hidden, dropout=asked.dropout
        )
        run = siafu.train_links(
            graph,
            model,
            split=split_links(graph, val=0.1, test=0.2, seed=seed),
            seed=seed,
            decoder=asked.decoder,
            epochs=asked.epochs,
            lr=asked.lr,
            batch=asked.batch,
            hide=asked.hide,
            patience=asked.patience,
        )
        found = run.summary()
        hits.append(100 * found["test_hits_at_100"])
        print(
            f"seed {seed}: test Hits@100 {hits[-1]:.2f}, AUC {found['test_auc']:.4f}, best epoch {found['best_epoch']}, "
            f"{time.process_time() - before:.0f} CPU s",
            flush=True,
        )
    spread = statistics.stdev(hits) if len(hits) > 1 else 0.0
    print(f"Hits@100 {statistics.mean(hits):.2f} ± {spread:.2f} over {len(hits)} splits")


if __name__ == "__main__":
    main()
