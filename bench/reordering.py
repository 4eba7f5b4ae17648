"""What another order of the vertices gains: ordering time, a 128-wide gather before and after, and whether `auto` was right.

    python bench/reordering.py [GRAPH …] [--out FILE] [--repetitions N]

GRAPH is a .npz of ../shared/data ($SIAFU_SHARED) by its name, a store's path, `data`: all that are there, `made`: graphs on which no limit of `auto` was
set (products' shape with communities and without, reddit-small's, a grid, a ring lattice, a random regular graph), `families`: seven more kinds of graphs
(communities and degrees by power laws, Watts-Strogatz, users and items, a 3-D mesh, R-MAT, points in a square, a tree), or `blocks`: 2 M vertices in 5,000
communities, 58 M edges, 80 % of them inside. Each graph is measured with the ids it has and with shuffled ones. Gathers in the old and
in the new order take turns in one process; the best of the repetitions counts. All seconds are CPU seconds of all threads, which other
work on the machine disturbs least. `auto` is that of `siafu train --reorder auto` for 50 epochs of two layers, 200 gathers. It is right if it
reorders a graph that is at least 5 % faster then, ordering and all, or leaves one that is not; `kept` is the time of doing nothing, over the
time with what `auto` did, looking for it included.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from siafu.base.threads import thread_count
from siafu.graph import Graph, is_store, read_store
from siafu.graph.generate import SHAPES, generate
from siafu.graph.reorder import make_order
from siafu.graph.reorder.layout import held_layout
from siafu.graph.reorder.locality import locality
from siafu.graph.reorder.overlap import overlap
from siafu.kernels import block_edges, block_size, empty_table, gather_sum, pack
from siafu.kernels.advice.advisor import seconds_an_edge
from siafu.training.order_choice import gather_seconds, look_for_order

WIDTH = 128
GATHERS = 200
GAIN = 1.05
GRAPHS = (
    "cnr2000",
    "acl_papers",
    "debian_bookworm",
    "wordnet31",
    "flickr",
    "tolokers",
    "amazon_cs",
    "coauthor_cs",
)


DATA = (*GRAPHS, "cora", "pubmed", "dblp", "minesweeper", "musae_facebook")


def _shape(name: str, scale: float, **changes: Any) -> Graph:
    with TemporaryDirectory() as folder:
        generate(replace(SHAPES[name].scaled(scale), num_features=1, **changes), Path(folder) / name)
        found = read_store(Path(folder) / name, verify=False)
        return Graph(np.array(found.indptr), np.array(found.indices), name=name)


def _lattice(vertices: int, steps: Sequence[int], name: str) -> Graph:
    """Each vertex joined to those so many numbers on."""
    ends = np.arange(vertices, dtype=np.int64)
    src = np.concatenate([ends] * len(steps))
    dst = np.concatenate([(ends + step) % vertices for step in steps])
    return Graph.from_edges(src, dst, num_vertices=vertices, undirected=True, name=name)


def _regular(vertices: int, degree: int) -> Graph:
    rng = np.random.default_rng(3)
    ends = np.concatenate([rng.permutation(vertices) for _ in range(degree)])
    src, dst = ends[: len(ends) // 2], ends[len(ends) // 2 :]
    joined = src != dst
    return Graph.from_edges(
        src[joined], dst[joined], num_vertices=vertices, undirected=True, merge_parallel=True, name="regular"
    )


def _drawn(src: np.ndarray, dst: np.ndarray, vertices: int, name: str) -> Graph:
    """Undirected edges, each once, without self-loops."""
    joined = src != dst
    return Graph.from_edges(
        src[joined], dst[joined], num_vertices=vertices, undirected=True, merge_parallel=True, name=name
    )


def _power_law(vertices: int, edges: int, inside: float) -> Graph:
    """Communities whose sizes follow a power law, as degrees do within each."""
    rng = np.random.default_rng(4)
    sizes = np.minimum(20 * (1 - rng.random(vertices // 20)) ** -0.8, vertices // 50).astype(np.int64)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), vertices)]
    begins = np.cumsum(sizes) - sizes
    src = rng.integers(0, int(sizes.sum()), edges)
    group = np.searchsorted(begins, src, side="right") - 1
    place = (rng.random(edges) ** 2.5 * sizes[group]).astype(np.int64)
    far = rng.random(edges) > inside
    dst = np.where(far, rng.integers(0, int(sizes.sum()), edges), begins[group] + place)
    return _drawn(src, dst, int(sizes.sum()), "power-law")


def _small_world(vertices: int, near: int, rewired: float) -> Graph:
    """Watts and Strogatz."""
    rng = np.random.default_rng(5)
    src = np.tile(np.arange(vertices), near)
    dst = (src + np.repeat(np.arange(1, near + 1), vertices)) % vertices
    dst = np.where(rng.random(len(dst)) < rewired, rng.integers(0, vertices, len(dst)), dst)
    return _drawn(src, dst, vertices, "small-world")


def _bipartite(users: int, items: int, edges: int, topics: int) -> Graph:
    """Users and items of topics; three of four choices are of a user's own topic."""
    rng = np.random.default_rng(6)
    src = rng.integers(0, users, edges)
    size = items // topics
    own = src * topics // users * size + (rng.random(edges) ** 2 * size).astype(np.int64)
    item = np.where(rng.random(edges) < 0.75, own, rng.integers(0, items, edges))
    return _drawn(src, users + item, users + items, "bipartite")


