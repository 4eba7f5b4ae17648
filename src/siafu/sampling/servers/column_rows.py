"""Features of a batch by columns (P3): every server multiplies the columns it has; whoever needs the sums pulls them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.base.errors import BadInput

ProductTerm = tuple[str, str]
"""A product: of which table (`gathered` or `x`), with the weight of which name."""


@dataclass(frozen=True, slots=True, eq=False)
class _Pulled:
    """Sums that a server pulled, of some rows; its gradient is pushed back to all servers."""

    terms: tuple[ProductTerm, ...]
    rows: Tensor
    sums: Tensor


class ColumnBatch:
    """Tables of a batch, each in slices of columns, one a server; products of them with weights, and the gradients of those.

    A server multiplies its columns of a table with the rows of a weight's transpose that belong to them. The sum over all servers is the product.

    tables: by name, a slice for each server: [N, columns], N vertices of the batch's whole sample
    cuts:   the columns of each server
    """

    def __init__(self, tables: Mapping[str, Sequence[Tensor]], cuts: Sequence[slice]) -> None:
        self._tables, self._cuts = tables, tuple(cuts)
        self._weights: Mapping[str, Tensor] = {}
        self._names: dict[int, str] = {}
        self._products: dict[tuple[ProductTerm, ...], list[Tensor]] = {}
        self._gradients: dict[tuple[ProductTerm, ...], Tensor] = {}
        self._pulled: list[_Pulled] = []
        self.pulled_numbers = 0
        """Numbers that servers pulled from others so far, one way."""

    @property
    def lazy(self) -> bool:
        """Whether products are added up where they are made, as far as a layer adds them, and pulled when it does something else."""
        return "gathered" in self._tables

    def use(self, weights: Mapping[str, Tensor]) -> None:
        """A server begins to compute its share, with these weights."""
        self._weights, self._names = weights, {id(each): name for name, each in weights.items()}
        self._pulled = []

    def rows(self, table: str, rows: NDArray[np.int64]) -> "ColumnRows":
        """Some rows of a table."""
        return ColumnRows(self, table, torch.from_numpy(rows))

    @property
    def sums(self) -> list[Tensor]:
        """Rows that the computing server has pulled: leaves of its autograd graph."""
        return [each.sums for each in self._pulled]

    def width(self, table: str) -> int:
        return sum(each.shape[1] for each in self._tables[table])

    def term(self, table: str, weight: Tensor) -> ProductTerm:
        name = self._names.get(id(weight))
        if name is None:
            raise BadInput("features by columns are multiplied by a weight of the model, and by nothing else")
        return table, name

    def pull(self, terms: tuple[ProductTerm, ...], rows: Tensor) -> Tensor:
        """Sums of products, of some rows, over all servers in their order."""
        if terms not in self._products:
            self._products[terms] = [self._product(terms, server) for server in range(len(self._cuts))]
        parts = self._products[terms]
        sums = parts[0][rows]
        for part in parts[1:]:
            sums += part[rows]
        self.pulled_numbers += sums.numel() * (len(parts) - 1)
        self._pulled.append(_Pulled(terms, rows, sums.requires_grad_()))
        return self._pulled[-1].sums

    def push(self, gradients: Sequence[Tensor | None]) -> None:
        """Gradients of what was pulled go to all servers."""
        for each, gradient in zip(self._pulled, gradients, strict=True):
            if gradient is None:
                continue
            if each.terms not in self._gradients:
                whole = self._products[each.terms][0]
                self._gradients[each.terms] = torch.zeros_like(whole)
            self._gradients[each.terms].index_add_(0, each.rows, gradient)
        self._pulled = []

    def weight_gradients(self) -> dict[str, Tensor]:
        """Of every weight that was multiplied, each slice of it made by the server that has the columns."""
        found: dict[str, Tensor] = {}
        for terms, gradient in self._gradients.items():
            for table, name in terms:
                slices = [gradient.t() @ each for each in self._tables[table]]
                whole = torch.cat(slices, 1)
                found[name] = found[name] + whole if name in found else whole
        return found

    def _product(self, terms: tuple[ProductTerm, ...], server: int) -> Tensor:
        """A server's part, of all rows of the batch."""
        with torch.no_grad():
            found: Tensor | None = None
            for table, name in terms:
                one = self._tables[table][server] @ self._weights[name].detach()[:, self._cuts[server]].t()
                found = one if found is None else found.add_(one)
            assert found is not None
            return found


class ColumnRows:
    """Rows of a table by columns. A linear map may read them, as if they were a tensor, and nothing else may."""

    def __init__(self, columns: ColumnBatch, table: str, rows: Tensor) -> None:
        self.columns, self.table, self.rows = columns, table, rows
        self.shape, self.ndim = (len(rows), columns.width(table)), 2

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice) -> "ColumnRows":
        return ColumnRows(self.columns, self.table, self.rows[rows])

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not torch.nn.functional.linear or not isinstance(args[0], cls):
            raise BadInput(f"features by columns are multiplied, and {func.__name__} is another thing")
        rows, weight, *bias = args
        given = bias[0] if bias else (kwargs or {}).get("bias")
        found = ColumnSums(rows.columns, (rows.columns.term(rows.table, weight),), rows.rows, given)
        return found if rows.columns.lazy else found.tensor()


class ColumnSums:
    """Sums of products that are not pulled yet: others are added to them where they are; anything else pulls them."""

    def __init__(
        self, columns: ColumnBatch, terms: tuple[ProductTerm, ...], rows: Tensor, bias: Tensor | None
    ) -> None:
        self._columns, self._terms, self._rows, self._bias = columns, terms, rows, bias
        self._found: Tensor | None = None

    def tensor(self) -> Tensor:
        if self._found is None:
            sums = self._columns.pull(self._terms, self._rows)
            self._found = sums if self._bias is None else sums + self._bias
        return self._found

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, ColumnSums) or not self._joins(other):
            return self.tensor() + (other.tensor() if isinstance(other, ColumnSums) else other)
        biases = [each for each in (self._bias, other._bias) if each is not None]
        bias = sum(biases[1:], biases[0]) if biases else None
        return ColumnSums(self._columns, self._terms + other._terms, self._rows, bias)

    def _joins(self, other: "ColumnSums") -> bool:
        same = other._rows is self._rows or torch.equal(other._rows, self._rows)
        return same and self._found is None and other._found is None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> Tensor:
        return self.tensor()[rows]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor(), name)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = [each.tensor() if isinstance(each, cls) else each for each in args]
        named = {
            name: each.tensor() if isinstance(each, cls) else each for name, each in (kwargs or {}).items()
        }
        return func(*given, **named)
