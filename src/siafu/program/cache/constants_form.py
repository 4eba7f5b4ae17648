"""Form of a program's constants: the operations that make them, as JSON, and read again.

What is kept of a recorded model are the operations below its constants. The rest has become tensor programs.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from siafu.program.record.cut import Cut, row_shape
from siafu.program.record.record import GatherSite, Recording

_HOMES = ("aten.", "siafu.")
"""Where operations come from: a file names no others."""
_INPUTS = ("features", "vertices", "key")


class NoForm(Exception):
    """Something that a file cannot hold."""


def constants_form(cut: Cut) -> dict[str, Any]:
    """The constants of a model that was cut. Raises NoForm."""
    recording = cut.recording
    needed = _below(cut.constants)
    names = {node: name for name, node in recording.weights.items()}
    inputs = {getattr(recording, name): name for name in _INPUTS}
    numbers: dict[fx.Node, int] = {}
    nodes = []
    for node in recording.graph.nodes:
        if node in needed:
            shape = row_shape(node)
            kept = None if shape is None else list(shape)
            nodes.append([*_node_form(node, names, inputs, numbers), kept])
            numbers[node] = len(numbers)
    return {
        "nodes": nodes,
        "constants": [numbers[node] for node in cut.constants],
        "folded": [recording.sites.index(site) for site in cut.folded],
    }


def read_constants(form: dict[str, Any], weights: Iterable[str], sites: list[GatherSite]) -> Cut:
    """A cut model with what makes its constants, and without phases."""
    graph = fx.Graph()
    named = {name: graph.placeholder(f"weight{number}") for number, name in enumerate(weights)}
    inputs = {name: graph.placeholder(name) for name in _INPUTS}
    nodes: list[fx.Node] = []
    for kind, what, arguments, options, shape in form["nodes"]:
        if kind == "call":
            named_ones = {name: _read(each, nodes) for name, each in options.items()}
            node = graph.call_function(_target(what), tuple(_read(arguments, nodes)), named_ones)
        else:
            node = {"input": inputs, "weight": named}[kind][what]
        node.meta["row"] = None if shape is None else tuple(map(int, shape))
        nodes.append(node)
    recording = Recording(
        graph, named, inputs["features"], inputs["vertices"], inputs["key"], inputs["features"], sites
    )
    constants = tuple(nodes[number] for number in form["constants"])
    return Cut(recording, (), (), (), constants, tuple(sites[number] for number in form["folded"]))


def _below(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    found = set(nodes)
    waiting = list(found)
    while waiting:
        new = set(waiting.pop().all_input_nodes) - found
        found |= new
        waiting += new
    return found


def _node_form(
    node: fx.Node, names: dict[fx.Node, str], inputs: dict[fx.Node, str], numbers: dict[fx.Node, int]
) -> list[Any]:
    if node in inputs:
        return ["input", inputs[node], [], {}]
    if node in names:
        return ["weight", names[node], [], {}]
    target = str(node.target)
    if node.op != "call_function" or not target.startswith(_HOMES) or _target(target) is not node.target:
        raise NoForm
    arguments = [_form(each, numbers) for each in node.args]
    return ["call", target, arguments, {name: _form(each, numbers) for name, each in node.kwargs.items()}]


def _form(value: Any, numbers: dict[fx.Node, int]) -> Any:
    if isinstance(value, fx.Node):
        return {"node": numbers[value]}
    if isinstance(value, (list, tuple)):
        return [_form(each, numbers) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise NoForm


def _read(form: Any, nodes: list[fx.Node]) -> Any:
    if isinstance(form, dict):
        return nodes[form["node"]]
    if isinstance(form, list):
        return [_read(each, nodes) for each in form]
    return form


def _target(name: str) -> Any:
    """The operation of a name such as aten.mul.Tensor."""
    if not name.startswith(_HOMES):
        raise ValueError(f"an operation {name!r}")
    home, operation, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, home), operation), overload)
