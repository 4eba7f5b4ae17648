"""Phases of the zoo's layers, and of a user's, as tensor programs; what is kept; what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.nn import MLP, GATConv, GCNConv, GINConv, Layer, SAGEConv
from siafu.nn.dropout import dropout
from siafu.nn.model import activation
from siafu.program.execute.torch_executor import TorchExecutor
from siafu.program.trace.phase import PhasePrograms, RowSpec, trace_phase
from tests.program.phases import check_last, check_phase, names_in, of_module, of_rows, state_of

ACTIVATIONS = ["relu", "elu", "gelu", "leaky_relu", "silu", "tanh"]


class Between(nn.Module):
    """A tensor phase of the middle: one layer's end, what stands between two layers, the next one's beginning."""

    def __init__(
        self, layer: Layer, following: Layer, act: str = "relu", wide: int = 8, residual: bool = False
    ) -> None:
        super().__init__()
        self.layer, self.following = layer, following
        self.norm = nn.LayerNorm(wide)
        self.act = activation(act)
        self.residual = nn.Linear(6, wide, bias=False) if residual else None

    def forward(self, gathered: Tensor, x: Tensor) -> Any:
        out = self.act(self.norm(self.layer.apply_vertex(gathered, x)))
        if self.residual is not None:
            out = out + self.residual(x)
        rows = F.dropout(out, 0.5, self.training)
        sent = self.following.transform(rows)
        return [*sent, rows] if isinstance(sent, tuple) else [sent, rows]


class Mine(Layer):
    """A user's layer: gated, with a map made by hand and a change in place."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 8)
        self.weight = nn.Parameter(torch.randn(2, 3, 4))
        self.register_buffer("shift", torch.randn(8))

    def transform(self, x: Tensor) -> Tensor:
        return torch.einsum("nhc,hcd->nhd", x[:, :6].view(-1, 2, 3), self.weight).flatten(1)

    def apply_vertex(self, gathered: Tensor, x: Tensor) -> Tensor:
        out = gathered * torch.sigmoid(self.gate(x))
        out += self.shift
        return F.normalize(out, dim=-1)


LAYERS: dict[str, tuple[Callable[[], Layer], int]] = {
    "gcn": (lambda: _gcn(linear_first=True), 8),
    "gcn, map after": (lambda: _gcn(linear_first=False), 6),
    "gat": (lambda: GATConv(6, 4, heads=2), 8),
    "gat, mean of heads": (lambda: GATConv(6, 8, heads=3, concat=False), 24),
    "sage": (lambda: SAGEConv(6, 8), 6),
    "sage, map first": (lambda: _sage_first(), 8),
    "gin": (lambda: GINConv(MLP([6, 10, 8])), 6),
    "gin, eps learnt": (lambda: GINConv(MLP([6, 10, 8], act="elu"), train_eps=True), 6),
    "a user's": (lambda: Mine(), 8),
}


def _gcn(*, linear_first: bool = True) -> Layer:
    layer = GCNConv(6, 8)
    layer.linear_first = linear_first
    return layer


def _sage_first() -> Layer:
    layer = SAGEConv(6, 8)
    layer.linear_first = True
    return layer


def check_module(module: nn.Module, widths: list[int], **options: Any) -> PhasePrograms:
    learnt = [name for name, _ in module.named_parameters()]
    return check_phase(
        of_module(module),
        [RowSpec((width,)) for width in widths],
        state_of(module),
        learnt=learnt,
        differentiated=list(range(len(widths))),
        **options,
    )


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.slow
def test_the_phase_from_one_layer_to_the_next(name: str) -> None:
    make, width = LAYERS[name]
    following = GATConv(8, 2, heads=3) if name == "gat" else GCNConv(8, 3)
    module = Between(make().double(), following).double()
    programs = check_module(module, [width, 6])
    assert "dropout" in names_in(programs.backward)


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_every_activation_with_residuals_and_layer_norm(act: str) -> None:
    check_module(Between(_gcn(), GCNConv(8, 3), act, residual=True).double(), [8, 6])


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_the_backward_of_an_activation_is_one_operation(act: str) -> None:
    programs = check_phase(of_rows(activation(act)), [RowSpec((6,))], {}, differentiated=[0], counts=[5])
    assert len(names_in(programs.backward)) <= 2


