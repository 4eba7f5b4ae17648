"""Each operation of a tensor program, forth and back, in PyTorch and NumPy, against plain PyTorch with autograd."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.program.operations import OPERATIONS
from siafu.program.trace.phase import RowSpec
from tests.program.phases import check_last, check_phase, names_in, of_rows

ROW = RowSpec((6,))
NONE = {"unused": torch.zeros(1, dtype=torch.float64)}  # its type is what numbers are traced in

UNARY: dict[str, Callable[[Tensor], Any]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": lambda x: torch.sign(x) * x,
    "floor": lambda x: x - torch.floor(x),
    "ceil": lambda x: x - torch.ceil(x),
    "relu": torch.relu,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "silu": F.silu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "add": lambda x: torch.add(x, x * x, alpha=3),
    "sub": lambda x: 2 - x,
    "mul": lambda x: x * x * 0.5,
    "maximum": lambda x: torch.maximum(x, -x * 2),
    "minimum": lambda x: torch.minimum(x, x * x),
    "where": lambda x: torch.where(x > 0, x, x * x),
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(-1, keepdim=True) * x,
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(1, keepdim=True),
    "reshape": lambda x: x.view(-1, 2, 3).sum(1),
    "permute": lambda x: x.view(-1, 2, 3).transpose(1, 2).flatten(1),
    "expand": lambda x: x[:, None, :].expand(-1, 4, 6) * 1.5,
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "slice": lambda x: x[:, 1:4] * 2,
    "pad": lambda x: F.pad(x * 2, (1, 2))[:, 1:],
    "full": lambda x: x * torch.full_like(x, 3.0),
    "constant": lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], dtype=x.dtype),
    "to": lambda x: (x > 0).to(x.dtype) * x,
    "eq": lambda x: (x.floor() == 0) * x,
    "ne": lambda x: (x.floor() != 0) * x,
    "lt": lambda x: (x < 0.1) * x,
    "le": lambda x: (x <= 0.1) * x,
    "gt": lambda x: (x > 0.1) * x,
    "ge": lambda x: (x >= 0.1) * x,
    "logical_and": lambda x: ((x > -1) & (x < 1)) * x,
    "logical_or": lambda x: torch.logical_or(x < -1, x > 1) * x,
    "logical_not": lambda x: (~(x > 0)) * x,
    "bmm": lambda x: torch.bmm(x.view(-1, 2, 3), x.view(-1, 3, 2)).flatten(1),
}

POSITIVE: dict[str, Callable[[Tensor], Any]] = {
    "div": lambda x: x / (1 + x) + 1 / x,
    "pow": lambda x: x**1.7 + 2**x + x**x,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
}

OTHERS: dict[str, Callable[[Tensor], Any]] = {
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "elu with other slopes": lambda x: F.elu(x, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.5),
    "elu in place": lambda x: F.elu(x * 2, inplace=True),
    "leaky relu in place": lambda x: F.leaky_relu(x * 2, 0.3, inplace=True),
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "glu": F.glu,
    "softplus with a limit": lambda x: F.softplus(x, 2, 1),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "normalize by sizes": lambda x: F.normalize(x, p=1, dim=-1),
    "var": lambda x: x.var(-1),
    "std, biased": lambda x: x.std(-1, correction=0),
    "var and mean": lambda x: torch.var_mean(x, -1),
    "rms norm": lambda x: F.rms_norm(x, (6,)),
    "stack": lambda x: torch.stack([x, x * 2], 1).amax(1),
    "select": lambda x: x[:, 2] * x[:, -1],
    "split": lambda x: [part * 2 for part in x.split([1, 2, 3], 1)],
    "chunk": lambda x: torch.mul(*x.chunk(2, 1)),
    "unbind": lambda x: sum(x.unbind(1)),
    "masked fill": lambda x: x.masked_fill(x > 0, -1.0),
    "in place": lambda x: x.clone().mul_(2).add_(x).relu_(),
    "written into": lambda x: _written(x),
    "square": torch.square,
    "dividing a number": lambda x: 1 / (2 + x * x),
    "einsum": lambda x: torch.einsum("nhc,ncd->nhd", x.view(-1, 2, 3), x.view(-1, 3, 2)).flatten(1),
    "einsum by head": lambda x: torch.einsum(
        "nhc,hcd->nhd", x.view(-1, 2, 3), torch.arange(12, dtype=x.dtype).view(2, 3, 2)
    ),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "a column written into": lambda x: _column_written(x),
    "a scaled product": lambda x: torch.addmm(
        x[:, :2], x, torch.ones(6, 2, dtype=x.dtype), beta=2, alpha=0.5
    ),
    "the greatest size": lambda x: torch.linalg.vector_norm(x, float("inf"), -1),
    "numbers among themselves": lambda x: x * (torch.tensor(2.0, dtype=x.dtype) * 3 - 1),
    "a reversed difference": lambda x: torch.rsub(x, x * x, alpha=2),
    "clamped by rows": lambda x: x.clamp_min(x[:, :1]),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1) * 2,
    "one column": lambda x: x.sum(1, keepdim=True).squeeze(-1),
    "ones of the rows": lambda x: x + torch.ones(x.shape[0], 1, dtype=x.dtype),
}


def _written(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    out[:, :3] = x[:, 3:]
    return out + x


def _column_written(x: Tensor) -> Tensor:
    out = x * 2
    out[:, 1] = x[:, 0]
    return out


def positive(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.rand(*shape, dtype=dtype) + 0.2


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.slow
def test_an_operation_on_rows(name: str) -> None:
    programs = check_phase(of_rows(UNARY[name]), [ROW], NONE, differentiated=[0])
    assert name in [*names_in(programs.forward), *names_in(programs.backward)]


@pytest.mark.parametrize("name", POSITIVE)
def test_an_operation_on_positive_rows(name: str) -> None:
    programs = check_phase(of_rows(POSITIVE[name]), [ROW], NONE, differentiated=[0], draw=positive)
    assert name in [*names_in(programs.forward), *names_in(programs.backward)]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")  # of no rows
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.slow
def test_what_pytorch_takes_apart(name: str) -> None:
    check_phase(of_rows(OTHERS[name]), [ROW], NONE, differentiated=[0])


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, y: F.cross_entropy(outputs[0], y, reduction="sum") / 7,
        lambda outputs, y: (
            0.1 * F.nll_loss(F.log_softmax(outputs[0], -1), y, reduction="sum", ignore_index=1)
        ),
    ],
)
def test_the_loss_of_classes(loss: Any) -> None:
    programs = check_last(
        of_rows(lambda x: x * 1.5),
        [ROW],
        {},
        loss,
        RowSpec((), "int64"),
        lambda count: torch.randint(6, (count,)),
        differentiated=[0],
    )
    assert {"nll_loss", "nll_loss_backward", "log_softmax_backward"} <= set(names_in(programs.last))


@pytest.mark.parametrize("kind", ["uint8", "float"])
def test_the_loss_of_labels(kind: Any) -> None:
    check_last(
        of_rows(lambda x: x * 30),
        [ROW],
        {},
        lambda outputs, y: (
            F.binary_cross_entropy_with_logits(outputs[0], y.to(outputs[0].dtype), reduction="sum") / 7
        ),
        RowSpec((6,), kind),
        lambda count: torch.randint(2, (count, 6)).to(torch.uint8 if kind == "uint8" else torch.float64),
        differentiated=[0],
    )


def test_every_operation_is_among_those_tested() -> None:
    """By the sets above; products and dropout by test_trace, products of bfloat16 by test_half_products."""
    tested = {*UNARY, *POSITIVE, "mm", "addmm", "dropout", "nll_loss", "nll_loss_backward"}
    tested |= {"halve", "half_mm", "half_addmm"}
    backward = {name for name in OPERATIONS if name.endswith("_backward")}
    assert {name.removesuffix("_backward") for name in backward} <= tested | {"threshold"}
    assert set(OPERATIONS) - backward == tested - backward
