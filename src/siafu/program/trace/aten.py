"""Translation of PyTorch's traced operations to those of a tensor program."""

import operator
from typing import Any

from torch import SymBool, SymFloat, SymInt, Tensor, fx

from siafu.base.errors import BadInput
from siafu.program.tensor_program import Ref, Spec
from siafu.program.trace import aten_math, aten_shapes  # noqa: F401 (they register their operations)
from siafu.program.trace.aten_call import HANDLERS, Call, size_of, spec_of
from siafu.program.trace.builder import Builder, Operand

_MOST_NUMBERS = 4096  # of a constant: a program is text


def translate(traced: fx.GraphModule, inputs: list[tuple[str, Spec]]) -> tuple[Builder, list[Ref | None]]:
    """The operations of `traced`, and the values it returns; its placeholders are the inputs, in order."""
    builder = Builder(inputs)
    placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
    known: dict[fx.Node, Any] = {node: Ref(number) for number, node in enumerate(placeholders)}
    for node in _live(traced.graph):
        if node.op == "get_attr":
            known[node] = _constant(builder, getattr(traced, str(node.target)))
        elif node.op == "call_function":
            known[node] = _call(builder, node, known)
        elif node.op == "output":
            returned: Any = node.args[0]
            listed = [None if each is None else known[each] for each in returned]
            return builder, [None if each is None else builder.tensor(each) for each in listed]
    raise AssertionError("a traced graph ends with its output")


def _live(graph: fx.Graph) -> list[fx.Node]:
    """Nodes that the output needs, in order; PyTorch's own pruning keeps memory that is never written."""
    *_, output = graph.nodes
    needed = {output}
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return [node for node in graph.nodes if node in needed]


def name_of(target: Any) -> str:
    """An operation's name, its variants taken together; with its library's name if that is not PyTorch's."""
    library, name = target.name().split("::")
    name = name.split(".")[0]
    if library != "aten":
        return f"{library}::{name}"
    return str(name if name == "_to_copy" else name.removesuffix("_copy"))


def _call(builder: Builder, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    value = node.meta.get("val")
    if isinstance(value, (SymInt, SymFloat, SymBool, int, float, bool)):
        return value
    if node.target is operator.getitem:
        parts, which = node.args
        return known[parts][which]  # type: ignore[index]
    name = name_of(node.target)
    if name not in HANDLERS:
        raise BadInput(
            f"the model uses {name}, which a tensor program cannot hold: write it with the operations that "
            "siafu.program.operations lists, or move it out of the model"
        )
    arguments, options = fx.map_arg((node.args, node.kwargs), lambda each: known[each])
    return HANDLERS[name](Call(builder, name, value), *_plain(arguments), **options)


def _plain(argument: Any) -> Any:
    """Arguments with sizes as a program has them, lists as tuples."""
    if isinstance(argument, (list, tuple)):
        return tuple(_plain(each) for each in argument)
    if isinstance(argument, SymInt):
        return size_of(argument)
    if isinstance(argument, (SymFloat, SymBool)):
        raise BadInput(
            "the model computes with the number of rows: a tensor phase computes each vertex alone"
        )
    return argument


def _constant(builder: Builder, tensor: Tensor) -> Operand:
    spec = spec_of(tensor)
    if tensor.numel() > _MOST_NUMBERS:
        raise BadInput(
            f"the model holds {tensor.numel()} numbers outside of its parameters: register them as a buffer"
        )
    numbers = tensor.flatten().tolist()
    if tensor.ndim == 0 and spec.kind != "bool":
        return numbers[0]  # type: ignore[no-any-return]
    return builder.emit("constant", tuple(numbers), spec.shape, spec.kind, result=spec)


HANDLED = frozenset(HANDLERS)
"""Names of the traced operations that need no decomposition."""
