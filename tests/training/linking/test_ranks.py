"""siafu.train_ranks against LightGCN in plain PyTorch, in float64, and its metrics against definitions."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from siafu.graph.interactions import Interactions
from siafu.objective.rank_metrics import hits_of, ndcg_at, recall_at

USERS, ITEMS, K = 60, 80, 5


def toy(*, val: bool = False) -> Interactions:
    """Users and items of four tastes."""
    rng = np.random.default_rng(3)
    user, item = rng.integers(0, USERS, 1800), rng.integers(0, ITEMS, 1800)
    likes = (user % 4 == item % 4) | (rng.random(1800) < 0.03)
    keys = np.unique(user[likes] * ITEMS + item[likes])
    pairs = np.stack(np.divmod(rng.permutation(keys), ITEMS))
    cut = len(keys) // 5
    parts = {"test": pairs[:, :cut], "val": pairs[:, cut : 2 * cut] if val else None}
    return Interactions.of(pairs[:, 2 * cut :], **parts, num_users=USERS, num_items=ITEMS)


def by_hand(
    data: Interactions, rows: torch.Tensor, options: dict, epochs: int
) -> tuple[list[float], torch.Tensor]:
    """LightGCN and BPR with sparse matrices and PyTorch's Adam: losses of epochs and the last rows."""
    user, item = (torch.from_numpy(each) for each in (data.train[0], data.train[1] + USERS))
    ends = torch.stack([torch.cat([user, item]), torch.cat([item, user])])
    degree = torch.bincount(ends[0], minlength=USERS + ITEMS).double()
    values = (degree[ends[0]] * degree[ends[1]]).rsqrt()
    matrix = torch.sparse_coo_tensor(ends, values, (USERS + ITEMS, USERS + ITEMS)).coalesce()
    e = rows.clone().requires_grad_()
    optimizer = torch.optim.Adam([e], lr=options["lr"])
    losses = []
    for epoch in range(epochs):
        drawn = [torch.from_numpy(each) for each in data.draws(epoch, options["seed"], options["sampling"])]
        steps = []
        for u, i, j in zip(*(each.split(options["batch"]) for each in drawn), strict=True):
            layers = [e]
            for _ in range(options["layers"]):
                layers.append(torch.sparse.mm(matrix, layers[-1]))
            z = torch.stack(layers).mean(0)
            i, j = i + USERS, j + USERS
            margin = (z[u] * z[i]).sum(1) - (z[u] * z[j]).sum(1)
            loss = -torch.nn.functional.logsigmoid(margin).mean()
            norms = e[u].norm() ** 2 + e[i].norm() ** 2 + e[j].norm() ** 2
            loss = loss + options["penalty"] * norms / 2 / len(u)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.append(loss.item())
        losses.append(sum(steps) / len(steps))
    return losses, e.detach()


