"""The law of tensor phases: each vertex's row is computed alone."""

from math import prod

from siafu.base.errors import BadInput
from siafu.program.tensor_program import Op, Rows, Spec, TensorProgram


def check_rowwise(program: TensorProgram, *, has_loss: bool) -> None:
    """Refuse a forward program that looks from one row at another.

    has_loss: the rows' losses may be summed, as long as nothing but numbers is made of the sum
    """
    specs = program.specs
    summed: set[int] = set()
    number = len(program.inputs)
    for op in program.ops:
        reads = [specs[each] for each in op.refs()]
        rows_in = any(spec is not None and _axis(spec) is not None for spec in reads)
        for result in op.results:
            if result is not None:
                has_rows = _axis(result) is not None
                reduced = rows_in and not has_rows and not _is_statistic_of_nothing(op)
                if reduced and has_loss and result.shape == () and op.name in ("sum", "nll_loss"):
                    summed.add(number)
                elif reduced or _moves_rows(op, reads, result):
                    raise _refusal(op.name)
                elif any(each in summed for each in op.refs()):
                    if has_rows:
                        raise _refusal(op.name)
                    summed.add(number)
            number += 1


def check_outputs(program: TensorProgram) -> None:
    """Refuse outputs that do not have one row for each vertex."""
    for _, number in program.outputs:
        spec = program.specs[number]
        if spec is None or not spec.shape or spec.shape[0] != Rows(1):
            raise BadInput(
                f"a tensor phase gives {spec}: it must give rows, one for each vertex that came in"
            )


def _axis(spec: Spec) -> int | None:
    """Which dimension counts rows."""
    axes = [k for k, size in enumerate(spec.shape) if isinstance(size, Rows)]
    return axes[0] if axes else None


def _is_statistic_of_nothing(op: Op) -> bool:
    """A constant's shape may be read off rows."""
    return op.name in ("full", "constant")


def _moves_rows(op: Op, reads: list[Spec | None], result: Spec) -> bool:
    """Whether a result of an operation, which has rows, depends on other rows than its own."""
    if sum(isinstance(size, Rows) for size in result.shape) > 1:
        return True
    first = reads[0] if reads else None
    axis = None if first is None else _axis(first)
    if first is None or axis is None:
        return False
    if op.name in ("softmax", "log_softmax"):
        return bool(op.arguments[-1] == axis)
    if op.name in ("cat", "slice", "pad"):
        return bool(op.arguments[1] == axis)
    if op.name == "layer_norm":
        return len(first.shape) - len(op.arguments[1]) <= axis
    if op.name == "dropout":
        return first.shape[0] != Rows(1)
    if op.name == "reshape":
        # The numbers keep their order: rows stay rows only if as many numbers as before stand around them.
        after = _axis(result)
        return after is None or _before(first, axis) != _before(result, after)
    return False


def _before(spec: Spec, axis: int) -> int:
    return prod(size for size in spec.shape[:axis] if isinstance(size, int))


def _refusal(name: str) -> BadInput:
    return BadInput(
        f"the model's {name} mixes the rows of different vertices: outside of a gather each vertex is computed alone"
    )
