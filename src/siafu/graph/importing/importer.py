"""Import: any input that a reader knows to a store, in bounded memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.errors import BadInput
from siafu.base.hardware.memory import budget_bytes, machine_bytes, own_bytes, proc_kilobytes
from siafu.graph import check
from siafu.graph.csr import IntArray
from siafu.graph.importing.class_names import ClassNames
from siafu.graph.importing.edge_types import EdgeTypes
from siafu.graph.importing.inputs import InputOptions, open_input, open_vertex_table
from siafu.graph.importing.readers.blocks import (
    EdgeSource,
    VertexBlock,
    VertexData,
    VertexTable,
    WithColumns,
)
from siafu.graph.importing.readers.edge_rows import EdgesWithRows
from siafu.graph.importing.relabel import HashCollision, Relabeller
from siafu.graph.importing.spool import SpooledIds
from siafu.graph.importing.vertex_fault import VertexFault
from siafu.graph.importing.vertex_rows import ImportedRows
from siafu.graph.importing.vertices import check_counts, write_vertices
from siafu.graph.progress import ProgressCallback, silent
from siafu.graph.random_split import RandomSplit
from siafu.graph.sorting.sort import EdgeSorter
from siafu.graph.stores.store import StoreWriter

Edges = tuple[Any, ...]  # src, dst, weights, features, types: ids or names, and numbers or None

_COMPILER_BYTES = 128 << 20  # what Numba takes while it compiles or loads our kernels
_RESIDENT_BYTES = 200 << 20  # what this process holds, where the system does not say
_LEAST_BUDGET = 64 << 20
_SEEDS = 8


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to read an input and how to store it.

    input:          which columns, format and files
    undirected:     add each edge's reverse (a self-loop is its own)
    merge_parallel: keep one edge for each (source, destination), its weight the sum
    num_vertices:   ids go from 0 to this; None: as the input says or shows
    num_classes:    how many classes labels tell apart; None: as the input says or shows
    drawn:          a split to draw instead of the input's, and its seed
    bf16:           round features to bfloat16
    memory_limit:   bytes the whole process may use; None: what is free less a reserve, half of the machine's at most
    """

    input: InputOptions = field(default_factory=InputOptions)
    undirected: bool = False
    merge_parallel: bool = False
    num_vertices: int | None = None
    num_classes: int | None = None
    drawn: tuple[RandomSplit, int] | None = None
    bf16: bool = False
    memory_limit: int | None = None
    overwrite: bool = False
    name: str | None = None


class Imported(NamedTuple):
    """Result of an import.

    class_names: of labels that are words; empty: they are numbers, or there are none
    split:       how many vertices train, val and test have; empty: there is no split
    ignored:     columns that nothing was taken from, by the table's name
    num_edge_features: how many features an edge has
    num_types:   how many types of edges there are; 0: they have none
    type_names:  of types that are words; empty: they are numbers, or there are none
    edge_table:  the name under which `ignored` has columns of a table of edges
    first_vertex: the least vertex that an edge names; 0 where there are no edges
    end_names:   of the columns that are sources and destinations; empty: they have no names
    feature_names: of the columns that are features; empty: features have no names, or there are none
    parallel:    how many edges have the ends of another
    unknown_words: words, other than none at all, that were read as no label
    notes:       what the form of the tables was taken for, where that could be a mistake
    """

    num_vertices: int
    num_edges: int
    num_classes: int
    symmetric: bool
    relabelled: bool
    num_features: int = 0
    weighted: bool = False
    class_names: tuple[str, ...] = ()
    split: Mapping[str, int] = MappingProxyType({})
    ignored: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    num_edge_features: int = 0
    num_types: int = 0
    type_names: tuple[str, ...] = ()
    edge_table: str = ""
    first_vertex: int = 0
    end_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    parallel: int = 0
    unknown_words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def import_graph(
    source: Path, target: Path, options: ImportOptions | None = None, progress: ProgressCallback = silent
) -> Imported:
    """Read `source` and write a store to `target`; nothing is seen there before all of it is written."""
    options = options or ImportOptions()
    memory = memory_budget(options.memory_limit)
    edges, data = open_input(source, options.input, memory)
    if options.merge_parallel and (edges.attr_width or edges.typed):
        raise BadInput(
            "--merge-parallel adds up weights: parallel edges with features or types stay apart; leave it out"
        )
    table = open_vertex_table(options.input, edges, memory)
    with StoreWriter(target, overwrite=options.overwrite) as store:
        done = _Import(source, store, edges, data, table, options, memory, progress).run()
        name = options.name or target.resolve().name.removesuffix(".store")
        names: dict[str, list[str]] = {}
        if done.class_names:
            names["class_names"] = list(done.class_names)
        if done.type_names:
            names["type_names"] = list(done.type_names)
        if len(done.feature_names) == done.num_features:
            names["feature_names"] = list(done.feature_names)
        store.commit(name=name, num_classes=done.num_classes, symmetric=done.symmetric, **names)
    return done


