"""Directories of runs on links and ranks: the files of other runs, written as epochs end, and read back."""

import json
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.base.hardware.machine import peak_rss_bytes
from siafu.base.version import __version__
from siafu.graph import Graph
from siafu.graph.stores.fingerprint import fingerprint
from siafu.objective.metric import Metric
from siafu.report.files.checkpoint import load_tensors, save_tensors
from siafu.report.files.metrics import EpochMetrics
from siafu.report.files.run_directory import RunDirectory
from siafu.training.records.model_description import describe_model

_EPOCHS, _BEST = (
    "epochs",
    "best",
)  # in the state of model.safetensors: metrics.jsonl has but one measure an epoch


Opts = TypeVar("Opts")


class SavedEpoch(Protocol):
    """An epoch of links or ranks, a dataclass of numbers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def epoch(self) -> int: ...
    @property
    def loss(self) -> float: ...
    @property
    def val(self) -> dict[str, float] | None: ...
    @property
    def test(self) -> dict[str, float] | None: ...
    @property
    def seconds(self) -> float: ...
    @property
    def evaluate_seconds(self) -> float: ...


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A finished run that was read back.

    tensors: by part, "model" or "decoder", and name
    epochs:  fields of every epoch
    best:    the number of the best one
    """

    path: Path
    config: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]
    epochs: list[dict[str, Any]]
    best: int

    def options(self, kind: type[Opts], **changed: Any) -> Opts:
        """Options that the run was trained with."""
        try:
            return kind(**{**self.config["training"], **changed})
        except TypeError as error:
            raise BadInput(
                f"{self.path} has options of another siafu ({error}): load it with that one"
            ) from error

    def is_of(self, **about: Any) -> bool:
        """Whether the graph that it was trained on is described so."""
        return all(self.config["graph"].get(name) == value for name, value in about.items())

    def put_into(self, module: nn.Module, part: str) -> None:
        """Give a module the weights of a part, and their precision."""
        weights = self.tensors.get(part, {})
        floating = next((each.dtype for each in weights.values() if each.is_floating_point()), None)
        try:
            module.to(dtype=floating).load_state_dict(weights)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise BadInput(f"{self.path} has the weights of another {part}: {reason}") from error
        module.eval()


class RunWriter:
    """Writes a run; without a directory nothing."""

    def __init__(self, directory: RunDirectory | None, metric: str) -> None:
        self._directory, self._metric = directory, metric

    @property
    def path(self) -> Path | None:
        return None if self._directory is None else self._directory.path

    def epoch_ended(self, epoch: SavedEpoch) -> None:
        if self._directory is None:
            return
        evaluated = epoch.val is not None or epoch.test is not None
        self._directory.metrics.append(
            EpochMetrics(
                epoch=epoch.epoch,
                train_loss=epoch.loss,
                val_loss=None,
                train_accuracy=None,
                val_accuracy=None if epoch.val is None else epoch.val[self._metric],
                test_accuracy=None if epoch.test is None else epoch.test[self._metric],
                seconds=epoch.seconds - epoch.evaluate_seconds,
                evaluate_seconds=epoch.evaluate_seconds if evaluated else None,
                time=time.time(),
            )
        )

    def finish(
        self,
        modules: dict[str, nn.Module],
        epochs: Sequence[SavedEpoch],
        best: SavedEpoch,
        summary: dict[str, Any],
    ) -> None:
        """Write the weights, and last the summary: a run that has one has finished."""
        if self._directory is None:
            return
        told = {**summary, "peak_rss_bytes": peak_rss_bytes(), "path": str(self._directory.path)}
        tensors = {
            f"{part}.{name}": tensor
            for part, module in modules.items()
            for name, tensor in module.state_dict().items()
        }
        self._directory.metrics.sync()
        state = {
            "files": self._directory.checksums(told),
            _EPOCHS: [asdict(each) for each in epochs],
            _BEST: best.epoch,
        }
        save_tensors(self._directory.model, tensors, state)
        self._directory.write_summary(told)


@contextmanager
def run_writer(
    out: str | Path | None, config: dict[str, Any], metric: str, *, overwrite: bool
) -> Iterator[RunWriter]:
    """A writer of a new run at `out`; None: it writes nothing."""
    if out is None:
        if overwrite:
            raise BadInput("overwrite replaces the run at out: give out, too")
        yield RunWriter(None, metric)
        return
    directory = RunDirectory.start(Path(out), config, overwrite=overwrite, resumable=False)
    try:
        yield RunWriter(directory, metric)
    finally:
        directory.close()


def config_of(
    kind: str, graph: Graph, model: nn.Module, metric: Metric, options: dict[str, Any], **about: Any
) -> dict[str, Any]:
    """The options of a run, as config.json keeps them; about: more about the graph."""
    config = {
        "siafu": __version__,
        "torch": torch.__version__,
        "kind": kind,
        "dataset": graph.source,
        "graph": {
            "name": graph.name,
            "vertices": graph.num_vertices,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "metric": metric.name,
            "fingerprint": fingerprint(graph),
            **about,
        },
        "model": describe_model(model),
        "objective": metric.as_json(),
        "training": options,
    }
    plain: dict[str, Any] = json.loads(json.dumps(config))
    return plain


def checksum_of(*arrays: NDArray[np.int64]) -> str:
    """A short name for pairs, in their order."""
    found = 0
    for array in arrays:
        found = zlib.crc32(array.tobytes(), zlib.crc32(str(array.shape).encode(), found))
    return f"{found:08x}"


def read_saved(path: str | Path, kind: str, made_by: str) -> FinishedRun:
    """The finished run of this kind at `path`, every file of it checked; made_by: the function that writes such runs."""
    directory = RunDirectory(Path(path))
    config = directory.config()
    if config.get("kind") != kind:
        raise BadInput(f"{path} is no run of {made_by}: name the directory that was its out")
    if not directory.finished:
        raise BadInput(f"{path} has not finished: run {made_by} again, with overwrite=True")
    tensors, state = load_tensors(directory.model)
    files, epochs, best = state.get("files"), state.get(_EPOCHS), state.get(_BEST)
    directory.check(files if isinstance(files, dict) else {})
    if not isinstance(epochs, list) or not isinstance(best, int) or not 1 <= best <= len(epochs):
        raise BadInput(f"{directory.model} has no epochs: copy the run again")
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = tensor
    return FinishedRun(directory.path, config, parts, epochs, best)
