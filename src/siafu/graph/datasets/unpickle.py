"""Python 2 pickles of plain arrays, read without letting them run anything.

Python's unpickler in C allocates what a pickle announces, and NumPy's types take their state from the pickle
unchecked. So the unpickler in Python is used here, with our own classes for arrays.
"""

import io
import math
import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line

_MOST_BYTES = 1 << 30
_CODES = frozenset(f"{kind}{size}" for kind in "biuf" for size in (1, 2, 4, 8)) - {"f1"}


class PickledCsr:
    """The arrays of a pickled `scipy.sparse.csr_matrix`, read without SciPy."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    shape: tuple[int, int]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.indptr, self.indices, self.data = (state[name].values for name in ("indptr", "indices", "data"))
        self.shape = state["_shape"]

    def to_dense(self) -> NDArray[np.float32]:
        rows, width = self.shape
        counts = np.diff(self.indptr)
        if (
            len(counts) != rows
            or (counts < 0).any()
            or not 0 <= width <= max(1 << 16, 64 * len(self.indices))
        ):
            raise ValueError(f"a matrix of {rows} rows and {width} columns has {len(counts)} rows")
        out = np.zeros((rows, width), np.float32)
        if len(self.indices) and not 0 <= self.indices.min() <= self.indices.max() < width:
            raise ValueError(f"a matrix of {width} columns has an entry beyond them")
        out[np.repeat(np.arange(rows), counts), self.indices] = self.data
        return out


class _Dtype:
    """A NumPy type of plain numbers."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in _CODES:
            raise ValueError(f"an array of type {code!r}")
        self._code = code
        self._order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = {"<": "<", ">": ">", "|": "|", "=": "<"}[state[1]]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self._order + self._code)


class _Array:
    """A NumPy array of plain numbers; its bytes are in the pickle."""

    values: NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_column, data = state
        raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError(f"an array of shape {shape}")
        if math.prod(shape) * kind.dtype.itemsize != len(raw):
            raise ValueError(f"an array of {len(raw):,} bytes that should have the shape {shape}")
        self.values = np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if by_column else "C")


def _array(_kind: object, _shape: tuple[int, ...], _type: str) -> _Array:
    # The pickle goes on to set the array's shape, type and contents.
    return _Array()


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): PickledCsr,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}
_STATEFUL = (PickledCsr, _Array, _Dtype)


class _Unpickler(pickle._Unpickler):
    """Knows the six names that Planetoid's files use; a pickle that asks for any other is refused."""

    stack: list[Any]
    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(pickle._Unpickler.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise _Refused(f"{module}.{name}")
        return _ADMITTED[module, name]

    def build(self) -> None:
        """Give an array, a type or a matrix its contents; nothing else has any to be given."""
        state = self.stack.pop()
        if type(self.stack[-1]) not in _STATEFUL:
            raise ValueError("contents for what has none")
        self.stack[-1].__setstate__(state)

    dispatch[pickle.BUILD[0]] = build


class _Refused(Exception):
    pass


def unpickle(path: Path) -> Any:
    """Arrays, sparse matrices, dictionaries, lists and numbers out of a pickle; anything else is refused."""
    try:
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise ValueError(f"{size:,} bytes, where at most {_MOST_BYTES:,} are read")
        data = io.BytesIO(path.read_bytes())
        # fix_imports=False: names are compared as they stand in the file. Python 2's strings are bytes.
        found = _Unpickler(data, encoding="latin1", fix_imports=False).load()
        return found.values if isinstance(found, _Array) else found
    except _Refused as refused:
        raise BadInput(
            f"{path} asks for {one_line(refused)}, which no dataset needs: it may be an attack; delete the file"
        ) from None
    except FileNotFoundError as error:
        raise BadInput(f"{path} is missing: the dataset is not whole; fetch it again") from error
    except Exception as error:  # a pickle can fail in any way
        raise BadInput(
            f"{path} is not a pickle that siafu reads ({type(error).__name__}: {one_line(error)}): fetch it again"
        ) from error
