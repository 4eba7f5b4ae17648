"""Graphs whose vertices are of several types, as PyG's `HeteroData` has them, as one graph."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph import check
from siafu.graph.graph import Graph


@dataclass(frozen=True)
class VertexTypes:
    """Where each type of vertices stands in the one graph that is made of a `HeteroData`.

    names:  the types, in the order of the `HeteroData`: vertices of the first come first
    counts: vertices of each type
    widths: features of each type; 0: it has none

    A row of the graph's features has the columns of all types side by side, zero outside of its vertex's own, and last a column
    for each type that is 1 for its vertices. So one linear map of these rows is a linear map with a bias for each type.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    widths: tuple[int, ...]

    @classmethod
    def of(cls, data: Any) -> "VertexTypes":
        """The types of a `HeteroData`."""
        if not is_of_several_types(data):
            raise BadInput(f"VertexTypes.of takes PyG's HeteroData, not {type(data).__name__}")
        names = tuple(str(name) for name in data.node_types)
        counts, widths = [], []
        for name in names:
            rows = _rows(data[name], name)
            counts.append(int(data[name].num_nodes))
            widths.append(0 if rows is None else rows.shape[1])
        return cls(names, tuple(counts), tuple(widths))

    @property
    def width(self) -> int:
        """Columns of the graph's features."""
        return sum(self.widths) + len(self.names)

    def vertices(self, name: str) -> slice:
        """Rows of the vertices of a type: `run.predict(data)[types.vertices("paper")]`."""
        return _span(self.counts, self._number(name))

    def columns(self, name: str) -> slice:
        """Columns of a type's own features."""
        return _span(self.widths, self._number(name))

    def column_of_ones(self, name: str) -> int:
        """The column that is 1 for the vertices of a type."""
        return sum(self.widths) + self._number(name)

    def _number(self, name: str) -> int:
        if name not in self.names:
            raise BadInput(f"no vertices of type {name!r}: there are {', '.join(self.names)}")
        return self.names.index(name)


def is_of_several_types(data: Any) -> bool:
    """Whether an object has the form of PyG's `HeteroData`."""
    return hasattr(data, "node_types") and hasattr(data, "edge_types")


def from_several_types(data: Any) -> Graph:
    """One graph: vertices type after type, `edge_type` the place of an edge's type in `data.edge_types`."""
    types = VertexTypes.of(data)
    if not data.edge_types:
        raise BadInput("the HeteroData has no edges: give edge_index for at least one type of edges")
    src: list[NDArray[np.int64]] = []
    dst: list[NDArray[np.int64]] = []
    kinds = []
    for number, kind in enumerate(data.edge_types):
        ends = check.array(data[kind].edge_index, f"edge_index of {kind}")
        if ends.ndim != 2 or len(ends) != 2:
            raise BadInput(f"edge_index of {_told(kind)} has shape {ends.shape}: give [2, E]")
        for side, end, found in ((0, kind[0], src), (1, kind[2], dst)):
            span = types.vertices(end)
            ids = check.vertex_ids(ends[side], span.stop - span.start, f"edge_index[{side}] of {_told(kind)}")
            found.append(ids.astype(np.int64) + span.start)
        kinds.append(np.full(ends.shape[1], number, np.int32))
    graph = Graph.from_edges(
        np.concatenate(src),
        np.concatenate(dst),
        num_vertices=sum(types.counts),
        edge_type=np.concatenate(kinds),
        edge_weight=_of_all_edges(data, "edge_weight"),
        edge_attr=_of_all_edges(data, "edge_attr"),
        x=_features(data, types),
        **_labels(data, types),
    )
    return graph.replace(type_names=tuple(_told(kind) for kind in data.edge_types))


def _told(kind: tuple[str, str, str]) -> str:
    return " ".join(kind)


def _span(sizes: tuple[int, ...], number: int) -> slice:
    first = sum(sizes[:number])
    return slice(first, first + sizes[number])


def _rows(part: Any, name: str) -> NDArray[Any] | None:
    """Features of a type; None: it has none."""
    x = part.get("x")
    if x is None:
        return None
    rows = check.features(x, int(part.num_nodes))
    if rows is None or rows.dtype != np.float32:
        raise BadInput(f"features of type {name!r} are no float32: convert them with .float()")
    return rows


def _features(data: Any, types: VertexTypes) -> NDArray[np.float32]:
    x = np.zeros((sum(types.counts), types.width), np.float32)
    for name in types.names:
        rows, where = _rows(data[name], name), types.vertices(name)
        if rows is not None:
            x[where, types.columns(name)] = rows
        x[where, types.column_of_ones(name)] = 1
    return x


def _of_all_edges(data: Any, name: str) -> NDArray[Any] | None:
    """What every type of edges has under a name, one after another; None: none has it."""
    parts = {_told(kind): data[kind].get(name) for kind in data.edge_types}
    lacking = [kind for kind, part in parts.items() if part is None]
    if len(lacking) == len(parts):
        return None
    found = [check.array(part, name) for part in parts.values() if part is not None]
    if lacking or len({part.shape[1:] for part in found}) > 1:
        raise BadInput(
            f"{name} of some types of edges alone, or of several widths: give it to all types in one width, or delete it"
        )
    return np.concatenate(found)


def _labels(data: Any, types: VertexTypes) -> dict[str, Any]:
    """`y` and the split of the one type that has labels."""
    having = [name for name in types.names if data[name].get("y") is not None]
    if len(having) > 1:
        having = [name for name in having if data[name].get("train_mask") is not None] or having
    if len(having) > 1:
        raise BadInput(
            f"types {' and '.join(having)} have labels: delete y or train_mask of all but the one to learn"
        )
    if not having:
        return {}
    name, part = having[0], data[having[0]]
    where, y = types.vertices(name), check.array(part.y, "y")
    if len(y) != where.stop - where.start:
        raise BadInput(f"y of type {name!r} has {len(y)} rows, and there are {where.stop - where.start}")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    several = y.ndim == 2 and bool(np.isin(y, (0, 1)).all())
    unknown: Any = 0 if several else np.nan if y.dtype.kind == "f" else -1
    found = np.full((sum(types.counts), *y.shape[1:]), unknown, np.int64 if y.dtype.kind != "f" else y.dtype)
    found[where] = y
    split = {}
    for each in ("train", "val", "test"):
        mask = part.get(f"{each}_mask")
        if mask is not None:
            split[each] = np.flatnonzero(check.array(mask, f"{each}_mask")) + where.start
    return {"y": found, **split}
