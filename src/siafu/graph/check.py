"""Checks of a graph's parts where they come in; the errors say what to mend."""

from collections.abc import Mapping
from operator import index
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.hardware.memory import machine_bytes
from siafu.base.words import counted
from siafu.graph.classes import count_classes
from siafu.graph.csr import IntArray, id_dtype
from siafu.graph.quantities import quantities_of, unknown_rows

MAX_VERTICES = 2**40  # more is a mistake, such as a hash taken for an id, and not a graph
MAX_CLASSES = 2**31

_NUMBER_VERTICES = (
    "number the vertices from 0, with "
    "names, ids = numpy.unique([src, dst], return_inverse=True); ids.reshape(2, -1) are src and dst"
)
_INSTEAD_OF_WORDS = {
    "src": _NUMBER_VERTICES,
    "dst": _NUMBER_VERTICES,
    "x": "give columns of numbers; pandas.get_dummies(column) makes some of words",
}
_ROWS_AT_ONCE = 1 << 16
_FEW_VERTICES, _VERTICES_PER_BYTE = 1 << 20, 64
_FEW_COLUMNS, _COLUMNS_PER_ENTRY = 1 << 16, 64
_VERTICES_PER_END = 64
_EXACT_FLOATS = 2**24  # whole numbers from here on are not all float32's


def array(values: Any, what: str, kinds: str = "biuf") -> NDArray[Any]:
    """A NumPy array of NumPy's, PyTorch's or plain Python's numbers, without a copy where possible.

    kinds: of NumPy's types, those that will do
    """
    try:
        if hasattr(values, "detach"):
            tensor = values.detach().cpu()
            values = (tensor.float() if _is_bfloat16(tensor) else tensor).numpy()
        out = np.asarray(values)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise BadInput(f"{what} is not an array of numbers: {' '.join(str(error).split())}") from error
    if np.ma.is_masked(values):
        raise BadInput(f"{what} has masked values: fill or drop them")
    words = out.dtype.kind in "US" or (
        out.dtype.kind == "O" and any(isinstance(each, str) for each in out.flat)
    )
    if words and what in _INSTEAD_OF_WORDS:
        raise BadInput(f"{what} holds words: {_INSTEAD_OF_WORDS[what]}")
    if out.dtype.kind not in kinds:
        raise BadInput(f"{what} holds {out.dtype}: give numbers")
    return out


def _is_bfloat16(values: Any) -> bool:
    return str(getattr(values, "dtype", "")) == "torch.bfloat16"


def float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """The values as float32; one that is too large for it becomes infinite."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32)


def _whole(value: Any, what: str, most: int) -> int:
    try:
        number = index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number <= most:
        raise BadInput(f"{what} is {value!r}: give a whole number from 0 to {most:,}")
    return number


def num_vertices(given: Any, sources: NDArray[Any], targets: NDArray[Any]) -> int:
    """Count the vertices: as given, or one more than the highest id of an edge."""
    if given is not None:
        count = _whole(given, "num_vertices", MAX_VERTICES)
        if 8 * count > machine_bytes():
            raise BadInput(
                f"num_vertices is {count:,}: where each one's edges begin takes {8e-9 * count:,.0f} GB, more than this machine's memory; number those that there are from 0 up"
            )
        return count
    highest = -1
    most = max(_FEW_VERTICES, _VERTICES_PER_END * (sources.size + targets.size))
    for ids, what in ((sources, "src"), (targets, "dst")):
        if ids.size == 0:
            continue
        if ids.dtype.kind not in "iu":
            refuse_ids(ids, what)
        if int(ids.max()) >= most:
            raise BadInput(
                f"{what}[{int(ids.argmax())}] is {ids.max()}, far beyond the {ids.size} edges: ids are vertices' numbers from 0 up, so number them first, or give num_vertices"
            )
        highest = max(highest, int(ids.max()))
    return highest + 1


def refuse_ids(ids: NDArray[Any], what: str) -> NoReturn:
    """Refuse ids that are no whole numbers. pandas turns a column of whole numbers with gaps into floats."""
    missing = np.flatnonzero(np.isnan(ids)) if ids.dtype.kind == "f" and ids.ndim == 1 else np.empty(0)
    if len(missing):
        raise BadInput(f"{what}[{missing[0]}] is missing: drop that edge, and give whole numbers")
    raise BadInput(f"{what} has type {ids.dtype}: give a list of whole numbers")


def text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{what} is {value!r}: give a text")
    return value


def plausible_vertices(count: int, num_bytes: int, what: str, advice: str) -> None:
    """Refuse a count of vertices that is far too high for the size of the input: the input is damaged, or no graph.

    num_bytes: of the input that says so
    """
    if count > max(_FEW_VERTICES, _VERTICES_PER_BYTE * num_bytes):
        raise BadInput(
            f"{what} is {count:,}, far more vertices than {num_bytes:,} bytes of input tell of: if it is wrong, {advice}"
        )


def plausible_width(width: int, entries: int, what: str) -> None:
    """Refuse a width of sparse rows that is far too high for the number of entries."""
    if width > max(_FEW_COLUMNS, _COLUMNS_PER_ENTRY * entries):
        raise BadInput(f"{what} is {width:,}, far more columns than the {entries:,} entries use: mend it")


def empty_rows(rows: int, width: int) -> NDArray[np.float32]:
    """Rows of zeros; refused if they exceed this machine's memory."""
    needed = 4 * rows * width
    if needed > machine_bytes():
        raise BadInput(
            f"{rows:,} rows of {width:,} numbers need {needed / 1e9:,.1f} GB, more than this machine's memory: "
            "turn them into a store with 'siafu import'"
        )
    return np.zeros((rows, width), np.float32)


