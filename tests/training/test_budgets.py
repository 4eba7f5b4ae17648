"""One training under budgets from plenty to the least that does: the same numbers, to the bit."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import siafu
from siafu.errors import BadInput
from siafu.server.memory import disk_choice, disk_share, listing
from siafu.server.memory.fitting import fit
from siafu.server.memory.measures import choose
from siafu.tables import ScratchDirectory
from siafu.training.placement import choose_partition
from siafu.training.records.checkpoint import Checkpoint
from siafu.training.trainer import Trainer
from tests.training_runs import Gated, options, tangled_graph

GRAPH = tangled_graph(2000)
WIDTH = 48
MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "gcn": lambda features, classes: siafu.nn.GCN(features, WIDTH, 3, classes, 0.5),
    "sage": lambda features, classes: siafu.nn.GraphSAGE(features, WIDTH, 3, classes, 0.5),
    "gin": lambda features, classes: siafu.nn.GIN(features, WIDTH, 3, classes, 0.5),
    "gat": lambda features, classes: siafu.nn.GAT(features, WIDTH, 3, classes, 0.5, heads=2),
    "gatv2": lambda features, classes: siafu.nn.GATv2(features, WIDTH, 3, classes, 0.5, heads=2),
    "transformer": lambda features, classes: siafu.nn.Transformer(features, WIDTH, 3, classes, 0.5, heads=2),
    "edges": lambda features, classes: Gated(features, WIDTH, 3, classes, 0.5),
}


_compiled: dict[Any, Any] = {}  # what models are compiled to, which no budget changes


@pytest.fixture(autouse=True, scope="module")
def settled() -> Iterator[None]:
    """What tests before left in memory does not count, nor what threads have; and groups are few, since each takes a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "own_bytes", lambda: 0)
        patch.setattr("siafu.server.memory.server_hardware.thread_count", lambda: 0)
        patch.setattr(disk_choice, "_GROUPS", (2, 4))
        patch.setattr(disk_choice, "_FOLDED", (1, 4))
        patch.setattr(disk_choice, "LEAST_READ", 1)
        for module in (disk_share, listing):
            patch.setattr(module, "WRITTEN_BEHIND", 1 << 14)
        patch.setattr(listing, "IDLE_BYTES", 1 << 14)
        yield


def trainer_of(name: str, dtype: torch.dtype, **given: Any) -> Trainer:
    torch.manual_seed(0)
    model = MODELS[name](GRAPH.num_features, GRAPH.num_classes).to(dtype)
    placed = choose_partition(GRAPH, 1, "hash")
    made = Trainer(
        GRAPH, model, options(epochs=2, intervals=3), placed, _compiled.get((name, dtype)), **given
    )
    _compiled[name, dtype] = made.programs
    return made


def bits(trainer: Trainer) -> list[Any]:
    """Losses of all epochs, and the weights after the last."""
    trainer.prepare()
    (last,) = [event for event in trainer.run() if isinstance(event, Checkpoint)]
    found: list[Any] = [(epoch.train_loss, epoch.val_loss) for epoch in trainer.history]
    return [*found, {name: tensor.tolist() for name, tensor in last.tensors.items()}]


@cache
def without_limit(name: str, dtype: torch.dtype) -> list[Any]:
    return bits(trainer_of(name, dtype))


def extremes(name: str, dtype: torch.dtype, directory: Path) -> tuple[int, int, int]:
    """Bytes that it takes as it is, at least without a disk, and at least with one."""
    found = listing.RunListing.of(trainer_of(name, dtype).plan)
    least = fit(found, 1, ScratchDirectory(directory)).choice.listed.peak
    return found.listed.peak, choose(found, 0).least, least


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,dtype",
    [
        *product(("gcn", "sage", "gin", "gat"), (torch.float32, torch.float64)),
        ("gatv2", torch.float32),
        ("transformer", torch.float64),
        ("edges", torch.float32),
    ],
    ids=str,
)
def test_five_budgets_give_the_numbers_of_a_run_without_limit(
    tmp_path: Path, name: str, dtype: torch.dtype
) -> None:
    plenty, spared, least = extremes(name, dtype, tmp_path)
    assert least < spared < plenty
    wanted = without_limit(name, dtype)
    for budget in (plenty, (plenty + spared) // 2, spared, spared - 1, least):
        trainer = trainer_of(name, dtype, memory=str(budget), scratch=tmp_path)
        assert trainer.fit.fits
        assert (trainer.fit.scratch > 0) == (budget < spared)
        assert bits(trainer) == wanted, budget
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(MODELS)), share=st.floats(0, 1))
def test_so_does_any_other(tmp_path: Path, name: str, share: float) -> None:
    plenty, _, least = extremes(name, torch.float32, tmp_path)
    budget = least + round(share * (plenty - least))
    trainer = trainer_of(name, torch.float32, memory=str(budget), scratch=tmp_path)
    assert trainer.memory_list.peak <= budget
    assert bits(trainer) == without_limit(name, torch.float32)


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_least_that_is_told_is_enough_for_a_process_that_is_larger_by_some_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_disk: bool
) -> None:
    taken = iter((50_000_000, 50_999_999))
    monkeypatch.setattr(listing, "own_bytes", lambda: next(taken))
    with pytest.raises(BadInput) as caught:
        trainer_of("sage", torch.float32, memory="1MB").refuse_more_than_budget()
    words = r"with which (\S+) would do" if on_disk else r"needs (\S+) of memory"
    told = re.search(words, str(caught.value))
    assert told is not None
    again = trainer_of("sage", torch.float32, memory=told[1], scratch=tmp_path if on_disk else None)
    assert again.fit.fits
