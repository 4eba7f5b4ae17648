"""Likeness: how well a candidate's row fits a query; the larger, the better. And the gradients."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.base.jit import fast_kernel, kernel
from siafu.base.threads import PerThread
from siafu.embedding.steps.float_bits import BRIEF, nearest_brief, widen

BatchRows = Any  # [b, width] float32 or float64
Matrix = Any  # [b, n] of the same type, or bfloat16 (see `Likeness.matrix_type`)

# Columns that a product of bfloat16 computes at a time: where rows do not fill them, the turned product is faster (by a tenth, 50 wide).
_TILE = 32


class Likeness(Protocol):
    """Compares queries with candidates: one to one, or each with all."""

    def pairs(self, q: BatchRows, x: BatchRows, out: Any) -> None:
        """out[i] = likeness of q[i] and x[i]."""
        ...

    def pairs_back(
        self, q: BatchRows, x: BatchRows, found: Any, g: Any, dq: BatchRows, dx: BatchRows
    ) -> None:
        """Add the gradients of `pairs`, whose results are `found`, to dq and dx; g[i] is that of out[i]."""
        ...

    def matrix(self, q: BatchRows, x: BatchRows, out: Matrix) -> Any:
        """out[i, j] = likeness of q[i] and x[j]. Gives what `matrix_back` wants to know of it."""
        ...

    def matrix_back(
        self, q: BatchRows, x: BatchRows, found: Matrix, g: Matrix, dq: BatchRows, dx: BatchRows, kept: Any
    ) -> None:
        """Set dq and dx to the gradients of `matrix`, which gave `kept`; `g` may be overwritten, `found` may be it."""
        ...

    def matrix_type(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The type of the matrix and of its gradients, for rows of that type."""
        ...

    keeps_matrix: bool
    """Whether `matrix_back` reads `found`, so that it must not be overwritten by `g`."""