def test_an_evaluation_has_no_dropout_and_nothing_to_draw_from() -> None:
    module = Between(_gcn(), GCNConv(8, 3)).double().eval()
    programs = check_module(module, [8, 6])
    assert "dropout" not in names_in(programs.forward)
    assert not {"key", "vertices"} & set(programs.forward.input_names)


@pytest.mark.slow
def test_float32_programs_are_those_of_float64() -> None:
    module = Between(GATConv(6, 4, heads=2), GATConv(8, 2, heads=3), "gelu")
    double = {name: each.double() for name, each in module.state_dict().items()}
    rows = [RowSpec((8,)), RowSpec((6,))]
    of = [
        trace_phase(of_module(module), rows, weights, learnt=list(weights), differentiated=[0, 1])
        for weights in (module.state_dict(), double)
    ]
    assert of[0] == of[1]


def test_float32_stays_float32() -> None:
    module = Between(_gcn(), GCNConv(8, 3), "elu").eval()
    programs = trace_phase(of_module(module), [RowSpec((8,)), RowSpec((6,))], module.state_dict())
    given = {f"weight/{name}": each for name, each in module.state_dict().items()}
    x, gathered = torch.randn(9, 6), torch.randn(9, 8)
    out = TorchExecutor(programs.forward)(given | {"rows/0": gathered, "rows/1": x})
    for ours, judge in zip(out, module(gathered, x), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, judge)


# What is kept.


def mlp(dropout_share: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(dropout_share), nn.Linear(8, 3)).double()


def products(programs: PhasePrograms, name: str) -> int:
    return sum(each in ("mm", "addmm", "bmm") for each in names_in(getattr(programs, name)))


def test_what_is_kept_is_the_activation_where_that_is_all_the_backward_needs() -> None:
    programs = check_module(mlp(0.5), [6])
    kept = dict(programs.forward_keeping.outputs)["kept/0"]
    first = len(programs.forward_keeping.inputs)
    maker = [op.name for op in programs.forward_keeping.ops for _ in op.results][kept - first]
    assert (
        maker == "dropout"
    )  # what ReLU gave is positive where that is, and where it is not, no gradient goes through
    assert len(programs.kept) == 1
    assert "dropout" not in [op.name for op in programs.backward_kept.ops]  # type: ignore[union-attr]
    # Two products for each weight matrix, and one more to compute the first again.
    assert (products(programs, "backward_kept"), products(programs, "backward")) == (4, 5)
    assert "weight/0.bias" not in programs.backward_kept.input_names  # type: ignore[union-attr]


def test_a_product_with_a_curved_activation_is_kept_itself() -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 3)).double()
    programs = check_module(module, [6])
    kept = dict(programs.forward_keeping.outputs)["kept/0"]
    first = len(programs.forward_keeping.inputs)
    assert programs.forward_keeping.ops[kept - first].name == "addmm"


def test_an_output_is_read_again_instead_of_kept() -> None:
    def function(rows: list[Tensor], weights: dict[str, Tensor], *_: Tensor) -> list[Tensor]:
        out = torch.relu(rows[0] @ weights["w"])
        return [out, out @ weights["v"]]

    weights = {"w": torch.randn(6, 8).double(), "v": torch.randn(8, 3).double()}
    programs = check_phase(function, [RowSpec((6,))], weights, learnt=["w", "v"], differentiated=[0])
    assert programs.kept == ()
    assert programs.backward_kept is not None
    assert "output/0" in programs.backward_kept.input_names
    assert products(programs, "backward_kept") == 4


def test_nothing_is_kept_where_no_product_is_computed_again() -> None:
    programs = check_module(nn.Linear(6, 3).double(), [6])
    assert programs.kept == ()
    assert programs.backward == programs.backward_kept


def test_a_bias_that_is_added_to_a_product_is_one_operation_with_it() -> None:
    def function(rows: list[Tensor], weights: dict[str, Tensor], *_: Tensor) -> list[Tensor]:
        return [torch.relu(weights["b"] + rows[0] @ weights["w"])]

    weights = {"w": torch.randn(6, 8).double(), "b": torch.randn(8).double()}
    programs = check_phase(function, [RowSpec((6,))], weights, learnt=["w", "b"], differentiated=[0])
    assert names_in(programs.forward) == ["addmm", "relu"]


