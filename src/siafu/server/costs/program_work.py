"""RowWork: what one row costs in a tensor program: products, bytes, draws and calls, from its list of operations."""

import math
from dataclasses import dataclass, replace

from siafu.program.operations import OPERATIONS, PRODUCTS, flops
from siafu.program.tensor_program import Op, RowCount, Spec, TensorProgram
from siafu.server.costs.work import Product, Work

_VIEWS = frozenset({"permute", "reshape", "expand", "slice", "full", "constant"})
_REDUCTIONS = frozenset({"sum", "mean", "amax", "amin"})
_HARD = 10  # floating-point operations an element from which on an operation is an elementary function
_MANY = 1 << 20  # rows: so many that what does not grow with them is nothing
_SIZES = {"float": 4, "int64": 8}


@dataclass(frozen=True, slots=True)
class RowWork:
    """What one row costs.

    products:  FLOPs of matrix products, with the narrower of their fixed widths
    moved:     bytes that other operations read and write
    draws:     numbers that dropout draws
    functions: elementary functions
    calls:     operations, of any number of rows
    """

    products: tuple[Product, ...]
    moved: float
    draws: float
    functions: float
    calls: int

    def times(self, rows: float) -> Work:
        """Of so many rows."""
        return Work(
            rows=rows,
            products=tuple(replace(each, flops=each.flops * rows) for each in self.products),
            moved=self.moved * rows,
            draws=self.draws * rows,
            functions=self.functions * rows,
            calls=self.calls,
        )

    def less(self, part: "RowWork") -> "RowWork":
        """Work that it does and `part` does not."""
        products = list(self.products)
        for each in part.products:
            if each in products:
                products.remove(each)
        return RowWork(
            tuple(products),
            max(0.0, self.moved - part.moved),
            max(0.0, self.draws - part.draws),
            max(0.0, self.functions - part.functions),
            max(0, self.calls - part.calls),
        )


def row_work(program: TensorProgram) -> RowWork:
    """What one row of many costs; parts that do not depend on the rows are left out."""
    products: list[Product] = []
    moved = draws = functions = 0.0
    for op in program.ops:
        reads = [spec for number in op.refs() if (spec := program.specs[number]) is not None]
        if op.name in PRODUCTS:
            products.append(_product(op, reads))
        elif op.name == "dropout":
            draws += _numbers(reads[0])
            moved += 2 * _bytes(reads[0])
        elif op.name not in _VIEWS:
            moved += sum(map(_bytes, [*reads, *(each for each in op.results if each is not None)]))
            if OPERATIONS[op.name].cost >= _HARD or _adds_up_short_rows(op, reads):
                functions += max(map(_numbers, [*reads, *(each for each in op.results if each is not None)]))
    return RowWork(tuple(products), moved, draws, functions, len(program.ops))


def _adds_up_short_rows(op: Op, reads: list[Spec]) -> bool:
    """Whether it is a sum within each row: that runs at the pace of elementary functions, not of memory."""
    return op.name in _REDUCTIONS and 0 not in op.arguments[1] and len(reads[0].shape) > 1


def _product(op: Op, reads: list[Spec]) -> Product:
    made = [spec.sizes(_MANY) for spec in op.results if spec is not None]
    found = flops(op.name, [spec.sizes(_MANY) for spec in reads], made)
    left = reads[-2]
    fixed = [size for size in (*left.shape, *reads[-1].shape) if not isinstance(size, RowCount)]
    return Product(found / _MANY, min(fixed, default=1))


def _numbers(spec: Spec) -> float:
    """In one row; 0 of what has none."""
    if not any(isinstance(size, RowCount) for size in spec.shape):
        return 0.0
    return float(math.prod(spec.sizes(1)))


def _bytes(spec: Spec) -> float:
    return _SIZES.get(spec.kind, 1) * _numbers(spec)
