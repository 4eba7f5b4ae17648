"""Import: any input that a reader knows to a store, in bounded memory."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.jit import kernel
from siafu.graph import check
from siafu.graph.csr import IntArray, Weights
from siafu.graph.importing.inputs import InputOptions, open_input, open_vertex_table
from siafu.graph.importing.readers.blocks import EdgeSource, VertexBlock, VertexData, VertexTable
from siafu.graph.importing.relabel import HashCollision, Relabeller
from siafu.graph.importing.spool import SpooledIds
from siafu.graph.importing.vertex_rows import VertexRows
from siafu.graph.importing.vertices import check_counts, write_vertices
from siafu.graph.progress import Progress, silent
from siafu.graph.sort import EdgeSorter
from siafu.graph.store import StoreWriter

Edges = tuple[Any, ...]  # src, dst, weights: ids or names, and numbers or None

_COMPILER_BYTES = 128 << 20  # what Numba takes while it compiles or loads our kernels
_LEAST_BUDGET = 64 << 20
_SEEDS = 8


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to read an input and what to make of it.

    input:          which columns, format and files
    undirected:     add each edge's reverse (a self-loop is its own)
    merge_parallel: keep one edge for each (source, destination), its weight the sum
    num_vertices:   ids go from 0 to this; None: as the input says or shows
    num_classes:    how many classes labels tell apart; None: as the input says or shows
    bf16:           round features to bfloat16
    memory_limit:   bytes the whole process may use; None: half of the machine's
    """

    input: InputOptions = field(default_factory=InputOptions)
    undirected: bool = False
    merge_parallel: bool = False
    num_vertices: int | None = None
    num_classes: int | None = None
    bf16: bool = False
    memory_limit: int | None = None
    overwrite: bool = False
    name: str | None = None


class Imported(NamedTuple):
    """What an import wrote."""

    num_vertices: int
    num_edges: int
    symmetric: bool
    relabelled: bool


def import_graph(
    source: Path, target: Path, options: ImportOptions | None = None, progress: Progress = silent
) -> Imported:
    """Read `source` and write a store to `target`; nothing is seen there before all of it is written."""
    options = options or ImportOptions()
    memory = memory_budget(options.memory_limit)
    edges, data = open_input(source, options.input, memory)
    table = open_vertex_table(options.input, edges, memory)
    with StoreWriter(target, overwrite=options.overwrite) as store:
        done = _Import(source, store, edges, data, table, options, memory, progress).run()
        name = options.name or source.name.removesuffix(".gz").rsplit(".", 1)[0]
        store.commit(name=name, num_classes=done.num_classes, symmetric=done.imported.symmetric)
    return done.imported


