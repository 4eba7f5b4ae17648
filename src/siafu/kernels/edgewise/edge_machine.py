"""Edge functions that work element by element, run on a few edges at a time in the near cache.

An edge function comes as `EdgeCode`: operations on *registers*, each of which holds a row of `width` columns for each of some edges. A batch of
edges is loaded, goes through the operations, and its messages (or gradients) are reduced at once: no row is kept for an edge. Edges
of a row are reduced in their order whatever batch they fall into, so the result depends on no range and no thread.
"""

import math
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.kernels.chunks import row_at, row_list
from siafu.kernels.llvm.tiles import ask_for
from siafu.kernels.llvm.vector_math import exp_of, sigmoid_of, tanh_of
from siafu.kernels.rows import Table

_ELEMENTS = 1024  # of a register: a dozen of them stay in a first-level cache

EDGE_OPERATIONS = (
    *("add", "sub", "mul", "div", "maximum", "minimum", "gt", "ge", "lt", "le", "eq", "ne"),
    *("neg", "abs", "relu", "exp", "sigmoid", "tanh", "sqrt", "erf", "log", "log1p", "sign"),
    *(
        "where",
        "leaky_relu",
        "threshold_backward",
        "leaky_relu_backward",
        "sigmoid_backward",
        "tanh_backward",
    ),
    "if_equal",
)
"""What the machine can do; operands as in `siafu.program.operations`, numbers being registers too.

if_equal(a, b, c) is a where b equals c, else 0. What compares gives 1 or 0.
"""
_N = {name: number for number, name in enumerate(EDGE_OPERATIONS)}
_ADD, _SUB, _MUL, _DIV, _MAXIMUM, _MINIMUM = (
    _N[name] for name in ("add", "sub", "mul", "div", "maximum", "minimum")
)
_GT, _GE, _LT, _LE, _EQ, _NE = (_N[name] for name in ("gt", "ge", "lt", "le", "eq", "ne"))
_NEG, _ABS, _RELU, _EXP, _SIGMOID, _TANH = (
    _N[name] for name in ("neg", "abs", "relu", "exp", "sigmoid", "tanh")
)
_SQRT, _ERF, _LOG, _LOG1P, _WHERE, _LEAKY = (
    _N[name] for name in ("sqrt", "erf", "log", "log1p", "where", "leaky_relu")
)
_GATE, _LEAKY_BACK, _SIGMOID_BACK, _TANH_BACK = (
    _N[f"{name}_backward"] for name in ("threshold", "leaky_relu", "sigmoid", "tanh")
)
_IF_EQUAL, _SIGN = _N["if_equal"], _N["sign"]

SOURCE, TARGET, GRADIENT, MAXIMUM = range(4)
"""Tables that a register is loaded from: rows of both ends, and of the target its gradient and what it gathered."""


class EdgeCode(NamedTuple):
    """An edge function, or one of its gradients.

    width:     columns of a register
    registers: how many there are
    loads:     [n, 3] register, table, first column there
    fills:     [n] registers that hold one number all the time; numbers: these
    ops:       [n, 5] operation, register of its result, registers of its operands (three, unused ones 0)
    stores:    [n, 2] register, first column of the result that it is added to or compared with
    """

    width: int
    registers: int
    loads: NDArray[np.int64]
    fills: NDArray[np.int64]
    numbers: NDArray[np.float64]
    ops: NDArray[np.int64]
    stores: NDArray[np.int64]


class CodeTables(NamedTuple):
    """What a code loads. rows: of the ends that `indices` names, and of a walk's own rows; gradient, maxima: of targets

    targets_own: whether a walk's own rows are the targets
    """

    named: Table
    own: Table
    gradient: Table
    maxima: Table
    targets_own: bool