def indptr(values: Any) -> NDArray[np.int64]:
    """Positions from 0 up that never fall."""
    given = array(values, "indptr")
    if given.ndim != 1 or len(given) == 0 or given[0] != 0:
        raise BadInput("indptr must be a list of V + 1 positions that starts at 0")
    if given.dtype.kind not in "iu":
        raise BadInput(f"indptr has type {given.dtype}: give a list of whole numbers")
    pointers = np.ascontiguousarray(given, dtype=np.int64)
    if np.any(pointers[1:] < pointers[:-1]):
        vertex = int(np.argmax(pointers[1:] < pointers[:-1]))
        raise BadInput(f"indptr falls after vertex {vertex}: positions must never decrease")
    return pointers


def vertex_ids(values: NDArray[Any], num_vertices: int, what: str) -> IntArray:
    """Ids of the type that fits, each from 0 to V - 1."""
    if values.ndim != 1 or values.dtype.kind not in "iu":
        if values.size == 0:
            return np.empty(0, id_dtype(num_vertices))
        if values.ndim == 1:
            refuse_ids(values, what)
        raise BadInput(f"{what} has shape {values.shape}, type {values.dtype}: give a list of whole numbers")
    if values.size and (int(values.min()) < 0 or int(values.max()) >= num_vertices):
        position = int(np.argmax((values < 0) | (values >= num_vertices)))
        raise BadInput(
            f"{what}[{position}] is {values[position]}: with {num_vertices} vertices, ids go from 0 to {num_vertices - 1}"
        )
    return np.ascontiguousarray(values, dtype=id_dtype(num_vertices))


def edge_weight(values: Any, num_edges: int) -> NDArray[np.float32] | None:
    if values is None:
        return None
    weights = float32(array(values, "edge_weight"))
    if weights.shape != (num_edges,):
        raise BadInput(
            f"edge_weight has shape {weights.shape}: give one number for each of {num_edges} edges"
        )
    finite = np.isfinite(weights)
    if not finite.all():
        raise BadInput(f"edge_weight[{finite.argmin()}] is not finite: mend or drop that edge")
    return weights


def features(values: Any, num_vertices: int) -> NDArray[Any] | None:
    """Rows of float32, or of a bfloat16 tensor's bits in uint16; every value finite."""
    if values is None:
        return None
    rows = stored_rows(values, "x")
    if rows.ndim != 2 or len(rows) != num_vertices:
        raise BadInput(
            f"x has shape {rows.shape}: give one row of features for each of the {num_vertices} vertices"
        )
    finite_rows(rows, 0)
    return rows


def feature_names(asked: Any, given: Any, rows: NDArray[Any] | None) -> tuple[str, ...]:
    """Names of the columns of features: those that were asked for, else those of a pandas.DataFrame."""
    if asked is None:
        own = list(getattr(given, "columns", ()))
        asked = own if all(isinstance(name, str) for name in own) else ()
    elif isinstance(asked, str) or not all(isinstance(name, str) for name in asked):
        raise BadInput(f"feature_names is {asked!r}: give a list with the name of each column of x")
    width = 0 if rows is None else rows.shape[1]
    if len(asked) not in (0, width):
        raise BadInput(f"feature_names has {len(asked)} names, and x has {counted(width, 'column')}")
    return tuple(asked)


def stored_rows(values: Any, what: str) -> NDArray[Any]:
    """Numbers as float32, those of a bfloat16 tensor as their bits in uint16."""
    if not _is_bfloat16(values):
        return float32(array(values, what))
    import torch

    bits: NDArray[Any] = values.detach().cpu().contiguous().view(torch.uint16).numpy()
    return bits


_FEATURE = "feature {column} of vertex {row} is NaN or infinite: replace it with a number"


def finite_rows(rows: NDArray[Any], first: int, words: str = _FEATURE) -> None:
    """Refuse NaN and infinity; `first` is the vertex of rows[0]."""
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        block = rows[start : start + _ROWS_AT_ONCE]
        finite = (block & 0x7F80) != 0x7F80 if block.dtype == np.uint16 else np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            vertex = first + start + row
            raise BadInput(words.format(column=column, row=vertex))


