"""Elementary functions of single numbers that LLVM turns into vectors where a loop is over them.

In float32 exp, tanh and the sigmoid are right to a few units in the last place; in float64 they are the library's.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload, register_jitable

_LOWEST, _HIGHEST = -87.0, 88.0  # exp of less is 0 and of more infinite, in float32
_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
_SMALL = 0.625  # tanh of less is a polynomial: the other form loses digits there


@intrinsic
def _power_of_two(typing_context, n):  # type: ignore[no-untyped-def]
    """2 to a whole number that is held as a float32, -126 to 127."""
    signature = types.float32(types.float32)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        bits = ir.IntType(32)
        exponent = builder.add(builder.fptosi(args[0], bits), bits(127))
        return builder.bitcast(builder.shl(exponent, bits(23)), ir.FloatType())

    return signature, generate


@register_jitable  # type: ignore[untyped-decorator]
def _exp32(x: Any) -> Any:
    f = np.float32
    # Not a number stays one: comparisons with it are false.
    inside = f(_LOWEST) if x < f(_LOWEST) else f(_HIGHEST) if x > f(_HIGHEST) else x
    n = np.floor(inside * f(_LOG2_E) + f(0.5))
    n = n if n == n else f(0)
    r = inside - n * f(_LN2_HIGH) - n * f(_LN2_LOW)
    p = f(_EXP[0])
    p = p * r + f(_EXP[1])
    p = p * r + f(_EXP[2])
    p = p * r + f(_EXP[3])
    p = p * r + f(_EXP[4])
    p = p * r + f(_EXP[5])
    whole = (p * r * r + r + f(1)) * _power_of_two(n)
    return f(0) if x < f(_LOWEST) else f(np.inf) if x > f(_HIGHEST) else whole


@register_jitable  # type: ignore[untyped-decorator]
def _sigmoid32(x: Any) -> Any:
    return np.float32(1) / (np.float32(1) + _exp32(-x))


@register_jitable  # type: ignore[untyped-decorator]
def _tanh32(x: Any) -> Any:
    f = np.float32
    square = x * x
    p = f(_TANH[0])
    p = p * square + f(_TANH[1])
    p = p * square + f(_TANH[2])
    p = p * square + f(_TANH[3])
    p = p * square + f(_TANH[4])
    near = x + x * square * p
    far = f(1) - f(2) / (_exp32(f(2) * x) + f(1))
    return near if abs(x) < f(_SMALL) else far


def exp_of(x: Any) -> Any:
    """exp(x); in kernels as this file says, and so below."""
    return math.exp(x)


def sigmoid_of(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + math.exp(-x))


def tanh_of(x: Any) -> Any:
    return math.tanh(x)


def _in_kernels(double: Any, single: Any) -> None:
    """Let kernels take `single` for float32, and `double` itself for others."""

    @overload(double, inline="always")  # type: ignore[untyped-decorator]
    def chosen(x: Any) -> Any:
        return single if x == types.float32 else double


_in_kernels(exp_of, _exp32)
_in_kernels(sigmoid_of, _sigmoid32)
_in_kernels(tanh_of, _tanh32)
