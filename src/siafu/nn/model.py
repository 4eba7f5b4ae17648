"""GNN: layers in a row, with what stands between them."""

import inspect
import itertools
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from siafu.base.choices import refuse_other_activation, refuse_other_norm, refuse_other_shares
from siafu.base.errors import BadInput
from siafu.base.nearest import nearest
from siafu.graph import Graph
from siafu.nn.layers.layer import Layer
from siafu.nn.layers.norms import norm_layer
from siafu.nn.sample_graph import SampleGraph
from siafu.nn.tensors import Precision, features

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "elu": nn.functional.elu,
    "gelu": nn.functional.gelu,
    "leaky_relu": nn.functional.leaky_relu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
}


def activation(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """An activation by its PyTorch name."""
    refuse_other_activation(name)
    return _ACTIVATIONS[name]


def _greatest(every: list[torch.Tensor]) -> torch.Tensor:
    """The greatest of each number; of equals the first gets the gradient."""
    best = every[0]
    for each in every[1:]:
        best = torch.where(each > best, each, best)
    return best


_JUMPS: dict[str, Callable[[list[torch.Tensor]], torch.Tensor]] = {
    "last": lambda every: every[-1],
    "cat": lambda every: torch.cat(every, dim=-1),
    "max": _greatest,
}
"""Jumping knowledge (Xu et al. 2018): what is made of the rows of all layers."""


def reset_parameters(module: nn.Module) -> None:
    """Start a module's parameters anew, where it knows how."""
    reset = getattr(module, "reset_parameters", None)
    if reset is not None:
        reset()


class GNN(nn.Module):
    """`num_layers` layers; between two of them norm, activation and dropout. Arguments as PyG's models have them.

    in_channels:     features of a vertex
    hidden_channels: width between layers
    num_layers:      how many layers
    out_channels:    width of what comes out; None: hidden_channels
    dropout:         share of the values between layers put to zero in training
    input_dropout:   the same for the features
    act:             relu, elu, gelu, leaky_relu, silu or tanh
    norm:            None, "layer_norm", which looks at each vertex alone, or "batch_norm", over all vertices
    jk:              None, "last", "cat" or "max": what a linear map at the end reads of all layers' rows
    residual:        add what went into a layer to what comes out of it, mapped linearly where the widths differ
    precision:       "bf16" stores rows in half the memory while they are gathered; "mixed" takes products of bfloat16 as
                     well; sums and weights stay float32
    options:         what the layer takes besides

    `model(graph)` gives [V, out_channels] for the graph's features, `model(graph, x)` for other rows.
    State dictionaries are those of PyG's models of the same name.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
        act: str = "relu",
        norm: str | None = None,
        *,
        input_dropout: float = 0.0,
        residual: bool = False,
        precision: Precision = "fp32",
        jk: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._check(num_layers, in_channels, hidden_channels, out_channels, dropout, input_dropout, norm)
        self._config = {
            "in_channels": in_channels,
            "hidden_channels": hidden_channels,
            "num_layers": num_layers,
            "out_channels": out_channels,
            "dropout": dropout,
            "act": act,
            "norm": norm,
            "input_dropout": input_dropout,
            "residual": residual,
            "precision": precision,
            **({} if jk is None else {"jk": jk}),
            **options,
        }
        self.out_channels = out_channels
        self.dropout, self.input_dropout = dropout, input_dropout
        self.act_name, self.act = act, activation(act)
        self.precision: Precision = precision
        self.norm_name, self.jk_mode = norm, jk
        if jk is not None and jk not in _JUMPS:
            raise BadInput(f"jk is {jk!r}: choose one of {', '.join(_JUMPS)}")
        last = hidden_channels if out_channels is None else out_channels
        if jk is not None:
            heard = hidden_channels * (num_layers if jk == "cat" else 1)
            self.lin, last = nn.Linear(heard, last), hidden_channels
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), last]
        ends = list(itertools.pairwise(widths))
        try:
            self.convs = nn.ModuleList(
                self.make_layer(wide, next_wide, number == num_layers - 1, **dict(options))
                for number, (wide, next_wide) in enumerate(ends)
            )
        except TypeError as error:
            raise _refused_option(type(self).__name__, error) from error
        normed = widths[1:] if jk is not None else widths[1:-1]
        self.norms = nn.ModuleList(norm_layer(norm, wide) for wide in normed) if norm else None
        self.residuals = (
            nn.ModuleList(
                nn.Identity() if wide == next_wide else nn.Linear(wide, next_wide, bias=False)
                for wide, next_wide in ends[:-1]
            )
            if residual
            else None
        )

    def make_layer(self, in_channels: int, out_channels: int, is_last: bool, **options: Any) -> Layer:
        """The layer that maps rows of `in_channels` to `out_channels`."""
        raise NotImplementedError

    def config(self) -> dict[str, Any]:
        """The arguments this model was made with, fit for JSON; `siafu.nn.build` takes them."""
        return dict(self._config)

    def reset_parameters(self) -> None:
        for module in [*self.convs, *(self.norms or []), *(self.residuals or [])]:
            reset_parameters(module)
        if self.jk_mode is not None:
            reset_parameters(self.lin)

    def forward(self, graph: Graph, x: torch.Tensor | None = None) -> torch.Tensor:
        if not isinstance(graph, Graph):
            raise BadInput(
                f"a model is called with a siafu.Graph, model(graph) or model(graph, x), not with {type(graph).__name__}"
            )
        rows = features(graph).to(next(self.parameters()).dtype) if x is None else x
        if rows.ndim != 2 or rows.shape[1] != self._config["in_channels"]:
            raise BadInput(
                f"the model takes {self._config['in_channels']} features but the rows have {rows.shape[-1]}: "
                "build it with in_channels=graph.num_features"
            )
        rows = self._drop(rows, self.input_dropout)
        every = []
        for number, layer in enumerate(self.convs):
            out = layer(graph, rows)
            is_last = number == len(self.convs) - 1
            if is_last and self.jk_mode is None:
                return out  # type: ignore[no-any-return]
            if self.norms is not None:
                out = self.norms[number](out)
            out = self.act(out)
            if self.residuals is not None and not is_last:
                out = out + self.residuals[number](
                    rows[: len(out)] if isinstance(graph, SampleGraph) else rows
                )
            rows = self._drop(out, self.dropout)
            every.append(rows)
        if isinstance(graph, SampleGraph):
            every = [each[: len(rows)] for each in every]
        found: torch.Tensor = self.lin(_JUMPS[self.jk_mode or "last"](every))
        return found

    def _drop(self, rows: torch.Tensor, share: float) -> torch.Tensor:
        return nn.functional.dropout(rows, share, self.training) if share > 0 else rows

    @staticmethod
    def _check(
        num_layers: int,
        in_channels: int,
        hidden_channels: int,
        out_channels: int | None,
        dropout: float,
        input_dropout: float,
        norm: str | None,
    ) -> None:
        if num_layers < 1:
            raise BadInput(f"num_layers is {num_layers}: a model has at least one layer")
        widths = (in_channels, hidden_channels, out_channels if out_channels is not None else 1)
        if min(widths) < 1:
            raise BadInput(f"in_channels, hidden_channels and out_channels must be at least 1, not {widths}")
        refuse_other_shares(dropout, input_dropout)
        refuse_other_norm(norm)


def _refused_option(model: str, error: TypeError) -> BadInput:
    """A layer of the model was given an option that it does not have."""
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if found is None:
        return BadInput(f"{model} does not take such an option: {error}")
    near = nearest(found[1], inspect.signature(GNN).parameters)
    hint = f"did you mean {near}?" if near else f"help(siafu.nn.{model}) lists its options"
    return BadInput(f"{model} does not take such an option as {found[1]}: {hint}")
