"""Recording a model instead of running it: what `siafu.program` needs to take it apart at its gathers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from siafu.nn.gathers.gather import Gather


class Recorder(Protocol):
    """Stands in for the graph while a model runs on rows that hold no numbers."""

    def features(self) -> torch.Tensor:
        """The rows that take the place of the graph's features."""

    def vertices(self) -> torch.Tensor:
        """Numbers of the vertices, as rows."""

    def entered(self, layer: torch.nn.Module) -> None:
        """The gathers that follow are this layer's."""

    def parameter(self, tensor: torch.Tensor) -> torch.nn.Parameter | None:
        """The model's parameter that a tensor stands in for; None: it stands for none."""

    def remark(self, words: str) -> None:
        """Tell people something about the model."""

    def running_mean(self, rows: torch.Tensor, buffer: torch.Tensor | None, momentum: float) -> torch.Tensor:
        """The mean of rows over all vertices, which a buffer follows from epoch to epoch as torch's norms do; None: none does."""

    def moves(self, buffer: torch.Tensor) -> None:
        """A buffer that follows statistics in trainings is read."""

    def gather(
        self,
        gather: "Gather",
        sent: tuple[torch.Tensor, ...],
        dropout: float,
        parameters: tuple[torch.Tensor, ...] = (),
    ) -> torch.Tensor:
        """Note a gather; rows that take the place of what it gives. parameters: of the model, which it reads"""

    def gather_messages(
        self,
        gather: "Gather",
        x: torch.Tensor,
        apply_edge: Callable[..., torch.Tensor],
        parameters: list[torch.Tensor],
        features: int = 0,
    ) -> torch.Tensor:
        """The same for a gather of messages that `apply_edge` makes; features: columns of what edges have that it wants"""


_current: ContextVar[Recorder | None] = ContextVar("siafu-recorder", default=None)


def recorder() -> Recorder | None:
    """Who records this thread's models; None: they run."""
    return _current.get()


@contextmanager
def recording(who: Recorder) -> Iterator[None]:
    """Let `who` record every model that is called within."""
    token: Any = _current.set(who)
    try:
        yield
    finally:
        _current.reset(token)
