"""Traced operations that put numbers in other places, or make them out of nothing."""

from typing import Any

import torch

from siafu.program.tensor_program import Ref, RowCount
from siafu.program.trace.aten_call import HANDLERS, Call, handles, spec_of
from siafu.program.trace.builder import Operand


@handles("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten")
def _reshape(call: Call, value: Operand, *_: Any) -> Ref:
    return call.builder.reshape(call.builder.tensor(value), call.result.shape)


@handles("expand")
def _expand(call: Call, value: Operand, *_: Any, **__: Any) -> Ref:
    return call.builder.expand(call.builder.tensor(value), call.result.shape)


@handles("alias", "clone", "detach", "contiguous", "lift_fresh", "lift_fresh_copy", "lift")
def _same(call: Call, value: Operand, **_: Any) -> Operand:
    return value


@handles("t")
def _t(call: Call, value: Ref) -> Ref:
    return call.builder.permute(value, tuple(reversed(call.dims(value))))


@handles("transpose")
def _transpose(call: Call, value: Ref, a: int, b: int) -> Ref:
    order = list(call.dims(value))
    order[a], order[b] = order[b], order[a]
    return call.builder.permute(value, tuple(order))


@handles("permute")
def _permute(call: Call, value: Ref, order: tuple[int, ...]) -> Ref:
    return call.builder.permute(value, tuple(dim % len(order) for dim in order))


@handles("cat")
def _cat(call: Call, values: tuple[Ref, ...], dim: int = 0) -> Ref:
    return call.emit("cat", values, *call.dims(values[0], dim))


@handles("slice")
def _slice(call: Call, value: Ref, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Ref:
    (dim,) = call.dims(value, dim)
    length = call.builder.spec(value).shape[dim]
    start, end = 0 if start is None else start, 2**63 - 1 if end is None or end == length else end
    if isinstance(start, RowCount) or isinstance(end, RowCount):
        raise call.refuse("to take some rows out of many: a tensor phase computes each vertex alone")
    return call.builder.slice(value, dim, start, end, step)


@handles("select")
def _select(call: Call, value: Ref, dim: int, which: int) -> Ref:
    (dim,) = call.dims(value, dim)
    return call.builder.reshape(_one(call, value, dim, which), call.result.shape)


def _one(call: Call, value: Ref, dim: int, which: int) -> Ref:
    length = call.builder.spec(value).shape[dim]
    if isinstance(length, RowCount):
        raise call.refuse("to take one row out of many: a tensor phase computes each vertex alone")
    return call.builder.slice(value, dim, which % length, which % length + 1)


@handles("unbind")
def _unbind(call: Call, value: Ref, dim: int = 0) -> tuple[Ref, ...]:
    (dim,) = call.dims(value, dim)
    return tuple(
        call.builder.reshape(_one(call, value, dim, k), spec_of(each).shape)
        for k, each in enumerate(call.value)
    )


@handles("split", "split_with_sizes", "chunk")
def _split(call: Call, value: Ref, sizes: Any, dim: int = 0) -> tuple[Ref, ...]:
    (dim,) = call.dims(value, dim)
    parts, start = [], 0
    for each in call.value:
        length = spec_of(each).shape[dim]
        if isinstance(length, RowCount):
            raise call.refuse("on the rows themselves: a tensor phase computes each vertex alone")
        parts.append(call.builder.slice(value, dim, start, start + length))
        start += length
    return tuple(parts)


@handles("slice_backward")
def _slice_backward(call: Call, gradient: Ref, sizes: Any, dim: int, start: Any, end: Any, step: int) -> Ref:
    dim %= len(sizes)
    length = sizes[dim]
    if isinstance(length, RowCount) or call.builder.spec(gradient).shape[dim] == length:
        return gradient
    if step != 1:
        raise call.refuse("of every other column, which a tensor program cannot hold: reshape, then select")
    before = max(start + length if start < 0 else start, 0)
    got = call.builder.spec(gradient).shape[dim]
    assert isinstance(got, int), "only the first dimension counts rows"
    return call.builder.pad(gradient, dim, before, length - before - got)


@handles("select_backward")
def _select_backward(call: Call, gradient: Ref, sizes: Any, dim: int, which: int) -> Ref:
    dim %= len(sizes)
    one = call.builder.reshape(gradient, (*sizes[:dim], 1, *sizes[dim + 1 :]))
    return call.builder.pad(one, dim, which % sizes[dim], sizes[dim] - 1 - which % sizes[dim])


# Writing into a part of a value, once PyTorch has made a new value of it.


@handles("copy")
def _copy(call: Call, old: Operand, new: Operand, *_: Any) -> Ref:
    return call.builder.expand(call.builder.to(call.builder.tensor(new), call.result.kind), call.result.shape)


@handles("slice_scatter")
def _slice_scatter(
    call: Call, value: Ref, part: Ref, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Ref:
    (dim,) = call.dims(value, dim)
    length, width = call.result.shape[dim], call.builder.spec(part).shape[dim]
    if width == length:
        return part
    if step != 1 or isinstance(length, RowCount) or isinstance(width, RowCount):
        raise call.refuse(
            "to write into some rows, or into every other column: put columns together with torch.cat"
        )
    first = 0 if start is None else start + length if start < 0 else start
    sides = (0, first), (first + width, length)
    before, after = (None if a == b else call.builder.slice(value, dim, a, b) for a, b in sides)
    return call.emit("cat", tuple(each for each in (before, part, after) if each is not None), dim)


@handles("select_scatter")
def _select_scatter(call: Call, value: Ref, part: Ref, dim: int, which: int) -> Ref:
    (dim,) = call.dims(value, dim)
    shape = call.result.shape
    one = call.builder.reshape(part, (*shape[:dim], 1, *shape[dim + 1 :]))
    scattered: Ref = _slice_scatter(call, value, one, dim, which)
    return scattered


# Values out of nothing.


def _filled(call: Call, filling: Any) -> Operand:
    spec = call.result
    if spec.shape == () and spec.kind != "bool":
        return filling  # type: ignore[no-any-return]
    return call.emit("full", spec.shape, int(filling) if isinstance(filling, bool) else filling, spec.kind)


HANDLERS["full"] = lambda call, shape, filling, **_: _filled(call, filling)
HANDLERS["full_like"] = lambda call, value, filling, **_: _filled(call, filling)
HANDLERS["new_full"] = lambda call, value, shape, filling, **_: _filled(call, filling)
HANDLERS["scalar_tensor"] = lambda call, filling, **_: _filled(call, filling)
HANDLERS["ones"] = HANDLERS["ones_like"] = HANDLERS["new_ones"] = lambda call, *_, **__: _filled(call, 1.0)


# "empty" is memory to be overwritten: what is in it is never read.
@handles("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "empty_permuted", "empty_strided")
@handles("new_empty", "new_empty_strided")
def _zeros(call: Call, *_: Any, **__: Any) -> Operand:
    return _filled(call, 0.0)


@handles("arange")
def _arange(call: Call, *bounds: Any, **_: Any) -> Ref:
    if any(isinstance(each, RowCount) for each in bounds):
        raise call.refuse("on the rows: which place a row has says nothing of its vertex")
    numbers = torch.arange(*bounds).tolist()
    return call.emit("constant", tuple(numbers), call.result.shape, call.result.kind)


@handles("_to_copy")
def _to(call: Call, value: Operand, **_: Any) -> Operand:
    return call.builder.to(value, call.result.kind) if isinstance(value, Ref) else value
