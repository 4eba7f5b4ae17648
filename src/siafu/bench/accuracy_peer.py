"""DglSampled: DGL's training on samples, in its own environment, with the settings of Siafu's."""

import json
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from siafu import nn
from siafu.base.errors import BadInput
from siafu.base.storage.owned import OwnedDirectory
from siafu.bench.accuracy_trial import PEER, AccuracySetting, AccuracyTrial
from siafu.bench.timing import answer_of
from siafu.graph import Graph
from siafu.options import ALL_EDGES, Options
from siafu.sampling.fanouts import fanouts_for

MODELS = ("gcn", "sage")


class DglSampled(AbstractContextManager["DglSampled"]):
    """Trains on DGL's samples; each training is a process.

    python: of an environment with DGL
    """

    def __init__(self, graph: Graph, setting: AccuracySetting, python: Path) -> None:
        if setting.model not in MODELS:
            raise BadInput(
                f"DGL's samples are measured with {' and '.join(MODELS)}, not with {setting.model}"
            )
        if not python.exists():
            raise BadInput(
                f"no interpreter at {python}: make the peers' environment first (docs/performance.md says how)"
            )
        fanouts = [each if each != ALL_EDGES else -1 for each in fanouts_for(setting.fanout, setting.layers)]
        decay = {"weight_decay": Options.weight_decay, "fanouts": fanouts}
        self._asked, self._python = json.dumps(asdict(setting) | decay), python
        self._directory = OwnedDirectory()
        self._cpu: dict[float, float] = {}
        np.savez(self._directory.path / "graph.npz", **_arrays(graph, normalize=setting.normalize_features))

    def trial(self, seed: int, rate: float) -> AccuracyTrial:
        script, arrays = Path(__file__).with_name("sampled_peer.py"), self._directory.path / "graph.npz"
        command = [str(self._python), str(script), str(arrays), self._asked, str(seed), str(rate)]
        found = answer_of(command, PEER)
        self._cpu.setdefault(rate, found["cpu"])
        return AccuracyTrial(seed, found["val"], found["seconds"], found["test"])

    def cpu_seconds(self, rate: float) -> float:
        """The median of the first training with this rate."""
        return self._cpu[rate]

    def __exit__(self, *_: object) -> None:
        self._directory.remove()


def _arrays(graph: Graph, *, normalize: bool) -> dict[str, Any]:
    x = nn.features(graph).float().numpy()
    if normalize:
        x = x / np.maximum(np.abs(x).sum(1, keepdims=True), np.finfo(x.dtype).tiny)
    splits = {"train": graph.train, "val": graph.val, "test": graph.test}
    return {"ptr": graph.indptr, "col": graph.indices, "x": x, "y": graph.y, **splits}
