"""Intrinsics on a block of edges, a list of numbers for each head: the vectors run along the edges.

Lists are padded to whole vectors by the caller; `start` is where a head's list begins and `count` how many
vectors of it there are.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from siafu.kernels.llvm.emit import (
    I32,
    I64,
    LANES,
    NONE,
    IRBuilder,
    TableCode,
    Value,
    edge_loop,
    fma,
    list_entry,
    splat,
)


@intrinsic
def soften(typing_context, logits, start, count, added, slope):  # type: ignore[no-untyped-def]
    """logits = leaky_relu(logits + added) in place; the greatest of them."""
    number = logits.dtype
    signature = number(logits, types.int64, types.int64, number, number)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        table = TableCode(context, builder, signature.args[0], args[0])
        added, slope = (splat(builder, value, table.vector) for value in args[3:5])
        zero, lowest = constant_of(table, 0.0), constant_of(table, float("-inf"))

        def body(vector, state):  # type: ignore[no-untyped-def]
            at = _vector_at(builder, table, args[1], vector)
            z = builder.fadd(table.load(builder, at, 0), added)
            # An infinite logit stays so with a slope of 0, too: spare lanes and edges that count for nothing have one.
            bent = builder.select(builder.fcmp_ordered("==", z, lowest), lowest, builder.fmul(z, slope))
            z = builder.select(builder.fcmp_ordered(">", z, zero), z, bent)
            table.store(builder, z, at, 0)
            return [builder.select(builder.fcmp_ordered(">", z, state[0]), z, state[0])]

        (best,) = edge_loop(builder, (I64(0), NONE, NONE, args[2]), [lowest], body)
        return _reduce(builder, table, "fmax", best)

    return signature, generate


@intrinsic
def weigh(typing_context, logits, weights, above, start, count, shift):  # type: ignore[no-untyped-def]
    """weights = exp(logits - shift), above = those of positive logits; the sums of both."""
    number = logits.dtype
    signature = types.UniTuple(number, 2)(logits, weights, above, types.int64, types.int64, number)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        z_code, w_code, a_code = (TableCode(context, builder, signature.args[k], args[k]) for k in range(3))
        shift = splat(builder, args[5], z_code.vector)
        zero = constant_of(z_code, 0.0)

        def body(vector, state):  # type: ignore[no-untyped-def]
            z_at, w_at, a_at = (
                _vector_at(builder, code, args[3], vector) for code in (z_code, w_code, a_code)
            )
            z = z_code.load(builder, z_at, 0)
            weight = exp_of(builder, z_code, builder.fsub(z, shift))
            positive = builder.select(builder.fcmp_ordered(">", z, zero), weight, zero)
            w_code.store(builder, weight, w_at, 0)
            a_code.store(builder, positive, a_at, 0)
            return [builder.fadd(state[0], weight), builder.fadd(state[1], positive)]

        totals = edge_loop(builder, (I64(0), NONE, NONE, args[4]), [zero, zero], body)
        sums = [_reduce(builder, z_code, "fadd", total) for total in totals]
        return context.make_tuple(builder, signature.return_type, sums)

    return signature, generate


@intrinsic
def weigh_back(typing_context, logits, log_sums, means, matches, keeps, start, count, added, slope):  # type: ignore[no-untyped-def]
    """logits = the weights a that the forward pass gave these edges; Σ a · (keep · match - mean) · slope of each.

    logits: the targets' parts; `added` is the source's. On return they hold a · keep. keeps: None without dropout.
    """
    return _weigh_back(logits, log_sums, means, matches, keeps, None)


@intrinsic
def weigh_back_part(  # type: ignore[no-untyped-def]
    typing_context,
    logits,
    log_sums,
    means,
    matches,
    keeps,
    start,
    count,
    added,
    slope,
    lanes,
    row,
    column,
):
    """`weigh_back` of a part of a list: each lane's sum goes on from lanes[row, column:], which `sum_lanes` adds up."""
    return _weigh_back(logits, log_sums, means, matches, keeps, lanes)


