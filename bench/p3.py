"""P3's setting: bytes that mini-batches move between servers, features fetched (as DGL does) or split by columns (P3).

    python bench/p3.py STORE [--servers 4] [--batch 4000] [--fanout 25,10]

STORE: such as `siafu generate products --scale 0.05` makes. Vertices are owned by a hash, as P3 has them. Samples are drawn once; the
bytes of every width of the features and of the hidden layer are counted on them, as a run counts its own (`bytes_scattered`),
for two layers of GraphSAGE.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from siafu.graph import read_store
from siafu.sampling.batches import epoch_batches
from siafu.sampling.fanouts import fanouts_for
from siafu.sampling.sampler import Sampler
from siafu.sampling.servers.moved import RemoteVertices
from siafu.sampling.servers.sample_layout import Products, SampleLayout, sample_layout, spread

FEATURES = (100, 128, 256, 602)
HIDDEN = (16, 32, 64, 128, 256, 512)
CLASSES = 47


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4000)
    parser.add_argument("--fanout", default="25,10")
    asked = parser.parse_args()
    graph = read_store(asked.store, verify=False)
    sampler = Sampler(graph, fanouts_for(asked.fanout, 2), 0, leaves=True)
    batches = epoch_batches(np.asarray(graph.train), asked.batch, 0, 0)
    samples = [(sampler.sample(each, 0, k), len(each)) for k, each in enumerate(spread(batches, 4))]
    owner = np.random.default_rng(0).integers(0, asked.servers, graph.num_vertices).astype(np.uint16)
    remote = RemoteVertices(owner)
    print("| features | hidden | fetched, MB an epoch | by columns, MB | fetched / columns | chosen |")
    print("|---|---|---|---|---|---|")
    for features in FEATURES:
        for hidden in HIDDEN:
            found = layout(samples, len(batches), asked.servers, remote, features, hidden)
            assert found.columns is not None
            print(
                f"| {features} | {hidden} | {found.vertices.total / 1e6:,.0f} | {found.columns.total / 1e6:,.0f} "
                f"| {found.vertices.total / found.columns.total:.2f} | {found.chosen} |",
                flush=True,
            )


def layout(samples, batches, servers, remote, features, hidden) -> SampleLayout:  # type: ignore[no-untyped-def]
    """Both prices of an epoch of GraphSAGE."""
    shapes = {"l1": (features, hidden), "r1": (features, hidden), "b1": (hidden,)}
    shapes |= {"l2": (hidden, CLASSES), "r2": (hidden, CLASSES), "b2": (CLASSES,)}
    weights = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    products = Products(hidden, frozenset({"l1", "r1"}))
    row = 4 * features
    return sample_layout(samples, batches, servers, remote, row, products, weights, frozenset(weights))


if __name__ == "__main__":
    main()
