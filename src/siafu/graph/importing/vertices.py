"""Writing features, labels and split to a store, checked, a block at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph import check
from siafu.graph.bf16 import to_bf16
from siafu.graph.classes import ClassCount
from siafu.graph.importing.readers.blocks import SPLIT_CODES, Rows, VertexData
from siafu.graph.importing.vertex_fault import VertexFault
from siafu.graph.progress import ProgressCallback
from siafu.graph.random_split import RandomSplit
from siafu.graph.stores.store import ArrayWriter, StoreWriter

_BLOCK_BYTES = 8 << 20
_UNSPLIT = 0


def check_counts(data: VertexData, num_vertices: int) -> None:
    """Refuse rows of the wrong number before any work is done, where their number is known."""
    for rows in (data.features, data.labels, data.split_codes):
        if rows is not None and rows.count is not None:
            _check_count(rows, rows.count, num_vertices)


class WrittenVertices(NamedTuple):
    """Counts of the vertices' data that was written.

    classes: how many there are
    split:   how many vertices train, val and test have; empty: there is no split
    """

    classes: int
    split: dict[str, int]


def write_vertices(
    store: StoreWriter,
    data: VertexData,
    num_vertices: int,
    *,
    bf16: bool,
    progress: ProgressCallback,
    drawn: tuple[RandomSplit, int] | None = None,
) -> WrittenVertices:
    """Append `x`, `y`, `train`, `val` and `test` to the store, as far as given.

    drawn: a split to draw, and its seed; None: the split is the input's
    """
    if data.features is not None:
        _write_features(store, data.features, num_vertices, bf16=bf16, progress=progress)
    owner = _owners(data, num_vertices) if drawn is None else None
    classes = 0
    known = None if drawn is None else np.full(num_vertices, -1, np.int32)
    if data.labels is not None:
        counted = ClassCount(data.num_classes, num_vertices)
        classes = _write_labels(store, data.labels, counted, num_vertices, owner, known)
    if drawn is not None and known is not None:
        split, seed = drawn
        owner = split.draw(known, seed)
    if owner is None:
        return WrittenVertices(classes, {})
    _write_split(store, owner)
    counts = np.bincount(owner, minlength=len(SPLIT_CODES)).tolist()
    return WrittenVertices(classes, dict(zip(SPLIT_CODES[1:], counts[1:], strict=True)))


@contextmanager
def _naming(rows: Rows) -> Iterator[None]:
    """Name the rows in errors about them."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{rows.what}: {error}") from error


def _check_count(rows: Rows, count: int, num_vertices: int) -> None:
    if count != num_vertices:
        raise BadInput(
            f"{rows.what}: there are {count} rows; give one for each of the {num_vertices} vertices"
        )


def _counted(rows: Rows, num_vertices: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Blocks of rows with the vertex of each block's first; as many in all as there are vertices."""
    first = 0
    for block in rows.blocks(_BLOCK_BYTES):
        if first + len(block) <= num_vertices:
            yield first, block
        first += len(block)
    _check_count(rows, first, num_vertices)


def _write_features(
    store: StoreWriter, rows: Rows, num_vertices: int, *, bf16: bool, progress: ProgressCallback
) -> None:
    if len(rows.shape) != 1:
        raise BadInput(f"{rows.what}: each vertex has values of shape {rows.shape}; give a row of numbers")
    x = store.array("x", np.uint16 if bf16 else np.float32, rows.shape)
    for first, block in _counted(rows, num_vertices):
        if block.dtype.kind not in "biuf":
            raise BadInput(f"{rows.what} hold {block.dtype}: give numbers")
        values = check.float32(block)
        with _naming(rows):
            check.finite_rows(values, first)
        x.append(to_bf16(values) if bf16 else values)
        progress("writing vertices", first + len(block), num_vertices)


def _owners(data: VertexData, num_vertices: int) -> NDArray[np.uint8] | None:
    """For each vertex, the part of the split that it is in, a position in `SPLIT_CODES`; None without a split."""
    if not data.split_ids and data.split_codes is None:
        return None
    owner = np.full(num_vertices, _UNSPLIT, np.uint8)
    if data.split_codes is not None:
        for first, block in _counted(data.split_codes, num_vertices):
            owner[first : first + len(block)] = block
    for code, part in enumerate(SPLIT_CODES[1:], start=1):
        for ids in data.split_ids[part]() if part in data.split_ids else ():
            _take(owner, code, check.vertex_ids(ids, num_vertices, part))
        if (part == "train" or part in data.split_ids) and not (owner == code).any():
            raise BadInput(f"{part} is empty: name at least one vertex, or leave the split out")
    return owner


def _take(owner: NDArray[np.uint8], code: int, ids: NDArray[np.int64]) -> None:
    taken = owner[ids]
    if taken.any():
        vertex = int(ids[np.argmax(taken != _UNSPLIT)])
        if owner[vertex] == code:
            raise BadInput(f"{SPLIT_CODES[code]} names vertex {vertex} twice: list each once")
        raise BadInput(
            f"vertex {vertex} is in both {SPLIT_CODES[owner[vertex]]} and {SPLIT_CODES[code]}: a vertex may be in one split only"
        )
    owner[ids] = code
    if len(np.unique(ids)) != len(ids):
        raise BadInput(f"{SPLIT_CODES[code]} names a vertex twice: list each once")


def _write_labels(
    store: StoreWriter,
    rows: Rows,
    classes: ClassCount,
    num_vertices: int,
    owner: NDArray[np.uint8] | None,
    known: NDArray[np.int32] | None,
) -> int:
    """Write `y`; how many classes there are. known: takes each vertex's class, 0 where it may have several."""
    y: ArrayWriter | None = None
    columns = 0
    for first, block in _counted(rows, num_vertices):
        with _naming(rows):
            labels = check.label_values(block, len(block))
            if labels.ndim == 1:
                classes.add(labels)
            else:
                columns = labels.shape[1]
        if y is None:
            y = store.array("y", labels.dtype, labels.shape[1:])
        if labels.ndim == 1 and owner is not None:
            lost = (labels < 0) & (owner[first : first + len(labels)] != _UNSPLIT)
            if lost.any():
                vertex = first + int(np.argmax(lost))
                raise VertexFault(
                    vertex,
                    f"vertex {{vertex}} is in {SPLIT_CODES[owner[vertex]]} but has no label: take it out or label it",
                )
        if known is not None:
            known[first : first + len(labels)] = labels if labels.ndim == 1 else 0
        y.append(labels)
    if y is None:
        store.array("y", np.int64)
    with _naming(rows):
        return columns or classes.total()


def _write_split(store: StoreWriter, owner: NDArray[np.uint8]) -> None:
    for code, part in enumerate(SPLIT_CODES[1:], start=1):
        if not (owner == code).any():
            continue
        ids = store.array(part, np.int64)
        for start in range(0, len(owner), _BLOCK_BYTES):
            ids.append(start + np.flatnonzero(owner[start : start + _BLOCK_BYTES] == code))
