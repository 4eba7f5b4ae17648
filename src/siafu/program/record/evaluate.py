"""Evaluating a recorded operation, and all it is computed of."""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from siafu.program.record.cut import is_row

RunNode = Callable[[fx.Node, tuple[Any, ...], dict[str, Any]], Any]


def call_target(node: fx.Node, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The operation itself."""
    target: Any = node.target
    return target(*arguments, **options)


def evaluate(node: fx.Node, known: dict[fx.Node, Any], count: Any, run: RunNode = call_target) -> Any:
    """The value of `node` from those that are known; it, and what it needed, become known as well.

    count: the number of rows
    """
    if node in known:
        return known[node]
    if node.op == "get_attr":
        value = node.meta["constant"]
    elif _counts_rows(node):
        value = count
    else:
        for each in node.all_input_nodes:
            evaluate(each, known, count, run)
        arguments, options = fx.map_arg((node.args, node.kwargs), lambda each: known[each])
        value = run(node, arguments, options)
    known[node] = value
    return value


def _counts_rows(node: fx.Node) -> bool:
    if node.target is not torch.ops.aten.sym_size.int or node.args[1] != 0:
        return False
    return is_row(node.all_input_nodes[0])
