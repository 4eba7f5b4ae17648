"""PairSoftmax: attention whose logit is a function of both ends of an edge, and of its features."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.kernels import LANES, Attention, Table, empty_table
from siafu.nn.dropout import attention_seed
from siafu.nn.gathers.functions import call
from siafu.nn.gathers.gather import Gather, SampledPart
from siafu.nn.tensors import as_rows, check_rows

PairLogit = Literal["additive", "product"]


@dataclass(frozen=True)
class PairSoftmax(Gather):
    """out_i = Σ_j a_ij value_j, a_ij the softmax over i's in-edges of z_ij, by head.

    additive: z_ij = ⟨att, leaky_relu(x_j + target_i + e_ij)⟩, value_j = x_j      Brody et al. 2022 (GATv2)
              sent: x, target; parameters: att of `heads` · C numbers
    product:  z_ij = ⟨query_i, key_j + e_ij⟩, value_j = value_j + e_ij            Shi et al. 2021 (TransformerConv)
              sent: key, value, query

    features:   columns D of edge_attr: e_ij = edge_attr_ij Wᵀ; W, [heads · C, D], is the last parameter. 0: there is no e_ij
    slope:      of the leaky ReLU, 0 to 1
    self_loops: each vertex has exactly one self-loop instead of those that are stored; with features, `sent` ends with
                those of the self-loops, [V, D], which are not learnt
    """

    form: PairLogit = "additive"
    heads: int = 1
    slope: float = 0.2
    self_loops: bool = True
    features: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.slope <= 1:
            raise BadInput(f"negative_slope is {self.slope}: it must lie between 0 and 1")
        if self.heads < 1:
            raise BadInput(f"heads is {self.heads}: there must be at least one")

    @property
    def title(self) -> str:
        return f"PairSoftmax ({self.form})"

    @property
    def rows_sent(self) -> int:
        """How many tensors are sent, besides the features of self-loops."""
        return 2 if self.form == "additive" else 3

    @property
    def sends_loops(self) -> bool:
        """Whether `sent` ends with the features of self-loops."""
        return self.features > 0 and self.self_loops

    @property
    def takes_samples(self) -> bool:
        """Features of self-loops are means over all in-edges, which a sample has not."""
        return not self.sends_loops

    def estimate(self, sampled: SampledPart) -> None:
        """A softmax over the sample."""

    def settings(self, width: int, dropout: float = 0.0, seed: int = 0) -> Attention:
        """As kernels take them, for rows this wide, all heads together."""
        padded = -(-(width // self.heads) // LANES) * LANES
        return Attention(self.heads, padded, self.slope, self.self_loops, dropout, seed)

    def run(
        self,
        graph: Graph,
        *sent: torch.Tensor,
        parameters: tuple[torch.Tensor, ...] = (),
        dropout: float = 0.0,
    ) -> torch.Tensor:
        from siafu.nn.gathers.pair_function import PairFunction

        self._check(graph, sent, parameters)
        seed = attention_seed() if dropout > 0 else 0
        return call(PairFunction, graph, self, dropout, seed, *sent, *parameters)

    def _check(
        self, graph: Graph, sent: tuple[torch.Tensor, ...], parameters: tuple[torch.Tensor, ...]
    ) -> None:
        wanted = self.rows_sent + self.sends_loops, (self.form == "additive") + (self.features > 0)
        if (len(sent), len(parameters)) != wanted:
            raise BadInput(f"{self.title} takes {wanted[0]} tensors and {wanted[1]} parameters")
        width = int(sent[0].shape[-1])
        for each in sent[: self.rows_sent]:
            check_rows("rows", each, graph)
            if each.shape[1] != width or each.dtype != sent[0].dtype:
                raise BadInput(f"{self.title} wants rows of one width and type at both ends of an edge")
        if width % self.heads:
            raise BadInput(f"rows have {width} columns, which {self.heads} heads cannot share evenly")
        if self.form == "additive" and parameters[0].numel() != width:
            raise BadInput(f"att has {parameters[0].numel()} numbers for rows of {width}")
        if self.features:
            check_features(graph, parameters[-1], width)


def check_features(graph: Graph, weight: torch.Tensor, width: int) -> None:
    """Refuse a map of edges' features that does not fit the graph's."""
    if graph.edge_attr is None:
        raise BadInput(f"graph {graph.name!r} has no edge_attr, which the model's lin_edge maps")
    columns = graph.edge_attr.shape[1]
    if tuple(weight.shape) != (width, columns):
        raise BadInput(
            f"edge_attr has {columns} columns, but the model's lin_edge maps {weight.shape[-1]}: give edge_dim={columns}"
        )


def one_row(values: torch.Tensor, rows: int, how: Attention, kind: np.dtype[Any]) -> Table:
    """A table whose rows lie in one place, heads padded."""
    flat = values.detach().reshape(how.heads, -1).numpy()
    row = np.zeros((how.heads, how.head_columns), kind)
    row[:, : flat.shape[1]] = flat
    return np.lib.stride_tricks.as_strided(row.reshape(-1), (rows, row.size), (0, kind.itemsize))


def mix_of(weight: torch.Tensor, how: Attention, kind: np.dtype[Any]) -> NDArray[Any]:
    """[D, columns] of W, [heads · C, D]."""
    found = weight.detach().numpy()
    by_head = found.reshape(how.heads, -1, found.shape[1])
    mix = empty_table(found.shape[1], how.heads * how.head_columns, kind)
    mix[:] = 0
    inner = mix[:, : how.heads * how.head_columns].reshape(len(mix), how.heads, how.head_columns)
    inner[:, :, : by_head.shape[1]] = by_head.transpose(2, 0, 1)
    mix[:, : how.heads * how.head_columns] = inner.reshape(len(mix), -1)
    return mix


def of_mix(gradient: NDArray[Any], how: Attention, like: torch.Tensor) -> torch.Tensor:
    """The gradient of W, of that of `mix_of`."""
    columns = like.shape[0] // how.heads
    inner = gradient[:, : how.heads * how.head_columns].reshape(len(gradient), how.heads, how.head_columns)
    return torch.from_numpy(np.ascontiguousarray(inner[:, :, :columns].transpose(1, 2, 0))).reshape(
        like.shape
    )


def unpadded(row: NDArray[Any], how: Attention, like: torch.Tensor) -> torch.Tensor:
    """One padded row in the shape of `like`."""
    columns = like.numel() // how.heads
    inner = row[: how.heads * how.head_columns].reshape(how.heads, how.head_columns)
    return torch.from_numpy(np.ascontiguousarray(inner[:, :columns])).reshape(like.shape)


def joined(table: Table, how: Attention, columns: int) -> torch.Tensor:
    """[rows, heads · columns] of a table whose heads may be padded."""
    used = torch.from_numpy(table[:, : how.heads * how.head_columns])
    if columns == how.head_columns:
        return used
    return used.reshape(len(used), how.heads, how.head_columns)[:, :, :columns].flatten(1)


def loops_table(loops: torch.Tensor | None) -> NDArray[Any] | None:
    return None if loops is None else np.ascontiguousarray(as_rows(loops))
