"""Rules of learnt rows, judged by torch.optim with sparse gradients: the same bits, and rows without a gradient stay."""

import pytest
import torch

from siafu.weights.optimizer import Settings, check_state, step

PEERS = {"sparse_adam": torch.optim.SparseAdam, "adagrad": torch.optim.Adagrad}


@pytest.mark.parametrize("rule", list(PEERS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
def test_rows_move_as_pytorch_moves_those_of_a_sparse_gradient(rule: str, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    first = torch.randn(20, 6, dtype=dtype)
    peer = torch.nn.Parameter(first.clone())
    optimizer = PEERS[rule]([peer], lr=0.05)
    settings = Settings("adam", 0.05, {"emb.weight": 0.1}, row_rules={"emb.weight": rule})
    weights, state = {"emb.weight": first}, {}
    touched: set[int] = set()
    for _ in range(6):
        rows = torch.randperm(10)[:4].sort().values  # the last ten never have a gradient
        values = torch.randn(4, 6, dtype=dtype)
        touched |= set(rows.tolist())
        before = weights["emb.weight"].clone()
        given = weights
        dense = torch.zeros(20, 6, dtype=dtype).index_copy(0, rows, values)
        weights, state = step(weights, {"emb.weight": dense}, state, settings)
        assert torch.equal(given["emb.weight"], before), "a version is never changed"
        peer.grad = torch.sparse_coo_tensor(rows[None], values, (20, 6), check_invariants=True)
        optimizer.step()
        assert torch.equal(weights["emb.weight"], peer.detach())
    still = [row for row in range(20) if row not in touched]
    assert len(still) >= 10 and torch.equal(weights["emb.weight"][still], first[still])
    check_state(state, weights, settings, updated=True)
    with pytest.raises(ValueError, match=r"emb.weight.other.*which .* does not know"):
        check_state({**state, "emb.weight.other": first}, weights, settings, updated=True)


def test_other_weights_have_the_rule_of_the_run() -> None:
    weights = {"emb.weight": torch.ones(3, 2), "lin": torch.ones(3, 2)}
    gradients = {name: torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]) for name in weights}
    settings = Settings("sgd", 0.5, dict.fromkeys(weights, 0.2), row_rules={"emb.weight": "adagrad"})
    found, state = step(weights, gradients, {}, settings)
    assert found["emb.weight"].tolist() == [[0.5, 0.5], [1.0, 1.0], [1.0, 1.0]]
    torch.testing.assert_close(found["lin"], torch.tensor([[0.4, 0.4], [0.9, 0.9], [0.9, 0.9]]))
    assert set(state) == {"emb.weight.step", "emb.weight.sum"}
