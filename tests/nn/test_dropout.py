"""Counted dropout: masks that are a pure function of what they are for."""

import subprocess
import sys

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from siafu import nn
from siafu.base.errors import BadInput
from siafu.nn.dropout import CountedDropout, counted_dropout, drop_rows, dropout, site_key
from siafu.nn.gathers.functions import AttentionFunction, call
from siafu.program.execute import numpy_dropout
from tests.toys import toy_graph

KEY = torch.tensor([5, 2])


def ones(count: int, width: int = 64) -> torch.Tensor:
    return torch.ones(count, width)


@settings(deadline=None)  # the first call compiles
@given(
    rows=hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=40),
        elements=st.floats(-1e3, 1e3, width=32),
    ),
    seed=st.integers(-(2**63), 2**63 - 1),
    epoch=st.integers(0, 10**6),
    site=st.integers(0, 100),
    p=st.floats(0.001, 1.0),
    first=st.integers(0, 2**40),
)
def test_numpy_and_numba_agree_to_the_bit(
    rows: np.ndarray, seed: int, epoch: int, site: int, p: float, first: int
) -> None:
    vertices = first + 3 * np.arange(len(rows))
    ours = drop_rows(rows, vertices, seed, epoch, p, site)
    theirs = numpy_dropout.drop_rows(rows, vertices, seed, epoch, p, site)
    assert ours.dtype == theirs.dtype == rows.dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_is_dropped_and_the_mean_stays(p: float) -> None:
    kept = dropout(ones(2000, 100), torch.arange(2000), KEY, p, 0)
    noise = 5 * (p * (1 - p) / kept.numel()) ** 0.5
    assert abs((kept == 0).double().mean().item() - p) < noise
    assert kept.max().item() == pytest.approx(1 / (1 - p))


def test_masks_look_independent_across_rows_columns_sites_and_epochs() -> None:
    masks = [
        dropout(ones(400, 50), torch.arange(400), torch.tensor([0, epoch]), 0.5, site).flatten() != 0
        for epoch in range(3)
        for site in range(3)
    ]
    first = masks[0].reshape(400, 50)
    streams = [
        *masks,
        first.T.flatten(),
        *(torch.roll(first, (i, j), (0, 1)).flatten() for i, j in [(1, 0), (0, 1), (1, 1)]),
    ]
    correlation = torch.corrcoef(torch.stack(streams).double()).fill_diagonal_(0).abs()
    assert correlation.max() < 5 / 400**0.5 / 50**0.5


def test_everything_is_dropped_at_p_of_one() -> None:
    assert torch.all(dropout(ones(100), torch.arange(100), KEY, 1.0, 0) == 0)


def test_a_subset_of_the_vertices_gets_its_rows_of_the_whole_mask() -> None:
    whole = dropout(ones(100), torch.arange(100), KEY, 0.5, 1)
    some = torch.tensor([3, 97, 20])
    assert torch.equal(dropout(ones(3), some, KEY, 0.5, 1), whole[some])


def test_rows_in_a_padded_table_and_rows_of_heads_are_the_same_columns() -> None:
    table = torch.randn(20, 32)
    whole = dropout(table[:, :24].contiguous(), torch.arange(20), KEY, 0.5, 0)
    assert torch.equal(dropout(table[:, :24], torch.arange(20), KEY, 0.5, 0), whole)
    heads = table[:, :24].contiguous().reshape(20, 3, 8)
    assert torch.equal(dropout(heads, torch.arange(20), KEY, 0.5, 0).flatten(1), whole)


def test_the_gradient_goes_through_the_same_mask() -> None:
    rows = torch.randn(30, 7, dtype=torch.float64, requires_grad=True)
    vertices = torch.arange(30) + 11
    assert torch.autograd.gradcheck(lambda r: dropout(r, vertices, KEY, 0.4, 2), (rows,))


@pytest.mark.slow
def test_the_op_keeps_its_contract_with_pytorch() -> None:
    rows = torch.randn(6, 5, requires_grad=True)
    torch.library.opcheck(torch.ops.siafu.dropout.default, (rows, torch.arange(6), KEY, 0.5, 0))


def test_a_first_dropout_does_not_wait_for_pytorchs_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from siafu.nn.dropout import dropout\n"
        "rows = torch.ones(4, 3, requires_grad=True)\n"
        "dropout(rows, torch.arange(4), torch.tensor([0, 1]), 0.5, 0).sum().backward()\n"
        "assert rows.grad is not None\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_inside_the_context_nn_dropout_is_counted() -> None:
    rows = torch.randn(50, 8)
    with counted_dropout(5, 2) as counting:
        first = torch.nn.Dropout(0.5)(rows)
        second = F.dropout(rows, 0.3)
        assert counting.sites == 2
    assert torch.equal(first, dropout(rows, torch.arange(50), KEY, 0.5, 0))
    assert torch.equal(second, dropout(rows, torch.arange(50), KEY, 0.3, 1))