def _mesh(side: int) -> Graph:
    """A grid in three dimensions."""
    places = np.arange(side**3).reshape(side, side, side)
    pairs = [(places[:-1], places[1:]), (places[:, :-1], places[:, 1:]), (places[..., :-1], places[..., 1:])]
    src, dst = (np.concatenate([pair[k].ravel() for pair in pairs]) for k in (0, 1))
    return _drawn(src, dst, side**3, "mesh")


def _rmat(scale: int, edges: int) -> Graph:
    rng = np.random.default_rng(8)
    src, dst = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
    for _ in range(scale):
        quarter = np.searchsorted([0.57, 0.76, 0.95], rng.random(edges))
        src, dst = 2 * src + (quarter >> 1), 2 * dst + (quarter & 1)
    return _drawn(src, dst, 1 << scale, "rmat")


def _points(vertices: int, degree: float) -> Graph:
    """Points of a square, joined where they are close; numbered in stripes."""
    from scipy.spatial import cKDTree

    points = np.random.default_rng(9).random((vertices, 2))
    points = points[np.lexsort((points[:, 0], np.floor(points[:, 1] * 100)))]
    pairs = cKDTree(points).query_pairs(np.sqrt(degree / (np.pi * vertices)), output_type="ndarray")
    return _drawn(pairs[:, 0], pairs[:, 1], vertices, "points")


def _tree(vertices: int) -> Graph:
    """Each vertex hangs on an earlier one."""
    rng = np.random.default_rng(10)
    child = np.arange(1, vertices)
    return _drawn(child, (rng.random(vertices - 1) * child).astype(np.int64), vertices, "tree")


FAMILIES: dict[str, Callable[[], Graph]] = {
    "power-law": lambda: _power_law(200_000, 2_000_000, 0.8),
    "small-world": lambda: _small_world(200_000, 5, 0.1),
    "bipartite": lambda: _bipartite(150_000, 50_000, 1_500_000, 100),
    "mesh": lambda: _mesh(64),
    "rmat": lambda: _rmat(17, 2_000_000),
    "points": lambda: _points(200_000, 12),
    "tree": lambda: _tree(300_000),
}

MADE: dict[str, Callable[[], Graph]] = {
    "products-0.05": lambda: _shape("products", 0.05),
    "products-0.05-without": lambda: _shape("products", 0.05, communities=0, inside=0.0, together=False),
    "reddit-small-0.05": lambda: _shape("reddit-small", 0.05),
    "grid": lambda: _lattice(400_000, (1, 632), "grid"),
    "ring": lambda: _lattice(200_000, (1, 2, 3, 4, 5, 6), "ring"),
    "regular": lambda: _regular(200_000, 12),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graphs", nargs="*", default=[*GRAPHS, "blocks"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--orders", default="rabbit", help="such as rabbit,rcm,degree")
    asked = parser.parse_args()
    _warm_up()
    families = {"data": DATA, "made": MADE, "families": FAMILIES}
    names = [name for each in asked.graphs for name in families.get(each, (each,))]
    rows = [row for name in names for row in measure(name, asked.orders.split(","), asked.repetitions)]
    right = sum(row["auto_right"] for row in rows if row["order"] == "rabbit")
    print(
        f"auto was right in {right} of {sum(row['order'] == 'rabbit' for row in rows)}; {thread_count()} threads"
    )
    if asked.out is not None:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n")


def _warm_up() -> None:
    """Compile what will be timed."""
    small = _blocks(200, 50, 60_000)
    order = make_order(small, "rabbit")
    held_layout(small, order, "rabbit")
    overlap(small)
    seconds_an_edge(4 * WIDTH)
    for each in (None, order):
        locality(small, 4096, each)


