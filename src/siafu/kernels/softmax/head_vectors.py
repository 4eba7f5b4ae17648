"""Attention with as many heads as a vector has lanes, forth for rows of few edges and back for all: the vectors run along the heads.

`blocks` has a list of edges for each head, which short rows leave nearly empty. Here an edge's numbers of all heads are one vector,
next to each other. Every number is that of `blocks`, bit for bit: what it adds lane by lane, edge k in lane k mod `LANES`, is added
here in as many slots, and slots are summed as lanes are.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from siafu.base.hashing import GOLDEN
from siafu.base.jit import kernel
from siafu.kernels.llvm.emit import (
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
from siafu.kernels.llvm.tiles import ask_for
from siafu.kernels.softmax.blocks import constant_of, exp_of, sum_each

HEAD_STEP = np.uint64(0x8CB92BA72F3D8DD7)
SOURCE_STEP = np.uint64(0xD1B54A32D192ED03)
_TILE = LANES * LANES  # columns that are summed together


@kernel
def attend_row(
    rows: Any,
    source: Any,
    target: Any,
    slope: Any,
    keys: Any,
    threshold: Any,
    scale: Any,
    per_head: int,
    out: Any,
    log_sum: Any,
    positive: Any,
    positive_share: Any,
    i: int,
    near: Any,
    count: int,
    space: Any,
) -> None:
    """`attend_range` for row i, whose edges are all of near[:count].

    keys:  of the edges, for dropout, with the hashes below which a weight is dropped and the factor of others; None: no dropout
    space: lists of floats to work in, as `working_space` makes them
    """
    kind = out.dtype.type
    logits, weights, above, sums, highest, share = space
    for k in range(count):
        ask_for(rows, near[k], out.shape[1])
    _soften(source, near, count, target, i, slope, logits, highest)
    if positive is None:
        _weigh(logits, count, highest, keys, threshold, scale, weights, None, sums)
    else:
        _weigh(logits, count, highest, keys, threshold, scale, weights, above, sums)
        _sum_slots(sums, _TILE, share)
        for h in range(LANES):
            positive_share[i, h] = share[h]
    _sum_slots(sums, 0, share)
    for h in range(LANES):
        total = share[h]
        share[h] = kind(0) if total == 0 else kind(1) / total
        log_sum[i, h] = kind(0) if total == 0 else highest[h] + math.log(total)
    if positive is not None:
        for h in range(LANES):
            positive_share[i, h] *= share[h]
    for c in range(0, out.shape[1], _TILE):
        _accumulate(out, i, rows, near, 0, count, c, per_head, weights, share)
        if positive is not None:
            _accumulate(positive, i, rows, near, 0, count, c, per_head, above, share)


@kernel
def attend_adjoint_block(
    rows: Any,
    source: Any,
    targets: Any,
    gradient: Any,
    slope: Any,
    keys: Any,
    threshold: Any,
    scale: Any,
    per_head: int,
    out: Any,
    j: int,
    near: Any,
    begin: int,
    stop: int,
    weights: Any,
    slots: Any,
) -> None:
    """Add what comes back along the edges near[begin:stop] of a block to out[j], and what they pull at its logits to `slots`.

    weights: a list to work in; other arguments are those of `attend_row`
    """
    for k in range(begin, stop):
        ask_for(gradient, near[k], out.shape[1])
        ask_for(targets, near[k], targets.shape[1])
    _pull(
        targets,
        near,
        begin,
        stop,
        gradient,
        rows,
        source,
        j,
        slope,
        keys,
        threshold,
        scale,
        per_head,
        weights,
        slots,
    )
    for c in range(0, out.shape[1], _TILE):
        _accumulate(out, j, gradient, near, begin, stop, c, per_head, weights, None)


@kernel
def end_adjoint_block(slots: Any, pulls: Any, of_source: Any, j: int) -> None:
    """A block is complete: of_source[j] gets the sum of `slots`, which are empty then. pulls: a list to work in."""
    _sum_slots(slots, 0, pulls)
    for h in range(LANES):
        of_source[j, h] += pulls[h]
    slots[:_TILE] = 0


@kernel
def working_space(edges: int, like: Any) -> Any:
    """Lists that `attend_row` works in, for rows of up to `edges` edges."""
    return (
        np.empty(edges * LANES, like.dtype),
        np.empty(edges * LANES, like.dtype),
        np.empty(edges * LANES, like.dtype),
        np.empty(2 * _TILE, like.dtype),
        np.empty(LANES, like.dtype),
        np.empty(LANES, like.dtype),
    )


@kernel
def drop_threshold(dropout: float) -> Any:
    """Hashes of 53 bits below it are below `dropout` as `uniform` numbers."""
    return np.uint64(math.ceil(dropout * 2.0**53))


@kernel
def edge_key(seed: Any, i: int, j: int) -> Any:
    """Key of an edge, to which a head's step is added."""
    return seed + np.uint64(i) * GOLDEN + np.uint64(j) * SOURCE_STEP


