"""Recurrent layers on rows of vertices, written out: tensor programs have no loop, and no cell.

LSTMs over a few steps of each vertex are JumpingKnowledge's over layers; GRU cells are GatedGraphConv's, and GRUs of one step are those of message passing
networks.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.nn.pyg.session import refusal


def lstm(layer: Any, input: Tensor, hx: Any = None) -> tuple[Tensor, None]:
    """`torch.nn.LSTM.forward` of [vertices, steps, channels], from zero states; the last states are not given."""
    fits = layer.batch_first and hx is None and not layer.proj_size and input.ndim == 3
    if not fits or (layer.dropout and layer.num_layers > 1):
        raise refusal(
            "an LSTM with given states, projections, dropout, or whose steps come first",
            "give it [vertices, steps, channels] with batch_first=True",
        )
    rows = input
    for number in range(layer.num_layers):
        ways = ["", "_reverse"] if layer.bidirectional else [""]
        rows = torch.cat([_one_way(layer, rows, f"_l{number}{way}") for way in ways], 2)
    return rows, None


def _one_way(layer: Any, rows: Tensor, suffix: str) -> Tensor:
    of_input, of_state = getattr(layer, f"weight_ih{suffix}"), getattr(layer, f"weight_hh{suffix}")
    bias = getattr(layer, f"bias_ih{suffix}") + getattr(layer, f"bias_hh{suffix}") if layer.bias else None
    steps = list(range(int(rows.shape[1])))
    found: dict[int, Tensor] = {}
    state: Tensor | None = None
    cell: Tensor | None = None
    for step in reversed(steps) if suffix.endswith("_reverse") else steps:
        gates = F.linear(rows[:, step], of_input, bias)
        gates = gates if state is None else gates + F.linear(state, of_state)
        enter, keep, new, leave = gates.chunk(4, 1)
        added = torch.sigmoid(enter) * torch.tanh(new)
        cell = added if cell is None else torch.sigmoid(keep) * cell + added
        state = found[step] = torch.sigmoid(leave) * torch.tanh(cell)
    return torch.stack([found[step] for step in steps], 1)


def gru_cell(cell: Any, input: Tensor, hx: Tensor | None = None) -> Tensor:
    """`torch.nn.GRUCell.forward` of [vertices, channels]."""
    if hx is None:
        hx = input.new_zeros((input.shape[0], cell.hidden_size))
    return _gru_step(input, hx, cell, "")


def gru(layer: Any, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`torch.nn.GRU.forward` of [steps, vertices, channels], or [vertices, steps, channels] with batch_first; hx: [layers, vertices, channels]."""
    if layer.bidirectional or input.ndim != 3 or (layer.dropout and layer.num_layers > 1):
        raise refusal(
            "a GRU of both directions, or with dropout between its layers",
            "use one direction, without dropout",
        )
    steps = list(input.unbind(1 if layer.batch_first else 0))
    last = []
    for number in range(layer.num_layers):
        state = steps[0].new_zeros((steps[0].shape[0], layer.hidden_size)) if hx is None else hx[number]
        for place, step in enumerate(steps):
            state = steps[place] = _gru_step(step, state, layer, f"_l{number}")
        last.append(state)
    return torch.stack(steps, 1 if layer.batch_first else 0), torch.stack(last)


def _gru_step(input: Tensor, hx: Tensor, layer: Any, suffix: str) -> Tensor:
    of_input, of_state = getattr(layer, f"weight_ih{suffix}"), getattr(layer, f"weight_hh{suffix}")
    biases = [getattr(layer, f"bias_{way}{suffix}") if layer.bias else None for way in ("ih", "hh")]
    given = F.linear(input, of_input, biases[0]).chunk(3, 1)
    held = F.linear(hx, of_state, biases[1]).chunk(3, 1)
    reset, update = (torch.sigmoid(given[k] + held[k]) for k in (0, 1))
    new = torch.tanh(given[2] + reset * held[2])
    return new + update * (hx - new)
