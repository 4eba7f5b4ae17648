"""The 128-wide sum gather against torch CSR, C, DGL, and the memory's read bandwidth."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from siafu.base.hardware.machine import read_bandwidth
from siafu.bench.handwritten import COLUMNS, c_gather
from siafu.bench.timing import Timing, measure, measure_peer
from siafu.graph import Graph
from siafu.kernels import Table, block_edges, block_size, empty_table, gather_sum, pack


def bench_gather(
    graph: Graph, store: Path, width: int, repeats: int, peers: Path | None
) -> tuple[list[Timing], dict[str, float]]:
    """Times of every contender, and what the memory does: bytes that our fp32 gather reads, and read bandwidth."""
    x = np.random.default_rng(0).standard_normal((graph.num_vertices, width), dtype=np.float32)
    rows, halved = pack(x, None, np.float32), pack(x, None, np.uint16)
    out = empty_table(graph.num_vertices, width, np.float32)
    timings = [
        measure("siafu fp32", _ours(graph, rows, out), repeats),
        measure("siafu bf16", _ours(graph, halved, out), repeats),
    ]
    by_hand = c_gather(graph.indptr, graph.indices, rows, out) if width == COLUMNS else None
    if by_hand is not None:
        timings.append(measure("C by hand, fp32", by_hand, repeats))
    adjacency, dense = _torch_csr(graph), torch.from_numpy(x)
    timings.append(measure("torch CSR", lambda: adjacency @ dense, repeats))
    if peers is not None:
        arguments = ["dgl", "gather", str(store), str(width)]
        timings.append(measure_peer(peers, "DGL copy_u_sum", arguments, repeats))
    memory = {
        "bytes_read": float(graph.num_edges * (4 * width + graph.indices.itemsize)),
        "read_bandwidth": read_bandwidth(),
    }
    return timings, memory


def _ours(graph: Graph, rows: Table, out: Table) -> Callable[[], object]:
    size = block_size(graph.num_vertices, graph.num_edges, rows.strides[0])
    blocks = None if size is None else block_edges(graph.indptr, graph.indices, None, size)
    return lambda: gather_sum(graph.indptr, graph.indices, None, rows, blocks=blocks, out=out)


def _torch_csr(graph: Graph) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that CSR support is in beta
        return torch.sparse_csr_tensor(
            torch.from_numpy(graph.indptr),
            torch.from_numpy(graph.indices).long(),
            torch.ones(graph.num_edges),
            (graph.num_vertices, graph.num_vertices),
        )