def run_code(
    edges: tuple[NDArray[np.int64], NDArray[Any], NDArray[Any] | None],
    picked: NDArray[np.int64] | None,
    first: int,
    last: int,
    code: EdgeCode,
    tables: CodeTables,
    out: Table,
    ties: Table | None = None,
    scale: NDArray[Any] | None = None,
    *,
    fresh: bool,
) -> None:
    """Reduce what `code` makes of the edges of some rows into `out`, in this thread.

    edges:  indptr, indices and weights (None: they count 1)
    picked: rows of first:last, as everywhere; None: these numbers themselves
    ties:   gets how often a maximum is reached; None: values are added up
    scale:  of each row, at the end; None: 1. fresh: whether `out` begins with zeros, not with what it has
    """
    at_once = max(1, _ELEMENTS // code.width)
    registers = np.empty((code.registers, at_once * code.width), out.dtype)
    registers[code.fills] = code.numbers[:, None]
    rows = row_list(picked)
    work: tuple[Any, ...] = (code.width, at_once, registers, code.loads, code.ops, code.stores, *tables)
    cast(Any, _walk)(*edges, rows, first, last, *work, out, ties, fresh)
    if scale is not None:
        _scale_rows(rows, first, last, scale, out)


@kernel
def _walk(
    indptr: Any,
    indices: Any,
    weights: Any,
    picked: Any,
    first: int,
    last: int,
    width: int,
    at_once: int,
    registers: Any,
    loads: Any,
    ops: Any,
    stores: Any,
    named: Any,
    own: Any,
    gradient: Any,
    maxima: Any,
    targets_own: bool,
    out: Any,
    ties: Any,
    fresh: bool,
) -> None:
    near, rows = np.empty(at_once, np.int64), np.empty(at_once, np.int64)
    factors = np.ones(at_once, out.dtype)
    count = 0
    for p in range(first, last):
        i = row_at(picked, p)
        lo, hi = indptr[i], indptr[i + 1]
        if fresh:
            _begin(out, ties, i, hi > lo)
        for e in range(lo, hi):
            near[count], rows[count] = indices[e], i
            if weights is not None:
                factors[count] = weights[e]
            ask_for(named, near[count], named.shape[1])
            count += 1
            if count == at_once:
                _batch(
                    near, rows, factors, count, width, registers, loads, ops, stores,
                    named, own, gradient, maxima, targets_own, out, ties,
                )  # fmt: skip
                count = 0
    if count > 0:
        _batch(
            near, rows, factors, count, width, registers, loads, ops, stores,
            named, own, gradient, maxima, targets_own, out, ties,
        )  # fmt: skip


@kernel
def _begin(out: Any, ties: Any, row: int, has_edges: bool) -> None:
    start = out.dtype.type(0)
    if ties is not None:
        start = out.dtype.type(-np.inf if has_edges else 0.0)
        ties[row, :] = 0
    out[row, :] = start


@kernel
def _batch(
    near: Any,
    rows: Any,
    factors: Any,
    count: int,
    width: int,
    registers: Any,
    loads: Any,
    ops: Any,
    stores: Any,
    named: Any,
    own: Any,
    gradient: Any,
    maxima: Any,
    targets_own: bool,
    out: Any,
    ties: Any,
) -> None:
    """Load, compute and reduce some edges."""
    targets = rows if targets_own else near
    for k in range(len(loads)):
        into, table, column = loads[k, 0], loads[k, 1], loads[k, 2]
        if table == GRADIENT:
            _load(registers[into], gradient, targets, count, column, width)
        elif table == MAXIMUM:
            _load(registers[into], maxima, targets, count, column, width)
        elif (table == TARGET) == targets_own:
            _load(registers[into], own, rows, count, column, width)
        else:
            _load(registers[into], named, near, count, column, width)
    for n in range(len(ops)):
        into, a, b, c = ops[n, 1], ops[n, 2], ops[n, 3], ops[n, 4]
        _compute(ops[n, 0], registers[into], registers[a], registers[b], registers[c], count * width)
    for k in range(len(stores)):
        values, column = registers[stores[k, 0]], stores[k, 1]
        if ties is not None:
            _compare(values, rows, count, column, width, out, ties)
        else:
            _add(values, rows, factors, count, column, width, out)


@kernel
def _load(register: Any, table: Any, rows: Any, count: int, column: int, width: int) -> None:
    for k in range(count):
        row, start = rows[k], k * width
        for c in range(width):
            register[start + c] = table[row, column + c]


@kernel
def _add(values: Any, rows: Any, factors: Any, count: int, column: int, width: int, out: Any) -> None:
    for k in range(count):
        row, start, factor = rows[k], k * width, factors[k]
        for c in range(width):
            out[row, column + c] += factor * values[start + c]


@kernel
def _compare(values: Any, rows: Any, count: int, column: int, width: int, out: Any, ties: Any) -> None:
    one = out.dtype.type(1)
    for k in range(count):
        row, start = rows[k], k * width
        for c in range(width):
            value, best = values[start + c], out[row, column + c]
            # What is not a number wins and stays: a divergence must be seen.
            above = value > best or value != value
            ties[row, column + c] = (
                one if above else ties[row, column + c] + (one if value == best else out.dtype.type(0))
            )
            out[row, column + c] = value if above else best


@kernel
def _scale_rows(picked: Any, first: int, last: int, scale: Any, out: Any) -> None:
    for p in range(first, last):
        i = row_at(picked, p)
        out[i, :] *= scale[i]


@kernel
def _compute(what: int, out: Any, a: Any, b: Any, c: Any, size: int) -> None:
    """One operation on the first `size` numbers of registers. Comparisons are written so that what is not a number stays."""
    zero, one = out.dtype.type(0), out.dtype.type(1)
    if what == _ADD:
        for k in range(size):
            out[k] = a[k] + b[k]
    elif what == _SUB:
        for k in range(size):
            out[k] = a[k] - b[k]
    elif what == _MUL:
        for k in range(size):
            out[k] = a[k] * b[k]
    elif what == _DIV:
        for k in range(size):
            out[k] = a[k] / b[k]
    elif what == _MAXIMUM:
        for k in range(size):
            out[k] = b[k] if b[k] > a[k] or b[k] != b[k] else a[k]
    elif what == _MINIMUM:
        for k in range(size):
            out[k] = b[k] if b[k] < a[k] or b[k] != b[k] else a[k]
    elif what == _RELU:
        for k in range(size):
            out[k] = zero if a[k] <= zero else a[k]
    elif what == _LEAKY:
        for k in range(size):
            out[k] = a[k] if a[k] > zero else a[k] * b[k]
    elif what == _GATE:
        for k in range(size):
            out[k] = zero if b[k] <= c[k] else a[k]
    elif what == _LEAKY_BACK:
        for k in range(size):
            out[k] = a[k] if b[k] > zero else a[k] * c[k]
    elif what == _IF_EQUAL:
        for k in range(size):
            out[k] = a[k] if b[k] == c[k] else zero
    elif what == _WHERE:
        for k in range(size):
            out[k] = b[k] if a[k] != zero else c[k]
    elif what == _SIGMOID_BACK:
        for k in range(size):
            out[k] = a[k] * (one - b[k]) * b[k]
    elif what == _TANH_BACK:
        for k in range(size):
            out[k] = a[k] * (one - b[k] * b[k])
    elif what <= _NE:
        _judge(what, out, a, b, size)
    else:
        _function(what, out, a, size)


@kernel
def _judge(what: int, out: Any, a: Any, b: Any, size: int) -> None:
    zero, one = out.dtype.type(0), out.dtype.type(1)
    if what == _GT:
        for k in range(size):
            out[k] = one if a[k] > b[k] else zero
    elif what == _GE:
        for k in range(size):
            out[k] = one if a[k] >= b[k] else zero
    elif what == _LT:
        for k in range(size):
            out[k] = one if a[k] < b[k] else zero
    elif what == _LE:
        for k in range(size):
            out[k] = one if a[k] <= b[k] else zero
    elif what == _EQ:
        for k in range(size):
            out[k] = one if a[k] == b[k] else zero
    else:
        for k in range(size):
            out[k] = one if a[k] != b[k] else zero


@kernel
def _function(what: int, out: Any, a: Any, size: int) -> None:
    if what == _NEG:
        for k in range(size):
            out[k] = -a[k]
    elif what == _ABS:
        for k in range(size):
            out[k] = abs(a[k])
    elif what == _EXP:
        for k in range(size):
            out[k] = exp_of(a[k])
    elif what == _SIGMOID:
        for k in range(size):
            out[k] = sigmoid_of(a[k])
    elif what == _TANH:
        for k in range(size):
            out[k] = tanh_of(a[k])
    elif what == _SQRT:
        for k in range(size):
            out[k] = math.sqrt(a[k])
    elif what == _ERF:
        for k in range(size):
            out[k] = math.erf(a[k])
    elif what == _SIGN:
        for k in range(size):
            out[k] = np.sign(a[k])
    elif what == _LOG:
        for k in range(size):
            out[k] = np.log(a[k])
    else:
        for k in range(size):
            out[k] = np.log1p(a[k])
