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


@kernel
def slot_means_range(
    gradient: Any, starts: Any, out: Any, packed: Any, means: Any, picked: Any, first: int
) -> None:
    """⟨gradient, out⟩ over some columns at a time, for rows as in `attention_gradient_range`, of heads without gaps.

    starts: [slots + 1] the columns of each slot begin here, and end where the next one's begin
    packed: gets the gradient in its storage type
    means:  [V, slots] gets the sums
    """
    kind = out.dtype.type
    for k in range(len(gradient)):
        i = row_at(picked, first + k)
        for slot in range(len(starts) - 1):
            mean = kind(0)
            for c in range(starts[slot], starts[slot + 1]):
                g = value_of(gradient, k, c)
                mean += g * out[i, c]
                put(packed, i, c, g)
            means[i, slot] = mean


@kernel
def target_gradient_range(
    gradient: Any,
    heads: int,
    head_columns: int,
    slope: float,
    targets: Any,
    positive: Any,
    positive_share: Any,
    of_target: Any,
    picked: Any,
    first: int,
    last: int,
) -> None:
    """`of_target` of `attention_gradient_range` alone, where others made what it makes besides.

    gradient, targets: what it calls `packed` and `targets`
    """
    kind = of_target.dtype.type
    for k in range(first, last):
        i = row_at(picked, k)
        for h in range(heads):
            above = kind(0)
            for c in range(h * head_columns, (h + 1) * head_columns):
                above += value_of(gradient, i, c) * positive[i, c]
            mean = targets[i, 2 * heads + h]
            of_target[i, h] = kind(1 - slope) * (above - mean * positive_share[i, h])
