"""Graph: a whole graph with its features, labels and splits."""

from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.card import card
from siafu.base.errors import BadInput
from siafu.base.storage.mapped import mapped_array
from siafu.base.unknown_keyword import refuse_unknown_keyword
from siafu.base.words import counted
from siafu.graph import check, csr, edge_data
from siafu.graph.bf16 import to_bf16
from siafu.graph.classes import named_classes
from siafu.graph.csr import Csr, IntArray
from siafu.graph.other_names import no_attribute
from siafu.graph.random_split import RandomSplit


@dataclass(frozen=True, slots=True, eq=False)
class Renumbered:
    """Origin of a layout.

    graph:  the graph as its user numbers the vertices
    order:  [V] int32, the user's number of each vertex
    method: the order's name
    """

    graph: "Graph"
    order: IntArray
    method: str


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A directed graph by in-edges; an undirected one holds each edge both ways.

    indptr:      [V + 1] int64; vertex i's in-edges are indptr[i] up to indptr[i + 1]
    indices:     [E] int32 (int64 where V >= 2**31); the source of each edge, ascending within a vertex
    edge_weight: [E] float32; None: every edge weighs 1
    edge_attr:   [E, D] features of edges, float32, or uint16 that holds bfloat16 bits; may be memory-mapped; None: none
    edge_type:   [E] int32, the relation that each edge is of, from 0 up; None: all are of one
    x:           [V, F] features, float32, or uint16 that holds bfloat16 bits; may be memory-mapped; None: none
    y:           [V] int64, the class of each vertex, -1 where unknown; or [V, C] uint8 of zeros and ones where
                 a vertex has any number of labels; or [V] or [V, C] float32 or float64, quantities, NaN where unknown; None: none
    train, val, test: ascending int64 vertex ids; None: no split
    ids:         [V] the vertices' names in the source, int64 or UTF-8 bytes; None: 0 to V - 1
    num_classes: how many classes `y` tells apart, or how many labels or quantities a vertex has; 0 without labels
    class_names: the name of each class, where labels are words; empty: they are numbers
    type_names:  the name of each type of edges, where they were imported by name; empty: they are numbers
    feature_names: the name of each column of `x`, where they have names; empty: they are known by their places
    name:        what to call the graph in reports
    source:      what `siafu.load` takes to get it again; None: it was not loaded
    layout:      the same graph with its vertices in an order that is faster to walk, which training uses; everything
                 else here is in your numbers; None: none was made (`reorder`)
    renumbered:  of a layout, what it was made of; None: this is no layout

    Arrays are NumPy's; `torch.from_numpy` shares their memory.
    Self-loops that a layer wants (GCN, GAT) are the gather's matter: they are not stored here.
    Make one with `from_csr`, `from_edges`, `from_pyg`, `from_dgl` or `siafu.load`, which check what they get.
    """

    indptr: NDArray[np.int64]
    indices: IntArray
    edge_weight: NDArray[np.float32] | None = None
    edge_attr: NDArray[Any] | None = None
    edge_type: NDArray[np.int32] | None = None
    x: NDArray[Any] | None = None
    y: NDArray[Any] | None = None
    train: NDArray[np.int64] | None = None
    val: NDArray[np.int64] | None = None
    test: NDArray[np.int64] | None = None
    ids: NDArray[Any] | None = None
    num_classes: int = 0
    class_names: tuple[str, ...] = ()
    type_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    name: str = "graph"
    source: str | None = None
    layout: "Graph | None" = None
    renumbered: Renumbered | None = None

    if not TYPE_CHECKING:  # to a type checker any name would be one of a graph's

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(name)

    @classmethod
    def from_csr(
        cls,
        indptr: Any,
        indices: Any,
        *,
        edge_weight: Any = None,
        edge_attr: Any = None,
        edge_type: Any = None,
        x: Any = None,
        y: Any = None,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        ids: Any = None,
        num_classes: int | None = None,
        feature_names: Any = None,
        name: str = "graph",
    ) -> "Graph":
        """From in-edges by destination. Arrays are NumPy's or PyTorch's, and are not copied if they fit.

        Features of a `torch.bfloat16` tensor stay so; all others become float32. `edge_attr` with one number for an edge may
        be a list. Labels that are words are classes in alphabetical order, whose names `class_names` has; None, NaN and ""
        are unknown. Floats are quantities, unless all are whole numbers that can be classes, or zeros and ones in columns.

        `train`, `val`, `test` are vertex ids or masks of V booleans; rows that are not ascending are sorted.
        `feature_names` are those of the columns of `x`; a pandas.DataFrame brings its own. A run keeps them, and takes the
        columns of another graph by their names.
        """
        pointers = check.indptr(indptr)
        num_vertices = len(pointers) - 1
        sources = check.vertex_ids(check.array(indices, "indices"), num_vertices, "indices")
        if len(sources) != pointers[-1]:
            raise BadInput(f"indptr ends at {pointers[-1]}, but indices has {len(sources)} entries")
        on_edges = edge_data.checked(len(sources), edge_weight, edge_attr, edge_type)
        return cls._of(
            *edge_data.sorted_rows(pointers, sources, on_edges),
            x=x,
            y=y,
            train=train,
            val=val,
            test=test,
            ids=ids,
            num_classes=num_classes,
            feature_names=feature_names,
            name=name,
        )

    @classmethod
    def _of(
        cls,
        edges: Csr,
        on_edges: edge_data.EdgeData,
        *,
        x: Any = None,
        y: Any = None,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        ids: Any = None,
        num_classes: int | None = None,
        feature_names: Any = None,
        name: str = "graph",
    ) -> "Graph":
        """Of edges in order, and what they have, both checked."""
        num_vertices = len(edges.indptr) - 1
        features = check.features(x, num_vertices)
        numbers, names = named_classes(y)
        labels, classes = check.labels(numbers, num_vertices, num_classes)
        return cls(
            *edges,
            edge_attr=on_edges.attr,
            edge_type=on_edges.type,
            x=features,
            y=labels,
            **check.splits(num_vertices, labels, train=train, val=val, test=test),
            ids=check.original_ids(ids, num_vertices),
            num_classes=classes,
            class_names=names and (*names, *map(str, range(len(names), classes))),
            feature_names=check.feature_names(feature_names, x, features),
            name=check.text(name, "name"),
        )

    @classmethod
    def from_edges(
        cls,
        src: Any,
        dst: Any = None,
        *,
        num_vertices: int | None = None,
        edge_weight: Any = None,
        edge_attr: Any = None,
        edge_type: Any = None,
        undirected: bool = False,
        merge_parallel: bool = False,
        **data: Any,
    ) -> "Graph":
        """From a list of edges, `src[e]` to `dst[e]`; `data` is what `from_csr` takes besides the edges.

        undirected:     add each edge's reverse (a self-loop is its own), with the same weight, features and type
        merge_parallel: keep one edge for each (source, destination), its weight the sum; not with edge_attr or edge_type
        """
        refuse_unknown_keyword(data, cls.from_csr, "siafu.Graph.from_edges")
        if dst is None and src is not None:
            raise BadInput(
                "from_edges takes sources and targets, and was given one of them: of PyG's edge_index [2, E] give *edge_index, of "
                "a list of pairs *zip(*pairs)"
            )
        sources, targets = check.array(src, "src"), check.array(dst, "dst")
        if sources.shape != targets.shape or sources.ndim != 1:
            raise BadInput(
                f"src has shape {sources.shape}, dst {targets.shape}: give two lists of one length"
            )
        num_vertices = check.num_vertices(num_vertices, sources, targets)
        sources = check.vertex_ids(sources, num_vertices, "src")
        targets = check.vertex_ids(targets, num_vertices, "dst")
        on_edges = edge_data.checked(len(sources), edge_weight, edge_attr, edge_type)
        if merge_parallel and on_edges.has_rows:
            raise BadInput(
                "merge_parallel adds up weights: parallel edges with edge_attr or edge_type stay apart"
            )
        if undirected:
            forth = sources != targets
            sources, targets = (
                np.concatenate([sources, targets[forth]]),
                np.concatenate([targets, sources[forth]]),
            )
            on_edges = on_edges.both_ways(forth)
        edges, on_edges = edge_data.from_coo(sources, targets, on_edges, num_vertices)
        if merge_parallel:
            edges = csr.merge_parallel(edges)
        return cls._of(edges, on_edges, **data)

    @classmethod
    def from_pyg(cls, data: Any) -> "Graph":
        """From a `torch_geometric.data.Data`, or a `HeteroData`: docs/from-pyg.md says how that becomes one graph."""
        from siafu.graph.foreign import from_pyg

        return from_pyg(data)

    @classmethod
    def from_dgl(cls, graph: Any) -> "Graph":
        """From a homogeneous `dgl.DGLGraph`; features and labels are its `feat` (or `x`) and `label` (or `y`)."""
        from siafu.graph.foreign import from_dgl

        return from_dgl(graph)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a store: a directory that `siafu.load` memory-maps."""
        from siafu.graph.stores.store import write_store

        write_store(self, Path(path), overwrite=overwrite)

    @cached_property
    def out_numbers(self) -> IntArray:
        """[E] for each of `out_edges`, its place among the in-edges, by which `edge_attr` and `edge_type` go."""
        return csr.transposed_numbers(self.in_edges)

    @cached_property
    def num_relations(self) -> int:
        """How many types of edges there are; 0 if they have none."""
        return 0 if self.edge_type is None else int(self.edge_type.max(initial=-1)) + 1

    @property
    def num_edge_features(self) -> int:
        return 0 if self.edge_attr is None else int(self.edge_attr.shape[1])

    def with_bf16_features(self) -> "Graph":
        """The same graph with features rounded to bfloat16: half the memory."""
        if self.x is None or self.x.dtype == np.uint16:
            return self
        return self.replace(x=to_bf16(self.x), feature_names=self.feature_names)

    def reorder(self, order: str = "auto", *, memory: str | None = None) -> "Graph":
        """The same graph with a layout: trained in an order of its vertices that is faster to walk.

        Ids, features, labels, splits and predictions keep your numbers. The layout is held in memory beside the graph;
        `siafu reorder` puts one into a store.

        order:  rabbit, rcm, degree or metis; "auto": rabbit if it pays, else the graph as it is
        memory: a size that this process may take while it looks for an order, such as "8GB"; None: what is free
        """
        from siafu.graph.reorder import reorder

        return reorder(self, order, memory=memory)

    def split(
        self,
        train: float | str,
        val: float = 0.0,
        test: float = 0.0,
        *,
        seed: int = 0,
        stratified: bool = False,
    ) -> "Graph":
        """The same graph with a split that is drawn among its labelled vertices.

        train, val, test: shares of them, from 0 to 1; or one text in place of the three, as on the command line:
                          "random:60/20/20" or "stratified:60/20/20"
        stratified:       the same shares in every class
        """
        if isinstance(train, str):
            return self.split_as(train, seed)
        if self.y is None:
            raise BadInput(
                f"graph {self.name!r} has no labels to draw a split of: give it y, or import it with labels (--label-column NAME)"
            )
        codes = RandomSplit((train, val, test), stratified).checked().draw(self.y, seed)
        parts = {
            name: np.flatnonzero(codes == code) for code, name in enumerate(("train", "val", "test"), start=1)
        }
        # The store that it came from has another split: who needs a store of it must save it.
        return self.replace(source=None, **{name: ids if len(ids) else None for name, ids in parts.items()})

    def split_as(self, text: str | None, seed: int = 0) -> "Graph":
        """The same graph with the split that a text like "random:60/20/20" asks for; None: its own."""
        if text is None:
            return self
        asked = RandomSplit.asked(text)
        return self.split(*asked.shares, seed=seed, stratified=asked.stratified)

    def replace(self, **changes: Any) -> "Graph":
        """A graph with these fields changed, as they are: nothing is checked again. Other data has no layout yet."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        if changes.keys() - {"name", "source", "layout"}:
            changes = {"layout": None} | changes
        if "x" in changes:
            changes = {"feature_names": ()} | changes
        graph = Graph(**(fields | changes))
        if not changes.keys() & {"indptr", "indices", "edge_weight"}:
            # What was found out about the edges still holds.
            known = {name: value for name, value in self.__dict__.items() if name not in fields}
            graph.__dict__.update(known)
        return graph

    @property
    def num_vertices(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    @property
    def num_features(self) -> int:
        return 0 if self.x is None else int(self.x.shape[1])

    @property
    def multi_label(self) -> bool:
        return self.y is not None and self.y.ndim == 2 and not self.has_quantities

    @property
    def has_quantities(self) -> bool:
        """Whether labels are numbers to come close to, not classes to tell apart."""
        return self.y is not None and self.y.dtype.kind == "f"

    @property
    def kind_of_labels(self) -> str:
        """What `num_classes` counts: classes, labels or quantities."""
        return "quantities" if self.has_quantities else "labels" if self.multi_label else "classes"

    @property
    def in_edges(self) -> Csr:
        """The sources of each vertex's in-edges."""
        return Csr(self.indptr, self.indices, self.edge_weight)

    @cached_property
    def out_edges(self) -> Csr:
        """The destinations of each vertex's out-edges: made when first asked for, shared if symmetric."""
        return self.in_edges if self.is_symmetric else csr.transpose(self.in_edges)

    def with_mapped_out_edges(self, directory: Path) -> "Graph":
        """The same graph, whose out-edges, if they are not there yet, are in a scratch file in `directory` as long as it lives."""
        if "out_edges" in self.__dict__ or self.is_symmetric:
            return self
        mapped = copy(self)
        mapped.__dict__["out_edges"] = csr.transpose(self.in_edges, partial(mapped_array, directory))
        return mapped

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every edge stands both ways, as often and with the same weight."""
        return csr.is_symmetric(self.in_edges)

    @cached_property
    def num_self_loops(self) -> int:
        return csr.count_self_loops(self.indptr, self.indices)

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            ("vertices", f"{self.num_vertices:,}"),
            ("edges", f"{self.num_edges:,}" + (", weighted" if self.edge_weight is not None else "")),
        ]
        if self.edge_attr is not None:
            rows.append(("features of edges", f"{self.num_edge_features:,}"))
        if self.edge_type is not None:
            rows.append(("types of edges", f"{self.num_relations:,}"))
        if self.x is not None:
            rows.append(
                ("features", f"{self.num_features:,} ({'bf16' if self.x.dtype == np.uint16 else 'fp32'})")
            )
        if self.y is not None:
            rows.append((self.kind_of_labels, f"{self.num_classes:,}"))
        splits = {"training": self.train, "validation": self.val, "test": self.test}
        rows += [(f"{name} rows", f"{len(split):,}") for name, split in splits.items() if split is not None]
        if self.source is not None:
            rows.append(("loaded from", self.source))
        return card(self.name, rows)

    def __repr__(self) -> str:
        parts = [f"{self.name!r}", f"{self.num_vertices:,} vertices", f"{self.num_edges:,} edges"]
        if self.x is not None:
            kind = "bf16" if self.x.dtype == np.uint16 else "fp32"
            parts.append(
                f"{self.num_features} {'feature' if self.num_features == 1 else 'features'} ({kind})"
            )
        if self.edge_attr is not None:
            parts.append(f"{counted(self.num_edge_features, 'feature')} of edges")
        if self.edge_type is not None:
            parts.append(f"{counted(self.num_relations, 'type')} of edges")
        if self.y is not None:
            parts.append(f"{self.num_classes} {self.kind_of_labels}")
        if self.train is not None:
            sizes = "/".join(
                f"{0 if part is None else len(part):,}" for part in (self.train, self.val, self.test)
            )
            parts.append(f"{sizes} train/val/test")
        return f"Graph({', '.join(parts)})"
