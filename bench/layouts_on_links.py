"""Vertices or columns on real links: a Ray cluster of 4 nodes on this machine, each behind a cable of so many gigabits a second.

    python bench/layouts_on_links.py STORE [--partition hash] [--model gcn] [--layers 2] [--hidden 128] [--gbit 1] [--epochs 8] [--repeat 2] [--json]
    python bench/layouts_on_links.py communities …     # a graph of 64 blocks, with few edges between them

Nodes are network namespaces on a switch (root and the `ip` and `tc` commands are needed). `tc` limits what leaves a node and what reaches it; of the
head, which is this machine itself, only what leaves it. Each layout is trained in turn, `--repeat` times; the best epoch of each counts. The last
column is the layout that `--layout auto` takes at the same speed of the network.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tests' Ray nodes

import numpy as np
from tests.cluster import networks
from tests.cluster.networks import Place
from tests.cluster.ray_nodes import RayNodes

import siafu

SERVERS = 4
LAYOUTS = ("vertices", "columns")
BLOCKS, BLOCK, DEGREE, WITHIN = 64, 3_000, 40, 0.98


def communities(path: Path) -> Path:
    """A store of a graph with 64 blocks of 3,000 vertices, 40 edges a vertex, of which 98 % stay within the block; ids are in no order."""
    source = np.random.default_rng(1)
    vertices = BLOCKS * BLOCK
    names = source.permutation(vertices)
    src = source.integers(0, vertices, vertices * DEGREE // 2)
    stays = source.random(src.size) < WITHIN
    dst = np.where(
        stays,
        src // BLOCK * BLOCK + source.integers(0, BLOCK, src.size),
        source.integers(0, vertices, src.size),
    )
    labels = np.empty(vertices, np.int64)
    labels[names] = np.arange(vertices) // BLOCK
    train = source.random(vertices) < 0.66
    siafu.Graph.from_edges(
        names[np.concatenate((src, dst))],
        names[np.concatenate((dst, src))],
        num_vertices=vertices,
        x=source.standard_normal((vertices, 128), dtype=np.float32),
        y=labels,
        train=train,
        val=~train,
    ).save(path)
    return path


def limit(switch: str, places: list[Place], gbit: float) -> None:
    """Limit every cable, both ways."""
    for place in places:
        _tc(place.cable, gbit)
        _tc("eth0", gbit, "ip", "netns", "exec", place.namespace)
    _tc(switch, gbit)


def _tc(device: str, gbit: float, *inside: str) -> None:
    rate = ["tbf", "rate", f"{gbit * 1000:.0f}mbit", "burst", "256kb", "latency", "50ms"]
    subprocess.run([*inside, "tc", "qdisc", "add", "dev", device, "root", *rate], check=True)


def trained(store: str, asked: argparse.Namespace, layout: str, address: str) -> dict[str, Any]:
    graph = siafu.load(store)
    siafu_model = {"gcn": siafu.nn.GCN, "sage": siafu.nn.GraphSAGE, "gin": siafu.nn.GIN}[asked.model]
    model = siafu_model(graph.num_features, asked.hidden, asked.layers, graph.num_classes)
    run = siafu.train(
        graph,
        model,
        epochs=asked.epochs,
        evaluate_every=asked.epochs,
        servers=SERVERS,
        partition=asked.partition,
        layout=layout,
        cluster=address,
        seed=1,
    )
    epochs = [each.seconds for each in run.history][1:]
    return {
        "layout": layout,
        "best": min(epochs),
        "epochs": epochs,
        "megabytes": run.summary()["bytes_scattered"] / asked.epochs / 1e6,
        "loss": run.summary()["train_loss"],
    }


def chosen(store: str, asked: argparse.Namespace) -> str:
    """The words of `siafu explain` on the layout."""
    told = subprocess.run(
        [
            *(sys.executable, "-m", "siafu", "explain", asked.model, store, "--servers", str(SERVERS)),
            *("--partition", asked.partition, "--layers", str(asked.layers), "--hidden", str(asked.hidden)),
            *("--network", str(asked.gbit), "--json"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.dumps(json.loads(told.stdout)["layout"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", help="a store, or `communities`")
    parser.add_argument("--partition", default="hash")
    parser.add_argument("--model", choices=("gcn", "sage", "gin"), default="gcn")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--gbit", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if why_not := networks.why_not():
        parser.error(why_not)
    with tempfile.TemporaryDirectory() as made, networks.machines(SERVERS - 1) as (_, places):
        store = (
            str(communities(Path(made) / "communities.store"))
            if asked.store == "communities"
            else asked.store
        )
        nodes = RayNodes(places, None)
        try:
            nodes.start(SERVERS)
            limit(places[0].namespace.rpartition("-")[0], places, asked.gbit)
            found = [
                trained(store, asked, layout, nodes.address)
                for _ in range(asked.repeat)
                for layout in LAYOUTS
            ]
        finally:
            nodes.close()
        choice = chosen(store, asked)
    if asked.json:
        print(json.dumps({"trained": found, "chosen": choice}))
        return
    for layout in LAYOUTS:
        best = min((each for each in found if each["layout"] == layout), key=lambda each: each["best"])
        print(
            f"{layout:9} {best['best']:.3f} s an epoch, {best['megabytes']:.1f} MB an epoch, loss {best['loss']:.6f}"
        )
    print("explain:", choice)


if __name__ == "__main__":
    main()
