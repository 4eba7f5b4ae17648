"""Statistics over all vertices in a recorded model: means and variances, and the running ones that norms keep.

`siafu.moments` stands for them: rows in, their mean (and variance) over the whole graph out. It is the one operation besides
a gather that looks at the rows of several vertices.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode

from siafu.base.errors import BadInput

_library = torch.library.Library("siafu", "FRAGMENT")
_library.define("moments(Tensor rows, int site, bool variance) -> Tensor")


@torch.library.impl(_library, "moments", "CompositeExplicitAutograd")
def _moments(rows: Tensor, site: int, variance: bool) -> Tensor:
    return rows.new_empty((2 if variance else 1, *rows.shape[1:]))


MOMENTS = torch.ops.siafu.moments.default
CUMULATIVE = -1.0
"""Momentum of a norm that has none: its running statistics are the mean of all epochs' (torch's momentum=None)."""


def is_moments(node: fx.Node) -> bool:
    return node.target is MOMENTS


@dataclass(frozen=True, slots=True)
class RunningStatistics:
    """Buffers of a norm that follow the statistics of the epochs, as torch keeps them.

    mean, variance: names of the buffers; None: the model has none
    count:          name of the buffer that counts epochs; None: the norm counts none
    momentum:       share of an epoch's statistics in the next value, or CUMULATIVE
    later:          how often the norm is called again in the same epoch, as a layer that runs twice calls it
    """

    mean: str | None
    variance: str | None
    count: str | None
    momentum: float
    later: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.mean, self.variance, self.count) if name is not None)

    @property
    def kept(self) -> float:
        """Share of these statistics that the norm's later calls in the same epoch leave."""
        return 1.0 if self.momentum == CUMULATIVE else (1 - self.momentum) ** self.later

    def before(self, calls: Iterable["RunningStatistics"]) -> "RunningStatistics":
        """These, followed by other calls; those of other norms do not count."""
        again = [each for each in calls if (each.mean, each.variance) == (self.mean, self.variance)]
        return replace(self, later=len(again) if self.names else 0)


class NormsRecorded(TorchFunctionMode):
    """While entered, batch norms and instance norms take their statistics from `siafu.moments`, and buffers are left alone.

    name_of: the name of a buffer
    running: by the sites of `siafu.moments`, the buffers that follow it
    moving:  names of the buffers that follow statistics in trainings, whether this is one or not
    """

    def __init__(self, name_of: Callable[[Any], str | None]) -> None:
        super().__init__()
        self._name_of = name_of
        self._counted: str | None = None
        self.running: dict[int, RunningStatistics] = {}
        self.moving: set[str] = set()

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm and _has_rows(args[0]):
            return self._batch_norm(*args, **kwargs)
        if func is F.instance_norm and _has_rows(args[0]):
            return self._instance_norm(*args, **kwargs)
        if func is Tensor.add_ and self._is_count(args[0]):
            self._counted = self._name_of(args[0])
            return args[0]
        if func is Tensor.__float__ and self._is_count(args[0]):
            return 1 / CUMULATIVE
        return func(*args, **kwargs)

    def _is_count(self, tensor: Any) -> bool:
        name = self._name_of(tensor)
        return name is not None and name.rpartition(".")[2] == "num_batches_tracked"

    def _batch_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if input.ndim != 2:
            raise BadInput(
                f"a batch norm of {input.ndim} dimensions: statistics are over vertices, whose rows [vertices, channels] it takes"
            )
        if not training:
            return self._of_epochs(input, running_mean, running_var, weight, bias, eps)
        return self._of_all(input, running_mean, running_var, weight, bias, momentum, eps)

    def _instance_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if input.ndim != 3 or not isinstance(input.shape[2], torch.SymInt):
            raise BadInput(
                "an instance norm of other dimensions than [1, channels, vertices]: statistics are over vertices"
            )
        rows = input.squeeze(0).t()
        if use_input_stats:
            found = self._of_all(rows, running_mean, running_var, weight, bias, momentum, eps)
        else:
            found = self._of_epochs(rows, running_mean, running_var, weight, bias, eps)
        return found.t().unsqueeze(0)

    def _of_epochs(
        self,
        rows: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
    ) -> Tensor:
        assert running_mean is not None and running_var is not None, (
            "without buffers a norm takes the rows' own"
        )
        self.moves(running_mean)
        self.moves(running_var)
        return _normalised(rows, running_mean, running_var, weight, bias, eps)

    def _of_all(
        self,
        rows: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        found = self._moments(rows, running_mean, running_var, momentum, variance=True)
        return _normalised(rows, found[0], found[1], weight, bias, eps)

    def running_mean(self, rows: Tensor, buffer: Tensor | None, momentum: float) -> Tensor:
        """The mean of the rows of all vertices, which a buffer follows; None: none does."""
        return self._moments(rows, buffer, None, momentum, variance=False)[0]

    def moves(self, buffer: Tensor) -> None:
        """A buffer that follows statistics in trainings is read."""
        name = self._name_of(buffer)
        if name is not None:
            self.moving.add(name)

    def _moments(
        self, rows: Tensor, mean: Tensor | None, spread: Tensor | None, momentum: float, *, variance: bool
    ) -> Tensor:
        # Sites of norms count down from -1: those of other statistics, which are found later, count up.
        site = -1 - len(self.running)
        found: Tensor = MOMENTS(rows, site, variance)
        counted, self._counted = self._counted, None
        named = self._name_of(mean), self._name_of(spread)
        self.running[site] = RunningStatistics(named[0], named[1], counted, float(momentum))
        return found


def _has_rows(value: Any) -> bool:
    return isinstance(value, Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape)


def _normalised(
    rows: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    scale = torch.rsqrt(variance + eps)
    # A sum, so that the gradient of the mean is a sum of rows, with the sign of a few numbers changed afterwards.
    found = (rows + -mean) * (scale if weight is None else scale * weight)
    return found if bias is None else found + bias
