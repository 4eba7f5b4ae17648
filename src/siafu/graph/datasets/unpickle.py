"""Python 2 pickles of plain arrays, read without letting them run anything."""

import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput


class PickledCsr:
    """What a pickled `scipy.sparse.csr_matrix` holds; SciPy itself is not needed."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    shape: tuple[int, int]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.indptr, self.indices, self.data = state["indptr"], state["indices"], state["data"]
        self.shape = state["_shape"]

    def to_dense(self) -> NDArray[np.float32]:
        out = np.zeros(self.shape, np.float32)
        out[np.repeat(np.arange(self.shape[0]), np.diff(self.indptr)), self.indices] = self.data
        return out


def _empty_array(_kind: type, shape: tuple[int, ...], _type: str) -> NDArray[Any]:
    # The pickle goes on to set the array's shape, type and contents.
    return np.ndarray(shape, np.int8)


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("scipy.sparse.csr", "csr_matrix"): PickledCsr,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}


class _Unpickler(pickle.Unpickler):
    """Knows the six names that Planetoid's files use; a pickle that asks for any other is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise _Refused(f"{module}.{name}")
        return _ADMITTED[module, name]


class _Refused(Exception):
    pass


def unpickle(path: Path) -> Any:
    """Arrays, sparse matrices, dictionaries, lists and numbers out of a pickle; anything else is refused."""
    try:
        with path.open("rb") as file:
            # fix_imports=False: names are compared as they stand in the file. Python 2's strings are bytes.
            return _Unpickler(file, encoding="latin1", fix_imports=False).load()
    except _Refused as refused:
        raise BadInput(
            f"{path} asks for {refused}, which no dataset needs: it may be an attack; delete the file"
        ) from None
    except FileNotFoundError as error:
        raise BadInput(f"{path} is missing: the dataset is not whole; fetch it again") from error
    except Exception as error:  # a pickle can fail in any way
        raise BadInput(
            f"{path} is not a pickle that siafu reads ({type(error).__name__}: {error}): fetch it again"
        ) from error