def test_a_product_that_is_read_twice_is_not_computed_twice() -> None:
    def function(rows: list[Tensor], weights: dict[str, Tensor], *_: Tensor) -> list[Tensor]:
        product = rows[0] @ weights["w"]
        return [product + weights["b"], product * product]

    weights = {"w": torch.randn(6, 8).double(), "b": torch.randn(8).double()}
    programs = check_phase(function, [RowSpec((6,))], weights, learnt=["w", "b"], differentiated=[0])
    assert products(programs, "forward") == 1


def test_constant_rows_get_no_gradient_and_cost_nothing() -> None:
    module = mlp()
    learnt = list(dict(module.named_parameters()))
    programs = check_phase(of_module(module), [RowSpec((6,))], state_of(module), learnt=learnt)
    assert products(programs, "backward_kept") == 3
    assert not any(name.startswith("grad/rows") for name in programs.backward.output_names)  # type: ignore[union-attr]


def test_only_what_is_learnt_gets_a_gradient() -> None:
    module = mlp()
    programs = check_phase(of_module(module), [RowSpec((6,))], state_of(module), learnt=["3.bias"])
    assert programs.backward is not None
    assert programs.backward.input_names == ("gradient/0",)


def test_what_the_outputs_do_not_depend_on_has_a_gradient_of_zeros() -> None:
    weights = {"w": torch.randn(4).double()}
    check_phase(
        lambda rows, weights, vertices, key: [rows[0] * 2],
        [RowSpec((6,)), RowSpec((2,))],
        weights,
        learnt=["w"],
        differentiated=[0, 1],
    )


def test_a_phase_that_passes_its_rows_on() -> None:
    programs = check_phase(of_rows(lambda x: x), [RowSpec((6,))], {}, differentiated=[0])
    assert programs.forward.ops == ()


def test_a_phase_without_gradients_has_no_backward() -> None:
    programs = trace_phase(of_rows(torch.relu), [RowSpec((6,))], {})
    assert programs.backward is None
    assert programs.backward_kept is None
    assert programs.last is None


# The last phase.


@pytest.mark.parametrize("name", LAYERS)
def test_the_last_phase_with_its_loss(name: str) -> None:
    make, width = LAYERS[name]
    module = Between(make().double(), GCNConv(8, 3)).double()
    learnt = [each for each, _ in module.norm.named_parameters(prefix="norm")]
    learnt += [each for each, _ in module.layer.named_parameters(prefix="layer")]
    programs = check_last(
        of_module(module),
        [RowSpec((width,)), RowSpec((6,))],
        state_of(module),
        lambda outputs, y: F.cross_entropy(outputs[1], y, reduction="sum") / 50,
        RowSpec((), "int64"),
        lambda count: torch.randint(8, (count,)),
        learnt=learnt,
        differentiated=[0],
    )
    assert programs.last is not None
    assert not any("following" in each for each in programs.last.input_names)


def test_the_last_phase_of_many_labels() -> None:
    module = mlp(0.3)
    check_last(
        of_module(module),
        [RowSpec((6,))],
        state_of(module),
        lambda outputs, y: (
            F.binary_cross_entropy_with_logits(outputs[0], y.to(outputs[0].dtype), reduction="sum") * 0.1
        ),
        RowSpec((3,), "uint8"),
        lambda count: torch.randint(2, (count, 3)).to(torch.uint8),
        learnt=list(dict(module.named_parameters())),
        differentiated=[0],
    )


# Dropout.


def test_dropout_draws_by_vertex_whichever_rows_are_computed_together() -> None:
    programs = trace_phase(of_module(nn.Dropout(0.5)), [RowSpec((6,))], {})
    x, vertices, key = torch.randn(40, 6), torch.randperm(1000)[:40], torch.tensor([3, 9])
    run = TorchExecutor(programs.forward)
    (whole,) = run({"rows/0": x, "vertices": vertices, "key": key})
    torch.testing.assert_close(whole, dropout(x, vertices, key, 0.5, 0), rtol=0, atol=0)
    some = torch.tensor([5, 33, 0])
    (part,) = run({"rows/0": x[some], "vertices": vertices[some], "key": key})
    assert torch.equal(part, whole[some])


