"""Resumption of a run: its last checkpoint, and what is refused about it."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from siafu.base.errors import BadInput
from siafu.report.files.checkpoint import is_whole, load_tensors
from siafu.report.files.checkpoint_state import CheckpointState
from siafu.report.files.run_directory import RunDirectory

if TYPE_CHECKING:
    from siafu.training.trainer import Trainer


def restore(trainer: "Trainer", directory: RunDirectory) -> tuple[float, int]:
    """Bring the trainer to the last checkpoint; the seconds and the memory that this much has taken."""
    if not directory.checkpoint.exists():
        directory.metrics.keep_until(0)
        return 0.0, 0
    old = directory.may_lack_checksums
    tensors, found = _checkpoint_of(directory, old)
    state = CheckpointState.read(found, directory.checkpoint, may_lack_checksum=old)
    history = directory.metrics.read_until(state.epoch)
    try:
        trainer.restore(tensors, state.counters, history)
    except (RuntimeError, KeyError, ValueError) as error:
        raise BadInput(f"{directory.checkpoint} is of another model or optimizer: {error}") from error
    directory.metrics.check(state.epoch, state.metrics_crc32)
    directory.metrics.keep_until(state.epoch)
    return state.seconds, state.peak_rss_bytes


def refuse_fewer_epochs(epochs: int, directory: RunDirectory) -> None:
    """Refuse to go on with a run that has more epochs than are asked for. A damaged checkpoint is refused later."""
    old = directory.may_lack_checksums
    try:
        found = load_tensors(directory.checkpoint, may_lack_checksum=old)[1]
        done = CheckpointState.read(found, directory.checkpoint, may_lack_checksum=old).epoch
    except BadInput:
        return
    if done > epochs:
        raise BadInput(
            f"{directory.path} has {done:,} epochs already, and epochs is {epochs:,}: give more than it has (--epochs), or use "
            "the run as it is"
        )


def _checkpoint_of(directory: RunDirectory, old: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        return load_tensors(directory.checkpoint, may_lack_checksum=old)
    except BadInput as error:
        left = f"; the weights of its best epoch are whole, in {directory.model}: evaluate and predict still work"
        raise BadInput(f"{error}{left if is_whole(directory.model) else ''}") from error
