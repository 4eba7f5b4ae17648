"""The inner loop of matrix products: an intrinsic whose sums stay in vector registers."""

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np import arrayobj

from siafu.kernels.llvm.emit import I64, fma, splat

_FEATURES = (numba.config.CPU_FEATURES or llvm.get_host_cpu_features().flatten()).split(",")
_AVX512 = "+avx512f" in _FEATURES

PRODUCTS_ARE_FAST = _AVX512 or {"+avx2", "+fma"} <= set(_FEATURES)
"""Whether these loops were measured beside a library's on such processors."""
VECTOR = 16 if _AVX512 else 8
"""Floats of a vector: one register of x86 processors, two of ARM's."""
HEIGHTS = (12, 4, 1) if _AVX512 else (6, 2, 1)
"""Rows that a tile can have: of the highest, sums and what is multiplied just fit the registers."""


@intrinsic
def product_tile(  # type: ignore[no-untyped-def]
    typing_context,
    out,
    to,
    out_step,
    left,
    left_at,
    left_step,
    left_next,
    right,
    right_at,
    right_next,
    count,
    height,
    vectors,
    fresh,
):
    """out[to + i · out_step + c] = Σ left[left_at + i · left_step + k · left_next] · right[right_at + k · right_next + c], k below `count`.

    For i below `height`, one of `HEIGHTS`, and the columns c of `vectors` vectors, 1 or 2. All are lists of float32. The sum
    begins with k = 0.

    fresh: not 0: put the sum in the place of what is there; 0: add it to that
    """
    number = types.int64
    signature = types.void(out, number, number, left, *[number] * 3, right, *[number] * 6)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lists = [_address(context, builder, signature.args[k], args[k]) for k in (0, 3, 7)]
        numbers = [each for k, each in enumerate(args) if k not in (0, 3, 7)]
        *numbers, height, vectors, fresh = numbers
        sizes = [(rows, wide) for wide in (2, 1) for rows in HEIGHTS]
        done = builder.function.append_basic_block("tile.done")
        lowest = builder.function.append_basic_block("tile.lowest")
        jump = builder.switch(builder.add(builder.mul(vectors, I64(64)), height), lowest)
        for rows, wide in sizes:
            block = lowest
            if (rows, wide) != sizes[-1]:
                block = builder.function.append_basic_block(f"tile.{rows}.{wide}")
                jump.add_case(I64(64 * wide + rows), block)
            builder.position_at_end(block)
            _tile(builder, lists, numbers, builder.icmp_signed("!=", fresh, I64(0)), rows, wide)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate


def _tile(builder: Any, lists: list[Any], numbers: list[Any], fresh: Any, height: int, vectors: int) -> None:
    """Code for a tile of so many rows and vectors."""
    vector = ir.VectorType(ir.FloatType(), VECTOR)
    out, left, right = lists
    to, out_step, left_at, left_step, left_next, right_at, right_next, count = numbers
    rows = [builder.mul(left_step, I64(i)) for i in range(height)]

    before = builder.block
    loop = builder.function.append_basic_block("products")
    after = builder.function.append_basic_block("products.done")
    builder.branch(loop)
    builder.position_at_end(loop)
    k, from_left, from_right = (builder.phi(I64) for _ in range(3))
    sums = [builder.phi(vector) for _ in range(vectors * height)]
    parts = [_load(builder, right(builder.add(from_right, I64(v * VECTOR))), vector) for v in range(vectors)]
    found = []
    for i, row in enumerate(rows):
        factor = splat(builder, builder.load(left(builder.add(from_left, row))), vector)
        found += [fma(builder, factor, part, sums[vectors * i + v]) for v, part in enumerate(parts)]
    following = builder.add(k, I64(1))
    for phi, first, later in (
        (k, I64(0), following),
        (from_left, left_at, builder.add(from_left, left_next)),
        (from_right, right_at, builder.add(from_right, right_next)),
        *((phi, ir.Constant(vector, [0.0] * VECTOR), value) for phi, value in zip(sums, found, strict=True)),
    ):
        phi.add_incoming(first, before)
        phi.add_incoming(later, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)

    builder.position_at_end(after)
    for i in range(height):
        start = builder.add(to, builder.mul(I64(i), out_step))
        for v in range(vectors):
            address, value = out(builder.add(start, I64(v * VECTOR))), found[vectors * i + v]
            total = builder.select(fresh, value, builder.fadd(_load(builder, address, vector), value))
            builder.store(total, builder.bitcast(address, vector.as_pointer())).align = 4


def _address(context: Any, builder: Any, kind: Any, value: Any) -> Callable[[Any], Any]:
    """Where the number at a position of a list is."""
    data = arrayobj.make_array(kind)(context, builder, value).data
    return lambda position: builder.gep(data, [position])


def _load(builder: Any, address: Any, vector: Any) -> Any:
    value = builder.load(builder.bitcast(address, vector.as_pointer()))
    value.align = 4
    return value