def measure(name: str, orders: list[str], repetitions: int) -> Iterator[dict[str, object]]:
    """A row for each order of each of the two numberings."""
    natural = _load(name)
    shuffle = np.random.default_rng(7).permutation(natural.num_vertices).astype(np.int32)
    for ids in ("natural", "shuffled"):
        graph = natural if ids == "natural" else _alone(held_layout(natural, shuffle, "shuffled"))
        began = time.process_time()
        advice = look_for_order(graph, [4 * WIDTH] * 4, GATHERS // 4)
        advised = time.process_time() - began
        for order in orders:
            began = time.process_time()
            found = make_order(graph, order)
            ordered = time.process_time() - began
            began = time.process_time()
            layout = held_layout(graph, found, order)
            moved = time.process_time() - began
            before, after = _gathers([graph, layout], repetitions)
            chosen = after if advice.order == order else before
            looked = advised + (moved if advice.order == order else 0.0)
            paid = (GATHERS * after + ordered + moved) / (GATHERS * before) <= 1 / GAIN
            yield _told(
                {
                    "graph": name,
                    "ids": ids,
                    "order": order,
                    "vertices": graph.num_vertices,
                    "edges": graph.num_edges,
                    "order_seconds": ordered,
                    "layout_seconds": moved,
                    "gather_seconds": before,
                    "reordered_seconds": after,
                    "gain": before / after,
                    "foretold_seconds": gather_seconds(graph, [4 * WIDTH]),
                    "foretold_reordered": gather_seconds(graph, [4 * WIDTH], found),
                    "overlap": overlap(graph).shared,
                    "auto": advice.order,
                    "kept": GATHERS * before / (GATHERS * chosen + looked),
                    "advice_seconds": advised,
                    "reason": advice.reason,
                    "auto_right": (advice.order is not None) == paid,
                }
            )


def _told(row: dict[str, object]) -> dict[str, object]:
    print(
        f"{row['graph']:>16} {row['ids']:>8} {row['order']:>6}: ordered in {row['order_seconds']:6.2f} s, laid out in "
        f"{row['layout_seconds']:5.2f} s; gather {1e3 * float(row['gather_seconds']):8.2f} → "  # type: ignore[arg-type]
        f"{1e3 * float(row['reordered_seconds']):8.2f} ms, {row['gain']:.2f} ×; auto {row['auto'] or 'no':>6} "  # type: ignore[arg-type]
        f"({'right' if row['auto_right'] else 'WRONG'}), kept {row['kept']:.2f}",
        flush=True,
    )
    return row


def _gathers(graphs: list[Graph], repetitions: int) -> list[float]:
    """Seconds of a gather on each, the best of some turns."""
    values = np.random.default_rng(0).standard_normal((graphs[0].num_vertices, WIDTH), dtype=np.float32)
    rows, out = pack(values, None, np.float32), empty_table(len(values), WIDTH, np.float32)
    del values
    size = block_size(graphs[0].num_vertices, graphs[0].num_edges, rows.strides[0])
    blocks = [None if size is None else block_edges(each.indptr, each.indices, None, size) for each in graphs]
    best = [float("inf")] * len(graphs)
    for _ in range(repetitions):
        for k, graph in enumerate(graphs):
            began = time.process_time()
            gather_sum(graph.indptr, graph.indices, None, rows, blocks=blocks[k], out=out)
            best[k] = min(best[k], time.process_time() - began)
    return best


def _load(name: str) -> Graph:
    if name in MADE | FAMILIES:
        return (MADE | FAMILIES)[name]()
    if name == "blocks":
        return _blocks(5_000, 400, 29_000_000)
    if is_store(Path(name)):
        return _alone(read_store(Path(name), verify=False))
    data = Path(os.environ.get("SIAFU_SHARED", "../shared")) / "data"
    file = next(
        path for path in (data / "graphs" / f"{name}.npz", data / "large" / f"{name}.npz") if path.exists()
    )
    arrays = np.load(file)
    count = int(arrays["num_nodes"])
    if "indptr" in arrays.files:
        src, dst = arrays["indices"], np.repeat(np.arange(count), np.diff(arrays["indptr"]))
    else:
        src, dst = arrays["src"], arrays["dst"]
    joined = src != dst
    return Graph.from_edges(
        src[joined], dst[joined], num_vertices=count, undirected=True, merge_parallel=True, name=name
    )


def _blocks(communities: int, size: int, edges: int) -> Graph:
    rng = np.random.default_rng(1)
    count = communities * size
    src = rng.integers(0, count, edges, dtype=np.int32)
    inside = src // size * size + rng.integers(0, size, edges, dtype=np.int32)
    dst = np.where(
        rng.random(edges, dtype=np.float32) < 0.8, inside, rng.integers(0, count, edges, dtype=np.int32)
    )
    joined = src != dst
    return Graph.from_edges(src[joined], dst[joined], num_vertices=count, undirected=True, name="blocks")


def _alone(graph: Graph) -> Graph:
    """The edges of a graph, and nothing else."""
    found = Graph(graph.indptr, graph.indices, name=graph.name)
    found.__dict__["is_symmetric"] = graph.is_symmetric
    return found


if __name__ == "__main__":
    main()
