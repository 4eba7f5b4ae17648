"""What people get wrong first: each mistake is told in one line, in their words."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import siafu
from siafu.base.errors import BadInput
from tests.cli.command import Siafu
from tests.sessions import gcn
from tests.toys import toy_graph


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Siafu:
    monkeypatch.chdir(tmp_path)
    return Siafu(monkeypatch, capfd)


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ({"epoch": 3}, "there is no keyword epoch: did you mean epochs?"),
        ({"zzz": 3}, "there is no keyword zzz: help"),
        ({"lr": "0.01"}, "lr is 0.01: give a number"),
        ({"epochs": "3"}, "epochs is 3: give a whole number"),
        ({"clip": [1.0]}, "clip is"),
        (
            {"optimizer": torch.optim.Adam([torch.ones(1)])},
            "optimizer is an object, Adam: give the name adam, adamw or sgd",
        ),
    ],
    ids=str,
)
def test_a_wrong_keyword_is_refused_by_name(keywords: dict[str, Any], told: str) -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match=told.replace("?", r"\?")):
        siafu.train(graph, gcn(graph), **keywords)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("gcn", "the model is 'gcn'"),
        (siafu.nn.GCN, "the model is the class GCN"),
        (nn.Linear(7, 2), "the model is PyTorch's Linear, which takes no edges"),
        (nn.Sequential(nn.Linear(7, 2), nn.ReLU()), "the model is PyTorch's Sequential"),
    ],
    ids=["name", "class", "linear", "sequential"],
)
def test_a_model_that_is_no_module_is_refused(model: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        siafu.train(toy_graph(), model, epochs=1)


@pytest.mark.parametrize("model", ["gcn", siafu.nn.GCN, nn.Linear(7, 2)], ids=["name", "class", "linear"])
def test_a_step_of_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(BadInput, match="the model is "):
        siafu.compile(model, toy_graph())


def test_a_model_in_the_place_of_the_graph_is_told_to_change_places() -> None:
    graph = toy_graph()
    for swapped in (
        lambda: siafu.train(gcn(graph), graph, epochs=1),  # type: ignore[arg-type]
        lambda: siafu.compile(graph, gcn(graph)),  # type: ignore[arg-type]
    ):
        with pytest.raises(BadInput, match="the model GCN in the place of the graph: change their order"):
            swapped()


def test_an_option_that_a_step_has_not_is_told_the_nearest() -> None:
    graph = toy_graph()
    with pytest.raises(
        BadInput, match=r"compile takes no sed: did you mean seed\? There are memory, objective"
    ):
        siafu.compile(gcn(graph), graph, sed=1)


def test_a_name_in_the_place_of_a_graph_is_told_how_to_be_loaded() -> None:
    with pytest.raises(BadInput, match=r"give siafu\.load\('demo'\)"):
        siafu.train("demo", gcn(toy_graph()), epochs=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "told"), [("demo", "write one with 'siafu generate demo -o PATH'"), ("toy", "graph.save")]
)
def test_a_graph_that_a_cluster_cannot_read_is_told_how_it_becomes_a_store(name: str, told: str) -> None:
    graph = toy_graph().replace(name=name)
    with pytest.raises(
        BadInput, match=f"must read it for themselves: write one with.*{told.split(' with ')[-1]}"
    ):
        siafu.train(graph, gcn(graph), epochs=1, cluster="local")


@pytest.mark.parametrize(("kind", "undirected"), [("Graph", True), ("DiGraph", False)])
def test_a_networkx_graph_is_told_how_it_becomes_one(kind: str, undirected: bool) -> None:
    given = getattr(pytest.importorskip("networkx"), kind)()
    with pytest.raises(BadInput, match=rf"NetworkX's {kind}: .*from_edges.*undirected={undirected}"):
        siafu.train(given, gcn(toy_graph()), epochs=1)


def test_names_in_the_place_of_vertices_are_told_how_to_be_numbered() -> None:
    src, dst = ["a", "b"], ["b", "c"]
    with pytest.raises(
        BadInput, match=r"src holds words.*numpy\.unique\(\[src, dst\], return_inverse=True\)"
    ):
        siafu.Graph.from_edges(src, dst)
    names, ids = np.unique([src, dst], return_inverse=True)
    graph = siafu.Graph.from_edges(*ids.reshape(2, -1), num_vertices=len(names))
    assert (graph.num_vertices, graph.num_edges) == (3, 2)


class Net(nn.Module):
    """A model that PyG's users write."""

    def __init__(self, features: int, hidden: int = 4, then: int = 4) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.first, self.last = GCNConv(features, hidden), GCNConv(then, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize(
    ("model", "changes", "told"),
    [
        (lambda: Net(7), {}, "the model wants 7 features a vertex, and the graph has 8: build it for 8"),
        (lambda: Net(8, 4, 6), {}, "a linear map of the model wants rows of 6 numbers and gets 4"),
        (
            lambda: Net(7),
            {"x": None},
            "GCNConv: the graph has no features, and the model's x is None: give it x",
        ),
    ],
    ids=["features", "hidden", "none"],
)
def test_widths_that_do_not_fit_are_told_as_numbers(
    model: Any, changes: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(BadInput, match=told):
        siafu.train(toy_graph(**changes), model(), epochs=1)
    assert not [each for each in caplog.records if "fake_tensor" in each.name]


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.out = nn.MultiheadAttention(8, 2), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.attention(x, x, x)[0])


def test_attention_over_all_vertices_is_refused_without_paths_of_pytorchs_build() -> None:
    with pytest.raises(BadInput) as refused:
        siafu.train(toy_graph(), Attends(), epochs=1)
    assert ".cpp" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_graph_without_labels_is_told_what_can_be_learnt(command: Siafu) -> None:
    toy_graph(y=None, train=None, val=None, test=None).save("bare")
    line = command.refused("train", "bare")
    assert "has no labels" in line and "--label-column" in line and "siafu embed" in line


def test_progress_true_shows_what_the_command_line_shows(capfd: pytest.CaptureFixture[str]) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=2, progress=True)
    shown = capfd.readouterr().err
    assert "each epoch gathers" in shown
    assert "epoch 1/2  loss" in shown


