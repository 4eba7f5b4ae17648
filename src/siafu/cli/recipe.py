"""Recipe: the model that a command line asks for; and the options that say so, which several commands share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siafu.base.errors import BadInput

if TYPE_CHECKING:
    from torch import nn

    from siafu.graph import Graph

Dataset = Annotated[str, typer.Argument(metavar="NAME|PATH", help="A dataset's name, or a store's path.")]
Hidden = Annotated[int, typer.Option(min=1, help="Width of the hidden layers.")]
Layers = Annotated[int, typer.Option(min=1, help="How many layers.")]
Dropout = Annotated[float, typer.Option(help="Share of the values between layers dropped in training.")]
InputDropout = Annotated[float, typer.Option(help="Share of the features dropped in training.")]
Act = Annotated[str | None, typer.Option(help="Activation. [default: relu; gat: elu]")]
Heads = Annotated[
    int | None, typer.Option(min=1, help="Attention heads, together --hidden wide (gat). [default: 8]")
]
OutHeads = Annotated[
    int | None, typer.Option(min=1, help="Attention heads of the last layer (gat). [default: 1]")
]
Aggr = Annotated[
    str | None, typer.Option(help="How neighbours are gathered: mean, max or sum (sage). [default: mean]")
]
Norm = Annotated[str | None, typer.Option(help="Normalisation between layers: layer_norm.")]
Residual = Annotated[bool, typer.Option("--residual", help="Add each layer's input to its output.")]
GatherPrecision = Annotated[str, typer.Option(help="How rows are stored while gathered: fp32 or bf16.")]

_ONLY_FOR = {"heads": "gat", "out_heads": "gat", "aggr": "sage"}
_DEFAULTS: dict[str, dict[str, Any]] = {"gat": {"act": "elu", "heads": 8, "out_heads": 1}}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Which model to build for whatever graph comes.

    arguments: that every model takes
    special:   that only some take, or that have other defaults for some; None: not given
    """

    name: str
    arguments: dict[str, Any]
    special: dict[str, Any]

    @classmethod
    def of(
        cls,
        name: str,
        *,
        hidden: int,
        layers: int,
        dropout: float,
        input_dropout: float,
        act: str | None,
        heads: int | None,
        out_heads: int | None,
        aggr: str | None,
        norm: str | None,
        residual: bool,
        precision: str,
    ) -> "Recipe":
        """What the options of a command line ask for; a bad one is refused before the data is loaded."""
        arguments = {
            "hidden_channels": hidden,
            "num_layers": layers,
            "dropout": dropout,
            "input_dropout": input_dropout,
            "norm": norm,
            "residual": residual,
            "precision": precision,
        }
        recipe = cls(name, arguments, {"act": act, "heads": heads, "out_heads": out_heads, "aggr": aggr})
        recipe._check()
        return recipe

    def _check(self) -> None:
        from siafu.nn import MODELS

        if self.name not in MODELS:
            raise BadInput(f"unknown model {self.name!r}: choose one of {', '.join(MODELS)}")
        for option, owner in _ONLY_FOR.items():
            if self.special[option] is not None and owner != self.name:
                flag = option.replace("_", "-")
                raise BadInput(f"--{flag} is for --model {owner}: leave it out with {self.name}")
        self._build(1, 1)

    def build(self, graph: "Graph", *, seed: int) -> "nn.Module":
        """The model for `graph` with its first weights, which `seed` decides."""
        import torch

        if graph.x is None:
            raise BadInput(f"graph {graph.name!r} has no features: give it x, or import it with features")
        torch.manual_seed(seed)
        return self._build(graph.num_features, graph.num_classes)

    def _build(self, in_channels: int, out_channels: int) -> "nn.Module":
        from siafu.nn import build

        given = {option: value for option, value in self.special.items() if value is not None}
        sizes = {"in_channels": in_channels, "out_channels": out_channels}
        return build(self.name, {**sizes, **self.arguments, **_DEFAULTS.get(self.name, {}), **given})


def describe_graph(graph: "Graph") -> str:
    """A graph's name and sizes."""
    return repr(graph).removeprefix("Graph(").removesuffix(")")
