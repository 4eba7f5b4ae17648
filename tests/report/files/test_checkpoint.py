"""Checkpoints: tensors and state of one moment, in one file."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from siafu.base.errors import BadInput
from siafu.report.files.checkpoint import load_tensors, save_tensors


def test_tensors_and_state_come_back(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 2), "b": torch.tensor(2.5), "c": torch.arange(5, dtype=torch.uint8)}
    save_tensors(tmp_path / "c", tensors, {"epoch": 7, "nested": [1, None]})
    found, state = load_tensors(tmp_path / "c")
    assert state == {"epoch": 7, "nested": [1, None]}
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_two_names_for_one_memory_are_saved_apart(tmp_path: Path) -> None:
    shared = torch.randn(4, 4)
    save_tensors(tmp_path / "c", {"a": shared, "b": shared.t()})
    found, _ = load_tensors(tmp_path / "c")
    assert torch.equal(found["a"].t(), found["b"])


def test_a_save_that_fails_leaves_the_last_one(tmp_path: Path) -> None:
    save_tensors(tmp_path / "c", {"a": torch.ones(1)})
    with pytest.raises(TypeError):
        save_tensors(tmp_path / "c", {"a": torch.zeros(1)}, {"epoch": object()})
    assert load_tensors(tmp_path / "c")[0]["a"].item() == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("keep", [0, 7, 50])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: int) -> None:
    save_tensors(tmp_path / "c", {"a": torch.ones(100)})
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:keep])
    with pytest.raises(BadInput, match="corrupted"):
        load_tensors(tmp_path / "c")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="missing"):
        load_tensors(tmp_path / "c")


def test_every_changed_bit_is_refused(tmp_path: Path) -> None:
    save_tensors(tmp_path / "c", {"a": torch.ones(3), "b": torch.arange(2)}, {"epoch": 7})
    content = (tmp_path / "c").read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        (tmp_path / "c").write_bytes(damaged)
        with pytest.raises(BadInput, match="c is corrupted"):
            load_tensors(tmp_path / "c")


def test_a_file_without_a_checksum_is_refused_unless_it_may_be_an_old_one(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "c", metadata={"siafu": '{"epoch": 7}'})
    with pytest.raises(BadInput, match="its checksum is wrong"):
        load_tensors(tmp_path / "c")
    assert load_tensors(tmp_path / "c", may_lack_checksum=True)[1] == {"epoch": 7}


def test_a_checksum_counts_in_an_old_run_too(tmp_path: Path) -> None:
    save_tensors(tmp_path / "c", {"a": torch.ones(1)})
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:-1] + b"\0")
    with pytest.raises(BadInput, match="its checksum is wrong"):
        load_tensors(tmp_path / "c", may_lack_checksum=True)


@pytest.mark.parametrize("state", ["[]", "{", "[" * 100_000])
def test_a_state_that_is_no_object_is_refused(tmp_path: Path, state: str) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "c", metadata={"siafu": state})
    with pytest.raises(BadInput, match="c is corrupted"):
        load_tensors(tmp_path / "c", may_lack_checksum=True)


def test_numbers_that_json_does_not_have_are_a_mistake_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        save_tensors(tmp_path / "c", {}, {"seconds": float("nan")})
