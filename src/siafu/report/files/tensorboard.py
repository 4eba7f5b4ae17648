"""TensorBoardLog: a run's metrics for TensorBoard, beside its own file."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.report.files.metrics import EpochMetrics
from siafu.report.progress import Progress

_SCALARS = {
    "train_loss": "loss/training",
    "val_loss": "loss/validation",
    "train_accuracy": "accuracy/training",
    "val_accuracy": "accuracy/validation",
    "test_accuracy": "accuracy/test",
    "seconds": "seconds/epoch",
    "evaluate_seconds": "seconds/evaluation",
    "bytes_scattered": "bytes/scattered",
    "usd": "dollars/so far",
}


class TensorBoardLog(Progress):
    """Passes on what it is told, and writes what each epoch measured for TensorBoard.

    PyTorch's writer has a queue and a thread of its own: training does not wait for it.

    told: who else is to be told
    """

    def __init__(self, directory: Path, told: Progress) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise BadInput("tensorboard is not installed: pip install 'siafu[tensorboard]'") from error
        self._make: Callable[[int], Any] = lambda epoch: SummaryWriter(str(directory), purge_step=epoch)
        self._told = told
        self._writer: Any = None

    def prepared(self, lines: list[str], reasons: list[str]) -> None:
        self._told.prepared(lines, reasons)

    def priced(self, told: Callable[[float], str]) -> None:
        self._told.priced(told)

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        if self._writer is None:
            # What an earlier session wrote of this epoch and later ones is void.
            self._writer = self._make(metrics.epoch)
        for name, value in scalars(metrics):
            self._writer.add_scalar(name, value, metrics.epoch, walltime=metrics.time)
        self._told.epoch_ended(metrics)

    def rewound(self, epochs: int, lost: str) -> None:
        self.close()
        self._told.rewound(epochs, lost)

    def stopping(self, number: signal.Signals) -> None:
        self._told.stopping(number)

    def troubled(self, what: str) -> None:
        self._told.troubled(what)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def scalars(metrics: EpochMetrics) -> Iterator[tuple[str, float]]:
    """Numbers under the names that TensorBoard groups them by."""
    for field, name in _SCALARS.items():
        value = getattr(metrics, field)
        if value is not None:
            yield name, value
    for kind, seconds in (metrics.busy_seconds or {}).items():
        yield f"busy seconds/{kind}", seconds
    if metrics.staleness:
        yield "staleness/at most", max(map(int, metrics.staleness))
    for name in ("count", "invocations", "gb_seconds"):
        if metrics.lambdas is not None:
            yield f"lambdas/{name}", metrics.lambdas[name]
