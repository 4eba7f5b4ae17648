"""The layers and models of PyG that docs/from-pyg.md says are mapped, out of its table."""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

_PAGE = Path(__file__).parents[3] / "docs" / "from-pyg.md"
_ROW = re.compile(
    r"^\| `(?P<call>\w+\(.*\))` \| (?P<edges>weights|features|types|) ?\| (?P<becomes>[^|]+) \|$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Mapped:
    """call: as PyG makes it; edges: what they have that counts; becomes: names of gathers, or "edge program"."""

    call: str
    edges: str
    becomes: frozenset[str]

    def __str__(self) -> str:
        return self.call

    def build(self) -> nn.Module:
        torch.manual_seed(0)
        made: nn.Module = eval(self.call, {**vars(pyg), "torch": torch})
        return FromStart(made) if self.call.startswith(("GCN2Conv", "FAConv")) else made


class FromStart(nn.Module):
    """A layer that wants the first rows as well."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.conv(torch.tanh(x), x, edge_index, edge_weight)
        return out


def mapped_layers() -> list[Mapped]:
    """All rows of the table."""
    return [
        Mapped(row["call"], row["edges"], frozenset(row["becomes"].split(", ")))
        for row in _ROW.finditer(_PAGE.read_text())
    ]
