"""Links of a graph, held out at random: Hits@100 of a GCN over several splits.

    python bench/links.py GRAPH.npz [--seeds N] [--epochs N] [--hidden N] [--layers N] [--decoder dot|mlp|distmult] [--lr X] [--dropout X]
          [--batch N] [--hide] [--patience N] [--published]

GRAPH.npz as bench/pyg_models.py reads it. 10 % of the links are for validation, 20 % for the test, as in Chamberlain et al., "Graph Neural
Networks for Link Prediction with Subgraph Sketching", ICLR 2023, whose GCN has 66.79 ± 1.65 on cora and 53.02 ± 1.39 on pubmed. The
epoch is the one of most validation hits.

--published: what the authors' script for GNNs does unless told otherwise: the largest connected component; GCN of two layers, 256 wide, without
dropout; a linear map of z_u ∘ z_v; 64 links and 64 other pairs a step; learning rate 1e-4; 50 epochs. Two things differ: there, messages go along
validation links in the test, and the training's other pairs are drawn once.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from pyg_models import read
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

import siafu
from siafu.graph.links import split_links
from siafu.nn.decoders import MlpDecoder


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
    parser.add_argument("--published", action="store_true")
    asked = parser.parse_args()
    graph = read(asked.graph, most_features=None)
    if asked.published:
        graph = largest_component(graph)
        asked.dropout, asked.batch, asked.lr, asked.epochs, asked.patience = 0.0, 64, 1e-4, 50, None
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
            decoder=MlpDecoder(asked.hidden, layers=1) if asked.published else asked.decoder,
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


def largest_component(graph: siafu.Graph) -> siafu.Graph:
    """The part of a graph whose vertices reach each other, of those the one with most vertices."""
    target = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    shape = (graph.num_vertices, graph.num_vertices)
    edges = csr_matrix((np.ones(graph.num_edges, np.int8), (graph.indices, target)), shape)
    _, part = connected_components(edges, directed=False)
    kept = part == np.bincount(part).argmax()
    number = np.cumsum(kept) - 1
    inside = kept[target]
    return siafu.Graph.from_edges(
        number[graph.indices[inside]],
        number[target[inside]],
        num_vertices=int(kept.sum()),
        x=np.asarray(graph.x)[kept],
        name=graph.name,
    )


if __name__ == "__main__":
    main()
