"""A warm start: a model gets the weights of another run or model before it is trained."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.base.storage.absent import no_start
from siafu.report.files.checkpoint import load_tensors
from siafu.report.files.run_directory import RunDirectory
from siafu.training.run import Run


def start_from(model: nn.Module, other: Any) -> None:
    """Give `model` the weights of a run, of the run in a directory, or of another model; None: it keeps its own."""
    if other is None:
        return
    found, where = _weights_of(other)
    try:
        model.load_state_dict(found)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise BadInput(f"{where} has the weights of another model: {reason}") from error


def _weights_of(other: Any) -> tuple[dict[str, Tensor], str]:
    if isinstance(other, Run):
        return other.model.state_dict(), "start"
    if isinstance(other, nn.Module):
        return other.state_dict(), "start"
    if not isinstance(other, str | Path):
        raise BadInput(f"start is a {type(other).__name__}: give a run, its directory, or a model")
    directory = RunDirectory(Path(other))
    if not directory.exists or not directory.model.is_file():
        raise no_start(other)
    return load_tensors(directory.model, may_lack_checksum=directory.may_lack_checksums)[0], str(other)
