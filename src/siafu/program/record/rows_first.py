"""Rows first: values that have their rows in another dimension get a form in which they can go from phase to phase."""

import torch
from torch import fx

from siafu.program.record.record import Recording
from siafu.program.record.row_axis import row_axis

TURNED_BACK = "siafu turned back"
"""Key in `meta` of what must be computed by the phase that reads it, even if it never changes."""
_PERMUTE = torch.ops.aten.permute.default


def rows_first(recording: Recording) -> None:
    """After each such value come its rows in front, and for each reader these turned back: what is handed on has them in front."""
    for node in list(recording.graph.nodes):
        axis = row_axis(node.meta.get("val"))
        if axis is None or axis == 0 or not node.users:
            continue
        dims = node.meta["val"].ndim
        front = [axis, *(dim for dim in range(dims) if dim != axis)]
        back = [front.index(dim) for dim in range(dims)]
        readers = list(node.users)
        with recording.graph.inserting_after(node):
            turned = _permuted(recording, node, front)
        for reader in readers:
            with recording.graph.inserting_before(reader):
                again = _permuted(recording, turned, back)
                again.meta[TURNED_BACK] = True
            reader.replace_input_with(node, again)


def _permuted(recording: Recording, node: fx.Node, order: list[int]) -> fx.Node:
    made = recording.graph.call_function(_PERMUTE, (node, order))
    made.meta["val"] = node.meta["val"].permute(order)
    return made