def memory_budget(limit: int | None) -> int:
    """Bytes that an import may allocate, so that the process stays under `limit` as a whole."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if limit is None else limit
    taken = _resident_bytes() + _COMPILER_BYTES
    if total - taken < _LEAST_BUDGET:
        least = (taken + _LEAST_BUDGET) / 1e6
        raise BadInput(f"a memory limit of {total / 1e6:.0f} MB is too small: give at least {least:.0f} MB")
    return total - taken


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 200 << 20
    return pages * os.sysconf("SC_PAGE_SIZE")


class _Done(NamedTuple):
    imported: Imported
    num_classes: int


@dataclass(slots=True)
class _Import:
    """One import under way."""

    source: Path
    store: StoreWriter
    edges: EdgeSource
    data: VertexData
    table: VertexTable | None
    options: ImportOptions
    memory: int
    progress: Progress

    @property
    def scratch(self) -> Path:
        return self.store.path.parent

    def run(self) -> _Done:
        if self.edges.named:
            return self._named()
        known = self._known_vertices()
        if known is not None and self.options.num_vertices is None:
            self._check_known(known)
        if known is not None and self.options.input.ids != "relabel":
            return self._dense(known, self._blocks(known), self._vertex_blocks())
        return self._undecided()

    def _known_vertices(self) -> int | None:
        features = self.data.features
        for count in (
            self.options.num_vertices,
            self.edges.num_vertices,
            None if features is None else features.count,
        ):
            if count is not None:
                return count
        return None

    def _check_known(self, known: int) -> None:
        files = self.source.rglob("*") if self.source.is_dir() else [self.source]
        num_bytes = sum(file.stat().st_size for file in files if file.is_file())
        what = f"the number of vertices that {self.source} says"
        check.plausible_vertices(known, num_bytes, what, "mend it; if not, give --num-vertices")

    def _dense(
        self, num_vertices: int, blocks: Iterator[Edges], vertex_blocks: Iterator[VertexBlock]
    ) -> _Done:
        """Ids are used as they are."""
        rows = self._vertex_rows(num_vertices)
        if rows is not None:
            for block in vertex_blocks:
                rows.add(block.ids, *_values(block))  # type: ignore[arg-type]
        return self._write(num_vertices, blocks, rows, relabelled=False)

    def _undecided(self) -> _Done:
        """Integers, whose range only reading tells: they are put aside, and then used as they are or relabelled."""
        spooled = SpooledIds(self.scratch)
        for src, dst, weights in self._blocks(None):
            spooled.add_edges(src, dst, weights)
        for block in self._vertex_blocks():
            spooled.add_vertices(block)
        if self._use_as_they_are(spooled):
            return self._dense(spooled.highest + 1, spooled.edges(), spooled.vertices())
        relabeller = self._relabeller(seed=0)
        for src, dst, weights in spooled.edges():
            relabeller.add_edges(src, dst, weights)
        for block in spooled.vertices():
            relabeller.add_vertices(block.ids, *_values(block))
        return self._relabelled(relabeller, relabeller.number(self.store, self.progress))

    def _use_as_they_are(self, spooled: SpooledIds) -> bool:
        if self.options.input.ids == "dense" and spooled.lowest < 0:
            raise BadInput(f"id {spooled.lowest} is negative: dense ids go from 0 up; leave out --ids dense")
        if self.options.input.ids in ("dense", "relabel"):
            return self.options.input.ids == "dense"
        return spooled.is_dense(self.memory)

    def _named(self) -> _Done:
        """Strings, whose hash is drawn again in the rare case that two share one."""
        for seed in range(_SEEDS):
            relabeller = self._relabeller(seed)
            try:
                for src, dst, weights in self._blocks(None):
                    relabeller.add_edges(src, dst, weights)
                for block in self._vertex_blocks():
                    relabeller.add_vertices(block.ids, *_values(block))
                return self._relabelled(relabeller, relabeller.number(self.store, self.progress))
            except HashCollision:
                continue
        raise BadInput("the ids' hashes keep colliding: give the vertices other names")

    def _relabeller(self, seed: int) -> Relabeller:
        return Relabeller(
            self.scratch,
            memory=self.memory // 2,
            named=self.edges.named,
            weighted=self.edges.weighted,
            seed=seed,
        )

    def _relabelled(self, relabeller: Relabeller, num_vertices: int) -> _Done:
        asked = self.options.num_vertices
        if asked is not None and asked != num_vertices:
            raise BadInput(f"there are {num_vertices} ids, not {asked}: leave --num-vertices out")
        rows = self._vertex_rows(num_vertices)
        if rows is not None:
            for ids, *columns in relabeller.vertices():
                rows.add(ids, *columns)
        return self._write(num_vertices, relabeller.edges(self.progress), rows, relabelled=True)

    def _vertex_rows(self, num_vertices: int) -> VertexRows | None:
        if self.table is None:
            return None
        return VertexRows(self.table, num_vertices, self.scratch, self.memory // 2)

    def _write(
        self, num_vertices: int, edges: Iterator[Edges], rows: VertexRows | None, *, relabelled: bool
    ) -> _Done:
        if num_vertices == 0:
            raise BadInput(f"no edges in {self.source}: if it has vertices without any, give --num-vertices")
        data = self.data if rows is None else rows.data()
        check_counts(data, num_vertices)
        if self.options.num_classes is not None:
            data.num_classes = self.options.num_classes
        classes = write_vertices(
            self.store, data, num_vertices, bf16=self.options.bf16, progress=self.progress
        )
        sorter = EdgeSorter(
            num_vertices, memory_limit=self.memory // 2, scratch=self.scratch, weighted=self.edges.weighted
        )
        for block in edges:
            sorter.add(*(both_ways(*block) if self.options.undirected else block))
        found = sorter.write(self.store, merge_parallel=self.options.merge_parallel, progress=self.progress)
        return _Done(Imported(num_vertices, found.num_edges, found.symmetric, relabelled), classes)

    def _blocks(self, id_stop: int | None) -> Iterator[Edges]:
        done = 0
        self.progress("reading edges", 0, 0)
        for block in self.edges.blocks(id_stop):
            yield block.src, block.dst, block.weights
            done += block.src.size
            self.progress("reading edges", done, int(done / max(block.read, 1e-9)))

    def _vertex_blocks(self) -> Iterator[VertexBlock]:
        return iter(()) if self.table is None else self.table.blocks()


def _values(block: VertexBlock) -> list[NDArray[Any]]:
    """A table's values, without those it has not."""
    features = block.features if block.features.shape[1] else None
    return [values for values in (features, block.labels, block.split) if values is not None]


def both_ways(src: IntArray, dst: IntArray, weights: Weights) -> tuple[IntArray, IntArray, Weights]:
    """Each edge followed by its reverse; a self-loop is its own.

    In turn, so that parallel edges come in the same order both ways, and their weights add up alike.
    """
    most = 2 * len(src)
    new_src, new_dst = np.empty(most, src.dtype), np.empty(most, src.dtype)
    new_weights = None if weights is None else np.empty(most, np.float32)
    count = _turn_each(src, dst, weights, new_src, new_dst, new_weights)
    return new_src[:count], new_dst[:count], None if new_weights is None else new_weights[:count]


@kernel
def _turn_each(
    src: IntArray, dst: IntArray, weights: Weights, new_src: IntArray, new_dst: IntArray, new_weights: Any
) -> int:
    at = 0
    for e in range(len(src)):
        for turned in range(2 if src[e] != dst[e] else 1):
            new_src[at] = dst[e] if turned else src[e]
            new_dst[at] = src[e] if turned else dst[e]
            if weights is not None:
                new_weights[at] = weights[e]
            at += 1
    return at
