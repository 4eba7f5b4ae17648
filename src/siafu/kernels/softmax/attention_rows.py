"""Rows of targets that an attention gather's adjoint reads, made of the gradient of the gathered rows."""

from typing import Any

from siafu.base.jit import kernel
from siafu.kernels.chunks import row_at
from siafu.kernels.llvm.tiles import put, value_of


@kernel
def attention_gradient_range(
    gradient: Any,
    heads: int,
    head_columns: int,
    slope: float,
    target: Any,
    out: Any,
    log_sum: Any,
    positive: Any,
    positive_share: Any,
    packed: Any,
    targets: Any,
    of_target: Any,
    picked: Any,
    first: int,
) -> None:
    """For the rows from `first` on, or those that picked[first:] names, one for each row of `gradient`, in this thread.

    gradient:  of the gathered rows, heads not padded
    target:    [V, heads] logits; out to positive_share: as `Attended` has them
    packed:    gets the gradient, heads padded, in its storage type
    targets:   gets [target, log_sum, ⟨gradient, out⟩], what the adjoint wants
    of_target: gets the gradient of `target`
    """
    kind = out.dtype.type
    columns = gradient.shape[1] // heads
    for k in range(len(gradient)):
        i = row_at(picked, first + k)
        for h in range(heads):
            begin = h * head_columns
            mean, above = kind(0), kind(0)
            for c in range(columns):
                g = value_of(gradient, k, h * columns + c)
                mean += g * out[i, begin + c]
                above += g * positive[i, begin + c]
                put(packed, i, begin + c, g)
            for c in range(columns, head_columns):
                put(packed, i, begin + c, 0.0)
            targets[i, h] = target[i, h]
            targets[i, heads + h] = log_sum[i, h]
            targets[i, 2 * heads + h] = mean
            of_target[i, h] = kind(1 - slope) * (above - mean * positive_share[i, h])
        for c in range(heads * head_columns, packed.shape[1]):
            put(packed, i, c, 0.0)
