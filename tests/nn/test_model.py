"""Whole models: options, precision, determinism and what they refuse."""

import numpy as np
import pytest
import torch

import siafu
from siafu import nn
from siafu.base.errors import BadInput
from siafu.graph.bf16 import to_bf16


def some_graph(**data: object) -> siafu.Graph:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 50, 600), rng.integers(0, 50, 600)
    x = rng.standard_normal((50, 12)).astype(np.float32)
    return siafu.Graph.from_edges(src, dst, num_vertices=50, **({"x": x} | data))


@pytest.mark.parametrize("name", nn.MODELS)
def test_model_of_a_graph_uses_the_graphs_features(name: str) -> None:
    graph = some_graph()
    model = nn.build(
        name, {"in_channels": 12, "hidden_channels": 8, "num_layers": 2, "out_channels": 3}
    ).eval()
    torch.testing.assert_close(model(graph), model(graph, torch.from_numpy(graph.x)))


@pytest.mark.parametrize("name", nn.MODELS)
def test_a_config_builds_the_same_model_again(name: str) -> None:
    model = nn.MODELS[name](12, 8, 3, 4, dropout=0.3, act="elu", norm="layer_norm", residual=True)
    again = nn.build(name, model.config())
    again.load_state_dict(model.state_dict())
    graph = some_graph()
    torch.testing.assert_close(model.eval()(graph), again.eval()(graph))


@pytest.mark.parametrize("name", nn.MODELS)
@pytest.mark.parametrize("options", [{}, {"norm": "layer_norm"}, {"residual": True}])
def test_every_parameter_gets_a_gradient(name: str, options: dict[str, object]) -> None:
    torch.manual_seed(0)  # by chance all logits of a layer have one sign, and the targets' gradient is 0
    model = nn.MODELS[name](12, 8, 3, 4, **options)
    model(some_graph()).square().sum().backward()
    silent = [key for key, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    assert silent == []


def test_gradients_pass_a_numerical_check() -> None:
    graph = some_graph()
    model = nn.GAT(12, 8, 2, 3, heads=2).double()
    x = torch.randn(50, 12, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda rows: model(graph, rows)[:5].sum(), (x,), fast_mode=True)


@pytest.mark.parametrize("name", nn.MODELS)
@pytest.mark.slow
def test_bf16_storage_stays_close_to_fp32(name: str) -> None:
    torch.manual_seed(0)
    exact = nn.MODELS[name](12, 8, 2, 3)
    halved = nn.MODELS[name](12, 8, 2, 3, precision="bf16")
    halved.load_state_dict(exact.state_dict())
    graph = some_graph()
    full, half = exact(graph), halved(graph)
    assert not torch.equal(full, half)
    torch.testing.assert_close(half, full, rtol=0.05, atol=0.02 * full.abs().max().item())
    full.sum().backward()
    half.sum().backward()
    # Of a key's bias, which a softmax cancels, the gradient is rounding alone.
    least = 1e-3 * max(each.grad.abs().max().item() for each in exact.parameters())
    for a, b in zip(halved.parameters(), exact.parameters(), strict=True):
        near = max(least, 0.05 * b.grad.abs().max().item())
        torch.testing.assert_close(a.grad, b.grad, rtol=0.1, atol=near)


def test_bf16_features_are_widened() -> None:
    graph = some_graph()
    halved = graph.with_bf16_features()
    expected = torch.from_numpy(graph.x).bfloat16().float()
    torch.testing.assert_close(nn.features(halved), expected, rtol=0, atol=0)
    np.testing.assert_array_equal(halved.x, to_bf16(graph.x))


def test_dropout_works_in_training_only() -> None:
    graph = some_graph()
    model = nn.GAT(12, 8, 2, 3, dropout=0.5, heads=2, input_dropout=0.2)
    assert not torch.equal(model(graph), model(graph))
    model.eval()
    assert torch.equal(model(graph), model(graph))


@pytest.mark.parametrize("name", nn.MODELS)
def test_a_seed_fixes_everything(name: str) -> None:
    graph = some_graph()
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        model = nn.MODELS[name](12, 8, 2, 3, dropout=0.5)
        out = model(graph)
        out.square().sum().backward()
        results.append([out.detach(), *(p.grad for p in model.parameters())])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_reset_parameters_starts_anew() -> None:
    for name in nn.MODELS:
        model = nn.MODELS[name](12, 8, 2, 3, norm="layer_norm", residual=True)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 7
        model.reset_parameters()
        for key, value in model.state_dict().items():
            assert value.abs().max() <= before[key].abs().max() + 2, key


@pytest.mark.parametrize(
    "arguments,message",
    [
        ({"num_layers": 0}, "at least one layer"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"norm": "group_norm"}, "layer_norm or batch_norm"),
        ({"jk": "lstm"}, "last, cat, max"),
        ({"act": "sine"}, "act is 'sine'"),
        ({"precision": "fp8"}, "fp32, bf16 or mixed"),
        ({"hidden_channels": 0}, "must be at least 1"),
        ({"wings": 2}, r"does not take such an option as wings: help\(siafu\.nn\.GCN\) lists its options"),
        ({"drop": 0.5}, "does not take such an option as drop: did you mean dropout?"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(arguments: dict[str, object], message: str) -> None:
    given = {"in_channels": 12, "hidden_channels": 8, "num_layers": 2, "out_channels": 3} | arguments
    with pytest.raises(BadInput, match=message) as caught:
        nn.GCN(**given)
    assert "\n" not in str(caught.value)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(BadInput, match="hidden_channels is 10 and heads 4"):
        nn.GAT(12, 10, 2, 3, heads=4)


def test_unknown_models_and_aggregations_are_refused() -> None:
    with pytest.raises(BadInput, match="choose one of gcn, gat, gatv2, transformer, sage, gin"):
        nn.build("gru", {})
    with pytest.raises(BadInput, match="choose mean, max or sum"):
        nn.SAGEConv(3, 3, aggr="median")
    with pytest.raises(BadInput, match="between 0 and 1"):
        nn.GATConv(3, 3, negative_slope=-1)


def test_a_graph_without_features_or_with_others_is_refused() -> None:
    model = nn.GCN(5, 8, 2, 3)
    with pytest.raises(BadInput, match="has no features"):
        model(some_graph(x=None))
    with pytest.raises(BadInput, match="takes 5 features but the rows have 12"):
        model(some_graph())


def test_calls_in_pygs_order_say_what_to_do() -> None:
    x, edges = torch.ones(3, 5), torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(BadInput, match="model\\(graph\\) or model\\(graph, x\\), not with Tensor"):
        nn.GCN(5, 8, 2, 3)(x, edges)
    with pytest.raises(BadInput, match="layer\\(graph, x\\), not with Tensor first"):
        nn.GCNConv(5, 8)(x, edges)


def test_names_for_the_tab_key_are_those_of_users() -> None:
    assert dir(nn) == sorted(nn.__all__) and "BadInput" not in dir(nn)