@intrinsic
def sum_lanes(typing_context, lanes, row, column):  # type: ignore[no-untyped-def]
    """The sum of a vector's lanes, added as `weigh_back` adds them."""
    signature = lanes.dtype(lanes, types.int64, types.int64)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        code = TableCode(context, builder, signature.args[0], args[0])
        return _reduce(builder, code, "fadd", code.load(builder, code.address(builder, *args[1:3]), 0))

    return signature, generate


def _weigh_back(logits: Any, log_sums: Any, means: Any, matches: Any, keeps: Any, lanes: Any) -> Any:
    number = logits.dtype
    carried = [] if lanes is None else [lanes, types.int64, types.int64]
    signature = number(
        logits, log_sums, means, matches, keeps, types.int64, types.int64, number, number, *carried
    )
    dropping = not isinstance(keeps, types.NoneType)

    def generate(context: Any, builder: IRBuilder, signature: Any, args: Any) -> Value:
        codes = [
            TableCode(context, builder, kind, value)
            for kind, value in zip(signature.args[: 5 if dropping else 4], args, strict=False)
        ]
        added, slope = (splat(builder, value, codes[0].vector) for value in args[7:9])
        zero, one, lowest = (constant_of(codes[0], value) for value in (0.0, 1.0, float("-inf")))

        def body(vector, state):  # type: ignore[no-untyped-def]
            places = [_vector_at(builder, code, args[5], vector) for code in codes]
            z, log_sum, mean, match, *keep = (
                code.load(builder, at, 0) for code, at in zip(codes, places, strict=True)
            )
            z = builder.fadd(z, added)
            steep = builder.select(builder.fcmp_ordered(">", z, zero), one, slope)
            bent = builder.select(builder.fcmp_ordered("==", z, lowest), lowest, builder.fmul(z, steep))
            weight = exp_of(builder, codes[0], builder.fsub(bent, log_sum))
            if keep:
                match = builder.fmul(match, keep[0])
            pull = builder.fmul(builder.fmul(weight, builder.fsub(match, mean)), steep)
            codes[0].store(builder, builder.fmul(weight, keep[0]) if keep else weight, places[0], 0)
            return [builder.fadd(state[0], pull)]

        if lanes is None:
            (total,) = edge_loop(builder, (I64(0), NONE, NONE, args[6]), [zero], body)
            return _reduce(builder, codes[0], "fadd", total)
        sums = TableCode(context, builder, signature.args[9], args[9])
        at = sums.address(builder, *args[10:12])
        (total,) = edge_loop(builder, (I64(0), NONE, NONE, args[6]), [sums.load(builder, at, 0)], body)
        sums.store(builder, total, at, 0)
        return ir.Constant(codes[0].number, 0.0)

    return signature, generate


@intrinsic
def match_rows(typing_context, matches, start, count, table, ids, own, row, column, vectors):  # type: ignore[no-untyped-def]
    """matches = ⟨table[id], own[row]⟩ for the ids of `count` vectors of edges, over `vectors` vectors from `column`."""
    signature = types.void(
        matches, types.int64, types.int64, table, ids, own, types.int64, types.int64, types.int64
    )

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        out = TableCode(context, builder, kinds[0], args[0])
        rows = TableCode(context, builder, kinds[3], args[3])
        name = list_entry(context, builder, kinds[4], args[4])
        mine = TableCode(context, builder, kinds[5], args[5])
        mine_at = mine.address(builder, args[6], args[7])
        zero = constant_of(out, 0.0)

        def group(vector, state):  # type: ignore[no-untyped-def]
            first = builder.mul(vector, I64(LANES))
            places = [
                rows.address(builder, name(builder.add(first, I64(lane))), args[7]) for lane in range(LANES)
            ]

            def body(step, sums):  # type: ignore[no-untyped-def]
                own = mine.load(builder, builder.gep(mine_at, [builder.mul(step, I64(LANES * mine.item))]), 0)
                skip = builder.mul(step, I64(LANES * rows.item))
                return [
                    fma(builder, rows.load(builder, builder.gep(place, [skip]), 0), own, total)
                    for place, total in zip(places, sums, strict=True)
                ]

            sums = edge_loop(builder, (I64(0), NONE, NONE, args[8]), [zero] * LANES, body)
            out.store(builder, sum_each(builder, list(sums)), _vector_at(builder, out, args[1], vector), 0)
            return []

        edge_loop(builder, (I64(0), NONE, NONE, args[2]), [], group)
        return context.get_dummy_value()

    return signature, generate