@intrinsic
def _soften(typing_context, source, near, count, target, row, slope, logits, highest):  # type: ignore[no-untyped-def]
    """logits of edge k = leaky_relu(source[near[k]] + target[row]); highest = the greatest of each head."""
    number = logits.dtype
    signature = types.void(source, near, types.int64, target, types.int64, number, logits, highest)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        sources, targets, out, best = (TableCode(context, builder, kinds[k], args[k]) for k in (0, 3, 6, 7))
        name = list_entry(context, builder, kinds[1], args[1])
        added = targets.load(builder, targets.address(builder, args[4], I64(0)), 0)
        slope = splat(builder, args[5], out.vector)
        zero, lowest = constant_of(out, 0.0), constant_of(out, float("-inf"))

        def body(edge, state):  # type: ignore[no-untyped-def]
            z = builder.fadd(sources.load(builder, sources.address(builder, name(edge), I64(0)), 0), added)
            bent = builder.select(builder.fcmp_ordered("==", z, lowest), lowest, builder.fmul(z, slope))
            z = builder.select(builder.fcmp_ordered(">", z, zero), z, bent)
            out.store(builder, z, _at(builder, out, edge), 0)
            return [builder.select(builder.fcmp_ordered(">", z, state[0]), z, state[0])]

        (found,) = edge_loop(builder, (I64(0), NONE, NONE, args[2]), [lowest], body)
        best.store(builder, found, _at(builder, best, I64(0)), 0)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _weigh(typing_context, logits, count, highest, keys, threshold, scale, weights, above, sums):  # type: ignore[no-untyped-def]
    """weights = exp(logits - highest), above = those of positive logits, both under dropout.

    sums: slots of their sums before dropout, of `weights` and then of `above`, which may be None
    """
    number = logits.dtype
    signature = types.void(logits, types.int64, highest, keys, types.uint64, number, weights, above, sums)
    dropping, halves = (not isinstance(each, types.NoneType) for each in (keys, above))

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        z_code, best, w_code, slots = (TableCode(context, builder, kinds[k], args[k]) for k in (0, 2, 6, 8))
        a_code = TableCode(context, builder, kinds[7], args[7]) if halves else None
        keep = _keeper(context, builder, kinds[3:6], args[3:6], z_code) if dropping else None
        zero = constant_of(z_code, 0.0)
        _clear(builder, slots, 2 if halves else 1)
        top = best.load(builder, _at(builder, best, I64(0)), 0)
        # If all logits are -inf, no edge counts; any finite shift gives weights of 0.
        shift = builder.select(builder.fcmp_ordered(">", top, constant_of(z_code, float("-inf"))), top, zero)

        def body(edge, state):  # type: ignore[no-untyped-def]
            z = z_code.load(builder, _at(builder, z_code, edge), 0)
            weight = exp_of(builder, z_code, builder.fsub(z, shift))
            _add_to_slot(builder, slots, edge, 0, weight)
            kept = keep(edge) if keep is not None else None
            if a_code is not None:
                positive = builder.select(builder.fcmp_ordered(">", z, zero), weight, zero)
                _add_to_slot(builder, slots, edge, 1, positive)
                positive = positive if kept is None else builder.fmul(positive, kept)
                a_code.store(builder, positive, _at(builder, a_code, edge), 0)
            weight = weight if kept is None else builder.fmul(weight, kept)
            w_code.store(builder, weight, _at(builder, w_code, edge), 0)
            return []

        edge_loop(builder, (I64(0), NONE, NONE, args[1]), [], body)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _pull(  # type: ignore[no-untyped-def]
    typing_context,
    targets,
    near,
    begin,
    stop,
    gradient,
    rows,
    source,
    row,
    slope,
    keys,
    threshold,
    scale,
    per_head,
    weights,
    slots,
):
    """weights = those that the forward pass gave the edges to near[begin:stop]; what they pull at the source's logits is added to slots."""
    number = weights.dtype
    signature = types.void(
        targets,
        near,
        types.int64,
        types.int64,
        gradient,
        rows,
        source,
        types.int64,
        number,
        keys,
        types.uint64,
        number,
        types.int64,
        weights,
        slots,
    )
    dropping = not isinstance(keys, types.NoneType)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        ends, theirs, mine, own, w_code, slots = (
            TableCode(context, builder, kinds[k], args[k]) for k in (0, 4, 5, 6, 13, 14)
        )
        name = list_entry(context, builder, kinds[1], args[1])
        keep = _keeper(context, builder, kinds[9:12], args[9:12], w_code) if dropping else None
        slope = splat(builder, args[8], w_code.vector)
        zero, one, lowest = (constant_of(w_code, value) for value in (0.0, 1.0, float("-inf")))
        added = own.load(builder, own.address(builder, args[7], I64(0)), 0)
        mine_at = mine.address(builder, args[7], I64(0))

        def matched(end: Value) -> Value:
            """⟨gradient, row⟩ of each head."""
            theirs_at = theirs.address(builder, end, I64(0))

            def step(vector, totals):  # type: ignore[no-untyped-def]
                found = []
                for head, total in enumerate(totals):
                    place = builder.mul(builder.add(builder.mul(args[12], I64(head)), vector), I64(LANES))
                    a, b = (
                        code.load(builder, builder.gep(at, [builder.mul(place, I64(code.item))]), 0)
                        for code, at in ((theirs, theirs_at), (mine, mine_at))
                    )
                    found.append(fma(builder, a, b, total))
                return found

            return sum_each(
                builder, list(edge_loop(builder, (I64(0), NONE, NONE, args[12]), [zero] * LANES, step))
            )

        def body(edge, state):  # type: ignore[no-untyped-def]
            end = name(edge)
            at = ends.address(builder, end, I64(0))
            z, log_sum, mean = (ends.load(builder, at, k) for k in range(3))
            match = matched(end)
            z = builder.fadd(z, added)
            steep = builder.select(builder.fcmp_ordered(">", z, zero), one, slope)
            bent = builder.select(builder.fcmp_ordered("==", z, lowest), lowest, builder.fmul(z, steep))
            weight = exp_of(builder, w_code, builder.fsub(bent, log_sum))
            kept = keep(edge) if keep is not None else None
            if kept is not None:
                match = builder.fmul(match, kept)
            pull = builder.fmul(builder.fmul(weight, builder.fsub(match, mean)), steep)
            _add_to_slot(builder, slots, edge, 0, pull)
            weight = weight if kept is None else builder.fmul(weight, kept)
            w_code.store(builder, weight, _at(builder, w_code, edge), 0)
            return []

        edge_loop(builder, (args[2], NONE, NONE, args[3]), [], body)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _sum_slots(typing_context, sums, start, out):  # type: ignore[no-untyped-def]
    """out = the sum of the slots from `start` on, added as the lanes of a vector are."""
    signature = types.void(sums, types.int64, out)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        slots, result = (TableCode(context, builder, signature.args[k], args[k]) for k in (0, 2))
        at = slots.address(builder, I64(0), args[1])
        found = [slots.load(builder, at, slot) for slot in range(LANES)]
        while len(found) > 1:
            half = len(found) // 2
            found = [builder.fadd(a, b) for a, b in zip(found[:half], found[half:], strict=True)]
        result.store(builder, found[0], _at(builder, result, I64(0)), 0)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _accumulate(typing_context, out, row, rows, near, begin, stop, column, per_head, weights, share):  # type: ignore[no-untyped-def]
    """A tile of out[row] = the rows that near[begin:stop] name, each times its weights, times each head's share.

    share: None: they are added to what is there
    """
    signature = types.void(
        out, types.int64, rows, near, types.int64, types.int64, types.int64, types.int64, weights, share
    )
    shared = not isinstance(share, types.NoneType)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = signature.args
        result, table = (TableCode(context, builder, kinds[k], args[k]) for k in (0, 2))
        name, weight = (list_entry(context, builder, kinds[k], args[k]) for k in (3, 8))
        first = builder.sdiv(args[6], I64(LANES))
        heads = [builder.sdiv(builder.add(first, I64(v)), args[7]) for v in range(LANES)]

        def body(edge, totals):  # type: ignore[no-untyped-def]
            source = table.address(builder, name(edge), args[6])
            begin = builder.mul(edge, I64(LANES))
            return [
                fma(
                    builder,
                    splat(builder, weight(builder.add(begin, head)), result.vector),
                    table.load(builder, source, v),
                    total,
                )
                for v, (head, total) in enumerate(zip(heads, totals, strict=True))
            ]

        at = result.address(builder, args[1], args[6])
        before = [constant_of(result, 0.0) if shared else result.load(builder, at, v) for v in range(LANES)]
        totals = edge_loop(builder, (args[4], NONE, NONE, args[5]), before, body)
        factor = list_entry(context, builder, kinds[9], args[9]) if shared else None
        for v, (head, total) in enumerate(zip(heads, totals, strict=True)):
            if factor is not None:
                total = builder.fmul(total, splat(builder, factor(head), result.vector))
            result.store(builder, total, at, v)
        return context.get_dummy_value()

    return signature, generate


