"""EmbeddingState: the numbers of a checkpoint besides its tables, and the only form in which they are read."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput

_MOST = 2**63
_LATER = (
    "position",
    "part_loss",
    "part_triples",
    "part_batches",
    "part_seconds",
)  # older checkpoints lack them


@dataclass(slots=True)
class EmbeddingState:
    """State of a run after some epochs.

    seconds:          from the start, evaluations included, pauses between sessions left out
    training_seconds: of the epochs alone
    position:         batches, or states of the buffer, that are done of the epoch after `epoch`
    part_loss:        of these: sum of the losses; and how many triples and batches, and how many seconds they took
    steps:            updates of each table
    best_epoch:       of the best validation MRR; 0: none was evaluated
    staleness:        the most earlier batches whose updates were missing when a batch was read
    swaps:            partitions read into the buffer in place of others
    disk_seconds:     that reading and writing partitions took; disk_waited_seconds: that the trainer waited for it
    metrics_crc32:    of the lines of metrics up to `epoch`
    """

    epoch: int = 0
    seconds: float = 0.0
    training_seconds: float = 0.0
    steps: dict[str, int] | None = None
    best_epoch: int = 0
    best_mrr: float = 0.0
    peak_rss_bytes: int = 0
    staleness: int = 0
    swaps: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    metrics_crc32: int = 0
    position: int = 0
    part_loss: float = 0.0
    part_triples: int = 0
    part_batches: int = 0
    part_seconds: float = 0.0
    disk_seconds: float = 0.0
    disk_waited_seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, found: dict[str, Any], where: Path) -> "EmbeddingState":
        """The state that stands in the checkpoint at `where`, or one line on what is wrong with it."""
        for name, kind in cls.__annotations__.items():
            value = found.get(name, 0 if name in _LATER else None)
            if name == "steps":
                fits = isinstance(value, dict) and set(value) == {"entities", "relations"}
                fits = fits and all(_is_count(each) for each in value.values())  # type: ignore[union-attr]
            else:
                fits = _is_count(value) if kind is int else _is_number(value)
            if not fits:
                raise BadInput(
                    f"{where} is damaged (its state lacks or misnames {name!r}): copy the run again, or train it again"
                )
        return cls(**{name: found[name] for name in cls.__annotations__ if name in found})


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < _MOST and math.isfinite(value)
