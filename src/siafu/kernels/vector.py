"""Inner loops that plain Numba source does not reach: intrinsics that emit LLVM vectors.

Each works on a tile of columns that stays in vector registers while the edges of a row stream by, and asks
for the rows needed a few edges later. Rows are read as they are stored and summed in `out`'s type: bfloat16
(uint16 bits) and float32 into float32, float64 into float64. Nothing here checks a bound: every table's
stride holds at least the columns asked for, rounded up to `TILE_STEP`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

LANES = 8  # of one vector: a head's columns are padded to this
TILE_STEP = 16  # columns: tables and tiles come in multiples of it
MAX_TILE = 128  # columns: what fits sixteen 8-lane registers

_AHEAD = 16  # edges between asking for a row and reading it
_LINE = 64  # bytes that one prefetch brings

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_BYTES = _I8.as_pointer()
_NONE = _I64(-1)  # no edge is left out

Builder = Any
Value = Any


class _Table:
    """A two-dimensional array inside a kernel: where its rows start and how to read a vector of one."""

    def __init__(self, context: Any, builder: Builder, kind: Any, value: Value) -> None:
        array = arrayobj.make_array(kind)(context, builder, value)
        self.stride = cgutils.unpack_tuple(builder, array.strides, 2)[0]
        self.base = builder.bitcast(array.data, _BYTES)
        self.kind = kind.dtype
        self.item = kind.dtype.bitwidth // 8
        self.number = ir.DoubleType() if kind.dtype == types.float64 else ir.FloatType()
        self.vector = ir.VectorType(self.number, LANES)

    def address(self, builder: Builder, row: Value, column: Value) -> Value:
        offset = builder.add(builder.mul(row, self.stride), builder.mul(column, _I64(self.item)))
        return builder.gep(self.base, [offset])

    def load(self, builder: Builder, address: Value, vector: int) -> Value:
        at = builder.gep(address, [_I64(vector * LANES * self.item)])
        if self.kind == types.uint16:
            bits = builder.load(builder.bitcast(at, ir.VectorType(_I16, LANES).as_pointer()))
            bits.align = 2
            wide = ir.VectorType(_I32, LANES)
            shifted = builder.shl(builder.zext(bits, wide), ir.Constant(wide, [16] * LANES))
            return builder.bitcast(shifted, self.vector)
        value = builder.load(builder.bitcast(at, self.vector.as_pointer()))
        value.align = self.item
        return value

    def store(self, builder: Builder, value: Value, address: Value, vector: int) -> None:
        at = builder.gep(address, [_I64(vector * LANES * self.item)])
        builder.store(value, builder.bitcast(at, self.vector.as_pointer())).align = self.item


def _list_entry(context: Any, builder: Builder, kind: Any, value: Value) -> Callable[[Value], Value]:
    """Reads entries of a one-dimensional array of ids or numbers."""
    data = arrayobj.make_array(kind)(context, builder, value).data

    def entry(position: Value) -> Value:
        found = builder.load(builder.gep(data, [position]))
        return builder.sext(found, _I64) if isinstance(kind.dtype, types.Integer) else found

    return entry


def _prefetch(builder: Builder, address: Value, size: int) -> None:
    signature = ir.FunctionType(ir.VoidType(), [_BYTES, _I32, _I32, _I32])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
    for offset in range(0, size, _LINE):
        builder.call(function, [builder.gep(address, [_I64(offset)]), _I32(0), _I32(3), _I32(1)])


def _edge_loop(
    builder: Builder,
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
    edge = builder.phi(_I64)
    state = [builder.phi(value.type) for value in carried]
    results = body(edge, state)
    after = builder.add(edge, _I64(1))
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


def _splat(builder: Builder, value: Value, vector: Any) -> Value:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _I32(0))
    mask = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


def _fma(builder: Builder, a: Value, b: Value, c: Value) -> Value:
    """a · b + c, in one instruction where the CPU has it."""
    return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))


def _for_tile(builder: Builder, columns: Value, emit: Callable[[range], None]) -> None:
    """Emit the code for every width a tile can have, and a jump to the one that `columns` asks for.

    `emit` gets the numbers of the tile's vectors.
    """
    done = builder.function.append_basic_block("tile.done")
    widest = builder.function.append_basic_block("tile.widest")
    jump = builder.switch(columns, widest)
    for width in range(TILE_STEP, MAX_TILE + 1, TILE_STEP):
        if width == MAX_TILE:
            builder.position_at_end(widest)
        else:
            block = builder.function.append_basic_block(f"tile.{width}")
            jump.add_case(_I64(width), block)
            builder.position_at_end(block)
        emit(range(width // LANES))
        builder.branch(done)
    builder.position_at_end(done)


def _smaller(builder: Builder, a: Value, b: Value) -> Value:
    return builder.select(builder.icmp_signed("<", a, b), a, b)


@intrinsic
def accumulate(  # type: ignore[no-untyped-def]
    typing_context,
    out,
    row,
    rows,
    ids,
    lo,
    skip_lo,
    skip_hi,
    hi,
    column,
    tile,
    weights,
    base,
    heads,
    per_head,
):
    """out[row, column:column + tile] += the rows that ids[lo:hi] name, each times its weight.

    skip_lo, skip_hi: edges left out; skip_lo == -1 leaves none out
    weights: None, or a list in which edge e's weight for head h is weights[(e - base) * heads + h]
    per_head: how many 8-lane vectors of columns a head has
    """
    weighted = not isinstance(weights, types.NoneType)
    signature = types.void(
        out, types.int64, rows, ids, *[types.int64] * 6, weights, types.int64, types.int64, types.int64
    )

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        result = _Table(context, builder, signature.args[0], args[0])
        table = _Table(context, builder, signature.args[2], args[2])
        name = _list_entry(context, builder, signature.args[3], args[3])
        lo, skip_lo, skip_hi, hi, column, tile = args[4:10]
        target = result.address(builder, args[1], column)
        last = builder.sub(hi, _I64(1))
        if weighted:
            weight = _list_entry(context, builder, signature.args[10], args[10])
            base, heads, per_head = args[11:14]
            first = builder.sdiv(column, _I64(LANES))

        def emit(vectors):  # type: ignore[no-untyped-def]
            if weighted:
                head_of = [builder.sdiv(builder.add(first, _I64(v)), per_head) for v in vectors]

            def body(edge, sums):  # type: ignore[no-untyped-def]
                source = table.address(builder, name(edge), column)
                ahead = _smaller(builder, builder.add(edge, _I64(_AHEAD)), last)
                _prefetch(
                    builder, table.address(builder, name(ahead), column), len(vectors) * LANES * table.item
                )
                values = [table.load(builder, source, v) for v in vectors]
                if not weighted:
                    return [builder.fadd(total, value) for total, value in zip(sums, values, strict=True)]
                at = builder.mul(builder.sub(edge, base), heads)
                factors = [_splat(builder, weight(builder.add(at, head)), result.vector) for head in head_of]
                return [
                    _fma(builder, factor, value, total)
                    for factor, value, total in zip(factors, values, sums, strict=True)
                ]

            start = [result.load(builder, target, v) for v in vectors]
            totals = _edge_loop(builder, (lo, skip_lo, skip_hi, hi), start, body)
            for v, total in enumerate(totals):
                result.store(builder, total, target, v)

        _for_tile(builder, tile, emit)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def maximise(typing_context, out, ties, row, rows, ids, lo, hi, column, tile):  # type: ignore[no-untyped-def]
    """out[row] = the greatest of out[row] and the rows that ids[lo:hi] name; ties[row] counts those that reach it.

    Only the columns from `column` to `column + tile`.
    """
    signature = types.void(out, out, types.int64, rows, ids, *[types.int64] * 4)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        result = _Table(context, builder, signature.args[0], args[0])
        counts = _Table(context, builder, signature.args[1], args[1])
        table = _Table(context, builder, signature.args[3], args[3])
        name = _list_entry(context, builder, signature.args[4], args[4])
        lo, hi, column, tile = args[5:9]
        best_at = result.address(builder, args[2], column)
        ties_at = counts.address(builder, args[2], column)
        last = builder.sub(hi, _I64(1))
        one = ir.Constant(result.vector, [1.0] * LANES)

        def emit(vectors):  # type: ignore[no-untyped-def]
            def body(edge, state):  # type: ignore[no-untyped-def]
                source = table.address(builder, name(edge), column)
                ahead = _smaller(builder, builder.add(edge, _I64(_AHEAD)), last)
                _prefetch(
                    builder, table.address(builder, name(ahead), column), len(vectors) * LANES * table.item
                )
                bests, tied = [], []
                for v in vectors:
                    value, best, count = table.load(builder, source, v), state[v], state[len(vectors) + v]
                    above = builder.fcmp_ordered(">", value, best)
                    equal = builder.fcmp_ordered("==", value, best)
                    bests.append(builder.select(above, value, best))
                    more = builder.select(equal, builder.fadd(count, one), count)
                    tied.append(builder.select(above, one, more))
                return [*bests, *tied]

            start = [result.load(builder, best_at, v) for v in vectors]
            start += [counts.load(builder, ties_at, v) for v in vectors]
            final = _edge_loop(builder, (lo, _NONE, _NONE, hi), start, body)
            for v in vectors:
                result.store(builder, final[v], best_at, v)
                counts.store(builder, final[len(vectors) + v], ties_at, v)

        _for_tile(builder, tile, emit)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_where_equal(typing_context, out, row, own, maxima, shares, ids, lo, hi, column, tile):  # type: ignore[no-untyped-def]
    """out[row] += shares[i] for i in ids[lo:hi], where own[row] is maxima[i]; columns from `column` to `column + tile`."""
    signature = types.void(out, types.int64, own, maxima, shares, ids, *[types.int64] * 4)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        result = _Table(context, builder, kinds[0], args[0])
        mine = _Table(context, builder, kinds[2], args[2])
        greatest = _Table(context, builder, kinds[3], args[3])
        given = _Table(context, builder, kinds[4], args[4])
        name = _list_entry(context, builder, kinds[5], args[5])
        lo, hi, column, tile = args[6:10]
        target = result.address(builder, args[1], column)
        mine_at = mine.address(builder, args[1], column)
        last = builder.sub(hi, _I64(1))
        zero = ir.Constant(result.vector, [0.0] * LANES)

        def emit(vectors):  # type: ignore[no-untyped-def]
            own_values = [mine.load(builder, mine_at, v) for v in vectors]

            def body(edge, sums):  # type: ignore[no-untyped-def]
                end = name(edge)
                ahead = name(_smaller(builder, builder.add(edge, _I64(_AHEAD)), last))
                for table in (greatest, given):
                    _prefetch(
                        builder, table.address(builder, ahead, column), len(vectors) * LANES * table.item
                    )
                maxima_at = greatest.address(builder, end, column)
                shares_at = given.address(builder, end, column)
                new = []
                for v, total in zip(vectors, sums, strict=True):
                    equal = builder.fcmp_ordered("==", own_values[v], greatest.load(builder, maxima_at, v))
                    share = builder.select(equal, given.load(builder, shares_at, v), zero)
                    new.append(builder.fadd(total, share))
                return new

            start = [result.load(builder, target, v) for v in vectors]
            totals = _edge_loop(builder, (lo, _NONE, _NONE, hi), start, body)
            for v, total in enumerate(totals):
                result.store(builder, total, target, v)

        _for_tile(builder, tile, emit)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def dot(typing_context, left, i, right, j, column, vectors):  # type: ignore[no-untyped-def]
    """The dot product of left[i] and right[j] over `vectors` 8-lane vectors from `column` on."""
    number = types.float64 if left.dtype == types.float64 else types.float32
    signature = number(left, types.int64, right, *[types.int64] * 3)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        a = _Table(context, builder, signature.args[0], args[0])
        b = _Table(context, builder, signature.args[2], args[2])
        a_at, b_at = a.address(builder, args[1], args[4]), b.address(builder, args[3], args[4])
        zero = ir.Constant(a.vector, [0.0] * LANES)

        def body(vector, state):  # type: ignore[no-untyped-def]
            a_here = builder.gep(a_at, [builder.mul(vector, _I64(LANES * a.item))])
            b_here = builder.gep(b_at, [builder.mul(vector, _I64(LANES * b.item))])
            return [_fma(builder, a.load(builder, a_here, 0), b.load(builder, b_here, 0), state[0])]

        span = (_I64(0), _NONE, _NONE, args[5])
        (total,) = _edge_loop(builder, span, [zero], body)
        kind = ir.FunctionType(a.number, [a.number, a.vector])
        suffix = "v8f64" if a.kind == types.float64 else "v8f32"
        reduce = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.{suffix}")
        return builder.call(reduce, [ir.Constant(a.number, 0.0), total], fastmath=("reassoc",))

    return signature, generate


@intrinsic
def ask_for(typing_context, rows, row, columns):  # type: ignore[no-untyped-def]
    """Bring rows[row, :columns] towards the core."""
    signature = types.void(rows, types.int64, types.int64)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        table = _Table(context, builder, signature.args[0], args[0])
        address = table.address(builder, args[1], _I64(0))
        lines = builder.sdiv(
            builder.add(builder.mul(args[2], _I64(table.item)), _I64(_LINE - 1)), _I64(_LINE)
        )

        def body(line, state):  # type: ignore[no-untyped-def]
            _prefetch(builder, builder.gep(address, [builder.mul(line, _I64(_LINE))]), 1)
            return []

        _edge_loop(builder, (_I64(0), _NONE, _NONE, lines), [], body)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def value_of(typing_context, rows, row, column):  # type: ignore[no-untyped-def]
    """rows[row, column] as a number: bfloat16 bits are widened."""
    number = types.float64 if rows.dtype == types.float64 else types.float32
    signature = number(rows, types.int64, types.int64)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        table = _Table(context, builder, signature.args[0], args[0])
        at = table.address(builder, args[1], args[2])
        if table.kind == types.uint16:
            bits = builder.load(builder.bitcast(at, _I16.as_pointer()))
            return builder.bitcast(builder.shl(builder.zext(bits, _I32), _I32(16)), ir.FloatType())
        return builder.load(builder.bitcast(at, table.number.as_pointer()))

    return signature, generate


@intrinsic
def put(typing_context, rows, row, column, value):  # type: ignore[no-untyped-def]
    """rows[row, column] = value, rounded to the nearest (ties to even) where rows hold bfloat16 bits."""
    number = types.float64 if rows.dtype == types.float64 else types.float32
    signature = types.void(rows, types.int64, types.int64, number)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        table = _Table(context, builder, signature.args[0], args[0])
        at = table.address(builder, args[1], args[2])
        if table.kind != types.uint16:
            builder.store(args[3], builder.bitcast(at, table.number.as_pointer()))
            return context.get_dummy_value()
        bits = builder.bitcast(args[3], _I32)
        odd = builder.and_(builder.lshr(bits, _I32(16)), _I32(1))
        rounded = builder.lshr(builder.add(builder.add(bits, _I32(0x7FFF)), odd), _I32(16))
        nan = builder.fcmp_unordered("uno", args[3], args[3])
        kept = builder.select(nan, _I32(0x7FC0), rounded)
        builder.store(builder.trunc(kept, _I16), builder.bitcast(at, _I16.as_pointer()))
        return context.get_dummy_value()

    return signature, generate
