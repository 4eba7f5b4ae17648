"""Gradients of ReLU and dropout from what dropout gave: the forward pass need not keep what it read."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from siafu.nn.dropout import kept_scale
from siafu.program.tensor_program import Op, Ref, results_of


def read_dropped(inputs: int, ops: tuple[Op, ...], outputs: Collection[int]) -> tuple[Op, ...]:
    """`ops` with threshold_backward(gradient · scale, dropout(x), 0) for threshold_backward(dropout(gradient), x, 0), under one mask.

    Both have the same bits: dropout(x) is positive where x is and is kept. Values keep their numbers.

    inputs: how many values there are before the first operation's; outputs: numbers of the values that are wanted
    """
    found = list(ops)
    places = {given[0]: k for k, given in enumerate(results_of(inputs, ops))}
    reads = Counter([*outputs, *(number for op in ops for number in op.refs())])
    forward = {op.arguments: number for number, k in places.items() if (op := ops[k]).name == "dropout"}
    for k, op in enumerate(ops):
        if op.name != "threshold_backward":
            continue
        gradient, x, threshold = op.arguments
        masked = ops[places[gradient.number]] if gradient.number in places else op
        if (
            masked.name != "dropout"
            or reads[gradient.number] > 1
            or threshold != 0
            or masked.arguments[3] >= 1
        ):
            continue
        dropped = forward.get((x, *masked.arguments[1:]))
        if dropped is not None and dropped < gradient.number:
            scale = kept_scale(masked.arguments[3])
            found[places[gradient.number]] = replace(
                masked, name="mul", arguments=(masked.arguments[0], scale)
            )
            found[k] = replace(op, arguments=(gradient, Ref(dropped), threshold))
    return tuple(found)
