"""P3's setting: mini-batches on several servers, features fetched (as DGL does) or split by columns (P3): bytes and seconds of an epoch.

    python bench/p3.py STORE [--servers 4] [--batch 4000] [--fanout 25,10] [--cores 8] [--gbit 10] [--faster 1]

STORE: such as `siafu generate products --scale 0.05` makes. Vertices are owned by a hash, as P3 has them. Samples are drawn once; the
bytes of every width of the features and of the hidden layer are counted on them, as a run counts its own (`bytes_scattered`),
for two layers of GraphSAGE. Seconds are virtual time's: machines of so many cores, as fast as those of the calibration that comes with Siafu
times `--faster` (20 for something like a GPU), behind such a network. Drawing takes the CPU time that it takes here.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from siafu.graph import read_store
from siafu.planning import calibration
from siafu.planning.calibration import Calibration
from siafu.sampling.batches import epoch_batches
from siafu.sampling.fanouts import fanouts_for
from siafu.sampling.sample import Sample
from siafu.sampling.sampler import Sampler
from siafu.sampling.servers.moved import RemoteVertices, structure_bytes
from siafu.sampling.servers.sample_layout import Products, SampleLayout, sample_layout, spread
from siafu.sampling.servers.server_loads import shares_of
from siafu.server.costs.work import Product, Work
from siafu.virtual.costs import Machine, compute_seconds, gather_seconds
from siafu.virtual.virtual_batches import ONE_BY_ONE, BatchLoad, BatchOverlap, epoch_seconds

FEATURES = (100, 128, 256, 602)
HIDDEN = (16, 32, 64, 128, 256, 512)
CLASSES = 47
COUNTED = 4  # batches that are drawn
AHEAD = BatchOverlap(ahead=4, staleness=0)
P3 = BatchOverlap(ahead=4, staleness=3)

Samples = Sequence[tuple[Sample, int]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4000)
    parser.add_argument("--fanout", default="25,10")
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--gbit", type=float, default=10.0)
    parser.add_argument("--faster", type=float, default=1.0)
    asked = parser.parse_args()
    graph = read_store(asked.store, verify=False)
    sampler = Sampler(graph, fanouts_for(asked.fanout, 2), 0, leaves=True)
    batches = epoch_batches(np.asarray(graph.train), asked.batch, 0, 0)
    drawn = spread(batches, COUNTED)
    sampler.sample(drawn[0], 0, 0)
    began = time.process_time()
    samples = [(sampler.sample(each, 0, k), len(each)) for k, each in enumerate(drawn)]
    draw = (time.process_time() - began) / len(samples) / asked.servers
    owner = np.random.default_rng(0).integers(0, asked.servers, graph.num_vertices).astype(np.uint16)
    remote = RemoteVertices(owner)
    reference = Calibration.read(Path(calibration.__file__).parent / "data" / "reference.json").machine
    machine = replace(
        reference.faster(asked.faster),
        cores=asked.cores,
        network_bytes_s=asked.gbit * 1e9 / 8,
        latency_s=1e-4,
    )
    print(
        "| features | hidden | fetched, MB | by columns, MB | chosen | fetched one by one, s | fetched ahead, s "
        "| columns one by one, s | columns, 3 behind, s | speed-up over one by one | over ahead |"
    )
    print("|" + "---|" * 11)
    for features in FEATURES:
        for hidden in HIDDEN:
            found = layout(samples, len(batches), asked.servers, remote, features, hidden)
            assert found.columns is not None
            vertices, columns = loads(
                samples, found, len(batches), asked.servers, machine, features, hidden, draw
            )
            seconds = [
                epoch_seconds(load, machine, overlap, len(batches))
                for load, overlaps in ((vertices, (ONE_BY_ONE, AHEAD)), (columns, (ONE_BY_ONE, P3)))
                for overlap in overlaps
            ]
            print(
                f"| {features} | {hidden} | {found.vertices.total / 1e6:,.0f} | {found.columns.total / 1e6:,.0f} | {found.chosen} | "
                + " | ".join(f"{each:.2f}" for each in seconds)
                + f" | {seconds[0] / seconds[3]:.2f} | {seconds[1] / seconds[3]:.2f} |",
                flush=True,
            )


def layout(
    samples: Samples, batches: int, servers: int, remote: RemoteVertices, features: int, hidden: int
) -> SampleLayout:
    """Bytes of an epoch of GraphSAGE in both layouts."""
    weights = {name: torch.empty(shape, device="meta") for name, shape in shapes(features, hidden).items()}
    products = Products(hidden, frozenset({"l1", "r1"}))
    row = 4 * features
    return sample_layout(samples, batches, servers, remote, row, products, weights, frozenset(weights))


def shapes(features: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The model's weights."""
    first = {"l1": (features, hidden), "r1": (features, hidden), "b1": (hidden,)}
    return first | {"l2": (hidden, CLASSES), "r2": (hidden, CLASSES), "b2": (CLASSES,)}


