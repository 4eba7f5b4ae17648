"""`siafu partition`: share a store's vertices out among servers, and say what that costs."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siafu.base.errors import BadInput
from siafu.cli.common import ProgressBar

if TYPE_CHECKING:
    from siafu.graph import Graph
    from siafu.graph.partition import Partition, PartitionQuality, ServerMemory

_HIDDEN = 64  # as wide as `siafu train` makes a hidden layer
_PIPED_WIDTH = 300  # a line for each server, to grep


def partition(
    store: Annotated[
        str,
        typer.Argument(metavar="STORE", help="A store's path or address, or the name of a cached dataset."),
    ],
    parts: Annotated[int, typer.Option(min=1, help="How many servers.")],
    method: Annotated[str, typer.Option(help="auto, metis, stream, contiguous or hash.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="What metis and hash draw from.")] = 0,
    widths: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,…",
            help="The model's widths, features first, to estimate memory. [default: features, 64, classes]",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a partition that is there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Give each vertex of a store to a server: few edges between servers, as much work for each.

    Says first what a server will need, then partitions, saves the result in the store and shows its quality.
    """
    from siafu.graph import partition as partitions
    from siafu.graph import read_store
    from siafu.graph.fingerprint import fingerprint
    from siafu.graph.remote import is_address, partitions_directory, publish_partition

    asked = None if widths is None else _parse_widths(widths)
    # With the partitions that are at an address: one that is there is not made again.
    path = partitions_directory(store).parent if is_address(store) else _find_store(Path(store))
    graph = read_store(path)
    partitions.check_parts(graph, parts)
    chosen = partitions.chosen_method(graph, method)
    target = partitions.partition_path(path, chosen, parts, seed)
    if target.exists() and not overwrite:
        raise BadInput(
            f"{target} exists already: use it, choose another --seed, or replace it with --overwrite"
        )

    layers = asked or [width for width in (graph.num_features, _HIDDEN, graph.num_classes) if width]
    before = partitions.memory_before(graph, parts, layers)
    print(_estimate(graph, parts, layers, before), file=sys.stderr, flush=True)

    began = time.monotonic()
    with ProgressBar("edges") as progress:
        made = partitions.make_partition(graph, parts, method=chosen, seed=seed, progress=progress)
        seconds = time.monotonic() - began
        mark = fingerprint(graph)
        saved = partitions.save_partition(path, made, mark, overwrite=overwrite)
        publish_partition(store, saved)
        # What is reported is what a reader of the store will get.
        made = partitions.read_partition(saved, graph, mark)
        quality = partitions.measure(graph, made, progress)
    memory = partitions.memory_per_server(graph, quality, layers)
    if as_json:
        print(json.dumps(_summary(saved, made, quality, memory, layers, before, seconds)))
        return
    _show_servers(quality, memory)
    print(
        f"{chosen}: {quality.cut_edges:,} of {graph.num_edges:,} edges cut ({100 * quality.cut_share:.1f} %), "
        f"balance {quality.balance:.2f} ({quality.vertex_balance:.2f} by vertices, {quality.edge_balance:.2f} by edges), "
        f"{seconds:.1f} s"
    )
    print(f"saved as {saved}")


def _find_store(given: Path) -> Path:
    from siafu.graph import is_store
    from siafu.graph.datasets import cached_store

    named = cached_store(str(given))
    return named if given.name == str(given) and not given.exists() and is_store(named) else given


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
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("server", "vertices", "in-edges", "ghosts forward", "ghosts backward", "memory"):
        table.add_column(title, justify="right", no_wrap=True)
    for server in _servers(quality, memory):
        *counts, size = server.values()
        table.add_row(*(f"{count:,}" for count in counts), _size(size))
    Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH).print(table)


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


def _summary(
    saved: Path,
    made: "Partition",
    quality: "PartitionQuality",
    memory: "list[ServerMemory]",
    widths: list[int],
    before: "ServerMemory",
    seconds: float,
) -> dict[str, Any]:
    return {
        "path": str(saved),
        "method": made.method,
        "parts": made.parts,
        "seed": made.seed,
        "seconds": seconds,
        "cut_edges": quality.cut_edges,
        "cut_share": quality.cut_share,
        "balance": quality.balance,
        "vertex_balance": quality.vertex_balance,
        "edge_balance": quality.edge_balance,
        "widths": widths,
        "estimated_memory_bytes": before.total,
        "servers": _servers(quality, memory),
    }


def _size(count: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"