@pytest.mark.parametrize("sampling", ["pairs", "users"])
def test_losses_and_rows_are_those_of_plain_torch(sampling: str) -> None:
    data = toy()
    options = {"lr": 0.02, "seed": 4, "sampling": sampling, "batch": 100, "layers": 2, "penalty": 0.01}
    torch.manual_seed(1)
    model = siafu.nn.LightGCN(USERS + ITEMS, 6, 2).double()
    wanted, rows = by_hand(data, model.rows.detach(), options, 3)
    run = siafu.train_ranks(data, model, epochs=3, k=K, **options)
    assert np.allclose([each.loss for each in run.history], wanted, rtol=0, atol=1e-9)
    assert torch.allclose(model.rows, rows, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rule", ["sparse_adam", "adagrad"])
def test_a_sparse_optimizer_moves_the_rows_of_a_step_alone(rule: str) -> None:
    data = toy()
    torch.manual_seed(1)
    model = siafu.nn.LightGCN(USERS + ITEMS, 6, 0).double()  # no layer: rows themselves are scored
    e = model.rows.detach().clone().requires_grad_()
    made = {"sparse_adam": torch.optim.SparseAdam, "adagrad": torch.optim.Adagrad}[rule]([e], lr=0.02)
    drawn = [torch.from_numpy(each) for each in data.draws(0, 0, "pairs")]
    for u, i, j in zip(*(each.split(16) for each in drawn), strict=True):
        z = [torch.nn.functional.embedding(each, e, sparse=True) for each in (u, i + USERS, j + USERS)]
        loss = -torch.nn.functional.logsigmoid((z[0] * z[1]).sum(1) - (z[0] * z[2]).sum(1)).mean()
        made.zero_grad()
        loss.backward()
        made.step()
    siafu.train_ranks(data, model, epochs=1, k=K, lr=0.02, batch=16, penalty=0.0, row_optimizer=rule)
    assert torch.allclose(model.rows, e, rtol=0, atol=1e-9)


def test_a_sparse_optimizer_without_learnt_rows_is_refused() -> None:
    data = toy()
    graph = data.graph.replace(x=np.ones((USERS + ITEMS, 3), np.float32))
    assert graph.num_features == 3
    with pytest.raises(
        BadInput, match="row_optimizer is adagrad, and the model learns no row for each vertex"
    ):
        siafu.train_links(graph, siafu.nn.GCN(3, 4, 2, 4), epochs=1, row_optimizer="adagrad")


def test_recall_and_ndcg_are_those_of_the_definition() -> None:
    data = toy(val=True)
    run = siafu.train_ranks(data, epochs=2, k=K, channels=8, batch=64, lr=0.01)
    of_users, of_items = run.rows()
    scores = (of_users @ of_items.T).numpy()
    scores[data.train[0], data.train[1]] = -np.inf
    seen = scores.copy()
    scores[data.val[0], data.val[1]] = -np.inf
    for part, table in (("val", seen), ("test", scores)):
        recalls, gains = [], []
        for user in range(USERS):
            wanted = set(getattr(data, part)[1][getattr(data, part)[0] == user].tolist())
            if not wanted:
                continue
            best = np.argsort(-table[user], kind="stable")[:K].tolist()
            recalls.append(len(wanted & set(best)) / len(wanted))
            gain = sum(1 / math.log2(place + 2) for place, item in enumerate(best) if item in wanted)
            gains.append(gain / sum(1 / math.log2(place + 2) for place in range(min(K, len(wanted)))))
        assert run.summary()[f"{part}_recall_at_{K}"] == pytest.approx(np.mean(recalls), abs=1e-12)
        assert run.summary()[f"{part}_ndcg_at_{K}"] == pytest.approx(np.mean(gains), abs=1e-12)
    assert run.best_items([3, 7]).tolist() == np.argsort(-seen, kind="stable")[[3, 7], :K].tolist()


def test_metrics_by_hand() -> None:
    hits = hits_of(np.array([[2, 0, 1]]), np.array([1]), np.array([4, 6]), 4)  # user 1 has items 0 and 2
    assert hits.tolist() == [[True, True, False]]
    assert recall_at(np.array([[True, False]]), np.array([4])).tolist() == [0.25]
    assert ndcg_at(np.array([[False, True]]), np.array([1]))[0] == pytest.approx(1 / math.log2(3))


@pytest.mark.slow
def test_it_learns_tastes_and_the_best_epoch_by_validation_stays() -> None:
    data = toy(val=True)
    run = siafu.train_ranks(data, epochs=20, k=20, channels=16, lr=0.05, batch=64, patience=15)
    assert run.summary()["test_recall_at_20"] > 0.6  # 20 of 80 at random: a quarter
    merits = [each.val["recall_at_20"] for each in run.history if each.val is not None]
    assert run.best.epoch == 1 + int(np.argmax(merits))


def test_any_model_that_gives_rows_may_be_trained() -> None:
    data = toy()
    encoder = siafu.nn.GraphSAGE(8, 8, 2, 8)
    before = encoder.state_dict()["convs.0.lin_l.weight"].clone()
    run = siafu.train_ranks(
        data, siafu.nn.LearntRows(USERS + ITEMS, 8, encoder), epochs=5, k=K, lr=0.02, batch=64
    )
    assert run.history[-1].loss < run.history[0].loss
    assert not torch.equal(before, encoder.state_dict()["convs.0.lin_l.weight"])


def test_draws_are_never_what_the_user_has_and_differ_by_epoch() -> None:
    data = toy()
    pairs = set(zip(*data.train.tolist(), strict=True))
    for sampling in ("pairs", "users"):
        user, item, other = data.draws(0, 1, sampling)
        assert set(zip(user.tolist(), item.tolist(), strict=True)) <= pairs
        assert not set(zip(user.tolist(), other.tolist(), strict=True)) & pairs
        assert not np.array_equal(user, data.draws(1, 1, sampling)[0])
    user, item, _ = data.draws(5, 1, "pairs")
    assert set(zip(user.tolist(), item.tolist(), strict=True)) == pairs


def test_users_by_name_are_told_to_be_numbers() -> None:
    run = siafu.train_ranks(toy(), epochs=1)
    with pytest.raises(BadInput, match="users holds <U2: give their numbers, from 0 to "):
        run.best_items(["u1"])


def test_refusals() -> None:
    with pytest.raises(BadInput, match="user 1 has item 2 in train and in test"):
        Interactions.of([[0, 1], [1, 2]], [[1], [2]])
    with pytest.raises(BadInput, match="num_items is 2, but items go up to 2"):
        Interactions.of([[0], [1]], [[0], [2]], num_items=2)
    with pytest.raises(BadInput, match=r"test has shape \(2,\)"):
        Interactions.of([[0], [1]], [0, 2])
    with pytest.raises(BadInput, match="k is 90, and there are 80 items"):
        siafu.train_ranks(toy(), k=90)
    with pytest.raises(BadInput, match="patience needs validation pairs"):
        siafu.train_ranks(toy(), patience=2)
    with pytest.raises(BadInput, match="140 learnt rows, the graph 3 vertices"):
        siafu.nn.LightGCN(140)(siafu.Graph.from_edges([0, 1], [1, 2]))
    with pytest.raises(BadInput, match=r"takes siafu\.Interactions, not Graph"):
        siafu.train_ranks(siafu.Graph.from_edges([0, 1], [1, 2]))
    full = Interactions.of([[0, 0, 1], [0, 1, 0]], [[1], [1]])
    with pytest.raises(BadInput, match="a user has every item"):
        siafu.train_ranks(full, k=1)


def test_users_and_items_may_have_names() -> None:
    train = [["bob", "ann", "eve"], ["tea", "jam", "jam"]]
    named = siafu.Interactions.of(train=train, test=[["ann"], ["tea"]])
    run = siafu.train_ranks(named, epochs=1, k=1)
    assert run.best_items(["bob", "ann"], k=1).tolist() == [["jam"], ["tea"]]
    assert run.best_items(1, k=1).tolist() == [["jam"]]
    with pytest.raises(BadInput, match="no user is called 'bobb': did you mean bob"):
        run.best_items("bobb")
    numbered = siafu.Interactions.of(train=[[1, 0, 2], [1, 0, 0]], test=[[0], [1]])
    assert (named.train == numbered.train).all() and (named.test == numbered.test).all()


def test_a_table_in_the_place_of_an_archive_is_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text("user,item\n1,2\n")
    with pytest.raises(BadInput, match=r"no \.npz archive: .* Interactions\.of\(train=\[users, items\]"):
        Interactions.load(tmp_path / "ratings.csv")


def test_a_table_of_pandas_is_taken_and_split() -> None:
    table = pytest.importorskip("pandas").DataFrame(
        {"user": ["bob", "ann", "eve", "ann"], "item": ["tea", "jam", "jam", "tea"], "rating": [1, 2, 3, 4]}
    )
    pairs = table[["user", "item"]]
    named = Interactions.of(train=pairs[:3], test=pairs[3:])
    listed = Interactions.of(train=[["bob", "ann", "eve"], ["tea", "jam", "jam"]], test=[["ann"], ["tea"]])
    assert np.array_equal(named.train, listed.train) and np.array_equal(named.user_names, listed.user_names)
    split = Interactions.split(pairs, test=0.5, seed=1)
    assert (split.train.shape[1], split.test.shape[1], split.num_users) == (2, 2, 3)
    with pytest.raises(BadInput, match="train has 3 columns: give two"):
        Interactions.of(train=table, test=pairs)
    nullable = table.assign(user=[0, 1, 2, 1], item=[0, 1, 1, 0])[["user", "item"]].astype("Int64")
    assert Interactions.of(train=nullable[:3], test=nullable[3:]).train.dtype == np.int64
    gap = pairs.copy()
    gap.loc[2, "item"] = None
    with pytest.raises(BadInput, match="train has nothing in row 2: drop such pairs"):
        Interactions.of(train=gap, test=pairs)


def test_a_split_holds_out_each_pair_once_and_repeats_with_its_seed() -> None:
    pairs = np.array([[user, item] for user in range(10) for item in range(5)] * 2).T
    one, same, other = (Interactions.split(pairs, test=0.2, val=0.1, seed=seed) for seed in (3, 3, 4))
    assert [part.shape[1] for part in (one.train, one.val, one.test)] == [35, 5, 10]
    assert np.array_equal(one.test, same.test) and not np.array_equal(one.test, other.test)
    together = np.concatenate([one.train, one.val, one.test], axis=1)
    assert len(np.unique(together, axis=1).T) == 50
    with pytest.raises(BadInput, match="give shares that leave pairs to train on"):
        Interactions.split(pairs, test=0.6, val=0.4)