def loads(
    samples: Samples,
    layout: SampleLayout,
    batches: int,
    servers: int,
    machine: Machine,
    features: int,
    hidden: int,
    draw: float,
) -> tuple[BatchLoad, BatchLoad]:
    """The part of a server in a mean batch: with features by vertices, and by columns.

    layout: bytes of an epoch of so many batches
    """
    assert layout.columns is not None
    shares = [share.sample for sample, size in samples for _, share in shares_of(sample, size, servers)]
    whole = [sample for sample, _ in samples]
    rows, edges = _mean(len(each.vertices) for each in shares), _mean(each.num_edges for each in shares)
    seeds = _mean(each.sizes[0] for each in shares)
    near = _mean(int(each.edges.indptr[each.sizes[0]]) for each in shares)
    all_rows, all_edges = _mean(len(each.vertices) for each in whole), _mean(each.num_edges for each in whole)
    each = batches * servers  # of an epoch's bytes, what one server receives for one batch
    slice_of_features = features / servers
    numbers = {name: 4 * int(np.prod(shape)) for name, shape in shapes(features, hidden).items()}

    upper_rows = Work(seeds, edges=near, row_bytes=(4 * hidden,), table_bytes=4 * hidden * rows)
    upper = 2 * gather_seconds(upper_rows, machine) + _products(machine, seeds, hidden, CLASSES, products=6)
    by_vertices = BatchLoad(
        draw=draw,
        fetched=(layout.vertices.structure + layout.vertices.features) / each,
        gather=gather_seconds(
            Work(rows, edges=edges, row_bytes=(4 * features,), table_bytes=4 * features * edges), machine
        ),
        first=0.0,
        pulled=0.0,
        compute=_products(machine, rows, features, hidden, products=4) + upper,
        last=0.0,
        weights=sum(numbers.values()),
    )
    structure = _mean(structure_bytes(each) for each in whole) * (servers - 1) / servers
    adding = Work(rows, moved=4 * hidden * rows * servers)
    by_columns = BatchLoad(
        draw=draw,
        fetched=structure,
        gather=gather_seconds(
            Work(
                all_rows,
                edges=all_edges,
                row_bytes=(4 * slice_of_features,),
                table_bytes=4 * slice_of_features * all_edges,
            ),
            machine,
        ),
        first=_products(machine, all_rows, slice_of_features, hidden, products=2),
        pulled=layout.columns.products / each / 2,
        compute=compute_seconds(adding, machine.core) + upper,
        last=_products(machine, all_rows, slice_of_features, hidden, products=2),
        weights=sum(numbers.values()) - numbers["l1"] - numbers["r1"],
    )
    return by_vertices, by_columns


def _products(machine: Machine, rows: float, width: float, out: int, *, products: int) -> float:
    """Core seconds of so many products of rows with [width, out], or of their gradients; each reads and writes rows."""
    work = Work(
        rows,
        products=(Product(products * 2 * rows * width * out, round(min(width, out))),),
        streamed=products * 4 * rows * (width + out),
    )
    return compute_seconds(work, machine.core)


def _mean(numbers) -> float:  # type: ignore[no-untyped-def]
    return float(np.mean(list(numbers)))


if __name__ == "__main__":
    main()
