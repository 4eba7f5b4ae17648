"""One traced operation of PyTorch, and who turns it into those of a tensor program."""

from collections.abc import Callable
from typing import Any

import torch
from torch import SymInt, Tensor

from siafu.base.errors import BadInput
from siafu.program.tensor_program import Kind, Ref, RowCount, Size, Spec
from siafu.program.trace.builder import Builder

_KINDS: dict[torch.dtype, Kind] = {
    torch.float32: "float",
    torch.float64: "float",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.bool: "bool",
}


def spec_of(tensor: Tensor) -> Spec:
    """Kind and shape of a traced value."""
    if tensor.dtype not in _KINDS:
        raise BadInput(f"{tensor.dtype} appears in the model: its rows are float32 (or all float64) numbers")
    return Spec(_KINDS[tensor.dtype], tuple(size_of(size) for size in tensor.shape))


def size_of(size: int | SymInt) -> Size:
    """A traced size: a number, or a multiple of the number of rows."""
    if not isinstance(size, SymInt):
        return int(size)
    expression = size.node.expr
    if expression.is_number:
        return int(expression)
    symbols = list(expression.free_symbols)
    times = expression.coeff(symbols[0]) if len(symbols) == 1 else 0
    if times == 0 or expression != times * symbols[0]:
        raise BadInput(
            f"the model computes a size {expression} from the number of rows: a tensor phase computes each vertex alone"
        )
    return RowCount(int(times))


class Call:
    """One traced operation: where it goes, what it is called and what it gives."""

    def __init__(self, builder: Builder, name: str, value: Any) -> None:
        self.builder, self.name, self.value = builder, name, value

    @property
    def result(self) -> Spec:
        return spec_of(self.value)

    def emit(self, name: str, *arguments: Any) -> Ref:
        return self.builder.emit(name, *arguments, result=self.result)

    def several(self, name: str, *arguments: Any) -> tuple[Ref, ...]:
        specs = tuple(None if each is None else spec_of(each) for each in self.value)
        return self.builder.emit_several(name, *arguments, results=specs)

    def refuse(self, why: str) -> BadInput:
        return BadInput(f"the model uses {self.name} {why}")

    def dims(self, value: Ref, given: Any = None) -> tuple[int, ...]:
        """Dimensions counted from the front; none given: all."""
        count = len(self.builder.spec(value).shape)
        listed = (given,) if isinstance(given, int) else given or range(count)
        return tuple(sorted(dim % count for dim in listed)) if count else ()


Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}
"""Handlers by the name of the traced operation: (call, its arguments) → values."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    def note(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return note
