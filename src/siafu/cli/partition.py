"""`siafu partition`: share a store's vertices out among servers, and say what that costs."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from siafu.base.choices import refuse_other_method
from siafu.base.errors import BadInput
from siafu.base.option import REQUIRED, argument, option
from siafu.cli.common import NUMBER, ProgressBar, bytes_of, find_store, say, show_table
from siafu.cli.declared import json_flag, memory_option

if TYPE_CHECKING:
    from siafu.graph import Graph
    from siafu.graph.partition import PartitionQuality, ServerMemory

_HIDDEN = 64  # as wide as `siafu train` makes a hidden layer
_QUALITY = ("cut_edges", "cut_share", "balance", "vertex_balance", "edge_balance")
_TITLES = ("server", "vertices", "in-edges", "ghosts forward", "ghosts backward", "memory")


def partition(
    store: str = argument("STORE", "A store's path or address, or the name of a cached dataset."),
    parts: int = option(REQUIRED, "How many servers.", least=1),
    method: str = option("auto", "auto, metis, stream, contiguous or hash."),
    seed: int = option(0, "What metis and hash draw from.", least=0, most=2**63 - 1),
    widths: str | None = option(
        None,
        "The model's widths, features first, to estimate memory.",
        unset="features, 64, classes",
        metavar="N,N,…",
    ),
    memory: str | None = memory_option(),
    overwrite: bool = option(False, "Replace a partition that is there."),
    as_json: bool = json_flag(),
) -> None:
    """Give each vertex of a store to a server: few edges between servers, as much work for each.

    Says first what a server will need, then partitions, saves the result in the store and shows its quality.
    """
    refuse_other_method(method)
    budget = bytes_of(memory)
    asked = None if widths is None else _parse_widths(widths)
    from siafu.graph import partition as partitions
    from siafu.graph import read_store
    from siafu.graph.stores.fingerprint import fingerprint
    from siafu.graph.stores.remote import is_address, partitions_directory, publish_partition

    # With the partitions that are at an address: one that is there is not made again.
    path = partitions_directory(store).parent if is_address(store) else find_store(Path(store))
    graph = read_store(path)
    partitions.check_parts(graph, parts)
    chosen = partitions.chosen_method(graph, method, budget)
    target = partitions.partition_path(path, chosen, parts, seed)
    if target.exists() and not overwrite:
        raise BadInput(
            f"{target} exists already: use it, choose another --seed, or replace it with --overwrite"
        )

    layers = asked or [width for width in (graph.num_features, _HIDDEN, graph.num_classes) if width]
    before = partitions.memory_before(graph, parts, layers)
    say(_estimate(graph, parts, layers, before))

    began = time.monotonic()
    with ProgressBar("edges") as progress:
        made = partitions.make_partition(
            graph, parts, method=chosen, seed=seed, memory=budget, progress=progress
        )
        seconds = time.monotonic() - began
        mark = fingerprint(graph)
        saved = partitions.save_partition(path, made, mark, overwrite=overwrite)
        publish_partition(store, saved)
        # What is reported is what a reader of the store will get.
        made = partitions.read_partition(saved, graph, mark)
        quality = partitions.measure(graph, made, progress)
    per_server = partitions.memory_per_server(graph, quality, layers)
    if as_json:
        told = {"path": str(saved), "method": made.method, "parts": made.parts, "seed": made.seed}
        told |= {name: getattr(quality, name) for name in _QUALITY}
        told |= {"seconds": seconds, "widths": layers, "estimated_memory_bytes": before.total}
        print(json.dumps(told | {"servers": _servers(quality, per_server)}))
        return
    _show_servers(quality, per_server)
    print(
        f"{chosen}: {quality.cut_edges:,} of {graph.num_edges:,} edges cut ({100 * quality.cut_share:.1f} %), "
        f"balance {quality.balance:.2f} ({quality.vertex_balance:.2f} by vertices, {quality.edge_balance:.2f} by edges), "
        f"{seconds:.1f} s"
    )
    print(f"saved as {saved}")


def _parse_widths(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if len(words) < 2 or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise BadInput(
            f"--widths is {text!r}: give whole numbers from the features to the classes, like 602,128,41"
        )
    return [int(word) for word in words]


def _estimate(graph: "Graph", parts: int, widths: list[int], memory: "ServerMemory") -> str:
    shares = ", ".join(
        f"{name.replace('_', '-')} {_size(size)}" for name, size in asdict(memory).items() if size
    )
    return (
        f"{graph.name}: {graph.num_vertices:,} vertices, {graph.num_edges:,} edges on {parts} servers, "
        f"widths {'-'.join(map(str, widths))}: an even server needs at most about {_size(memory.total)} ({shares})"
    )


def _show_servers(quality: "PartitionQuality", memory: "list[ServerMemory]") -> None:
    rows = []
    for server in _servers(quality, memory):
        *counts, size = server.values()
        rows.append((*(f"{count:,}" for count in counts), _size(size)))
    show_table(dict.fromkeys(_TITLES, NUMBER), rows)


def _servers(quality: "PartitionQuality", memory: "list[ServerMemory]") -> list[dict[str, int]]:
    return [
        {
            "server": server,
            "vertices": int(quality.vertices[server]),
            "edges": int(quality.edges[server]),
            "forward_ghosts": int(quality.forward_ghosts[server]),
            "backward_ghosts": int(quality.backward_ghosts[server]),
            "memory_bytes": held.total,
        }
        for server, held in enumerate(memory)
    ]


def _size(count: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"