def sum_each(builder: IRBuilder, vectors: list[Value]) -> Value:
    """Lane k of the result is the sum of vectors[k]: neighbours are folded into each other, three times."""
    pairs = ir.VectorType(I32, LANES)
    span = 1
    while len(vectors) > 1:
        keep, swap = [], []
        for lane in range(LANES):
            # Lanes whose `span` bit is clear come from the first of two vectors, the others from the second.
            second = LANES if lane & span else 0
            keep.append(second + lane)
            swap.append(second + (lane ^ span))
        folded = []
        for a, b in zip(vectors[::2], vectors[1::2], strict=True):
            straight = builder.shuffle_vector(a, b, ir.Constant(pairs, keep))
            crossed = builder.shuffle_vector(a, b, ir.Constant(pairs, swap))
            folded.append(builder.fadd(straight, crossed))
        vectors, span = folded, span * 2
    return vectors[0]


def _vector_at(builder: IRBuilder, code: TableCode, start: Value, vector: Value) -> Value:
    column = builder.add(start, builder.mul(vector, I64(LANES)))
    return code.address(builder, I64(0), column)


def constant_of(code: TableCode, value: float) -> Any:
    return ir.Constant(code.vector, [value] * LANES)


def _suffix(code: TableCode) -> str:
    return "v8f64" if code.number == ir.DoubleType() else "v8f32"


def _reduce(builder: IRBuilder, code: TableCode, how: str, vector: Value) -> Value:
    """The sum (`fadd`) or the greatest (`fmax`) of a vector's lanes."""
    arguments = [code.vector] if how == "fmax" else [code.number, code.vector]
    kind = ir.FunctionType(code.number, arguments)
    name = f"llvm.vector.reduce.{how}.{_suffix(code)}"
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    values = [vector] if how == "fmax" else [ir.Constant(code.number, -0.0), vector]
    return builder.call(function, values, fastmath=("reassoc",) if how == "fadd" else ())


def _unary(builder: IRBuilder, code: TableCode, name: str, value: Value) -> Value:
    kind = ir.FunctionType(code.vector, [code.vector])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.{_suffix(code)}")
    return builder.call(function, [value])


_LOWEST = -87.0  # exp of less is taken for 0: it is below what float32 holds in full


def exp_of(builder: IRBuilder, code: TableCode, x: Value) -> Value:
    """exp of a vector of values ≤ 0: the library's in float64; in float32 2**n · p(r), right to 2 units in the last place.

    n is the nearest whole number to x / ln 2, r the rest, at most ln 2 / 2 in size, and p the polynomial of degree 7
    that Cephes uses there.
    """
    if code.number == ir.DoubleType():
        return _unary(builder, code, "exp", x)
    lowest = constant_of(code, _LOWEST)
    # Not a number is not below either: it goes through, so that a divergence is seen.
    too_low = builder.fcmp_ordered("<=", x, lowest)
    x = builder.select(too_low, lowest, x)
    scaled = fma(builder, x, constant_of(code, 1.44269504088896341), constant_of(code, 0.5))
    n = _unary(builder, code, "floor", scaled)
    r = fma(builder, n, constant_of(code, -0.693359375), x)
    r = fma(builder, n, constant_of(code, 2.12194440e-4), r)
    p = constant_of(code, 1.9875691500e-4)
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5):
        p = fma(builder, p, r, constant_of(code, coefficient))
    p = fma(builder, builder.fmul(p, r), r, builder.fadd(r, constant_of(code, 1.0)))
    whole = ir.VectorType(I32, LANES)
    exponent = builder.add(builder.fptosi(n, whole), ir.Constant(whole, [127] * LANES))
    power = builder.bitcast(builder.shl(exponent, ir.Constant(whole, [23] * LANES)), code.vector)
    return builder.select(too_low, constant_of(code, 0.0), builder.fmul(p, power))
