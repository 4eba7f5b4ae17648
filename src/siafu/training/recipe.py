"""Recipe: the model that a command line asks for."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from siafu.base.choices import (
    MODEL_NAMES,
    refuse_other_activation,
    refuse_other_model,
    refuse_other_norm,
    refuse_other_precision,
    refuse_other_shares,
)
from siafu.base.errors import BadInput
from siafu.base.option import option
from siafu.options import MEMORY

if TYPE_CHECKING:
    from torch import nn

    from siafu.graph import Graph
    from siafu.objective.objective import Objective

_model, _memory = (partial(option, panel=panel) for panel in ("More of the model", MEMORY))

_ATTENTION = ("gat", "gatv2", "transformer")
_ONLY_FOR = {"heads": _ATTENTION, "out_heads": _ATTENTION, "aggr": ("sage",)}
_DEFAULTS: dict[str, dict[str, Any]] = {
    name: {"act": "elu", "heads": 8, "out_heads": 1} for name in _ATTENTION
}
# As models call them; what has its own default for some of them is passed only if it is given.
_SAME = ("dropout", "input_dropout", "act", "heads", "out_heads", "aggr", "norm", "residual", "precision")
_ARGUMENTS = {"hidden_channels": "hidden", "num_layers": "layers", **{name: name for name in _SAME}}


def nothing_to_learn(name: str) -> BadInput:
    """The graph of this name has no labels."""
    return BadInput(
        f"graph {name!r} has no labels, and there is nothing to learn: give it y, import it with labels (--label-column NAME), "
        "or learn from its edges alone: siafu embed, siafu.train_links, siafu.train_ranks"
    )


def _either(names: Sequence[str]) -> str:
    """Such as 'gat, gatv2 or transformer'."""
    return " or ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Which model to build for whatever graph comes."""

    model: str = option("gcn", "gcn, gat, gatv2, transformer, sage or gin.")
    hidden: int = option(64, "Width of the hidden layers.", least=1)
    layers: int = option(2, "How many layers.", least=1)
    dropout: float = option(0.5, "Share of the values between layers dropped in training.")
    input_dropout: float = _model(0.0, "Share of the features dropped in training.")
    act: str | None = _model(None, "Activation.", unset="relu; with attention: elu")
    heads: int | None = option(
        None, "Attention heads, together --hidden wide (gat, gatv2, transformer).", unset="8", least=1
    )
    out_heads: int | None = _model(
        None, "Attention heads of the last layer (gat, gatv2, transformer).", unset="1", least=1
    )
    aggr: str | None = _model(None, "How neighbours are gathered: mean, max or sum (sage).", unset="mean")
    norm: str | None = _model(None, "Normalisation between layers: layer_norm or batch_norm.")
    residual: bool = _model(False, "Add each layer's input to its output.")
    precision: str = _memory(
        "fp32",
        "fp32; bf16: gathered rows in half the memory; mixed: products in bfloat16, too; auto: mixed if a trial says so.",
    )

    @staticmethod
    def arguments_of(name: str, config: dict[str, Any] | None) -> dict[str, Any]:
        """The options that ask for a model, of its name and its `config()`; None: it is of a user's making."""
        if config is None:
            raise BadInput(f"model {name} is of your own making: train it from Python")
        for argument in config.keys() - _ARGUMENTS.keys() - {"in_channels", "out_channels"}:
            raise BadInput(f"model has {argument}, which has no option: train it from Python")
        return {"model": name} | {
            ours: config[theirs] for theirs, ours in _ARGUMENTS.items() if theirs in config
        }

    def check_names(self, models: Collection[str] = MODEL_NAMES) -> None:
        """Refuse what no model has, before PyTorch is loaded; models: with those that a user has added."""
        refuse_other_model(self.model, models)
        for name, owners in _ONLY_FOR.items():
            if getattr(self, name) is not None and self.model not in owners:
                raise BadInput(
                    f"--{name.replace('_', '-')} is for --model {_either(owners)}: leave it out with {self.model}"
                )
        refuse_other_precision(self.precision)
        refuse_other_shares(self.dropout, self.input_dropout)
        refuse_other_norm(self.norm)
        if self.act is not None:
            refuse_other_activation(self.act)

    def check(self) -> None:
        """Refuse a model that cannot be built, before the data is loaded."""
        from siafu.nn import MODELS

        self.check_names(MODELS)
        self._build(1, 1)

    def build(self, graph: "Graph", objective: "Objective | None" = None, *, seed: int) -> "nn.Module":
        """The model for `graph` with its first weights, which `seed` decides.

        objective: what it is to learn; None: what the graph's labels are for
        """
        import torch

        if graph.x is None:
            raise BadInput(
                f"graph {graph.name!r} has no features: give it x, import it with features, or train siafu.nn.LearntRows from Python"
            )
        torch.manual_seed(seed)
        outputs = graph.num_classes if objective is None else objective.outputs(graph)
        if outputs == 0:
            raise nothing_to_learn(graph.name)
        return self._build(graph.num_features, outputs)

    def _build(self, in_channels: int, out_channels: int) -> "nn.Module":
        from siafu.nn import build

        asked = {name: getattr(self, ours) for name, ours in _ARGUMENTS.items()}
        given = {name: value for name, value in asked.items() if value is not None}
        if self.precision == "auto":  # a training finds it
            given["precision"] = "fp32"
        sizes = {"in_channels": in_channels, "out_channels": out_channels}
        return build(self.model, {**sizes, **_DEFAULTS.get(self.model, {}), **given})


def describe_graph(graph: "Graph") -> str:
    """A graph's name and sizes."""
    return repr(graph).removeprefix("Graph(").removesuffix(")")
