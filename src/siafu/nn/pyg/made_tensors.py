"""Products with a tensor that the model makes of its parameters, written as functions of each edge alone.

Such a tensor travels along with the rows of vertices, so that an edge has one of its own: a product with it is a sum of products.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from siafu.nn.pyg.expression import EdgeCall, Node, replaced
from siafu.nn.pyg.standing_in.value_functions import ones_by_type, rows_by_type
from siafu.nn.pyg.standing_in.values import EdgeValue, without_memory


def written_out(node: Node, is_parameter: Callable[[Tensor], bool]) -> Node:
    """The tree without matrix products with tensors that are no parameters, and without choices of their rows by type."""

    def change(each: Node) -> Node | None:
        if not isinstance(each, EdgeCall) or each.part is not None or len(each.arguments) < 2:
            return None
        first, made = each.arguments[:2]
        if not isinstance(first, Node) or not isinstance(made, Tensor) or is_parameter(made):
            return None
        write = _WRITTEN.get(each.name)
        found = (
            None
            if write is None
            else write(replaced(first, change), made, *each.arguments[2:], **each.options)
        )
        return None if found is None else found.node

    return replaced(node, change)


def _matmul(first: Node, made: Tensor) -> Any:
    value: Any = EdgeValue(first)
    if made.ndim == 1:
        return (value * made).sum(-1)
    return (value.unsqueeze(-1) * made).sum(-2) if made.ndim == 2 else None


def _rows_by_type(kinds: Node, made: Tensor) -> Any:
    types, *rest = (int(size) for size in made.shape)
    meta = without_memory(kinds.meta.shape[0], types, dtype=made.dtype)
    one: Any = EdgeValue(EdgeCall(meta, ones_by_type, (kinds, types), {}))
    return (one.reshape(-1, types, *[1] * len(rest)) * made).sum(1)


_WRITTEN: dict[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "mm": _matmul,
    rows_by_type.__name__: _rows_by_type,
}
