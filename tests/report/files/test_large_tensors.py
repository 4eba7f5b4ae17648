from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from siafu.base.errors import BadInput
from siafu.report.files.checkpoint import load_tensors, save_tensors
from siafu.report.files.large_tensors import load_tables, save_tables


def tables() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "a": rng.random((7, 3)),
        "b": rng.random((2, 5), dtype=np.float32),
        "none": np.empty((0, 4), np.float32),
    }


def test_tables_come_back_to_the_bit(tmp_path: Path) -> None:
    save_tables(tmp_path / "x.safetensors", tables(), {"epoch": 3})
    found, state = load_tables(tmp_path / "x.safetensors")
    assert state == {"epoch": 3}
    assert found.keys() == tables().keys()
    assert all(np.array_equal(found[name], table) for name, table in tables().items())


def test_the_file_is_one_that_safetensors_reads(tmp_path: Path) -> None:
    save_tables(tmp_path / "x.safetensors", tables(), {"epoch": 3})
    found = load_file(tmp_path / "x.safetensors")
    assert all(np.array_equal(found[name].numpy(), table) for name, table in tables().items())
    checked, state = load_tensors(tmp_path / "x.safetensors")
    assert state == {"epoch": 3}
    assert checked.keys() == found.keys()


def test_a_checkpoint_of_tensors_is_read(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x.safetensors", {"a": torch.ones(2, 3)}, {"epoch": 1})
    found, state = load_tables(tmp_path / "x.safetensors")
    assert found["a"].tolist() == [[1.0] * 3] * 2
    assert state == {"epoch": 1}


@pytest.mark.parametrize("where", range(8))
def test_a_flipped_bit_is_found_wherever_it_is(tmp_path: Path, where: int) -> None:
    path = tmp_path / "x.safetensors"
    save_tables(path, tables(), {"epoch": 3})
    data = bytearray(path.read_bytes())
    data[len(data) * where // 8 + 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"x\.safetensors is corrupted"):
        load_tables(path)


def test_a_file_that_is_cut_off_or_missing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(BadInput, match="is missing"):
        load_tables(path)
    save_tables(path, tables(), {})
    for size in (0, 5, 100, path.stat().st_size - 1):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(BadInput, match="is corrupted"):
            load_tables(path)
