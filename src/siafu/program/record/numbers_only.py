"""Numbers only: rows of truths and of whole numbers get a form in which they can go from phase to phase."""

import torch
from torch import Tensor, fx

from siafu.program.record.cut import changing_nodes, is_gather, is_row
from siafu.program.record.record import Recording
from siafu.program.record.rows_first import TURNED_BACK
from siafu.program.record.statistics import is_moments

_TO = torch.ops.aten._to_copy.default


def numbers_only(recording: Recording, trainable: set[str]) -> None:
    """Between a value that is no float and a reader that another phase may run, it is handed on as a float."""
    changing = changing_nodes(recording, trainable)
    depth: dict[fx.Node, int] = {}
    for node in list(recording.graph.nodes):
        below = max((depth.get(each, 0) for each in node.all_input_nodes), default=0)
        depth[node] = below + (is_gather(node) or is_moments(node))
    for node in list(recording.graph.nodes):
        if node.op != "call_function" or not _is_whole(node):
            continue
        readers = [
            user
            for user in node.users
            if user in depth
            and user.op == "call_function"
            and (depth[user] != depth[node] or (user in changing and node not in changing))
        ]
        if readers:
            _hand_on(recording, node, readers)


def _is_whole(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and not value.is_floating_point() and is_row(node)


def _hand_on(recording: Recording, node: fx.Node, readers: list[fx.Node]) -> None:
    kind = recording.features.meta["val"].dtype
    with recording.graph.inserting_after(node):
        number = _as(recording, node, kind)
    for reader in readers:
        with recording.graph.inserting_before(reader):
            again = _as(recording, number, node.meta["val"].dtype)
            again.meta[TURNED_BACK] = True
        reader.replace_input_with(node, again)


def _as(recording: Recording, node: fx.Node, kind: torch.dtype) -> fx.Node:
    made = recording.graph.call_function(_TO, (node,), {"dtype": kind})
    made.meta["val"] = node.meta["val"].to(kind)
    return made
