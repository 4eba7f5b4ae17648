"""The operations that tensor programs are made of: core ATen's names and meanings, one result unless said.

An operation's signature has one letter an argument:
    t  a value               x  a value or a number     o  a value or none       l  values
    n  a number              m  a number or none        i  a whole number        b  true or false
    d  whole numbers         s  a shape                 k  a kind                w  a word
    c  numbers
"""

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Operation:
    """signature: letters as above; results: how many values it gives; cost: floating-point operations an element"""

    signature: str
    results: int = 1
    cost: int = 1


OPERATIONS: dict[str, Operation] = {
    # of two values or a value and a number, element by element, shapes stretched as NumPy does
    **dict.fromkeys(("add", "sub", "mul", "div", "maximum", "minimum"), Operation("xx")),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"), Operation("xx")),
    "pow": Operation("xx", cost=10),
    "where": Operation("txx"),
    # of one value, element by element
    **dict.fromkeys(
        ("neg", "abs", "sign", "relu", "logical_not", "reciprocal", "floor", "ceil"), Operation("t")
    ),
    **dict.fromkeys(("sqrt", "rsqrt", "exp", "expm1", "log", "log1p"), Operation("t", cost=10)),
    **dict.fromkeys(("sin", "cos", "tanh", "sigmoid", "erf", "silu"), Operation("t", cost=10)),
    "clamp": Operation("tmm"),
    "leaky_relu": Operation("tn", cost=2),
    "elu": Operation("tnnn", cost=10),
    "gelu": Operation("tw", cost=20),
    "softplus": Operation("tnn", cost=20),
    "to": Operation("tk", cost=0),
    # gradient, then what the forward pass had
    "threshold_backward": Operation("ttn"),
    "leaky_relu_backward": Operation("ttn", cost=2),
    "tanh_backward": Operation("tt", cost=3),
    "sigmoid_backward": Operation("tt", cost=3),
    "elu_backward": Operation("tnnnbt", cost=10),
    "gelu_backward": Operation("ttw", cost=30),
    "silu_backward": Operation("tt", cost=15),
    "softplus_backward": Operation("ttnn", cost=20),
    # along one dimension
    "log_softmax": Operation("ti", cost=20),
    "softmax": Operation("ti", cost=20),
    "log_softmax_backward": Operation("tti", cost=13),
    "softmax_backward": Operation("tti", cost=4),
    # rows, normalised shape, weight, bias, eps -> out, mean, 1 / standard deviation
    "layer_norm": Operation("tdoon", results=3, cost=8),
    # gradient, rows, normalised shape, mean, 1 / sd, weight -> of rows, of weight, of bias; three flags: which are wanted
    "layer_norm_backward": Operation("ttdttobbb", results=3, cost=12),
    # products; addmm is bias + a · b
    "mm": Operation("tt", cost=0),
    "addmm": Operation("ttt", cost=0),
    "bmm": Operation("tt", cost=0),
    # rounded to bfloat16, and products of what was rounded, which are rounded, too, and then floats again; of float64
    # nothing is rounded
    "halve": Operation("t"),
    "half_mm": Operation("tt", cost=0),
    "half_addmm": Operation("ttt", cost=0),
    # over dimensions, kept as 1 or dropped
    "sum": Operation("tdb"),
    "mean": Operation("tdb"),
    "amax": Operation("tdb"),
    "amin": Operation("tdb"),
    # shapes
    "permute": Operation("td", cost=0),
    "reshape": Operation("ts", cost=0),
    "expand": Operation("ts", cost=0),
    "cat": Operation("li", cost=0),
    "slice": Operation("tiiii", cost=0),  # dimension, start, end, step
    "pad": Operation("tiii", cost=0),  # zeros: dimension, how many before, how many after
    "full": Operation("snk", cost=0),
    "constant": Operation("csk", cost=0),
    # the summed loss of log-probabilities [rows, C] and classes [rows] but for one class, and its gradient
    "nll_loss": Operation("tti"),
    "nll_loss_backward": Operation("ttti"),
    # rows, vertices, key, share, site: siafu.nn.dropout
    "dropout": Operation("tttni", cost=12),
}

PRODUCTS = ("mm", "addmm", "bmm", "half_mm", "half_addmm")


def flops(name: str, arguments: list[tuple[int, ...]], results: list[tuple[int, ...]]) -> int:
    """Floating-point operations of one `name`, from the shapes of the values that go in and come out."""
    if name in PRODUCTS:
        *batch, _, inner = arguments[-2]
        return 2 * prod(batch) * prod(results[0][-2:]) * inner + (
            prod(results[0]) if name.endswith("addmm") else 0
        )
    size = max((prod(shape) for shape in [*arguments, *results]), default=0)
    return OPERATIONS[name].cost * size
