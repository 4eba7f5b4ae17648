"""bfloat16 as NumPy can hold it: the upper half of a float32, in a uint16."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to the nearest bfloat16, ties to even, as PyTorch does. Infinities and NaNs stay what they are."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    nan = np.isnan(values)
    if nan.any():
        rounded[nan] = 0x7FC0
    return rounded.astype(np.uint16)


def widened(rows: NDArray[Any]) -> NDArray[Any]:
    """Stored numbers as float32: bfloat16 bits are widened, others stay as they are."""
    if rows.dtype != np.uint16:
        return rows
    return (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)
