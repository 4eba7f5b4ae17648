"""Synthetic graphs whose accuracy means something, straight to a store.

The model is a degree-corrected planted partition. Vertex popularity follows a power law; every vertex belongs to a
community; two vertices are joined, each pair by itself, with a probability that is the product of their popularities
times a rate for pairs within, or across, communities. Every community has a class; in most shapes it is one. Labels are
classes but for some noise, features are a class centroid under strong noise: a vertex's neighbours say more about its class than its own features do.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.threads import run_all, thread_count
from siafu.graph.bf16 import to_bf16
from siafu.graph.csr import IntArray
from siafu.graph.generate import sampling
from siafu.graph.generate.edges import draw_edges
from siafu.graph.generate.population import BYTES_A_VERTEX, Population, make_population, stream
from siafu.graph.generate.shapes import SHAPES, Shape, shape_named
from siafu.graph.importing.importer import memory_budget
from siafu.graph.progress import ProgressCallback, silent
from siafu.graph.sorting.sort import EdgeSorter, SortedEdges
from siafu.graph.stores.store import StoreWriter

__all__ = ["SHAPES", "Shape", "generate", "shape_named"]

Classes = NDArray[np.uint8]

_ROWS_BYTES = 4 << 20  # of features that one thread makes at once
_MOST_DRAWN = 32 << 20  # bytes of edges that are drawn at once
_LEAST_FOR_SORTING = 32 << 20


def generate(
    shape: Shape,
    path: Path,
    *,
    seed: int = 0,
    memory_limit: int | None = None,
    bf16: bool = False,
    overwrite: bool = False,
    progress: ProgressCallback = silent,
) -> int:
    """Write a graph of this shape to a store at `path`; how many edges it has, each way counted.

    memory_limit: bytes the whole process may use; None: what is free less a reserve, half of the machine's at most

    The same shape and seed give the same bytes, whatever the threads and the memory limit. Popularity does not show
    in an id, nor does the community unless the shape has communities that lie together.
    """
    for_sorting = _memory_for_sorting(shape, memory_budget(memory_limit))
    with StoreWriter(path, overwrite=overwrite) as store:
        people = make_population(shape, seed)
        edges = _write_edges(store, shape, people, seed, for_sorting, progress)
        classes = people.class_by_vertex()
        del people
        _write_features(store, shape, classes, seed, bf16=bf16, progress=progress)
        _write_labels(store, shape, classes, seed)
        _write_splits(store, shape, seed)
        store.commit(name=shape.name, num_classes=shape.num_classes, symmetric=edges.symmetric)
    return edges.num_edges


def _memory_for_sorting(shape: Shape, budget: int) -> int:
    """Memory that the vertices and the features leave for sorting."""
    held = BYTES_A_VERTEX * shape.num_vertices + 2 * _ROWS_BYTES * thread_count()
    if budget < held + _LEAST_FOR_SORTING:
        missing = math.ceil((held + _LEAST_FOR_SORTING - budget) / 1e6)
        raise BadInput(
            f"the memory limit is too small for {shape.num_vertices:,} vertices: give {missing} MB more, "
            f"or a smaller --scale"
        )
    return budget - held


def _write_edges(
    store: StoreWriter, shape: Shape, people: Population, seed: int, memory: int, progress: ProgressCallback
) -> SortedEdges:
    sorter = EdgeSorter(shape.num_vertices, memory_limit=memory, scratch=store.path.parent)
    drawn = 0

    def take(src: IntArray, dst: IntArray) -> None:
        nonlocal drawn
        sorter.add(src, dst)
        drawn += len(src)
        progress("drawing edges", drawn, max(shape.num_edges, drawn))

    progress("drawing edges", 0, shape.num_edges)
    draw_edges(shape, people, seed, take, memory=min(_MOST_DRAWN, memory // 8))
    return sorter.write(store, progress=progress)


def _write_features(
    store: StoreWriter,
    shape: Shape,
    classes: Classes,
    seed: int,
    *,
    bf16: bool,
    progress: ProgressCallback,
) -> None:
    centroids = _centroids(shape, seed)
    key = stream(seed, "features")
    writer = store.array("x", np.uint16 if bf16 else np.float32, (shape.num_features,))

    def rows(block: range) -> NDArray[np.float32] | NDArray[np.uint16]:
        out = np.empty((len(block), shape.num_features), np.float32)
        sampling.fill_noise(key, block.start, centroids, classes[block.start : block.stop], out)
        return to_bf16(out) if bf16 else out

    blocks = list(_blocks(shape.num_vertices, 4 * shape.num_features))
    progress("making features", 0, shape.num_vertices)
    for start in range(0, len(blocks), thread_count()):
        some = blocks[start : start + thread_count()]
        for made in run_all(rows, some):
            writer.append(made)
        progress("making features", some[-1].stop, shape.num_vertices)


def _centroids(shape: Shape, seed: int) -> NDArray[np.float32]:
    """A direction for each class, `signal` long."""
    out = np.empty((shape.num_classes, shape.num_features), np.float32)
    origin = np.zeros((1, shape.num_features), np.float32)
    sampling.fill_noise(stream(seed, "centroids"), 0, origin, np.zeros(len(out), np.uint8), out)
    out *= np.float32(shape.signal) / np.linalg.norm(out, axis=1, keepdims=True)
    return out


def _write_labels(store: StoreWriter, shape: Shape, classes: Classes, seed: int) -> None:
    writer = store.array("y", np.int64)
    key = stream(seed, "labels")
    for block in _blocks(shape.num_vertices, 8):
        labels = classes[block.start : block.stop].astype(np.int64)
        sampling.relabel(key, block.start, shape.label_noise, shape.num_classes, labels)
        writer.append(labels)


def _write_splits(store: StoreWriter, shape: Shape, seed: int) -> None:
    writers = [store.array(name, np.int64) for name in ("train", "val", "test")]
    until = np.array([shape.train, shape.train + shape.val, 1.0])
    key = stream(seed, "splits")
    for block in _blocks(shape.num_vertices, 8):
        part = np.empty(len(block), np.uint8)
        sampling.choose(key, block.start, until, part)
        for k, writer in enumerate(writers):
            writer.append(block.start + np.flatnonzero(part == k))


def _blocks(count: int, row_bytes: int) -> Iterator[range]:
    size = max(1, _ROWS_BYTES // row_bytes)
    for start in range(0, count, size):
        yield range(start, min(start + size, count))
