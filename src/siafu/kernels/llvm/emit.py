"""Parts of our intrinsics: LLVM code for tables of rows, loops over edges and tiles of columns."""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.np import arrayobj

LANES = 8  # of a vector that has a weight of its own: a head's columns are padded to this
WIDE_LANES = 16  # of a vector that has none: one register with AVX-512, two without
TILE_STEP = 16  # columns: tables and tiles come in multiples of it
MAX_TILE = 128  # columns: what fits sixteen 8-lane registers

AHEAD = 32  # edges between asking for a row and reading it
LINE = 64  # bytes that one prefetch brings

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_BYTES = I8.as_pointer()
NONE = I64(-1)  # no edge is left out

IRBuilder = Any
Value = Any


class TableCode:
    """An array inside a kernel: where its rows start and how to read a vector of one. A list is a table of one row."""

    def __init__(self, context: Any, builder: IRBuilder, kind: Any, value: Value, lanes: int = LANES) -> None:
        array = arrayobj.make_array(kind)(context, builder, value)
        self.stride = I64(0) if kind.ndim == 1 else cgutils.unpack_tuple(builder, array.strides, 2)[0]
        self.base = builder.bitcast(array.data, _BYTES)
        self.kind = kind.dtype
        self.item = kind.dtype.bitwidth // 8
        self.number = ir.DoubleType() if kind.dtype == types.float64 else ir.FloatType()
        self.lanes = lanes
        self.vector = ir.VectorType(self.number, lanes)

    def address(self, builder: IRBuilder, row: Value, column: Value) -> Value:
        offset = builder.add(builder.mul(row, self.stride), builder.mul(column, I64(self.item)))
        return builder.gep(self.base, [offset])

    def load(self, builder: IRBuilder, address: Value, vector: int) -> Value:
        at = builder.gep(address, [I64(vector * self.lanes * self.item)])
        if self.kind == types.uint16:
            bits = builder.load(builder.bitcast(at, ir.VectorType(I16, self.lanes).as_pointer()))
            bits.align = 2
            wide = ir.VectorType(I32, self.lanes)
            shifted = builder.shl(builder.zext(bits, wide), ir.Constant(wide, [16] * self.lanes))
            return builder.bitcast(shifted, self.vector)
        value = builder.load(builder.bitcast(at, self.vector.as_pointer()))
        value.align = self.item
        return value

    def load_apart(self, builder: IRBuilder, address: Value, vectors: range) -> list[Value]:
        """Vectors of bfloat16 as `apart` orders them: two come out of one load, by a shift and a mask, no shuffle."""
        words = ir.VectorType(I32, self.lanes)
        shift = ir.Constant(words, [16] * self.lanes)
        upper = ir.Constant(words, [0xFFFF0000] * self.lanes)
        found = []
        for v in vectors[: len(vectors) // 2 * 2 : 2]:
            at = builder.gep(address, [I64(v * self.lanes * self.item)])
            bits = builder.load(builder.bitcast(at, words.as_pointer()))
            bits.align = 2
            found.append(builder.bitcast(builder.shl(bits, shift), self.vector))
            found.append(builder.bitcast(builder.and_(bits, upper), self.vector))
        return found + [self.load(builder, address, v) for v in vectors[len(found) :]]

    def store(self, builder: IRBuilder, value: Value, address: Value, vector: int) -> None:
        at = builder.gep(address, [I64(vector * self.lanes * self.item)])
        builder.store(value, builder.bitcast(at, self.vector.as_pointer())).align = self.item


def list_entry(context: Any, builder: IRBuilder, kind: Any, value: Value) -> Callable[[Value], Value]:
    """Reads entries of a one-dimensional array of ids or numbers."""
    data = arrayobj.make_array(kind)(context, builder, value).data

    def entry(position: Value) -> Value:
        found = builder.load(builder.gep(data, [position]))
        if not isinstance(kind.dtype, types.Integer):
            return found
        return builder.sext(found, I64) if kind.dtype.signed else builder.zext(found, I64)

    return entry


def prefetch(builder: IRBuilder, address: Value, size: int, *, nearest: bool = False) -> None:
    """Ask for memory that is read soon.

    nearest: into the first-level cache. It has few places for lines that are on their way: where many rows are asked
             for, the second level brings them in faster, and the first takes them from there.
    """
    signature = ir.FunctionType(ir.VoidType(), [_BYTES, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
    for offset in range(0, size, LINE):
        builder.call(
            function, [builder.gep(address, [I64(offset)]), I32(0), I32(3 if nearest else 2), I32(1)]
        )


def edge_loop(
    builder: IRBuilder,
    span: tuple[Value, Value, Value, Value],
    carried: Sequence[Value],
    body: Callable[[Value, Sequence[Value]], Sequence[Value]],
) -> Sequence[Value]:
    """`body(edge, carried)` for each edge from lo to hi without those from skip_lo to skip_hi; what it carried last."""
    lo, skip_lo, skip_hi, hi = span
    start = builder.select(builder.icmp_signed("==", lo, skip_lo), skip_hi, lo)
    before = builder.block
    loop = builder.function.append_basic_block("edges")
    done = builder.function.append_basic_block("edges.done")
    builder.cbranch(builder.icmp_signed("<", start, hi), loop, done)

    builder.position_at_end(loop)
    edge = builder.phi(I64)
    state = [builder.phi(value.type) for value in carried]
    results = body(edge, state)
    after = builder.add(edge, I64(1))
    after = builder.select(builder.icmp_signed("==", after, skip_lo), skip_hi, after)
    edge.add_incoming(start, before)
    edge.add_incoming(after, builder.block)
    for phi, first, result in zip(state, carried, results, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(result, builder.block)
    end = builder.block
    builder.cbranch(builder.icmp_signed("<", after, hi), loop, done)

    builder.position_at_end(done)
    finals = []
    for first, result in zip(carried, results, strict=True):
        phi = builder.phi(first.type)
        phi.add_incoming(first, before)
        phi.add_incoming(result, end)
        finals.append(phi)
    return finals


def splat(builder: IRBuilder, value: Value, vector: Any) -> Value:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, I32(0))
    mask = ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


def fma(builder: IRBuilder, a: Value, b: Value, c: Value) -> Value:
    """a · b + c, in one instruction where the CPU has it."""
    return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))


def apart(builder: IRBuilder, vectors: list[Value]) -> list[Value]:
    """Of each two vectors, the even columns in one and the odd ones in the other; a last single one stays."""
    found = []
    for a, b in zip(vectors[::2], vectors[1::2], strict=False):
        lanes = a.type.count
        found += [_shuffle(builder, a, b, list(range(first, 2 * lanes, 2))) for first in (0, 1)]
    return found + vectors[len(found) :]


def together(builder: IRBuilder, vectors: list[Value]) -> list[Value]:
    """The inverse of `apart`."""
    found = []
    for even, odd in zip(vectors[::2], vectors[1::2], strict=False):
        lanes = even.type.count
        order = [lane // 2 + (lanes if lane % 2 else 0) for lane in range(2 * lanes)]
        found.append(_shuffle(builder, even, odd, order[:lanes]))
        found.append(_shuffle(builder, even, odd, order[lanes:]))
    return found + vectors[len(found) :]


def _shuffle(builder: IRBuilder, a: Value, b: Value, order: list[int]) -> Value:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(order)), order))


def for_tile(builder: IRBuilder, columns: Value, emit: Callable[[int], None]) -> None:
    """Emit the code for every width a tile can have, and a jump to the one that `columns` asks for.

    `emit` gets the width.
    """
    done = builder.function.append_basic_block("tile.done")
    widest = builder.function.append_basic_block("tile.widest")
    jump = builder.switch(columns, widest)
    for width in range(TILE_STEP, MAX_TILE + 1, TILE_STEP):
        if width == MAX_TILE:
            builder.position_at_end(widest)
        else:
            block = builder.function.append_basic_block(f"tile.{width}")
            jump.add_case(I64(width), block)
            builder.position_at_end(block)
        emit(width)
        builder.branch(done)
    builder.position_at_end(done)


def smaller(builder: IRBuilder, a: Value, b: Value) -> Value:
    return builder.select(builder.icmp_signed("<", a, b), a, b)