def test_progress_false_is_silence(capfd: pytest.CaptureFixture[str]) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=1, progress=False)
    assert capfd.readouterr().err == ""


def test_one_callback_need_not_be_a_list() -> None:
    graph, seen = toy_graph(), []
    siafu.train(graph, gcn(graph), epochs=2, callbacks=lambda end: seen.append(end.metrics.epoch))
    assert len(seen) == 2


def test_a_sweep_takes_the_model_that_all_settings_share(command: Siafu) -> None:
    toy_graph().save("toy")
    done = command("sweep", "toy", "--vary", "hidden=4,8", "--model", "sage", "--epochs", "1", "--out", "all")
    assert done.code == 0, done
    assert "failed" not in done.err + done.out
    graph = toy_graph()
    made = siafu.sweep(graph, {"hidden": [4]}, out="python", model="gcn", epochs=1)
    assert made.rows[0].summary is not None


def test_a_sweep_with_a_setting_that_failed_does_not_end_well(command: Siafu) -> None:
    toy_graph().save("toy")
    done = command("sweep", "toy", "--vary", "heads=2", "--epochs", "1", "--out", "all")
    assert done.code == 1, done
    assert "1 of 1 settings failed" in done.err


def test_masks_of_pyg_in_an_archive_are_a_split(command: Siafu) -> None:
    import numpy as np

    graph = toy_graph()
    masks = {}
    for part, name in (("train", "train_mask"), ("val", "val_mask"), ("test", "test_mask")):
        masks[name] = np.zeros(graph.num_vertices, np.bool_)
        masks[name][np.asarray(getattr(graph, part))] = True
    target = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    np.savez("g.npz", src=graph.indices, dst=target, x=graph.x, y=graph.y, **masks)
    assert command("import", "g.npz", "-o", "g.store").code == 0
    read = siafu.load("g.store")
    for part in ("train", "val", "test"):
        assert torch.equal(
            torch.as_tensor(np.asarray(getattr(read, part))),
            torch.as_tensor(np.asarray(getattr(graph, part))),
        )