def memory_budget(limit: int | None) -> int:
    """Bytes that an import may allocate, so that the process stays under `limit` as a whole."""
    total = _usual_limit() if limit is None else limit
    resident = proc_kilobytes(Path("/proc/self/status"), "VmRSS") or _RESIDENT_BYTES
    taken = resident + _COMPILER_BYTES
    if total - taken < _LEAST_BUDGET:
        least = (taken + _LEAST_BUDGET) / 1e6
        raise BadInput(f"a memory limit of {total / 1e6:.0f} MB is too small: give at least {least:.0f} MB")
    return total - taken


def _usual_limit() -> int:
    """Sorting more edges at a time than half of the machine's memory holds gains nothing."""
    free = budget_bytes(None, own_bytes())
    half = machine_bytes() // 2
    return half if free is None else min(half, free)


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
    progress: ProgressCallback
    class_names: ClassNames = field(default_factory=ClassNames)
    types: EdgeTypes = field(default_factory=EdgeTypes)

    @property
    def scratch(self) -> Path:
        return self.store.path.parent

    def run(self) -> Imported:
        if self.edges.named:
            return self._named()
        known = self._known_vertices()
        if known is not None and self.options.num_vertices is None:
            self._check_known(known)
        if known is not None and self.options.input.ids != "relabel":
            try:
                return self._dense(known, self._blocks(known), self._vertex_blocks())
            except BadInput as error:
                raise BadInput(f"{error}{self._why_so_many(known, str(error))}") from error
        return self._undecided()

    def _why_so_many(self, known: int, error: str) -> str:
        """Where the number of vertices in an error is from, if it is the number of rows of features."""
        features = self.data.features
        if features is None or features.count != known or f"{known} vertices" not in error:
            return ""
        if known in (self.options.num_vertices, self.edges.num_vertices):
            return ""
        return f" ({features.what} have {known} rows, so many vertices are taken: is a row missing there?)"

    def _known_vertices(self) -> int | None:
        rows = None if self.data.features is None else self.data.features.count
        counts = (self.options.num_vertices, self.edges.num_vertices, rows)
        return next((count for count in counts if count is not None), None)

    def _check_known(self, known: int) -> None:
        files = self.source.rglob("*") if self.source.is_dir() else [self.source]
        num_bytes = sum(file.stat().st_size for file in files if file.is_file())
        what = f"the number of vertices that {self.source} says"
        check.plausible_vertices(known, num_bytes, what, "mend it; if not, give --num-vertices")

    def _dense(
        self, num_vertices: int, blocks: Iterator[Edges], vertex_blocks: Iterator[VertexBlock]
    ) -> Imported:
        """Use ids as they are."""
        rows = ([block.ids, *_values(block)] for block in vertex_blocks)
        return self._write(num_vertices, blocks, rows, relabelled=False)

    def _undecided(self) -> Imported:
        """Spool integer ids until their range is known, then use them as they are or relabel them."""
        spooled = SpooledIds(self.scratch)
        for block in self._blocks(None):
            spooled.add_edges(*block)
        for rows in self._vertex_blocks():
            spooled.add_vertices(rows)
        if self._use_as_they_are(spooled):
            return self._dense(spooled.highest + 1, spooled.edges(), spooled.vertices())
        return self._relabelled(0, spooled.edges(), spooled.vertices())

    def _use_as_they_are(self, spooled: SpooledIds) -> bool:
        if self.options.input.ids == "dense" and spooled.lowest < 0:
            raise BadInput(f"id {spooled.lowest} is negative: dense ids go from 0 up; leave out --ids dense")
        if self.options.input.ids in ("dense", "relabel"):
            return self.options.input.ids == "dense"
        return spooled.is_dense(self.memory)

    def _named(self) -> Imported:
        """Relabel strings; in the rare case of a hash collision, again with another seed."""
        for seed in range(_SEEDS):
            try:
                return self._relabelled(seed, self._blocks(None), self._vertex_blocks())
            except HashCollision:
                continue
        raise BadInput("the ids' hashes keep colliding: give the vertices other names")

    def _relabelled(self, seed: int, edges: Iterator[Edges], vertices: Iterator[VertexBlock]) -> Imported:
        """Number the ids anew."""
        named, weighted = self.edges.named, self.edges.weighted
        memory = self.memory // 2
        carried: list[DTypeLike] = []
        if self.edges.attr_width:
            carried.append((np.float32, (self.edges.attr_width,)))
        if self.edges.typed:
            carried.append(np.int32)
        relabeller = Relabeller(
            self.scratch, memory=memory, named=named, weighted=weighted, seed=seed, carried=carried
        )
        for src, dst, weights, *others in edges:
            relabeller.add_edges(src, dst, weights, *(values for values in others if values is not None))
        for block in vertices:
            relabeller.add_vertices(block.ids, *_values(block))
        num_vertices = relabeller.number(self.store, self.progress)
        asked = self.options.num_vertices
        if asked is not None and asked != num_vertices:
            raise BadInput(f"there are {num_vertices} ids, not {asked}: leave --num-vertices out")
        by_id = map(self._whole, relabeller.columns(self.progress))
        try:
            return self._write(num_vertices, by_id, relabeller.vertices(), relabelled=True)
        except VertexFault as fault:
            raise fault.named(self.store.written("ids", fault.vertex)) from fault

    def _whole(self, columns: list[Any]) -> Edges:
        """Columns of edges by id, None for those that there are none of."""
        src, dst, *rest = columns
        there = (self.edges.weighted, self.edges.attr_width > 0, self.edges.typed)
        left = iter(rest)
        return (src, dst, *(next(left) if each else None for each in there))

    def _write(
        self, num_vertices: int, edges: Iterator[Edges], rows: Iterator[list[Any]], *, relabelled: bool
    ) -> Imported:
        """Write the store of edges by id and of the table's rows, each an id and its values."""
        if num_vertices == 0:
            raise BadInput(f"no edges in {self.source}: if it has vertices without any, give --num-vertices")
        data = self.data
        if self.table is not None:
            in_order = ImportedRows(self.table, num_vertices, self.scratch, self.memory // 2)
            for ids, *columns in rows:
                in_order.add(ids, *columns)
            data = in_order.data()
        elif data.labels is not None:
            data.labels = self.class_names.of_array(data.labels)
        if data.labels is not None and (names := self.class_names.names):
            data.labels, data.class_names = self.class_names.in_order(data.labels), names
        check_counts(data, num_vertices)
        if self.options.num_classes is not None:
            data.num_classes = self.options.num_classes
        elif data.class_names:
            data.num_classes = len(data.class_names)
        if self.options.drawn is not None and data.labels is None:
            raise self._no_labels()
        written = write_vertices(
            self.store,
            data,
            num_vertices,
            bf16=self.options.bf16,
            progress=self.progress,
            drawn=self.options.drawn,
        )
        sorter = EdgeSorter(
            num_vertices,
            memory_limit=self.memory // 2,
            scratch=self.scratch,
            weighted=self.edges.weighted,
            attr_width=self.edges.attr_width,
            typed=self.edges.typed,
        )
        first_vertex = num_vertices
        for block in edges:
            sorter.add(*(both_ways(*block) if self.options.undirected else block))
            first_vertex = min([first_vertex, *(int(ends.min()) for ends in block[:2] if len(ends))])
        found = sorter.write(
            self.store,
            merge_parallel=self.options.merge_parallel,
            type_ranks=self.types.ranks,
            progress=self.progress,
        )
        return Imported(
            num_vertices,
            found.num_edges,
            written.classes,
            found.symmetric,
            relabelled,
            num_features=0 if data.features is None else data.features.shape[0],
            weighted=self.edges.weighted,
            class_names=_padded(data.class_names, written.classes),
            split=written.split,
            ignored=self._ignored(),
            num_edge_features=self.edges.attr_width,
            num_types=self.types.count,
            type_names=self.types.names,
            edge_table=self.source.name if isinstance(self._own_edges, WithColumns) else "",
            first_vertex=first_vertex if found.num_edges else 0,
            end_names=getattr(self._own_edges, "end_names", ()),
            feature_names=() if self.table is None else self.table.feature_names,
            parallel=found.parallel,
            unknown_words=self.class_names.unknown,
            notes=tuple(note for table in self._tables for note in table.notes),
        )

    def _no_labels(self) -> BadInput:
        """A split was asked for, and there are no labels to draw it of."""
        if self.table is None:
            return BadInput(
                f"{self.source} has no labels to draw a split of: give --vertices or --labels, or no --split"
            )
        others = (
            *self.table.feature_names,
            *(self.table.ignored if isinstance(self.table, WithColumns) else ()),
        )
        return BadInput(
            f"{self.table.path} has no column 'label', so no labels to draw a split of: name their column with --label-column "
            f"(it has {', '.join(others) or 'ids alone'}), or leave out --split"
        )

    def _blocks(self, id_stop: int | None) -> Iterator[Edges]:
        done = 0
        self.progress("reading edges", 0, 0)
        for block in self.edges.blocks(id_stop):
            types = None if block.types is None else self.types.numbers(block.types)
            yield block.src, block.dst, block.weights, block.attr, types
            done += block.src.size
            self.progress("reading edges", done, int(done / max(block.read, 1e-9)))

    @property
    def _own_edges(self) -> object:
        """The edges, without rows that stand beside them."""
        return self.edges.edges if isinstance(self.edges, EdgesWithRows) else self.edges

    def _ignored(self) -> dict[str, tuple[str, ...]]:
        """Columns and arrays that nothing was taken from, by the name of their table or file."""
        found = {self.source.name: self.data.ignored} if self.data.ignored else {}
        return found | {each.path.name: each.ignored for each in self._tables if each.ignored}

    @property
    def _tables(self) -> list[WithColumns]:
        given: tuple[object, ...] = (self._own_edges, self.table)
        return [each for each in given if isinstance(each, WithColumns)]

    def _vertex_blocks(self) -> Iterator[VertexBlock]:
        for block in () if self.table is None else self.table.blocks():
            if block.words is None:
                yield block
            else:
                yield block._replace(labels=self.class_names.numbers(block.words), words=None)


def _values(block: VertexBlock) -> list[NDArray[Any]]:
    """Features, labels and split of a block, without those that the table lacks."""
    features = block.features if block.features.shape[1] else None
    return [values for values in (features, block.labels, block.split) if values is not None]


def _padded(names: tuple[str, ...], classes: int) -> tuple[str, ...]:
    """A name for each class; those that no label names are called by their numbers."""
    return names and (*names, *map(str, range(len(names), classes)))


def both_ways(src: IntArray, dst: IntArray, *carried: NDArray[Any] | None) -> Edges:
    """Each edge followed by its reverse, with the same weight, features and type; a self-loop is its own.

    In turn, so that parallel edges come in the same order both ways, and their weights add up alike.
    """
    both = np.ones((len(src), 2), np.bool_)
    both[:, 1] = src != dst
    forth, back = np.stack((src, dst), axis=1)[both], np.stack((dst, src), axis=1)[both]
    times = both.sum(axis=1)
    return forth, back, *(None if values is None else np.repeat(values, times, axis=0) for values in carried)
