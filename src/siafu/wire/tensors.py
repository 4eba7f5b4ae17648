"""Tensors on the wire: raw little-endian numbers in row-major order, described in the message's header."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.wire.refusal import Refusal

Array = NDArray[Any]
Tensors = Mapping[str, Array]
Buffer = bytes | memoryview

MOST_TENSORS = 1024
LONGEST_NAME = 256
_MOST_DIMENSIONS = 8
_DTYPES = {name: np.dtype(name) for name in ("float32", "float64", "int64", "uint8", "bool")}

assert sys.byteorder == "little", "Siafu's wire is little-endian, as are all machines that it runs on"


def pack(tensors: Tensors) -> tuple[list[Any], list[Buffer]]:
    """Descriptions of `tensors`, and their memory; only tensors that are not contiguous are copied."""
    described, buffers = [], []
    for name, array in tensors.items():
        if array.dtype.name not in _DTYPES:
            raise TypeError(f"{name!r} is {array.dtype}: the wire carries {', '.join(_DTYPES)}")
        described.append([name, array.dtype.name, list(array.shape)])
        buffers.append(_memory(array))
    return described, buffers


def unpack(described: Any, buffers: Sequence[Buffer]) -> dict[str, Array]:
    """Views of `buffers` as they were described; nothing is copied before everything was found to fit."""
    if not isinstance(described, list) or len(described) != len(buffers):
        raise Refusal("frames", f"a header that does not describe the {len(buffers)} frames after it")
    tensors: dict[str, Array] = {}
    for form, buffer in zip(described, buffers, strict=True):
        if not isinstance(form, list) or len(form) != 3:
            raise Refusal("tensor", "a tensor that is not described by name, type and shape")
        name, kind, shape = form
        if not is_name(name) or name in tensors:
            raise Refusal("tensor", "a tensor without a name of its own")
        if not isinstance(kind, str) or kind not in _DTYPES:
            raise Refusal("tensor", "a tensor of a type that the wire does not carry")
        tensors[name] = _view(name, _DTYPES[kind], _checked_shape(name, shape), buffer)
    return tensors


def is_name(thing: Any) -> bool:
    """Whether it is a valid name: short, and without characters that could spoil a log."""
    return isinstance(thing, str) and 0 < len(thing) <= LONGEST_NAME and thing.isprintable()


def _memory(array: Array) -> Buffer:
    if array.size == 0:
        return b""
    whole = array if array.flags.c_contiguous else array.copy(order="C")
    return whole.data.cast("B")


def _checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
        raise Refusal("tensor", f"{name!r} without a shape")
    if not all(type(size) is int and 0 <= size < 2**48 for size in shape):
        raise Refusal("tensor", f"{name!r} with a size that cannot be")
    return tuple(shape)


def _view(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], buffer: Buffer) -> Array:
    declared = math.prod(shape) * dtype.itemsize
    if declared != len(buffer):
        raise Refusal("tensor", f"{name!r} declared with {declared} bytes, sent with {len(buffer)}")
    try:
        array: Array = np.frombuffer(buffer, np.uint8 if dtype == np.bool_ else dtype).reshape(shape)
    except ValueError as error:  # nothing, in a shape that NumPy cannot count
        raise Refusal("tensor", f"{name!r} with sizes that cannot be") from error
    if dtype == np.bool_:
        if array.size and array.max() > 1:
            raise Refusal("tensor", f"{name!r} with truths that are neither 0 nor 1")
        array = array.view(np.bool_)
    # ZeroMQ hands small frames out of the middle of its own buffer.
    return array if array.flags.aligned else array.copy()
