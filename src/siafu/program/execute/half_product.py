"""Products of bfloat16 with PyTorch, in few different shapes.

PyTorch's library (oneDNN) compiles code for every shape that it multiplies, about 0.6 MB each, and keeps the last 1,024. Blocks of rows
have many lengths, nearly every one where only labelled rows are computed. So rows that become bfloat16 are followed by zeros, up to one of
a few lengths, and are multiplied with these zeros.
"""

import torch
from torch import Tensor

_LEAST_STEP = 32
_STEPS = 16  # lengths from a power of two to the next: at most a sixteenth of a product is of zeros


def halved(rows: Tensor) -> Tensor:
    """Rows in bfloat16; zeros follow them in memory."""
    count = len(rows) if rows.dim() == 2 else 0
    room = rounded_length(count)
    if room == count:
        return rows.bfloat16()
    found = rows.new_empty((room, rows.shape[1]), dtype=torch.bfloat16)
    found[:count] = rows
    found[count:] = 0
    found.zeros_from = count  # type: ignore[attr-defined]
    return found[:count]


def half_product(a: Tensor, b: Tensor) -> Tensor:
    """`torch.mm(a, b)`; the rows of `a`, or those that are summed over, with the zeros that follow them."""
    if a.stride(1) == 1:
        rows = _with_zeros(a)
        return torch.mm(a, b) if rows is None else torch.mm(rows, b)[: len(a)]
    left, right = _with_zeros(a.t()), _with_zeros(b)
    return torch.mm(a, b) if left is None or right is None else torch.mm(left.t(), right)


def rounded_length(count: int) -> int:
    """The next length of the few that products have."""
    step = max(_LEAST_STEP, (1 << max(0, count - 1).bit_length()) // (2 * _STEPS))
    return -(-count // step) * step


def _with_zeros(rows: Tensor) -> Tensor | None:
    """Rows that `halved` made, and the zeros after them; None: others, or some of them."""
    whole = rows._base
    if whole is None or getattr(whole, "zeros_from", None) != len(rows) or rows.stride() != whole.stride():
        return None
    return whole
