"""Runs as Siafu wrote them before their files had checksums."""

import json
from pathlib import Path

from safetensors.torch import save_file

from siafu.report.files.checkpoint import load_tensors

_TENSORS = ("checkpoint.safetensors", "model.safetensors")


def make_old(run: Path) -> None:
    """Turn a run into what version 1 would have left."""
    config = json.loads((run / "config.json").read_text())
    del config["crc32"], config["objective"], config["training"]["objective"]
    (run / "config.json").write_text(json.dumps(config | {"version": 1}, indent=1))
    for name in _TENSORS:
        if (run / name).exists():
            tensors, state = load_tensors(run / name)
            for key in ("metrics_crc32", "files"):
                state.pop(key, None)
            save_file(tensors, run / name, metadata={"siafu": json.dumps(state)})
