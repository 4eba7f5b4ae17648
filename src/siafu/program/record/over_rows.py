"""Sums, means and variances over all vertices that a model's own code takes, as statistics of the whole graph."""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from siafu.program.record.record import Recording
from siafu.program.record.row_axis import row_axis
from siafu.program.record.statistics import MOMENTS, is_moments

_aten = torch.ops.aten


def over_rows(recording: Recording, vertices: int) -> None:
    """Replace each operation that sums over the rows, in place; vertices: how many rows there are."""
    site = sum(map(is_moments, recording.graph.nodes))
    for node in list(recording.graph.nodes):
        made = _REDUCTIONS.get(node.target)
        axis = row_axis(node.args[0].meta.get("val")) if made is not None else None
        if made is None or axis is None:
            continue
        dims, keeps, correction = made(node)
        ndim = node.args[0].meta["val"].ndim
        over = {dim % ndim for dim in dims} if dims else set(range(ndim))
        if axis not in over:
            continue
        _Rewriting(recording, node, axis, over, vertices, site).write(keeps, correction)
        site += 1
    _count_all(recording, vertices)
    recording.graph.lint()


def _count_all(recording: Recording, vertices: int) -> None:
    """Where a model reckons with the number of rows (`x.sum(0) / x.shape[0]`), that is the whole graph's, not a task's."""

    def counted(argument: fx.Node) -> Any:
        size = argument.meta.get("val")
        if not isinstance(size, (torch.SymInt, torch.SymFloat)):
            return argument
        found = size.node.expr
        number = found.subs(dict.fromkeys(found.free_symbols, vertices))
        return int(number) if isinstance(size, torch.SymInt) else float(number)

    for node in recording.graph.nodes:
        if node.target in _RECKONING:
            node.args = fx.map_arg(node.args, counted)
    recording.graph.eliminate_dead_code()


class _Rewriting:
    """One operation's place taken by others."""

    def __init__(
        self, recording: Recording, node: fx.Node, axis: int, over: set[int], vertices: int, site: int
    ) -> None:
        self._recording, self._node, self._site = recording, node, site
        self._rows: fx.Node = node.args[0]  # type: ignore[assignment]
        self._axis, self._vertices = axis, vertices
        ndim = self._rows.meta["val"].ndim
        self._kept_shape = [
            1 if dim in over else int(self._rows.meta["val"].shape[dim]) for dim in range(ndim)
        ]
        others = [dim for dim in range(ndim) if dim != axis]
        self._inner = [place for place, dim in enumerate(others) if dim in over]
        self._front = [axis, *others]
        sizes = [int(self._rows.meta["val"].shape[dim]) for dim in others]
        self._count = vertices
        for place in self._inner:
            self._count *= sizes[place]

    def write(self, keeps: bool, correction: float | None) -> None:
        """Write the operations; correction: of a variance; None: only a mean is wanted."""
        with self._recording.graph.inserting_before(self._node):
            found = self._written(keeps, correction)
        for old, new in found:
            old.replace_all_uses_with(new)
        for old, _ in reversed(found):
            self._recording.graph.erase_node(old)
        if not self._node._erased:
            self._recording.graph.erase_node(self._node)

    def _written(self, keeps: bool, correction: float | None) -> list[tuple[fx.Node, fx.Node]]:
        target, node = self._node.target, self._node
        rows = self._rows
        if self._axis:
            rows = self._call(_aten.permute.default, rows, self._front)
        both = self._call(MOMENTS, rows, self._site, correction is not None)
        mean = self._call(_aten.select.int, both, 0, 0)
        whole = self._mean(mean)
        if target in _SUMS:
            whole = self._call(_aten.mul.Tensor, whole, float(self._count))
        if correction is None:
            return [(node, self._shaped(whole, keeps))]
        spread = self._variance(both, mean, correction)
        if target in _STANDARD_DEVIATIONS:
            spread = self._call(_aten.sqrt.default, spread)
        if target is not _aten.var_mean.correction:
            return [(node, self._shaped(spread, keeps))]
        given = (self._shaped(spread, keeps), self._shaped(whole, keeps))
        parts: Any = {part: part.args[1] for part in node.users}
        return [(part, given[number]) for part, number in parts.items()]

    def _mean(self, of_columns: fx.Node) -> fx.Node:
        return self._call(_aten.mean.dim, of_columns, self._inner) if self._inner else of_columns

    def _variance(self, both: fx.Node, mean: fx.Node, correction: float) -> fx.Node:
        """That of all numbers: the mean of the columns' own and the variance of their means."""
        found = self._mean(self._call(_aten.select.int, both, 0, 1))
        if self._inner:
            middle = self._call(_aten.mean.dim, mean, self._inner, True)
            apart = self._call(_aten.sub.Tensor, mean, middle)
            found = self._call(
                _aten.add.Tensor, found, self._mean(self._call(_aten.mul.Tensor, apart, apart))
            )
        if not correction:
            return found
        left = max(self._count - correction, 0)
        return self._call(_aten.mul.Tensor, found, self._count / left if left else float("nan"))

    def _shaped(self, found: fx.Node, keeps: bool) -> fx.Node:
        return self._call(_aten.view.default, found, self._kept_shape) if keeps else found

    def _call(self, target: Any, *arguments: Any) -> fx.Node:
        made = self._recording.graph.call_function(target, arguments)
        values = fx.map_arg(arguments, lambda each: each.meta["val"])
        made.meta["val"] = target(*values)
        return made


_Described = tuple[list[int], bool, float | None]


def _argument(node: fx.Node, place: int, name: str, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _whole(node: fx.Node) -> _Described:
    return [], False, None


def _along(node: fx.Node) -> _Described:
    return list(_argument(node, 1, "dim", None) or []), bool(_argument(node, 2, "keepdim", False)), None


def _spread(node: fx.Node) -> _Described:
    correction: Any = node.kwargs.get("correction")
    keeps = bool(node.kwargs.get("keepdim", False))
    return (
        list(_argument(node, 1, "dim", None) or []),
        keeps,
        1.0 if correction is None else float(correction),
    )


_RECKONING = frozenset(
    getattr(getattr(_aten, name), kind)
    for name in ("add", "sub", "mul", "div", "pow")
    for kind in ("Tensor", "Scalar", "Tensor_Scalar")
    if kind in getattr(_aten, name).overloads()
)
_SUMS = (_aten.sum.default, _aten.sum.dim_IntList)
_STANDARD_DEVIATIONS = (_aten.std.correction,)
_REDUCTIONS: dict[Any, Callable[[fx.Node], _Described]] = {
    _aten.sum.default: _whole,
    _aten.mean.default: _whole,
    _aten.sum.dim_IntList: _along,
    _aten.mean.dim: _along,
    _aten.var.correction: _spread,
    _aten.std.correction: _spread,
    _aten.var_mean.correction: _spread,
}