def labels(values: Any, num_vertices: int, num_classes: int | None) -> tuple[NDArray[Any] | None, int]:
    """Labels as `Graph.y` holds them, and how many classes there are."""
    if values is None:
        return None, 0
    if num_classes is not None:
        num_classes = _whole(num_classes, "num_classes", MAX_CLASSES)
    elif (quantities := quantities_of(array(values, "y"), num_vertices)) is not None:
        return quantities, 1 if quantities.ndim == 1 else int(quantities.shape[1])
    found = label_values(values, num_vertices)
    return found, count_classes(found, num_classes)


def label_values(values: Any, num_vertices: int) -> NDArray[Any]:
    """Labels as `Graph.y` holds them."""
    found = array(values, "y")
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim not in (1, 2) or len(found) != num_vertices:
        count = len(found) if found.ndim else 1
        raise BadInput(f"y has {count} labels: give one for each of the {num_vertices} vertices")
    if found.ndim == 2:
        if not np.isin(found, (0, 1)).all():
            raise BadInput("y has two dimensions: it must hold zeros and ones, a column for each label")
        return np.ascontiguousarray(found, dtype=np.uint8)
    if found.dtype.kind == "f":
        # OGB marks unlabelled vertices with NaN.
        found = np.where(np.isnan(found), -1, found)
        if np.any(found != np.floor(found)):
            raise BadInput(
                "y holds fractions: classes are whole numbers from 0 up, -1 where unknown; quantities are taken in Python, by "
                "Graph.from_edges(y=…) or from_pyg"
            )
        if found.dtype == np.float32 and found.max(initial=0) >= _EXACT_FLOATS:
            highest = int(found.max())
            raise BadInput(
                f"y has class {highest}, where float32 is no longer exact: number classes from 0 up"
            )
    if found.size and not (found.min() >= -1 and found.max() < MAX_CLASSES):
        wrong = found.min() if found.min() < -1 else found.max()
        raise BadInput(f"y has class {wrong}: classes go from 0 up, below {MAX_CLASSES:,}, -1 where unknown")
    return np.ascontiguousarray(found, dtype=np.int64)


def splits(num_vertices: int, y: NDArray[Any] | None, **parts: Any) -> dict[str, Any]:
    """Each part as ascending ids; parts are disjoint, and not empty where given."""
    found = {name: _part(name, ids, num_vertices) for name, ids in parts.items()}
    disjoint(found, num_vertices)
    for name, ids in found.items():
        missing = None if ids is None or y is None else unknown_rows(y[ids])
        if ids is not None and missing is not None and missing.any():
            vertex = int(ids[np.argmax(missing)])
            raise BadInput(f"vertex {vertex} is in {name} but has no label: take it out or label it")
    return found


def disjoint(parts: Mapping[str, IntArray | None], num_vertices: int) -> None:
    """Refuse a vertex that is in two parts of a split."""
    owner = np.zeros(num_vertices, np.int8)
    names = list(parts)
    for number, (name, ids) in enumerate(parts.items(), start=1):
        if ids is None:
            continue
        taken = owner[ids]
        if taken.any():
            vertex = int(ids[np.argmax(taken != 0)])
            raise BadInput(
                f"vertex {vertex} is in both {names[owner[vertex] - 1]} and {name}: a vertex may be in one split only"
            )
        owner[ids] = number


def _part(name: str, values: Any, num_vertices: int) -> NDArray[np.int64] | None:
    if values is None:
        return None
    given = array(values, name)
    if given.dtype == np.bool_:
        if given.shape != (num_vertices,):
            raise BadInput(
                f"{name} is a mask of shape {given.shape}: give one boolean for each of the {num_vertices} vertices"
            )
        ids = np.flatnonzero(given)
    else:
        ids = np.unique(vertex_ids(given, num_vertices, name))
        if len(ids) != given.size:
            raise BadInput(f"{name} names a vertex twice: list each once")
    if len(ids) == 0:
        raise BadInput(f"{name} is empty: name at least one vertex, or leave the split out")
    return ids.astype(np.int64)


def original_ids(values: Any, num_vertices: int) -> NDArray[Any] | None:
    """The vertices' names in the source: int64 or UTF-8 bytes, no two alike."""
    if values is None:
        return None
    names = array(values, "ids", kinds="biufSUO")
    if names.dtype.kind in "UO" and all(isinstance(each, str) for each in names.flat):
        names = np.char.encode(names.astype(np.str_), "utf-8")
    if names.shape != (num_vertices,) or (names.dtype.kind not in "iuS" and num_vertices):
        raise BadInput(
            f"ids has shape {names.shape} and type {names.dtype}: give one integer or name for each of the {num_vertices} vertices"
        )
    if names.dtype.kind != "S":
        if names.size and int(names.max()) > np.iinfo(np.int64).max:
            raise BadInput(f"ids[{names.argmax()}] is {names.max()}: integers go up to 2**63 - 1; give names")
        names = names.astype(np.int64, copy=False)
    ordered = np.sort(names)
    alike = ordered[1:] == ordered[:-1]
    if alike.any():
        name = ordered[int(alike.argmax())].item()
        raise BadInput(f"ids has {name!r} twice: give each vertex a name of its own")
    return names
