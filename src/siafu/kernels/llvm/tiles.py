"""Inner loops that plain Numba source does not reach: intrinsics that work on a tile of columns.

A tile stays in vector registers while the edges of a row stream by; the rows needed a few edges later are asked
for early. Rows are read as they are stored and summed in `out`'s type: bfloat16 (uint16 bits) and float32 into
float32, float64 into float64. Nothing here checks a bound: every table's stride holds at least the columns asked
for, rounded up to `TILE_STEP`.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from siafu.kernels.llvm.emit import (
    AHEAD,
    I16,
    I32,
    I64,
    LANES,
    LINE,
    NONE,
    WIDE_LANES,
    TableCode,
    apart,
    edge_loop,
    fma,
    for_tile,
    list_entry,
    prefetch,
    smaller,
    splat,
    together,
)


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
    head_stride,
    per_head,
):
    """out[row, column:column + tile] += the rows that ids[lo:hi] name, each times its weight.

    skip_lo, skip_hi: edges left out; skip_lo == -1 leaves none out
    weights: None, or a list in which edge e's weight for head h is weights[h * head_stride + e]
    per_head: how many 8-lane vectors of columns a head has
    """
    return _accumulate(out, rows, ids, weights, far=True)


@intrinsic
def accumulate_near(  # type: ignore[no-untyped-def]
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
    head_stride,
    per_head,
):
    """`accumulate` for rows that are in a near cache already: none is asked for early."""
    return _accumulate(out, rows, ids, weights, far=False)


@intrinsic
def accumulate_onward(  # type: ignore[no-untyped-def]
    typing_context, out, row, rows, ids, lo, skip_lo, skip_hi, hi, end, column, tile, weights
):
    """`accumulate` of a row that others follow: rows that their edges need, up to edge `end`, are asked for too."""
    return _accumulate(out, rows, ids, weights, far=True, onward=True)


@intrinsic
def accumulate_listed(typing_context, out, row, rows, ids, lo, hi, end, column, tile, weights):  # type: ignore[no-untyped-def]
    """`accumulate` of one visit in a list of several: rows that the visits after it need, up to `end`, are asked for."""
    return _accumulate(out, rows, ids, weights, far=True, listed=True)


def _accumulate(
    out: Any, rows: Any, ids: Any, weights: Any, *, far: bool, listed: bool = False, onward: bool = False
) -> Any:
    weighted = not isinstance(weights, types.NoneType)
    lanes = LANES if weighted else WIDE_LANES
    # bfloat16 is widened at half the cost if even and odd columns are summed apart.
    split = rows.dtype == types.uint16 and not weighted
    numbers, heads = (5, 0) if listed else (7, 0) if onward else (6, 2)
    signature = types.void(
        out, types.int64, rows, ids, *[types.int64] * numbers, weights, *[types.int64] * heads
    )

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        result = TableCode(context, builder, signature.args[0], args[0], lanes)
        table = TableCode(context, builder, signature.args[2], args[2], lanes)
        name = list_entry(context, builder, signature.args[3], args[3])
        if listed:
            lo, hi, end, column, tile = args[4:9]
            skip_lo, skip_hi = NONE, NONE
        elif onward:
            lo, skip_lo, skip_hi, hi, end, column, tile = args[4:11]
        else:
            lo, skip_lo, skip_hi, hi, column, tile = args[4:10]
            end = hi
        target = result.address(builder, args[1], column)
        last = builder.sub(end, I64(1))
        if weighted:
            at = 4 + numbers
            weight = list_entry(context, builder, signature.args[at], args[at])
            head_stride, per_head = args[at + 1 :] if heads else (I64(0), I64(1))
            first = builder.sdiv(column, I64(LANES))

        def emit(width):  # type: ignore[no-untyped-def]
            vectors = range(width // lanes)
            if weighted:
                heads = [builder.sdiv(builder.add(first, I64(v)), per_head) for v in vectors]
                starts = [builder.mul(head, head_stride) for head in heads]

            def body(edge, sums):  # type: ignore[no-untyped-def]
                source = table.address(builder, name(edge), column)
                if far:
                    ahead = smaller(builder, builder.add(edge, I64(AHEAD)), last)
                    prefetch(builder, table.address(builder, name(ahead), column), width * table.item)
                if split:
                    values = table.load_apart(builder, source, vectors)
                else:
                    values = [table.load(builder, source, v) for v in vectors]
                if not weighted:
                    return [builder.fadd(total, value) for total, value in zip(sums, values, strict=True)]
                factors = [
                    splat(builder, weight(builder.add(edge, start)), result.vector) for start in starts
                ]
                return [
                    fma(builder, factor, value, total)
                    for factor, value, total in zip(factors, values, sums, strict=True)
                ]

            start = [result.load(builder, target, v) for v in vectors]
            if split:
                start = apart(builder, start)
            totals = list(edge_loop(builder, (lo, skip_lo, skip_hi, hi), start, body))
            if split:
                totals = together(builder, totals)
            for v, total in enumerate(totals):
                result.store(builder, total, target, v)

        for_tile(builder, tile, emit)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def maximise(typing_context, out, ties, row, rows, ids, lo, hi, column, tile):  # type: ignore[no-untyped-def]
    """out[row] = the greatest of out[row] and the rows that ids[lo:hi] name; ties[row] counts those that reach it.

    Only the columns from `column` to `column + tile`.
    """
    signature = types.void(out, out, types.int64, rows, ids, *[types.int64] * 4)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        result = TableCode(context, builder, signature.args[0], args[0])
        counts = TableCode(context, builder, signature.args[1], args[1])
        table = TableCode(context, builder, signature.args[3], args[3])
        name = list_entry(context, builder, signature.args[4], args[4])
        lo, hi, column, tile = args[5:9]
        best_at = result.address(builder, args[2], column)
        ties_at = counts.address(builder, args[2], column)
        last = builder.sub(hi, I64(1))
        one = ir.Constant(result.vector, [1.0] * LANES)

        def emit(width):  # type: ignore[no-untyped-def]
            vectors = range(width // LANES)

            def body(edge, state):  # type: ignore[no-untyped-def]
                source = table.address(builder, name(edge), column)
                ahead = smaller(builder, builder.add(edge, I64(AHEAD)), last)
                soon = table.address(builder, name(ahead), column)
                prefetch(builder, soon, width * table.item)
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
            final = edge_loop(builder, (lo, NONE, NONE, hi), start, body)
            for v in vectors:
                result.store(builder, final[v], best_at, v)
                counts.store(builder, final[len(vectors) + v], ties_at, v)

        for_tile(builder, tile, emit)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_where_equal(typing_context, out, row, own, maxima, shares, ids, lo, hi, column, tile):  # type: ignore[no-untyped-def]
    """out[row] += shares[i] for i in ids[lo:hi], where own[row] is maxima[i]; columns from `column` to `column + tile`."""
    signature = types.void(out, types.int64, own, maxima, shares, ids, *[types.int64] * 4)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        result = TableCode(context, builder, kinds[0], args[0])
        mine = TableCode(context, builder, kinds[2], args[2])
        greatest = TableCode(context, builder, kinds[3], args[3])
        given = TableCode(context, builder, kinds[4], args[4])
        name = list_entry(context, builder, kinds[5], args[5])
        lo, hi, column, tile = args[6:10]
        target = result.address(builder, args[1], column)
        mine_at = mine.address(builder, args[1], column)
        last = builder.sub(hi, I64(1))
        zero = ir.Constant(result.vector, [0.0] * LANES)

        def emit(width):  # type: ignore[no-untyped-def]
            vectors = range(width // LANES)
            own_values = [mine.load(builder, mine_at, v) for v in vectors]

            def body(edge, sums):  # type: ignore[no-untyped-def]
                end = name(edge)
                ahead = name(smaller(builder, builder.add(edge, I64(AHEAD)), last))
                for table in (greatest, given):
                    prefetch(builder, table.address(builder, ahead, column), width * table.item)
                maxima_at = greatest.address(builder, end, column)
                shares_at = given.address(builder, end, column)
                new = []
                for v, total in zip(vectors, sums, strict=True):
                    equal = builder.fcmp_ordered("==", own_values[v], greatest.load(builder, maxima_at, v))
                    share = builder.select(equal, given.load(builder, shares_at, v), zero)
                    new.append(builder.fadd(total, share))
                return new

            start = [result.load(builder, target, v) for v in vectors]
            totals = edge_loop(builder, (lo, NONE, NONE, hi), start, body)
            for v, total in enumerate(totals):
                result.store(builder, total, target, v)

        for_tile(builder, tile, emit)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def ask_for(typing_context, rows, row, columns):  # type: ignore[no-untyped-def]
    """Bring rows[row, :columns] into the core's nearest cache."""
    return _ask(rows, nearest=True)


