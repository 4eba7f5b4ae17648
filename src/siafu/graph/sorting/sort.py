"""EdgeSorter: any number of edges to a store's CSR arrays, in bounded memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.errors import BadInput
from siafu.base.hashing import GOLDEN, mix
from siafu.base.jit import kernel
from siafu.graph.csr import EdgeWeights, IntArray, id_dtype
from siafu.graph.progress import ProgressCallback, silent
from siafu.graph.sorting.spill import Columns, Leaf, Spill, leaves, run_leaves
from siafu.graph.stores.store import ArrayWriter, StoreWriter

_MOST_VERTICES = 1 << 32
_ROWS_AT_ONCE = 1 << 20
_LEAST_MEMORY = 16 << 20


class SortedEdges(NamedTuple):
    """Result of `EdgeSorter.write`."""

    num_edges: int
    symmetric: bool  # every edge stands both ways, as often and with the same weight
    parallel: int  # edges that have the ends of the edge before them


class EdgeSorter:
    """Takes edges in blocks and writes them as CSR by destination, rows ascending by source.

    An edge is the number destination · 2**bits + source. The numbers are bucketed on disk by their highest
    bits and radix-sorted a bucket at a time. A bucket that does not fit memory is split by the bits below,
    so that even the edges of one hub may exceed it. Parallel edges keep the order they came in.

    memory_limit: bytes that the sorter may allocate
    scratch:      a directory on a disk with room for the edges (4 to 12 bytes each), in files without a name

    `add` may be called from any thread, by one at a time, and never uses the pool.
    """

    def __init__(
        self,
        num_vertices: int,
        *,
        memory_limit: int,
        scratch: Path,
        weighted: bool = False,
        attr_width: int = 0,
        typed: bool = False,
    ) -> None:
        if num_vertices > _MOST_VERTICES:
            raise BadInput(f"{num_vertices} vertices are more than the {_MOST_VERTICES} that siafu can hold")
        self.num_vertices = num_vertices
        self.weighted = weighted
        self._bits = max(1, (num_vertices - 1).bit_length())
        self._memory = max(_LEAST_MEMORY, memory_limit)
        self._attr_width, self._typed = attr_width, typed
        columns: list[DTypeLike] = [np.float32] if weighted else []
        columns += [(np.float32, (attr_width,))] if attr_width else []
        columns += [np.int32] if typed else []
        self._spill = Spill(scratch, 2 * self._bits, columns, memory=self._memory // 2)

    def add(
        self,
        src: IntArray,
        dst: IntArray,
        weights: EdgeWeights = None,
        attr: NDArray[np.float32] | None = None,
        types: NDArray[np.int32] | None = None,
    ) -> None:
        """Add a block of edges, src[e] to dst[e]; weights, features and types if, and only if, the sorter has them."""
        given = (weights is not None, attr is not None, types is not None)
        if given != (self.weighted, self._attr_width > 0, self._typed):
            raise ValueError("weights must come with every block of a weighted sorter, and with no other")
        carried = [values for values in (weights, attr, types) if values is not None]

        def fill(start: int, stop: int, keys: NDArray[np.uint64], *columns: NDArray[Any]) -> None:
            wrong = _pack(src[start:stop], dst[start:stop], self._bits, self.num_vertices, keys)
            if wrong >= 0:
                edge = start + wrong
                raise BadInput(
                    f"edge {src[edge]} to {dst[edge]}: with {self.num_vertices} vertices, ids go from 0 to {self.num_vertices - 1}"
                )
            for into, values in zip(columns, carried, strict=True):
                into[:] = values[start:stop]

        self._spill.stage(len(src), fill)

    def write(
        self,
        store: StoreWriter,
        *,
        merge_parallel: bool = False,
        type_ranks: NDArray[np.int32] | None = None,
        progress: ProgressCallback = silent,
    ) -> SortedEdges:
        """Append `indptr`, `indices` and what edges have to the store. Ends the sorter.

        merge_parallel: add up the weights of parallel edges; not with features or types
        type_ranks:     the number to write for each type that was added; None: the same
        """
        rows = _RowWriter(store, self.num_vertices, self.weighted, self._attr_width, self._typed, type_ranks)
        done, total = 0, len(self._spill)
        progress("sorting edges", 0, total)
        for part in self._parts(merge_parallel):
            rows.append(part)
            done += part.taken
            progress("sorting edges", done, total)
        self._spill.close()
        return rows.finish()

    def _parts(self, merge_parallel: bool) -> Iterator["_Part"]:
        """The sorted edges, some rows (or a part of one) at a time, in order."""
        share = self._memory // 2

        def work(leaf: Leaf) -> Iterator[_Part]:
            if self._size(leaf) <= share:
                return iter([self._sorted(leaf, merge_parallel)])
            return self._one_edge_many_times(leaf, merge_parallel)

        found = leaves(self._spill, lambda leaf: self._size(leaf) <= share, self._memory)
        for parts in run_leaves(work, found, self._size, self._memory):
            yield from parts

    def _size(self, leaf: Leaf) -> int:
        """Bytes that sorting a leaf takes: the records twice, what is written of them, and the row counts."""
        written = np.dtype(id_dtype(self.num_vertices)).itemsize
        return leaf.count * (2 * leaf.spill.record_bytes + written) + 24 * self._rows_of(leaf)

    def _rows_of(self, leaf: Leaf) -> int:
        return 1 << max(0, leaf.low_bits - self._bits)

    def _sorted(self, leaf: Leaf, merge_parallel: bool) -> "_Part":
        keys, *columns = leaf.read_sorted()
        weights, others = self._parted(columns)
        taken = len(keys)
        if merge_parallel:
            kept = _merge(keys, weights)
            keys, weights = keys[:kept], None if weights is None else weights[:kept]
        return self._part(leaf.first_key, keys, weights, self._rows_of(leaf), taken, others)

    def _parted(self, columns: Columns) -> tuple[EdgeWeights, Columns]:
        """Weights, then features and types."""
        return (columns[0], columns[1:]) if self.weighted else (None, columns)

    def _one_edge_many_times(self, leaf: Leaf, merge_parallel: bool) -> Iterator["_Part"]:
        """A leaf that does not fit memory and cannot be split: copies of one edge, streamed."""
        total, begun = 0.0, False
        for keys, *columns in leaf.spill.pieces(leaf.bucket, max(1, self._memory // 64)):
            weights, others = self._parted(columns)
            if not merge_parallel:
                part = self._part(leaf.first_key, keys, weights, 1, len(keys), others)
                yield part._replace(parallel=len(keys) - (not begun))
                begun = True
            elif weights is not None:
                total += float(weights.sum(dtype=np.float64))
        if merge_parallel:
            merged = np.array([total], np.float32) if self.weighted else None
            yield self._part(leaf.first_key, np.zeros(1, np.uint32), merged, 1, 1, [])

    def _part(
        self, first_key: int, keys: Any, weights: EdgeWeights, rows: int, taken: int, others: Columns
    ) -> "_Part":
        part = _Part(
            first_key >> self._bits,
            np.zeros(rows, np.int64),
            np.empty(len(keys), id_dtype(self.num_vertices)),
            weights,
            np.zeros(4, np.uint64),
            taken,
            others,
            int(np.count_nonzero(keys[1:] == keys[:-1])),
        )
        _unpack(keys, np.uint64(first_key), self._bits, weights, part.counts, part.indices, part.sums)
        return part


class _Part(NamedTuple):
    """Sorted edges of some rows; the last row may go on in the next part.

    counts: [rows] edges of first_row, first_row + 1, …
    sums:   [4] two hashes of the edges, added up, then the same two of the edges turned round
    taken:  how many records it was made of
    others: features and types, as far as edges have them
    parallel: how many edges have the ends of the edge before them
    """

    first_row: int
    counts: NDArray[np.int64]
    indices: IntArray
    weights: EdgeWeights
    sums: NDArray[np.uint64]
    taken: int
    others: Columns
    parallel: int


class _RowWriter:
    """Appends parts to a store; the rows between them are empty."""

    def __init__(
        self,
        store: StoreWriter,
        num_vertices: int,
        weighted: bool,
        attr_width: int,
        typed: bool,
        type_ranks: NDArray[np.int32] | None,
    ) -> None:
        self._num_vertices = num_vertices
        self._indptr = store.array("indptr", np.int64)
        self._indices = store.array("indices", id_dtype(num_vertices))
        self._weights: ArrayWriter | None = store.array("edge_weight", np.float32) if weighted else None
        self._others: list[ArrayWriter] = []
        if attr_width:
            self._others.append(store.array("edge_attr", np.float32, (attr_width,)))
        if typed:
            self._others.append(store.array("edge_type", np.int32))
        self._type_ranks = type_ranks
        self._edges = self._parallel = 0
        self._closed = 0  # rows whose end is written; a row's end is the next one's start
        self._sums = np.zeros(4, np.uint64)
        self._indptr.append(np.zeros(1, np.int64))

    def append(self, part: _Part) -> None:
        self._close_rows(part.first_row)
        ends = self._edges + np.cumsum(part.counts)
        # Rows past V are never used: V need not be a power of two. The last row stays open.
        whole = min(len(ends) - 1, self._num_vertices - part.first_row)
        self._indptr.append(ends[:whole])
        self._closed += whole
        self._edges = int(ends[-1])
        self._indices.append(part.indices)
        if self._weights is not None and part.weights is not None:
            self._weights.append(part.weights)
        for writer, values in zip(self._others, part.others, strict=True):
            ranked = values.ndim == 1 and self._type_ranks is not None
            writer.append(self._type_ranks[values] if ranked and self._type_ranks is not None else values)
        self._sums += part.sums
        self._parallel += part.parallel

    def finish(self) -> SortedEdges:
        self._close_rows(self._num_vertices)
        symmetric = bool(np.array_equal(self._sums[:2], self._sums[2:]))
        return SortedEdges(self._edges, symmetric, self._parallel)

    def _close_rows(self, stop: int) -> None:
        while self._closed < stop:
            count = min(_ROWS_AT_ONCE, stop - self._closed)
            self._indptr.append(np.full(count, self._edges, np.int64))
            self._closed += count


@kernel
def _pack(src: IntArray, dst: IntArray, bits: int, num_vertices: int, keys: NDArray[np.uint64]) -> int:
    """Edges as numbers; the position of the first that has an id out of range, or -1."""
    for e in range(len(src)):
        if src[e] < 0 or dst[e] < 0 or src[e] >= num_vertices or dst[e] >= num_vertices:
            return e
        keys[e] = (np.uint64(dst[e]) << np.uint64(bits)) | np.uint64(src[e])
    return -1


@kernel
def _merge(keys: Any, weights: EdgeWeights) -> int:
    """Keep one of each key, in place, its weight the sum; how many there are then."""
    kept = 0
    for i in range(len(keys)):
        if kept > 0 and keys[i] == keys[kept - 1]:
            if weights is not None:
                weights[kept - 1] += weights[i]
            continue
        keys[kept] = keys[i]
        if weights is not None:
            weights[kept] = weights[i]
        kept += 1
    return kept


@kernel
def _unpack(
    keys: Any,
    first_key: np.uint64,
    bits: int,
    weights: EdgeWeights,
    counts: NDArray[np.int64],
    indices: IntArray,
    sums: NDArray[np.uint64],
) -> None:
    """Sorted numbers to row counts and sources, and what tells whether the edges are symmetric.

    An edge and its reverse swap their parts in the sums. So sums that agree mean, but for a chance of
    2**-128, that each edge stands both ways, as often and with the same weight.
    """
    mask = np.uint64((1 << bits) - 1)
    first_row = first_key >> np.uint64(bits)
    bit_view = None if weights is None else weights.view(np.uint32)
    forth0 = forth1 = back0 = back1 = np.uint64(0)
    for e in range(len(keys)):
        key = first_key + np.uint64(keys[e])
        src = key & mask
        dst = key >> np.uint64(bits)
        counts[dst - first_row] += 1
        indices[e] = src
        forth = (dst << np.uint64(32)) | src
        back = (src << np.uint64(32)) | dst
        salt = GOLDEN
        if bit_view is not None:
            salt += mix(np.uint64(bit_view[e]))
        forth = mix(forth + salt)
        back = mix(back + salt)
        forth0 += forth
        back0 += back
        forth1 += mix(forth ^ np.uint64(0xD6E8FEB86659FD93))
        back1 += mix(back ^ np.uint64(0xD6E8FEB86659FD93))
    sums[0] += forth0
    sums[1] += forth1
    sums[2] += back0
    sums[3] += back1
