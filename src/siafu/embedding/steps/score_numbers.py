"""Numbers of rows of scores, which losses turn into gradients: float32 or float64, or bfloat16, which is computed with in float32.

A loss goes over a row two or three times. In between, its numbers are in `room`: in the row itself or, for bfloat16, in a row of float32.

Numba does not see that this file has changed: whoever changes what these do changes the files that use them, too.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from siafu.embedding.steps.float_bits import bits_as_float, float_as_bits, widen

BRIEF = types.uint16


def room(row: Any, wide: Any) -> Any:
    """Where to keep what is computed of a row: the row itself, or for bfloat16 `wide`."""
    return row


def rounded(x: Any, old: Any) -> Any:
    """A number as a row has it, of the type of `old`; bfloat16 is rounded to the nearest, of two to the larger one."""
    return x


def highest(row: Any, least: Any) -> Any:
    """The highest of a row and `least`. With a number that is none, the result may be none."""
    return max(least, max(row))


def exp(x: Any, old: Any) -> Any:
    """e to the power of x, for x of at most 0, with the digits that a number of the type of `old` has at least."""
    return np.exp(x)


@overload(room)  # type: ignore[untyped-decorator]
def _room_compiled(row: Any, wide: Any) -> Any:
    def same(row: Any, wide: Any) -> Any:
        return row

    def apart(row: Any, wide: Any) -> Any:
        return wide

    return apart if row.dtype == BRIEF else same


@overload(rounded)  # type: ignore[untyped-decorator]
def _rounded_compiled(x: Any, old: Any) -> Any:
    half, sixteen = np.uint32(0x8000), np.uint32(16)

    def same(x: Any, old: Any) -> Any:
        return x

    def brief(x: Any, old: Any) -> Any:
        return np.uint16(np.uint32(np.uint32(float_as_bits(x)) + half) >> sixteen)

    return brief if old == BRIEF else same


@overload(highest)  # type: ignore[untyped-decorator]
def _highest_compiled(row: Any, least: Any) -> Any:
    # As integers, floats are in order once the bits of those below 0 are turned: LLVM makes vectors of a maximum of integers,
    # which it may not of one of floats, because of those that are no numbers.
    sign, rest = np.int32(31), np.int32(0x7FFFFFFF)
    brief_sign, brief_rest = np.int16(15), np.int16(0x7FFF)

    def of_float32(row: Any, least: Any) -> Any:
        bits = float_as_bits(least)
        top = bits ^ ((bits >> sign) & rest)
        for j in range(len(row)):
            bits = float_as_bits(row[j])
            top = max(top, bits ^ ((bits >> sign) & rest))
        return bits_as_float(top ^ ((top >> sign) & rest))

    def of_bfloat16(row: Any, least: Any) -> Any:
        top = np.int16(-0x8000)
        for j in range(len(row)):
            bits = np.int16(row[j])
            top = max(top, np.int16(bits ^ np.int16((bits >> brief_sign) & brief_rest)))
        top = np.int16(top ^ np.int16((top >> brief_sign) & brief_rest))
        return max(least, widen(np.uint16(top)))

    def of_float64(row: Any, least: Any) -> Any:
        top = least
        for j in range(len(row)):
            top = max(top, row[j])
        return top

    return {types.float32: of_float32, BRIEF: of_bfloat16}.get(row.dtype, of_float64)


@overload(exp)  # type: ignore[untyped-decorator]
def _exp_compiled(x: Any, old: Any) -> Any:
    if x != types.float32:

        def exact(x: Any, old: Any) -> Any:
            return np.exp(x)

        return exact
    one, half, log2e, shift = np.float32(1), np.float32(0.5), np.float32(1.44269504088896341), np.int32(23)
    if old == BRIEF:
        # 2 to the power of the whole part, times a polynomial of the rest (through Chebyshev's points). Error: 4 · 10⁻⁶.
        least = np.float32(-125)
        d0, d1, d2 = np.float32(1.0), np.float32(0.6931210452), np.float32(0.2402234904)
        d3, d4 = np.float32(0.0559219758), np.float32(0.0096663685)

        def brief(x: Any, old: Any) -> Any:
            t = x * log2e
            t = least if t < least else t
            n = np.floor(t + half)
            t = t - n
            y = (((d4 * t + d3) * t + d2) * t + d1) * t + d0
            return bits_as_float(float_as_bits(y) + (np.int32(n) << shift))

        return brief
    # Cephes' expf: LLVM makes vectors of it, which it cannot of a call to the C library. Error: below 2 units in the last place.
    lowest, high, low = np.float32(-87), np.float32(0.693359375), np.float32(-2.12194440e-4)
    c0, c1, c2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
    c3, c4, c5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
    bias = np.int32(127)

    def single(x: Any, old: Any) -> Any:
        x = lowest if x < lowest else x
        n = np.floor(x * log2e + half)
        x = x - n * high - n * low
        y = ((((c0 * x + c1) * x + c2) * x + c3) * x + c4) * x + c5
        return (y * x * x + x + one) * bits_as_float((np.int32(n) + bias) << shift)

    return single