@intrinsic
def ask_early(typing_context, rows, row, columns):  # type: ignore[no-untyped-def]
    """Bring rows[row, :columns] towards the core."""
    return _ask(rows, nearest=False)


def _ask(rows: Any, *, nearest: bool) -> Any:
    signature = types.void(rows, types.int64, types.int64)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        table = TableCode(context, builder, signature.args[0], args[0])
        address = table.address(builder, args[1], I64(0))
        lines = builder.sdiv(builder.add(builder.mul(args[2], I64(table.item)), I64(LINE - 1)), I64(LINE))

        def body(line, state):  # type: ignore[no-untyped-def]
            prefetch(builder, builder.gep(address, [builder.mul(line, I64(LINE))]), 1, nearest=nearest)
            return []

        edge_loop(builder, (I64(0), NONE, NONE, lines), [], body)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def one_by_one(typing_context):  # type: ignore[no-untyped-def]
    """Keeps LLVM from making vectors of the loop that this stands in.

    A loop that stores at a stride would become scatters, which take some ten times as long as single stores.
    """

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def value_of(typing_context, rows, row, column):  # type: ignore[no-untyped-def]
    """rows[row, column] as a number: bfloat16 bits are widened."""
    number = types.float64 if rows.dtype == types.float64 else types.float32
    signature = number(rows, types.int64, types.int64)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        table = TableCode(context, builder, signature.args[0], args[0])
        at = table.address(builder, args[1], args[2])
        if table.kind == types.uint16:
            bits = builder.load(builder.bitcast(at, I16.as_pointer()))
            return builder.bitcast(builder.shl(builder.zext(bits, I32), I32(16)), ir.FloatType())
        return builder.load(builder.bitcast(at, table.number.as_pointer()))

    return signature, generate


@intrinsic
def put(typing_context, rows, row, column, value):  # type: ignore[no-untyped-def]
    """rows[row, column] = value, rounded to the nearest (ties to even) where rows hold bfloat16 bits."""
    number = types.float64 if rows.dtype == types.float64 else types.float32
    signature = types.void(rows, types.int64, types.int64, number)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        table = TableCode(context, builder, signature.args[0], args[0])
        at = table.address(builder, args[1], args[2])
        if table.kind != types.uint16:
            builder.store(args[3], builder.bitcast(at, table.number.as_pointer()))
            return context.get_dummy_value()
        bits = builder.bitcast(args[3], I32)
        odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
        rounded = builder.lshr(builder.add(builder.add(bits, I32(0x7FFF)), odd), I32(16))
        nan = builder.fcmp_unordered("uno", args[3], args[3])
        kept = builder.select(nan, I32(0x7FC0), rounded)
        builder.store(builder.trunc(kept, I16), builder.bitcast(at, I16.as_pointer()))
        return context.get_dummy_value()

    return signature, generate
