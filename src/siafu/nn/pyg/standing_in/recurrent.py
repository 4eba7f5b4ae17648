"""Recurrent layers on rows of vertices, written out: tensor programs have no loop, and no cell.

LSTMs over a few steps of each vertex are JumpingKnowledge's over layers; GRU cells are GatedGraphConv's.
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
    given = F.linear(input, cell.weight_ih, cell.bias_ih).chunk(3, 1)
    if hx is None:
        hx = input.new_zeros((input.shape[0], cell.hidden_size))
    held = F.linear(hx, cell.weight_hh, cell.bias_hh).chunk(3, 1)
    reset, update = (torch.sigmoid(given[k] + held[k]) for k in (0, 1))
    new = torch.tanh(given[2] + reset * held[2])
    return new + update * (hx - new)