def test_a_dropout_that_is_off_takes_no_site() -> None:
    rows = torch.randn(5, 8)
    with counted_dropout(0, 0) as counting:
        assert F.dropout(rows, 0.5, training=False) is rows
        assert torch.equal(F.dropout(rows, 0.0), rows)
        assert torch.equal(torch.nn.Dropout(0.5).eval()(rows), rows)
        F.dropout1d(rows, 0.5, training=False)
        assert counting.sites == 0


def test_dropout_in_place_changes_its_rows() -> None:
    rows = ones(50)
    with counted_dropout(5, 2):
        F.dropout(rows, 0.5, inplace=True)
    assert torch.equal(rows, dropout(ones(50), torch.arange(50), KEY, 0.5, 0))


@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "gin"])
def test_a_model_draws_the_same_masks_in_each_pass_of_an_epoch_and_others_in_the_next(model: str) -> None:
    graph = toy_graph()
    network = nn.build(
        model, {"in_channels": 8, "hidden_channels": 16, "num_layers": 2, "out_channels": 3, "dropout": 0.5}
    )

    def out(seed: int, epoch: int) -> torch.Tensor:
        with counted_dropout(seed, epoch):
            return network(graph)

    before = torch.get_rng_state()
    assert torch.equal(out(1, 0), out(1, 0))
    assert not torch.equal(out(1, 0), out(1, 1))
    assert not torch.equal(out(1, 0), out(2, 0))
    assert torch.equal(torch.get_rng_state(), before)


def test_attention_takes_its_seed_from_its_site() -> None:
    graph = toy_graph()
    layer = nn.GATConv(8, 4, heads=2, dropout=0.5)
    with counted_dropout(5, 2) as counting:
        inside = layer(graph, torch.from_numpy(graph.x))
        assert counting.sites == 1
    sent = layer.transform(torch.from_numpy(graph.x))
    seed = int(site_key(5, 2, 0))
    expected = call(AttentionFunction, *sent, graph, layer.gather, 0.5, seed)
    assert torch.equal(inside, layer.apply_vertex(expected, sent[0]))


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: F.alpha_dropout(x, 0.5, training=True),
        lambda x: F.feature_alpha_dropout(x, 0.5, training=True),
        lambda x: F.dropout1d(x, 0.5),
        lambda x: x + torch.rand(x.shape),
        lambda x: x * torch.rand_like(x),
        lambda x: torch.bernoulli(x.sigmoid()),
        lambda x: x.clone().normal_(),
        lambda x: F.gumbel_softmax(x),
        lambda x: F.rrelu(x, training=True),
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1),
    ],
)
def test_other_random_numbers_are_refused_by_name(draw: object) -> None:
    with counted_dropout(0, 0), pytest.raises(BadInput, match=r"^\w+ draws random numbers"):
        draw(torch.ones(4, 4))  # type: ignore[operator]


def test_random_numbers_are_free_outside() -> None:
    with counted_dropout(0, 0):
        pass
    torch.manual_seed(3)
    expected = F.dropout(ones(5), 0.5)
    torch.manual_seed(3)
    assert torch.equal(F.dropout(ones(5), 0.5), expected)


def test_dropout_of_messages_is_refused() -> None:
    class Messages(nn.Layer):
        def apply_edge(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return F.dropout(source, 0.5)

    graph = toy_graph()
    with counted_dropout(0, 0), pytest.raises(BadInput, match="apply_edge"):
        Messages()(graph, torch.from_numpy(graph.x))


@pytest.mark.parametrize(
    ("vertices", "key"),
    [(torch.arange(3), KEY), (torch.arange(4).float(), KEY), (torch.arange(4), torch.tensor(1))],
)
def test_vertices_and_key_of_the_wrong_shape_are_refused(vertices: torch.Tensor, key: torch.Tensor) -> None:
    with pytest.raises(BadInput):
        dropout(ones(4), vertices, key, 0.5, 0)


def test_a_trace_holds_the_op_with_its_site() -> None:
    def forward(rows: torch.Tensor, vertices: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        with CountedDropout(key, vertices):
            return F.dropout(F.dropout(rows, 0.5), 0.5)

    traced = make_fx(forward, tracing_mode="symbolic")(torch.randn(9, 4), torch.arange(9), KEY)
    sites = [node.args[4] for node in traced.graph.nodes if "siafu" in str(node.target)]
    assert sites == [0, 1]
