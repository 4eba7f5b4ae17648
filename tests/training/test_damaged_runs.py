"""Runs whose files were damaged: one clear line, and no other answer."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import siafu
from siafu.base.errors import BadInput
from siafu.report.files.checkpoint import load_tensors, save_tensors
from siafu.training.run import Run
from tests.old_runs import make_old
from tests.sessions import gcn, same_weights, timeless
from tests.toys import toy_graph

GRAPH = toy_graph(60)
READ = ("config.json", "metrics.jsonl", "model.safetensors", "summary.json")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    siafu.train(GRAPH, gcn(GRAPH), epochs=3, out=out, checkpoint_every=0)
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def resume(run: Path, *, epochs: int = 4) -> Run:
    return siafu.train(GRAPH, gcn(GRAPH), epochs=epochs, out=run, resume=True)


def flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 1
    path.write_bytes(content)


def tensors_of(run: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return load_tensors(run / "checkpoint.safetensors")


def refuse_resume(run: Path, match: str = "checkpoint.safetensors") -> None:
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(BadInput, match=match) as caught:
        resume(run)
    assert "\n" not in str(caught.value)
    assert (run / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("place", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("name", READ)
def test_a_flipped_bit_in_what_is_read_for_an_answer_is_refused(run: Path, name: str, place: float) -> None:
    flip(run / name, place)
    with pytest.raises(BadInput, match=name):
        Run.load(run)


@pytest.mark.parametrize("place", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "checkpoint.safetensors"])
def test_a_flipped_bit_in_what_is_resumed_from_is_refused(run: Path, name: str, place: float) -> None:
    flip(run / name, place)
    refuse_resume(run, name)


def test_a_digit_of_the_metrics_that_changed_is_found(run: Path) -> None:
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(text.replace('"train_loss": 1', '"train_loss": 2', 1))
    with pytest.raises(BadInput, match=r"metrics.jsonl is corrupted"):
        Run.load(run)
    refuse_resume(run, r"metrics.jsonl is corrupted")


def test_settings_that_were_changed_by_hand_are_found(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["training"]["intervals"] = 3
    (run / "config.json").write_text(json.dumps(config))
    refuse_resume(run, r"config.json is corrupted: its checksum is wrong")


def test_damaged_weights_are_told_with_what_is_still_whole(run: Path) -> None:
    flip(run / "model.safetensors", 0.9)
    with pytest.raises(BadInput, match=r"model.safetensors is corrupted .*checkpoint.safetensors is whole"):
        Run.load(run)


def test_damaged_weights_are_written_again_by_resuming(finished: Path, run: Path) -> None:
    flip(run / "model.safetensors", 0.9)
    resume(run, epochs=3)
    assert same_weights(Run.load(run).model, Run.load(finished).model)


def test_a_damaged_checkpoint_is_told_with_what_is_still_whole(run: Path) -> None:
    flip(run / "checkpoint.safetensors", 0.9)
    refuse_resume(run, r"checkpoint.safetensors is corrupted .*are whole, in .*model.safetensors")
    Run.load(run)


def test_a_run_of_before_there_were_checksums_is_read(finished: Path, run: Path) -> None:
    make_old(run)
    old, new = Run.load(run), Run.load(finished)
    assert torch.equal(old.logits(GRAPH), new.logits(GRAPH))
    assert old.history == new.history


def test_a_run_of_before_there_were_checksums_goes_on(run: Path) -> None:
    make_old(run)
    (run / "summary.json").unlink()
    assert json.loads((run / "config.json").read_text())["version"] == 1
    resumed = resume(run)
    straight = siafu.train(GRAPH, gcn(GRAPH), epochs=4)
    assert timeless(resumed.history) == timeless(straight.history)
    # Killed before a checkpoint of its own, it would have to be read as the old one that it is.
    assert json.loads((run / "config.json").read_text())["version"] == 1
    assert same_weights(Run.load(run).model, straight.model)


@pytest.mark.parametrize("name", ["epoch", "seconds", "peak_rss_bytes", "metrics_crc32"])
@pytest.mark.parametrize("value", ["missing", None, "text", -1, [], 1e999])
def test_a_state_that_is_not_as_declared_is_refused(run: Path, name: str, value: Any) -> None:
    tensors, state = tensors_of(run)
    state = {key: each for key, each in state.items() if key != name}
    if value != "missing":
        state[name] = value if value != 1e999 else 10**400
    save_tensors(run / "checkpoint.safetensors", tensors, state)
    refuse_resume(run)


@pytest.mark.parametrize(
    "value", [None, "text", [], {"bytes_scattered": "5"}, {"staleness_histogram": {"x": 1}}]
)
def test_counters_that_could_not_be_added_to_are_refused(run: Path, value: Any) -> None:
    tensors, state = tensors_of(run)
    save_tensors(run / "checkpoint.safetensors", tensors, {**state, "counters": value})
    refuse_resume(run)


@pytest.mark.parametrize("part", [0, 1, 2, 3])
@pytest.mark.parametrize("change", ["missing", "shape", "dtype", "renamed"])
def test_tensors_that_are_not_the_models_are_refused(run: Path, part: int, change: str) -> None:
    tensors, state = tensors_of(run)
    prefixes = ("model.", "best.", "optimizer.", "optimizer.")
    suffixes = ("", "", "exp_avg", "step")
    name = next(
        each for each in sorted(tensors) if each.startswith(prefixes[part]) and each.endswith(suffixes[part])
    )
    tensor = tensors.pop(name)
    if change == "shape":
        tensors[name] = tensor.reshape(1, *tensor.shape)
    elif change == "dtype":
        tensors[name] = tensor.double()
    elif change == "renamed":
        tensors[f"{name}x"] = tensor
    save_tensors(run / "checkpoint.safetensors", tensors, state)
    refuse_resume(run, "of another model or optimizer")


def test_a_tensor_of_no_known_part_is_refused(run: Path) -> None:
    tensors, state = tensors_of(run)
    save_tensors(run / "checkpoint.safetensors", {**tensors, "other": torch.ones(1)}, state)
    refuse_resume(run, "belong to no part")


def test_an_optimizer_without_its_state_is_refused(run: Path) -> None:
    tensors, state = tensors_of(run)
    kept = {name: each for name, each in tensors.items() if not name.startswith("optimizer.")}
    save_tensors(run / "checkpoint.safetensors", kept, state)
    refuse_resume(run, "lacks")


@pytest.mark.parametrize("steps", [-1.0, 0.0, float("nan"), float("inf")])
def test_a_number_of_steps_that_cannot_be_is_refused(run: Path, steps: float) -> None:
    tensors, state = tensors_of(run)
    name = next(each for each in tensors if each.endswith(".step"))
    save_tensors(run / "checkpoint.safetensors", {**tensors, name: torch.tensor(steps)}, state)
    refuse_resume(run, "no number of steps")
