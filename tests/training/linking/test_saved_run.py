"""Runs on links and ranks come back from their directories as they were."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import siafu
from siafu.base.errors import BadInput
from siafu.graph.links import split_links
from tests.cli.command import Siafu
from tests.toys import toy_graph


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "one"


def gcn(graph: siafu.Graph) -> nn.Module:
    torch.manual_seed(5)
    return siafu.nn.GCN(graph.num_features, 8, 2, 6, dropout=0.5)


def pairs() -> siafu.Interactions:
    drawn = np.random.default_rng(0)
    return siafu.Interactions.split(
        np.stack([drawn.integers(0, 20, 300), drawn.integers(0, 40, 300)]), val=0.1
    )


class Doubled(nn.Module):
    """A decoder of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return (source * target).sum(1) * self.scale


def test_links_come_back_to_the_bit(out: Path) -> None:
    graph = toy_graph()
    asked: dict[str, Any] = {"epochs": 5, "decoder": "mlp", "metric": "auc", "evaluate_every": 2, "seed": 3}
    run = siafu.train_links(graph, gcn(graph), out=out, **asked)
    again = siafu.LinkRun.load(out, graph)
    ends = np.array([[0, 5, 9], [1, 7, 2]])
    assert torch.equal(again.scores(ends), run.scores(ends))
    assert (again.summary(), again.history, again.options) == (run.summary(), run.history, run.options)
    assert (again.path, run.path) == (out, out)
    plain = siafu.train_links(graph, gcn(graph), **asked)
    assert plain.path is None and [each.loss for each in plain.history] == [each.loss for each in run.history]


def test_a_directory_has_the_files_of_other_runs(out: Path) -> None:
    graph = toy_graph()
    run = siafu.train_links(graph, gcn(graph), epochs=3, metric="auc", out=out)
    assert {each.name for each in out.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "summary.json",
    }
    summary = json.loads((out / "summary.json").read_text())
    assert run.summary().items() <= summary.items() and summary["peak_rss_bytes"] > 0
    assert siafu.read_metrics(out)["epoch"] == [1, 2, 3]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["val_accuracy"] for line in lines] == [each.val["auc"] for each in run.history if each.val]
    assert all(line["evaluate_seconds"] > 0 and line["seconds"] > 0 for line in lines)


def test_ranks_come_back_to_the_bit_by_name_and_number(out: Path) -> None:
    data = pairs()
    run = siafu.train_ranks(data, epochs=3, channels=8, batch=64, out=out)
    again = siafu.RankRun.load(out, data)
    assert np.array_equal(again.best_items([0, 3], k=4), run.best_items([0, 3], k=4))
    assert (again.summary(), again.history, again.best) == (run.summary(), run.history, run.best)
    with pytest.raises(BadInput, match="was trained on other pairs, users or items: give those"):
        siafu.RankRun.load(out, siafu.Interactions.split(data.train))


def test_what_is_of_ones_own_making_is_asked_for(out: Path) -> None:
    graph = toy_graph()
    split = split_links(graph, val=0.1, test=0.1, seed=9)
    model = siafu.nn.LearntRows(graph.num_vertices, 4, siafu.nn.GCN(4, 8, 2, 6)).double()
    run = siafu.train_links(graph, model, split=split, decoder=Doubled(), epochs=2, out=out)
    assert run.summary()["decoder"] == "Doubled"
    with pytest.raises(BadInput, match=r"other links of it: give that graph, and split=…"):
        siafu.LinkRun.load(out, graph)
    with pytest.raises(BadInput, match=r"LearntRows, which only you .*LinkRun\.load\(path, graph, model\)"):
        siafu.LinkRun.load(out, graph, split=split)
    fresh = siafu.nn.LearntRows(graph.num_vertices, 4, siafu.nn.GCN(4, 8, 2, 6))
    with pytest.raises(BadInput, match=r"a decoder of your own, Doubled: give it \(decoder=…\)"):
        siafu.LinkRun.load(out, graph, fresh, split=split)
    again = siafu.LinkRun.load(out, graph, fresh, decoder=Doubled(), split=split)
    assert torch.equal(again.rows(), run.rows()) and again.rows().dtype == torch.float64
    with pytest.raises(BadInput, match="has the weights of another model"):
        siafu.LinkRun.load(out, graph, gcn(graph), split=split)


def test_ranks_of_another_model_ask_for_it(out: Path) -> None:
    data = pairs()
    model = siafu.nn.LightGCN(data.graph.num_vertices, 6, 1)
    run = siafu.train_ranks(data, model, epochs=1, out=out)
    with pytest.raises(BadInput, match=r"LightGCN: use siafu\.RankRun\.load\(path, interactions, model\)"):
        siafu.RankRun.load(out, data)
    again = siafu.RankRun.load(out, data, siafu.nn.LightGCN(data.graph.num_vertices, 6, 1))
    assert torch.equal(again.rows()[0], run.rows()[0])


def test_another_graph_is_refused(out: Path) -> None:
    graph = toy_graph()
    siafu.train_links(graph, gcn(graph), epochs=1, out=out)
    assert graph.x is not None
    with pytest.raises(BadInput, match="was trained on another graph"):
        siafu.LinkRun.load(out, graph.replace(x=graph.x + 1))


def test_a_run_is_not_replaced_by_mistake_and_a_broken_one_is_told(out: Path) -> None:
    graph = toy_graph()

    def fails(epoch: Any) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        siafu.train_links(graph, gcn(graph), epochs=2, out=out, progress=fails)
    with pytest.raises(
        BadInput, match=r"has not finished: run siafu\.train_links again, with overwrite=True"
    ):
        siafu.LinkRun.load(out, graph)
    with pytest.raises(BadInput, match=r"has not finished: replace it with overwrite=True"):
        siafu.train_links(graph, gcn(graph), epochs=2, out=out)
    siafu.train_links(graph, gcn(graph), epochs=2, out=out, overwrite=True)
    with pytest.raises(BadInput, match="holds a finished run"):
        siafu.train_links(graph, gcn(graph), epochs=2, out=out)
    with pytest.raises(BadInput, match="give out, too"):
        siafu.train_links(graph, gcn(graph), epochs=2, overwrite=True)


@pytest.mark.parametrize("file", ["config.json", "metrics.jsonl", "model.safetensors", "summary.json"])
def test_a_changed_bit_is_found(out: Path, file: str) -> None:
    graph = toy_graph()
    siafu.train_links(graph, gcn(graph), epochs=1, out=out)
    content = bytearray((out / file).read_bytes())
    content[len(content) // 2] ^= 1
    (out / file).write_bytes(content)
    with pytest.raises(BadInput, match=r"corrupted|not readable"):
        siafu.LinkRun.load(out, graph)


def test_other_readers_say_who_reads_it(out: Path) -> None:
    graph = toy_graph()
    siafu.train_links(graph, gcn(graph), epochs=1, out=out)
    with pytest.raises(BadInput, match=r"holds a run of siafu\.train_links: use siafu\.LinkRun\.load"):
        siafu.Run.load(out)
    with pytest.raises(BadInput, match=r"is no run of siafu\.train_ranks"):
        siafu.RankRun.load(out, pairs())


def test_the_command_line_does_not_train_it_again(
    out: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    graph = toy_graph()
    siafu.train_links(graph, gcn(graph), epochs=1, out=out)
    ended = Siafu(monkeypatch, capfd)("train", config=out / "config.json")
    assert ended.code == 2 and "is of siafu.train_links: train it again from Python" in ended.err
