"""Bits of float32: as integers inside of kernels, and as bfloat16, their upper half, in tables of uint16.

Numba does not see that this file has changed: whoever changes what these do changes the files that use them, too.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

BRIEF = np.dtype(np.uint16)
"""Type of the tables that hold bfloat16."""


@intrinsic  # type: ignore[untyped-decorator]
def bits_as_float(typing: Any, bits: Any) -> Any:
    """An int32's bits as a float32."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.int32), emit


@intrinsic  # type: ignore[untyped-decorator]
def float_as_bits(typing: Any, number: Any) -> Any:
    """A float32's bits as an int32."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.int32))

    return types.int32(types.float32), emit


def widen(x: Any) -> Any:
    """A number of a table as it is computed with."""
    return x


@overload(widen)  # type: ignore[untyped-decorator]
def _widen_compiled(x: Any) -> Any:
    def same(x: Any) -> Any:
        return x

    def wide(x: Any) -> Any:
        return bits_as_float(np.int32(np.uint32(x) << np.uint32(16)))

    return wide if x == types.uint16 else same


def nearest_brief(x: Any) -> Any:
    """A float32 as bfloat16, rounded to the nearest, of two to the even one."""
    raise NotImplementedError("compiled only")


@overload(nearest_brief)  # type: ignore[untyped-decorator]
def _nearest_brief_compiled(x: Any) -> Any:
    half, one, sixteen = np.uint32(0x7FFF), np.uint32(1), np.uint32(16)

    def nearest(x: Any) -> Any:
        bits = np.uint32(float_as_bits(x))
        return np.uint16(np.uint32(bits + half + ((bits >> sixteen) & one)) >> sixteen)

    return nearest


def table_type(precision: str) -> np.dtype[Any]:
    """The type of a table of that precision."""
    return BRIEF if precision == "bf16" else np.dtype(np.float32)


def widened(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows of a table as float32; those that are no bfloat16 as they are."""
    if rows.dtype != BRIEF:
        return rows
    return (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)


def as_kind(rows: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows as a table of that type has them; bfloat16 is rounded to the nearest, of two to the even one."""
    if dtype != BRIEF or rows.dtype == BRIEF:
        return rows.astype(dtype, copy=False)
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(BRIEF)


def computed_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which rows of such a table are computed with."""
    return np.dtype(np.float32) if dtype == BRIEF else dtype
