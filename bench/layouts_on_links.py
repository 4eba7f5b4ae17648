"""Vertices or columns on real links: a Ray cluster on this machine, each node behind a cable of so many gigabits a second.

    python bench/layouts_on_links.py STORE [--partition hash] [--model gcn] [--layers 2] [--hidden 128] [--servers 4] [--gbit 1]
          [--epochs 8] [--repeat 2]
    python bench/layouts_on_links.py communities …     # a graph of 64 blocks, with few edges between them
    python bench/layouts_on_links.py STORE --table     # CASES below: graph × partition × servers × model × width × link

Nodes are network namespaces on a switch (root and the `ip` and `tc` commands are needed). `tc` limits what leaves a node and what reaches it; of the
head, which is this machine itself, only what leaves it. Each layout is trained in turn, `--repeat` times, and that which Siafu chooses, if it is
a mixture; the best epoch of each counts, after the first. Servers share this machine's cores, and the choice is made for servers with so
many cores each. One JSON object a case.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tests' Ray nodes

import numpy as np
import torch
from tests.cluster import networks
from tests.cluster.networks import Place
from tests.cluster.ray_nodes import RayNodes

import siafu
from siafu.base.threads import thread_count
from siafu.graph.partition import Partition, make_partition
from siafu.options import Options
from siafu.server.layout.layout_choice import chosen_layout, layout_prices
from siafu.server.plan import ServerPlan

LAYOUTS = ("vertices", "columns")
BLOCKS, BLOCK, DEGREE, WITHIN = 64, 3_000, 40, 0.98
HEADS = 4


class Case(NamedTuple):
    """One row of the table; graph: "given", the store that was named, or "communities"."""

    graph: str
    partition: str
    servers: int
    model: str
    layers: int
    hidden: int
    gbit: float


CASES = (
    Case("given", "hash", 4, "gcn", 2, 128, 1.0),
    Case("given", "hash", 4, "gcn", 3, 128, 0.1),
    Case("given", "hash", 4, "gat", 2, 64, 0.1),
    Case("given", "hash", 2, "sage", 2, 128, 0.1),
    Case("given", "hash", 2, "gcn", 3, 16, 1.0),
    Case("communities", "metis", 4, "gcn", 3, 64, 1.0),
    Case("communities", "metis", 4, "sage", 2, 128, 0.1),
    Case("communities", "metis", 2, "gcn", 3, 16, 1.0),
    Case("communities", "hash", 4, "gcn", 3, 64, 0.1),
    Case("communities", "hash", 4, "gcn", 3, 16, 1.0),
)


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


class Cluster(NamedTuple):
    """A running cluster: the switch, the nodes besides the head, and where Ray listens."""

    switch: str
    places: list[Place]
    address: str

    def limit(self, gbit: float) -> None:
        """Limit every cable, both ways."""
        for place in self.places:
            _tc(place.cable, gbit)
            _tc("eth0", gbit, "ip", "netns", "exec", place.namespace)
        _tc(self.switch, gbit)


@contextmanager
def cluster(servers: int) -> Iterator[Cluster]:
    """So many nodes."""
    with networks.machines(servers - 1) as (_, places):
        nodes = RayNodes(places, None)
        try:
            nodes.start(servers)
            yield Cluster(places[0].namespace.rpartition("-")[0], places, nodes.address)
        finally:
            nodes.close()


def _tc(device: str, gbit: float, *inside: str) -> None:
    rate = ["tbf", "rate", f"{gbit * 1000:.0f}mbit", "burst", "256kb", "latency", "50ms"]
    subprocess.run([*inside, "tc", "qdisc", "replace", "dev", device, "root", *rate], check=True)


def model_of(case: Case, graph: siafu.Graph) -> siafu.nn.GNN:
    made = {"gcn": siafu.nn.GCN, "sage": siafu.nn.GraphSAGE, "gin": siafu.nn.GIN, "gat": siafu.nn.GAT}
    heads = {"heads": HEADS} if case.model == "gat" else {}
    torch.manual_seed(1)
    return made[case.model](graph.num_features, case.hidden, case.layers, graph.num_classes, **heads)


def trained(
    case: Case, graph: siafu.Graph, partition: Partition, layout: str, address: str, epochs: int
) -> dict[str, Any]:
    run = siafu.train(
        graph,
        model_of(case, graph),
        epochs=epochs,
        evaluate_every=epochs,
        servers=case.servers,
        partition=partition,
        layout=layout,
        cluster=address,
        seed=1,
    )
    return {
        "epochs": [each.seconds for each in run.history][1:],
        "megabytes": run.summary()["bytes_scattered"] / epochs / 1e6,
        "loss": run.summary()["train_loss"],
    }


def chosen(case: Case, graph: siafu.Graph, partition: Partition) -> tuple[str, dict[str, float]]:
    """The layout that Siafu takes, and megabytes of a training's epoch in either."""
    plan = ServerPlan.of(
        graph.layout or graph, model_of(case, graph), Options(servers=case.servers), partition
    )
    prices = layout_prices(plan, case.gbit, cores=thread_count() / case.servers)
    megabytes = {name: sum(getattr(each.traffic, name) for each in prices) / 1e6 for name in LAYOUTS}
    choice = "columns" if all(each.by_columns for each in prices) else chosen_layout(prices)
    return choice, megabytes


def run(case: Case, store: str, on: Cluster, *, epochs: int, repeat: int) -> dict[str, Any]:
    """Both layouts, and the choice."""
    graph = siafu.load(store)
    partition = make_partition(graph, case.servers, method=case.partition)
    choice, megabytes = chosen(case, graph, partition)
    on.limit(case.gbit)
    found: dict[str, list[dict[str, Any]]] = {layout: [] for layout in dict.fromkeys((*LAYOUTS, choice))}
    for _ in range(repeat):
        for layout, runs in found.items():
            runs.append(trained(case, graph, partition, layout, on.address, epochs))
    best = {layout: min(min(each["epochs"]) for each in runs) for layout, runs in found.items()}
    return {
        **case._asdict(),
        "vertices_mb": megabytes["vertices"],
        "columns_mb": megabytes["columns"],
        **{f"{layout}_s": seconds for layout, seconds in best.items()},
        "chosen": choice,
        "of_the_better": best[choice] / min(best[layout] for layout in LAYOUTS),
        "runs": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", help="a store, or `communities`")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--partition", default="hash")
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--model", choices=("gcn", "sage", "gin", "gat"), default="gcn")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--gbit", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=2)
    asked = parser.parse_args()
    if why_not := networks.why_not():
        parser.error(why_not)
    graph = "communities" if asked.store == "communities" else "given"
    one = Case(graph, asked.partition, asked.servers, asked.model, asked.layers, asked.hidden, asked.gbit)
    cases = sorted(CASES, key=lambda case: -case.servers) if asked.table else [one]
    with tempfile.TemporaryDirectory() as made:
        stores = {"given": asked.store}
        if any(case.graph == "communities" for case in cases):
            stores["communities"] = str(communities(Path(made) / "communities.store"))
        for servers, group in groupby(cases, key=lambda case: case.servers):
            with cluster(servers) as on:
                for case in group:
                    found = run(case, stores[case.graph], on, epochs=asked.epochs, repeat=asked.repeat)
                    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
