"""Whole-graph inference under a budget: the model's own outputs, the same bits whatever is spared, and one line where nothing fits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import siafu
from siafu.errors import BadInput
from siafu.server import fused_gathers as chunks
from siafu.server.memory import disk_share, listing
from siafu.server.memory.fitting import fit
from siafu.tables import ScratchDirectory
from siafu.training.outputs.inference import Inference
from tests.training_runs import Gated, tangled_graph

GRAPH = tangled_graph(3000)
MODELS: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: siafu.nn.GCN(6, 24, 3, 3, 0.5),
    "sage": lambda: siafu.nn.GraphSAGE(6, 24, 3, 3, 0.5),
    "gat": lambda: siafu.nn.GAT(6, 24, 3, 3, 0.5, heads=2),
    "gated": lambda: Gated(6, 12, 2, 3, 0.5),
}


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several chunks of an interval, little that waits to be written, and a process that holds nothing yet."""
    monkeypatch.setattr(chunks, "ROWS_AT_ONCE", 512)
    monkeypatch.setattr(listing, "own_bytes", lambda: 0)
    monkeypatch.setattr("siafu.server.memory.server_hardware.thread_count", lambda: 0)
    for module in (disk_share, listing):
        monkeypatch.setattr(module, "WRITTEN_BEHIND", 1 << 14)
    monkeypatch.setattr(listing, "IDLE_BYTES", 1 << 14)


def model_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().double().eval()


@pytest.mark.parametrize("name", list(MODELS))
def test_outputs_are_those_of_the_model_itself(name: str) -> None:
    model = model_of(name)
    with torch.no_grad():
        wanted = model(GRAPH.replace(x=GRAPH.x.astype(float)))  # type: ignore[union-attr]
    found = Inference(GRAPH, model).run()
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_outputs_are_the_same_to_the_bit_whatever_is_spared(tmp_path: Path, name: str) -> None:
    model, scratch = model_of(name).float(), ScratchDirectory(tmp_path)
    plain = Inference(GRAPH, model)
    spared = Inference(GRAPH, model, memory=str(plain.fit.choice.listed.peak - 1))
    assert spared.fit.plan.savings.fused
    with pytest.raises(BadInput, match="predicting needs") as refused:
        Inference(GRAPH, model, memory="1MB")
    would_do = fit(listing.RunListing.of(plain.fit.plan), 1).least
    assert (would_do is not None) == ("with which" in str(refused.value))
    outputs = plain.run()
    assert torch.equal(spared.run(), outputs)
    if (
        name == "gcn"
    ):  # its tables take kilobytes, less than the process grows meanwhile: a disk spares nothing
        return
    assert would_do is not None
    least = Inference(GRAPH, model, memory=str(would_do[0]), scratch=scratch)
    assert torch.equal(least.run(), outputs)
    assert least.traffic.bytes_read >= least.traffic.bytes_written > 0
    assert list(tmp_path.iterdir()) == []


def test_a_few_rows_are_those_of_all() -> None:
    model, rows = model_of("sage"), torch.tensor([3, 700, 2999])
    every = Inference(GRAPH, model).run()
    found = Inference(GRAPH, model, rows=rows)
    assert found.fit.choice.listed.peak < Inference(GRAPH, model).fit.choice.listed.peak
    outputs = found.run()
    torch.testing.assert_close(outputs[rows], every[rows], rtol=1e-12, atol=1e-14)
    assert not outputs[:3].any()


def test_a_run_predicts_for_a_graph_without_labels_and_says_what_it_chose() -> None:
    run = siafu.train(GRAPH, MODELS["gcn"](), epochs=1)
    bare = GRAPH.replace(y=None, num_classes=0, train=None, val=None, test=None)
    said: list[str] = []
    free = run.logits(bare, told=said.append)
    assert said == []
    budget: Any = Inference(bare, run.model).fit.choice.listed.peak - 1
    assert torch.equal(run.logits(bare, memory=str(budget), told=said.append), free)
    assert said[0].startswith("to fit into")
    assert torch.equal(run.predict(bare), free.argmax(dim=1))