def _at(builder: IRBuilder, code: TableCode, vector: Value) -> Value:
    return code.address(builder, I64(0), builder.mul(vector, I64(LANES)))


def _slot(builder: IRBuilder, slots: TableCode, edge: Value, which: int) -> Value:
    slot = builder.and_(edge, I64(LANES - 1))
    return _at(builder, slots, builder.add(slot, I64(which * LANES)))


def _add_to_slot(builder: IRBuilder, slots: TableCode, edge: Value, which: int, value: Value) -> None:
    at = _slot(builder, slots, edge, which)
    slots.store(builder, builder.fadd(slots.load(builder, at, 0), value), at, 0)


def _clear(builder: IRBuilder, slots: TableCode, lists: int) -> None:
    at, zero = _at(builder, slots, I64(0)), constant_of(slots, 0.0)
    for slot in range(lists * LANES):
        slots.store(builder, zero, at, slot)


def _keeper(context: Any, builder: IRBuilder, kinds: Any, args: Any, code: TableCode) -> Any:
    """Makes the factors of an edge's heads: 0 where they are dropped, as `keep_factor` has them."""
    words = ir.VectorType(I64, LANES)
    key = list_entry(context, builder, kinds[0], args[0])
    steps = ir.Constant(words, [(head * int(HEAD_STEP)) % 2**64 for head in range(LANES)])
    threshold, scale = splat(builder, args[1], words), splat(builder, args[2], code.vector)

    def shifted(value: Value, bits: int) -> Value:
        return builder.lshr(value, ir.Constant(words, [bits] * LANES))

    def keep(edge: Value) -> Value:
        z = builder.add(splat(builder, key(edge), words), steps)
        for bits, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = builder.mul(builder.xor(z, shifted(z, bits)), ir.Constant(words, [factor] * LANES))
        z = shifted(builder.xor(z, shifted(z, 31)), 11)
        return builder.select(builder.icmp_unsigned("<", z, threshold), constant_of(code, 0.0), scale)

    return keep
