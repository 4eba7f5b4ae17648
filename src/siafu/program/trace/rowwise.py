"""The law of tensor phases: each vertex's row is computed alone."""

from math import prod

from siafu.base.errors import BadInput
from siafu.program.tensor_program import Op, RowCount, Spec, TensorProgram, results_of


def check_rowwise(program: TensorProgram, *, has_loss: bool) -> None:
    """Refuse a forward program that looks from one row at another.

    has_loss: the rows' losses may be summed, as long as nothing but numbers is made of the sum
    """
    specs = program.specs
    summed: set[int] = set()
    for op, given in zip(program.ops, results_of(len(program.inputs), program.ops), strict=True):
        reads = [specs[each] for each in op.refs()]
        rows_in = any(spec is not None and _axis(spec) is not None for spec in reads)
        for number in given:
            result = specs[number]
            if result is None:
                continue
            has_rows = _axis(result) is not None
            # A constant's shape may be read off rows.
            reduced = rows_in and not has_rows and op.name not in ("full", "constant")
            if reduced and has_loss and result.shape == () and op.name in ("sum", "nll_loss"):
                summed.add(number)
            elif reduced or _moves_rows(op, reads, result):
                raise _refusal(op.name, has_loss=has_loss)
            elif summed.intersection(op.refs()):
                if has_rows:
                    raise _refusal(op.name, has_loss=has_loss)
                summed.add(number)


def check_outputs(program: TensorProgram) -> None:
    """Refuse outputs that do not have one row for each vertex."""
    for _, number in program.outputs:
        spec = program.specs[number]
        if spec is None or not spec.shape or spec.shape[0] != RowCount(1):
            raise BadInput(
                f"a tensor phase gives {spec}: it must give rows, one for each vertex that came in"
            )


def _axis(spec: Spec) -> int | None:
    """Which dimension counts rows."""
    axes = [k for k, size in enumerate(spec.shape) if isinstance(size, RowCount)]
    return axes[0] if axes else None


def _moves_rows(op: Op, reads: list[Spec | None], result: Spec) -> bool:
    """Whether a result of an operation, which has rows, depends on other rows than its own."""
    if sum(isinstance(size, RowCount) for size in result.shape) > 1:
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
        return first.shape[0] != RowCount(1)
    if op.name == "reshape":
        # The numbers keep their order: rows stay rows only if as many numbers as before stand around them.
        after = _axis(result)
        return after is None or _before(first, axis) != _before(result, after)
    return False


def _before(spec: Spec, axis: int) -> int:
    return prod(size for size in spec.shape[:axis] if isinstance(size, int))


def _refusal(name: str, *, has_loss: bool) -> BadInput:
    if has_loss:
        return BadInput(
            f"the loss's {name} mixes the rows of different vertices: a loss is the sum of its rows' losses"
        )
    return BadInput(
        f"the model's {name} mixes the rows of different vertices: outside of a gather each vertex is computed alone"
    )