# What is refused.


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("sum", lambda x: x - x.sum(0)),
        ("mean", lambda x: x - x.mean(0, keepdim=True)),
        ("amax", lambda x: x / x.abs().amax()),
        ("softmax", lambda x: F.softmax(x, 0)),
        ("cat", lambda x: torch.cat([x, x]).view(2, -1, 6).sum(0)),
        ("mm", lambda x: x @ (x.T @ x)),
        ("mm", lambda x: (x @ x.T).sum(1)),
        ("reshape", lambda x: x.view(6, -1).t() * 2),
        ("flip", lambda x: x.flip(0)),
        ("arange", lambda x: x.roll(1, 0)),
        ("slice|rows", lambda x: x[1:]),
        ("select", lambda x: x - x[0]),
        ("sort", lambda x: x.sort(dim=0).values),
        ("cumsum", lambda x: x.cumsum(0)),
        ("number of rows", lambda x: x / x.std()),
        ("batch norm", lambda x: F.batch_norm(x, None, None, training=True)),
        ("index", lambda x: x[torch.tensor([0, 1, 2])]),
        ("arange", lambda x: x * torch.arange(x.shape[0])[:, None]),
        ("number of rows", lambda x: x / x.shape[0]),
        ("det", lambda x: torch.linalg.det(x.view(-1, 1, 6)[:, :, :1])[:, None]),
        ("rows' values|condition", lambda x: x if x.sum() > 0 else -x),
        ("bernoulli|rand", lambda x: x * torch.rand_like(x)),
        ("bernoulli|native_dropout|rand", lambda x: F.dropout(x, 0.5)),
        ("float16", lambda x: x.half().to(x.dtype)),
        ("fixes the number of rows", lambda x: x + torch.ones(len(x), 1)),
        ("rounding", lambda x: torch.div(x, 2, rounding_mode="floor")),
        ("norm of order 3", lambda x: torch.linalg.vector_norm(x, 3, -1)),
        ("bitwise", lambda x: (x.to(torch.int64) & 1) * x),
        ("not numbers", lambda x: torch.clamp(x, x - 1, x + 1)),
        ("every other column", lambda x: x[:, ::2]),
        ("one for each vertex", lambda x: x.t() * 2),
    ],
)
def test_what_a_tensor_phase_cannot_do_is_refused_by_name(
    name: str, function: Callable[[Tensor], Tensor]
) -> None:
    with pytest.raises(BadInput, match=name) as refusal:
        trace_phase(of_rows(function), [RowSpec((6,))], {}, differentiated=[0])
    assert "\n" not in str(refusal.value)


def test_a_loss_may_not_reach_back_into_rows() -> None:
    def loss(outputs: list[Tensor], y: Tensor) -> Tensor:
        return F.cross_entropy(outputs[0] - outputs[0].sum(), y, reduction="sum")

    with pytest.raises(BadInput, match="mixes the rows"):
        trace_phase(of_rows(torch.relu), [RowSpec((6,))], {}, differentiated=[0], loss=loss)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_loss_that_is_no_sum_is_refused(reduction: str) -> None:
    with pytest.raises(BadInput, match="sum"):
        trace_phase(
            of_rows(torch.relu),
            [RowSpec((6,))],
            {},
            differentiated=[0],
            loss=lambda outputs, y: F.cross_entropy(outputs[0], y, reduction=reduction).sum(),
        )


def test_a_weighted_loss_is_refused() -> None:
    with pytest.raises(BadInput, match="unweighted"):
        trace_phase(
            of_rows(torch.relu),
            [RowSpec((6,))],
            {},
            differentiated=[0],
            target=RowSpec((6,)),
            loss=lambda outputs, y: F.binary_cross_entropy_with_logits(
                outputs[0], y, weight=y, reduction="sum"
            ),
        )


def test_weights_of_two_types_are_refused() -> None:
    with pytest.raises(BadInput, match="several types"):
        trace_phase(of_rows(torch.relu), [RowSpec((6,))], {"a": torch.zeros(1), "b": torch.zeros(1).double()})


def test_numbers_beside_the_weights_are_refused_when_there_are_many() -> None:
    table = torch.randn(100, 6, 16)
    with pytest.raises(BadInput, match="buffer"):
        trace_phase(of_rows(lambda x: (x[:, None] * table.sum(-1)).sum(1)), [RowSpec((6,))], {})