class _PreciseMatrix:
    """Likeness whose matrix has the type of the rows."""

    def matrix_type(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype


class DotProduct(_PreciseMatrix):
    """The sum of products."""

    keeps_matrix = False

    def pairs(self, q: BatchRows, x: BatchRows, out: Any) -> None:
        _dot_pairs(q, x, out)

    def pairs_back(
        self, q: BatchRows, x: BatchRows, found: Any, g: Any, dq: BatchRows, dx: BatchRows
    ) -> None:
        _dot_pairs_back(q, x, g, dq, dx)

    def matrix(self, q: BatchRows, x: BatchRows, out: Matrix) -> Any:
        torch.mm(_tensor(q), _tensor(x).T, out=_tensor(out))

    def matrix_back(
        self, q: BatchRows, x: BatchRows, found: Matrix, g: Matrix, dq: BatchRows, dx: BatchRows, kept: Any
    ) -> None:
        torch.mm(_tensor(g), _tensor(x), out=_tensor(dq))
        torch.mm(_tensor(g).T, _tensor(q), out=_tensor(dx))


class BriefDotProduct(DotProduct):
    """The sum of products; of each with all, of numbers rounded to bfloat16, added up in float32 and rounded again.

    A processor with such products (AVX512-BF16, AMX) takes half the time for them. One to one is as precise as ever.
    The matrix and its gradients are bfloat16, too (see `float_bits`): half the memory to go over.
    """

    def matrix_type(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return BRIEF

    def __init__(self) -> None:
        self._rooms = PerThread()  # memory of each thread, used again and again: it is large

    def matrix(self, q: BatchRows, x: BatchRows, out: Matrix) -> Any:
        """As `Likeness` says; gives the rounded rows, which hold until this thread calls it again."""
        brief = self._room("queries", q.shape), self._room("rows", x.shape)
        _round_rows(q, brief[0])
        _round_rows(x, brief[1])
        torch.mm(_brief_tensor(brief[0]), _brief_tensor(brief[1]).T, out=_brief_tensor(out))
        return brief

    def matrix_back(
        self, q: BatchRows, x: BatchRows, found: Matrix, g: Matrix, dq: BatchRows, dx: BatchRows, kept: Any
    ) -> None:
        queries, rows = _brief_tensor(kept[0]), _brief_tensor(kept[1])
        gradients, back = _brief_tensor(g), self._room("back", q.shape)
        torch.mm(gradients, rows, out=_brief_tensor(back))
        _widen_rows(back, dq)
        if q.shape[1] % _TILE:
            back = self._room("turned", x.shape[::-1])
            torch.mm(queries.T, gradients, out=_brief_tensor(back))
            _widen_turned(back, dx)
        else:
            back = self._room("back", x.shape)
            torch.mm(gradients.T, queries, out=_brief_tensor(back))
            _widen_rows(back, dx)

    def _room(self, name: str, shape: tuple[int, ...]) -> NDArray[np.uint16]:
        """Memory of this thread for a matrix of that shape; what was there under the name is lost."""
        count = shape[0] * shape[1]
        found = self._rooms.values.get(name)
        if found is None or len(found) < count:
            found = self._rooms.values[name] = np.empty(count, BRIEF)
        room: NDArray[np.uint16] = found[:count].reshape(shape)
        return room


class EuclideanLikeness(_PreciseMatrix):
    """The distance (L2), negated."""

    keeps_matrix = True

    def pairs(self, q: BatchRows, x: BatchRows, out: Any) -> None:
        _euclidean_pairs(q, x, out)

    def pairs_back(
        self, q: BatchRows, x: BatchRows, found: Any, g: Any, dq: BatchRows, dx: BatchRows
    ) -> None:
        _euclidean_pairs_back(q, x, found, g, dq, dx)

    def matrix(self, q: BatchRows, x: BatchRows, out: Matrix) -> None:
        torch.mm(_tensor(q), _tensor(x).T, out=_tensor(out))
        _distances(out, np.einsum("ij,ij->i", q, q), np.einsum("ij,ij->i", x, x))

    def matrix_back(
        self, q: BatchRows, x: BatchRows, found: Matrix, g: Matrix, dq: BatchRows, dx: BatchRows, kept: Any
    ) -> None:
        _divide_by_distance(found, g)
        torch.mm(_tensor(g), _tensor(x), out=_tensor(dq))
        torch.mm(_tensor(g).T, _tensor(q), out=_tensor(dx))
        dq -= g.sum(axis=1)[:, None] * q
        dx -= g.sum(axis=0)[:, None] * x


class _SumOfDifferences(_PreciseMatrix):
    """A sum over columns, or pairs of them, of how far two rows are apart, negated. Its kernels are its own."""

    keeps_matrix = False
    _pairs: ClassVar[Callable[..., None]]
    _pairs_back: ClassVar[Callable[..., None]]
    _matrix: ClassVar[Callable[..., None]]
    _matrix_back: ClassVar[Callable[..., None]]

    def pairs(self, q: BatchRows, x: BatchRows, out: Any) -> None:
        self._pairs(q, x, out)

    def pairs_back(
        self, q: BatchRows, x: BatchRows, found: Any, g: Any, dq: BatchRows, dx: BatchRows
    ) -> None:
        self._pairs_back(q, x, g, dq, dx)

    def matrix(self, q: BatchRows, x: BatchRows, out: Matrix) -> Any:
        """As `Likeness` says; gives the candidates' columns as rows."""
        turned = np.ascontiguousarray(x.T)
        self._matrix(q, turned, out)
        return turned

    def matrix_back(
        self, q: BatchRows, x: BatchRows, found: Matrix, g: Matrix, dq: BatchRows, dx: BatchRows, kept: Any
    ) -> None:
        turned = np.zeros_like(kept)
        self._matrix_back(q, kept, g, dq, turned)
        dx[:] = turned.T


def _tensor(values: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values)


def _brief_tensor(values: NDArray[np.uint16]) -> torch.Tensor:
    return torch.from_numpy(values).view(torch.bfloat16)


@kernel
def _round_rows(rows: BatchRows, out: Any) -> None:
    """Rows as bfloat16, rounded to the nearest, of two to the even one."""
    for i in range(rows.shape[0]):
        row, into = rows[i], out[i]
        for j in range(len(row)):
            into[j] = nearest_brief(row[j])


@kernel
def _widen_rows(brief: Any, out: BatchRows) -> None:
    for i in range(brief.shape[0]):
        row, into = brief[i], out[i]
        for j in range(len(row)):
            into[j] = widen(row[j])


@kernel
def _widen_turned(turned: Any, out: BatchRows) -> None:
    """out[i, j] = turned[j, i]."""
    for i in range(out.shape[0]):
        row = out[i]
        for j in range(len(row)):
            row[j] = widen(turned[j, i])


@fast_kernel
def _dot_pairs(q: BatchRows, x: BatchRows, out: Any) -> None:
    for i in range(q.shape[0]):
        total = q.dtype.type(0)
        for j in range(q.shape[1]):
            total += q[i, j] * x[i, j]
        out[i] = total


@fast_kernel
def _dot_pairs_back(q: BatchRows, x: BatchRows, g: Any, dq: BatchRows, dx: BatchRows) -> None:
    for i in range(q.shape[0]):
        c = g[i]
        for j in range(q.shape[1]):
            dq[i, j] += c * x[i, j]
            dx[i, j] += c * q[i, j]


@fast_kernel
def _euclidean_pairs(q: BatchRows, x: BatchRows, out: Any) -> None:
    for i in range(q.shape[0]):
        total = q.dtype.type(0)
        for j in range(q.shape[1]):
            total += (q[i, j] - x[i, j]) * (q[i, j] - x[i, j])
        out[i] = -np.sqrt(total)


@fast_kernel
def _euclidean_pairs_back(
    q: BatchRows, x: BatchRows, found: Any, g: Any, dq: BatchRows, dx: BatchRows
) -> None:
    zero = q.dtype.type(0)
    for i in range(q.shape[0]):
        # At distance 0 there is no direction to go: the gradient is taken as 0.
        c = g[i] / found[i] if found[i] < zero else zero
        for j in range(q.shape[1]):
            step = c * (q[i, j] - x[i, j])
            dq[i, j] += step
            dx[i, j] -= step


@fast_kernel
def _distances(products: Matrix, of_queries: Any, of_rows: Any) -> None:
    """Turn products into distances, negated, with the squared lengths of both sides."""
    zero = products.dtype.type(0)
    two = products.dtype.type(2)
    for i in range(products.shape[0]):
        for j in range(products.shape[1]):
            square = of_queries[i] + of_rows[j] - two * products[i, j]
            products[i, j] = -np.sqrt(max(square, zero))


@fast_kernel
def _divide_by_distance(found: Matrix, g: Matrix) -> None:
    zero = g.dtype.type(0)
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            g[i, j] = -g[i, j] / found[i, j] if found[i, j] < zero else zero


@fast_kernel
def _manhattan_pairs(q: BatchRows, x: BatchRows, out: Any) -> None:
    for i in range(q.shape[0]):
        total = q.dtype.type(0)
        for j in range(q.shape[1]):
            total += abs(q[i, j] - x[i, j])
        out[i] = -total


@fast_kernel
def _manhattan_pairs_back(q: BatchRows, x: BatchRows, g: Any, dq: BatchRows, dx: BatchRows) -> None:
    zero = q.dtype.type(0)
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            difference = q[i, j] - x[i, j]
            step = -g[i] if difference > zero else (g[i] if difference < zero else zero)
            dq[i, j] += step
            dx[i, j] -= step


@fast_kernel
def _manhattan_matrix(q: BatchRows, turned: BatchRows, out: Matrix) -> None:
    """turned: [width, n] the candidates' columns: the inner loop runs along candidates."""
    out[:] = 0
    for i in range(q.shape[0]):
        for k in range(q.shape[1]):
            c = q[i, k]
            for j in range(turned.shape[1]):
                out[i, j] -= abs(c - turned[k, j])


@fast_kernel
def _manhattan_matrix_back(
    q: BatchRows, turned: BatchRows, g: Matrix, dq: BatchRows, dturned: BatchRows
) -> None:
    zero = q.dtype.type(0)
    for i in range(q.shape[0]):
        for k in range(q.shape[1]):
            c = q[i, k]
            total = zero
            for j in range(turned.shape[1]):
                difference = c - turned[k, j]
                step = g[i, j] if difference > zero else (-g[i, j] if difference < zero else zero)
                total -= step
                dturned[k, j] += step
            dq[i, k] = total


@fast_kernel
def _modulus_pairs(q: BatchRows, x: BatchRows, out: Any) -> None:
    half = q.shape[1] // 2
    for i in range(q.shape[0]):
        total = q.dtype.type(0)
        for j in range(half):
            re, im = q[i, j] - x[i, j], q[i, j + half] - x[i, j + half]
            total += np.sqrt(re * re + im * im)
        out[i] = -total


@fast_kernel
def _modulus_pairs_back(q: BatchRows, x: BatchRows, g: Any, dq: BatchRows, dx: BatchRows) -> None:
    half = q.shape[1] // 2
    zero = q.dtype.type(0)
    for i in range(q.shape[0]):
        for j in range(half):
            re, im = q[i, j] - x[i, j], q[i, j + half] - x[i, j + half]
            modulus = np.sqrt(re * re + im * im)
            c = g[i] / modulus if modulus > zero else zero
            dq[i, j] -= c * re
            dq[i, j + half] -= c * im
            dx[i, j] += c * re
            dx[i, j + half] += c * im


@fast_kernel
def _modulus_matrix(q: BatchRows, turned: BatchRows, out: Matrix) -> None:
    half = q.shape[1] // 2
    out[:] = 0
    for i in range(q.shape[0]):
        for k in range(half):
            a, b = q[i, k], q[i, k + half]
            for j in range(turned.shape[1]):
                re, im = a - turned[k, j], b - turned[k + half, j]
                out[i, j] -= np.sqrt(re * re + im * im)


@fast_kernel
def _modulus_matrix_back(
    q: BatchRows, turned: BatchRows, g: Matrix, dq: BatchRows, dturned: BatchRows
) -> None:
    """Two queries at a time: what is added to the candidates' columns is read and written half as often."""
    half, last = q.shape[1] // 2, q.shape[0] - 1
    kind = q.dtype.type
    zero, one, tiny = (
        kind(0),
        kind(1),
        kind(1e-30),
    )  # tiny: where two rows are equal, 0 times a finite number is 0
    for i in range(0, q.shape[0], 2):
        other = min(i + 1, last)
        counts = one if other > i else zero
        first, second = g[i], g[other]
        for k in range(half):
            a, b, c, d = q[i, k], q[i, k + half], q[other, k], q[other, k + half]
            of_a, of_b, of_c, of_d = zero, zero, zero, zero
            re_row, im_row, dre, dim = turned[k], turned[k + half], dturned[k], dturned[k + half]
            for j in range(len(re_row)):
                re, im = a - re_row[j], b - im_row[j]
                scale = first[j] / np.sqrt(re * re + im * im + tiny)
                x, y = scale * re, scale * im
                of_a -= x
                of_b -= y
                re, im = c - re_row[j], d - im_row[j]
                scale = counts * second[j] / np.sqrt(re * re + im * im + tiny)
                u, v = scale * re, scale * im
                of_c -= u
                of_d -= v
                dre[j] += x + u
                dim[j] += y + v
            dq[other, k], dq[other, k + half] = of_c, of_d
            dq[i, k], dq[i, k + half] = of_a, of_b  # after the other, which may be the same


class ManhattanLikeness(_SumOfDifferences):
    """The sum of absolute differences (L1), negated."""

    _pairs, _pairs_back = staticmethod(_manhattan_pairs), staticmethod(_manhattan_pairs_back)
    _matrix, _matrix_back = staticmethod(_manhattan_matrix), staticmethod(_manhattan_matrix_back)


class ModulusLikeness(_SumOfDifferences):
    """The sum of the moduli of complex differences, negated: RotatE's distance."""

    _pairs, _pairs_back = staticmethod(_modulus_pairs), staticmethod(_modulus_pairs_back)
    _matrix, _matrix_back = staticmethod(_modulus_matrix), staticmethod(_modulus_matrix_back)
