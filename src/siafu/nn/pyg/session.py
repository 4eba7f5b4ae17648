"""PygCall: one call of a PyG model, and what its stand-ins need to know of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.gathers.gather import Gather
from siafu.nn.pyg.factors import EdgeFeatures
from siafu.nn.recording import recorder

if TYPE_CHECKING:
    from siafu.nn.pyg.standing_in.values import EdgeToken


@dataclass(eq=False)
class PygCall:
    """graph: whose edges the model sees; x: the rows that came in; modules: those whose `forward` runs, innermost last;
    loop_features: features of self-loops, which depend on the graph alone, by their ids;
    edges: those that a layer's messages go along, while they do; None: none do"""

    graph: Graph
    x: Tensor
    modules: list[nn.Module] = field(default_factory=list)
    loop_features: dict[int, Tensor] = field(default_factory=dict)
    edges: "EdgeToken | None" = None
    _constants: dict[Gather, Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> Any:
        """How many vertices there are; a symbol while a model is recorded."""
        return self.x.shape[0]

    def constant(self, gather: Gather) -> Tensor:
        """[rows]: `gather` of ones, which depends on the graph alone."""
        if gather not in self._constants:
            self._constants[gather] = self.gather(gather, self.x.new_ones((self.rows, 1)))[:, 0]
        return self._constants[gather]

    def features_of_edges(self, how: Literal["sum", "mean"], *, removed: bool) -> Tensor:
        """[rows, D]: the features of each vertex's in-edges, reduced; removed: without stored self-loops."""
        gather = EdgeFeatures(how=how, removed=removed)
        if gather not in self._constants:
            ones = self.x.new_ones((self.rows, self.graph.num_edge_features))
            self._constants[gather] = self.gather(gather, ones)
        return self._constants[gather]

    def gather(
        self, gather: Gather, *sent: Tensor, dropout: float = 0.0, parameters: tuple[Tensor, ...] = ()
    ) -> Tensor:
        who = recorder()
        if who is not None:
            who.entered(self.layer)
        return gather(self.graph, *sent, dropout=dropout, parameters=parameters)

    @property
    def layer(self) -> nn.Module:
        """The module that gathers: the innermost that is not one of PyTorch's own."""
        inside = [each for each in self.modules if not type(each).__module__.startswith("torch.nn")]
        return inside[-1] if inside else self.modules[0]

    @property
    def layer_name(self) -> str:
        return type(self.layer).__name__


_current: ContextVar[PygCall | None] = ContextVar("siafu-pyg-session", default=None)


def session() -> PygCall:
    """The call that goes on."""
    found = _current.get()
    if found is None:
        raise BadInput("a stand-in for edges was used after the call of the model that it was made for")
    return found


def is_entered() -> bool:
    """Whether a call goes on in this thread."""
    return _current.get() is not None


@contextmanager
def entered(call: PygCall) -> Iterator[None]:
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)


def refusal(operation: str, instead: str) -> BadInput:
    """Why a layer cannot be taken apart: who, what, and what to do."""
    found = _current.get()
    name = "the model" if found is None else found.layer_name
    return BadInput(f"{name}: {operation}: {instead}")
