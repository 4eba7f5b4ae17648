"""Constants: the rows of a program that depend on the features alone, computed once for the whole graph."""

import hashlib
from typing import Any

import torch
from torch import Tensor, fx

from siafu.graph import Graph
from siafu.nn.gathers.edgewise import gather_messages
from siafu.nn.gathers.functions import forget_blocks
from siafu.program.record.cut import Cut, is_gather
from siafu.program.record.evaluate import call_target, evaluate


def constant_rows(parts: Cut, graph: Graph, x: Tensor, weights: dict[str, Tensor]) -> list[Tensor]:
    """The rows of parts.constants, [V, …] each, in the type of `x`.

    x:       the features
    weights: parameters and buffers by name; of these only what is not trained is read
    """
    known: dict[fx.Node, Any] = {parts.recording.features: x}
    known |= {node: weights[name] for name, node in parts.recording.weights.items()}

    def gather(node: fx.Node, sent: list[Tensor]) -> Tensor:
        number: Any = node.args[2]
        site = parts.recording.sites[number]
        if site.apply_edge is None:
            options = {"parameters": tuple(weights[name] for name in site.weights)} if site.weights else {}
            gathered: Tensor = site.gather.run(graph, *sent, **options)
            return gathered
        return gather_messages(graph, sent[0], site.apply_edge, [], site.gather, features=site.features)

    def run(node: fx.Node, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if is_gather(node):
            return gather(node, arguments[0])
        return call_target(node, arguments, options)

    with torch.no_grad():
        found = [evaluate(node, known, len(x), run) for node in parts.constants]
    forget_blocks(graph)
    return found


def gathers_deep(parts: Cut) -> int:
    """Number of gathers that follow each other, at most, from the features to a constant."""
    known: dict[fx.Node, int] = {}

    def depth(node: fx.Node) -> int:
        if node not in known:
            known[node] = max(map(depth, node.all_input_nodes), default=0) + is_gather(node)
        return known[node]

    return max(map(depth, parts.constants), default=0)


def reads_weights(parts: Cut) -> bool:
    """Whether constants are made of weights that are not trained, or of a layer's own functions of edges."""
    fixed = set(parts.recording.weights.values())
    seen: set[fx.Node] = set()
    ahead = list(parts.constants)
    while ahead:
        node = ahead.pop()
        if node in seen:
            continue
        seen.add(node)
        ahead += node.all_input_nodes
        if node in fixed:
            return True
        if is_gather(node):
            number: Any = node.args[2]
            site = parts.recording.sites[number]
            if site.weights or site.apply_edge is not None:
                return True
    return False


_LONGEST = 1000  # letters of a formula: one that is read twice at each of its steps would double with each


def _short(words: str) -> str:
    return words if len(words) <= _LONGEST else hashlib.sha256(words.encode()).hexdigest()


def recipes(parts: Cut) -> list[str]:
    """Formula of each of parts.constants, in words, long ones as digests: equal ones are the same rows of the same graph."""
    known: dict[fx.Node, str] = {parts.recording.features: "x"}
    known |= {node: name for name, node in parts.recording.weights.items()}

    def words(node: fx.Node) -> str:
        if node not in known:
            arguments = fx.map_arg((node.args, tuple(sorted(node.kwargs.items()))), words)
            known[node] = _short(f"{_what(node)}{arguments}")
        return known[node]

    def _what(node: fx.Node) -> str:
        if not is_gather(node):
            return f"{node.op}:{node.target}"
        number: Any = node.args[2]
        site = parts.recording.sites[number]
        return f"{site.gather}{'' if site.apply_edge is None else id(site.layer)}"

    return [words(node) for node in parts.constants]
