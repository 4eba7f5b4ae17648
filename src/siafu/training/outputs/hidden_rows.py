"""Hidden rows of a model, caught while it runs over a whole graph."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from siafu.base.errors import BadInput


class HiddenRows:
    """Rows that one layer made, the last time that it ran."""

    def __init__(self, layer: int | str) -> None:
        self._layer, self._found = layer, list[Any]()

    def note(self, rows: Any) -> None:
        """Keep what a module took or gave."""
        self._found = [rows]

    def rows(self, out: Tensor) -> Tensor:
        """The rows; out: the model's output, which is the last layer's."""
        if self._layer == -1:
            return out
        if not self._found or not isinstance(self._found[0], Tensor):
            raise BadInput(
                f"layer {self._layer!r} gave no rows while the model ran: name another of its modules"
            )
        found: Tensor = self._found[0]
        return found


@contextmanager
def hidden_rows(model: nn.Module, layer: int | str) -> Iterator[HiddenRows]:
    """Catch the rows of a layer while the model runs: by its number in `convs`, or by a module's name."""
    kept = HiddenRows(layer)
    if layer == -1:
        yield kept
        return
    if isinstance(layer, str):
        named = dict(model.named_modules())
        if layer not in named or layer == "":
            raise BadInput(f"the model has no module {layer!r}: choose among {_names_in(model)}")
        hook = named[layer].register_forward_hook(lambda module, given, out: kept.note(out))
    else:
        following = _layer_after(model, layer)
        hook = following.register_forward_pre_hook(
            lambda module, given, named: kept.note(_rows_in(given, named)), with_kwargs=True
        )
    try:
        yield kept
    finally:
        hook.remove()


class HiddenModel(nn.Module):
    """A model that ends at one of its layers: it gives that layer's rows, and is called as the model is.

    layer: its number in `convs`, or a module's name; see `hidden_rows`
    """

    def __init__(self, model: nn.Module, layer: int | str) -> None:
        super().__init__()
        self.model = model

        @functools.wraps(model.forward)
        def forward(*given: Any, **named: Any) -> Tensor:
            with hidden_rows(model, layer) as kept:
                out = model(*given, **named)
            return kept.rows(out)

        self.forward = forward  # models are told apart by the signature of this


def _layer_after(model: nn.Module, layer: int) -> nn.Module:
    layers = getattr(model, "convs", None)
    if not isinstance(layers, nn.ModuleList):
        raise BadInput(
            f"layer is {layer}, and the model does not list its layers in `convs`: give the name of one of its modules, "
            f"among {_names_in(model)}"
        )
    if not -len(layers) <= layer < len(layers) - 1:
        raise BadInput(
            f"layer is {layer}, and the model has {len(layers)}: give a number from {-len(layers)} to -1"
        )
    return layers[layer % len(layers) + 1]


def _names_in(model: nn.Module) -> str:
    return ", ".join(name for name, _ in model.named_modules() if name)


def _rows_in(given: tuple[Any, ...], named: dict[str, Any]) -> Tensor | None:
    """The rows among a layer's arguments: layer(graph, x), or PyG's layer(x, edge_index)."""
    return next((each for each in (*given, *named.values()) if isinstance(each, Tensor)), None)
