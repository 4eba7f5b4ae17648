"""Sums, maxima, attention and an edge function over one seeded graph, with the machine code that computed them.

    NUMBA_CPU_NAME=… python tests/kernels/processor_run.py RESULTS.npz CODE.json

RESULTS.npz: what each kernel gave, in float32; CODE.json: each kernel's LLVM code and assembly, as compiled for that processor.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.codegen import CPUCodeLibrary

from siafu.graph.csr import from_coo
from siafu.kernels import (
    EVERY,
    Attention,
    CodeTables,
    EdgeCode,
    attend_range,
    empty_table,
    max_range,
    pack_heads,
    pack_range,
    products,
    run_code,
)
from siafu.kernels.edgewise import edge_machine
from siafu.kernels.edgewise.edge_machine import EDGE_OPERATIONS, SOURCE, TARGET
from siafu.kernels.sums import sum_range

VERTICES, EDGES, WIDTH = 300, 4000, 32


def gate() -> EdgeCode:
    """sigmoid(source + target) · source."""
    add, sigmoid, mul = (EDGE_OPERATIONS.index(name) for name in ("add", "sigmoid", "mul"))
    return EdgeCode(
        WIDTH,
        5,
        np.array([[0, SOURCE, 0], [1, TARGET, 0]]),
        np.empty(0, np.int64),
        np.empty(0),
        np.array([[add, 2, 0, 1, 0], [sigmoid, 3, 2, 0, 0], [mul, 4, 3, 0, 0]]),
        np.array([[4, 0]]),
    )


def results(compiled: dict[str, Any]) -> dict[str, np.ndarray]:
    """Of each kernel; compiled: gets the kernels."""
    rng = np.random.default_rng(0)
    csr = from_coo(*rng.integers(0, VERTICES, (2, EDGES)), None, VERTICES)
    x = rng.standard_normal((VERTICES, WIDTH)).astype(np.float32)
    rows = empty_table(VERTICES, WIDTH, np.float32)
    pack_range(x, None, rows, None, 0)
    names = ("sum", "maximum", "ties", "attention", "positive", "function")
    out = {name: empty_table(VERTICES, WIDTH, np.float32) for name in names}
    span = (None, 0, VERTICES)

    compiled["sum"] = fresh(sum_range)
    compiled["sum"](csr.indptr, csr.indices, None, rows, None, None, out["sum"], *span)
    compiled["maximum"] = fresh(max_range)
    compiled["maximum"](csr.indptr, csr.indices, rows, out["maximum"], out["ties"], *span)
    how = Attention(4, 8, 0.2, self_loops=True)
    logits = rng.standard_normal((2, VERTICES, 4)).astype(np.float32)
    table, shares = pack_heads(x, 4, 8, np.float32), np.empty((2, VERTICES, 4), np.float32)
    compiled["attention"] = fresh(attend_range)
    compiled["attention"](
        *(csr.indptr, csr.indices, table, *logits, *how.arguments, EVERY, out["attention"], shares[0]),
        *(out["positive"], shares[1], EVERY, 0, VERTICES),
    )
    compiled["function"] = edge_machine._walk = fresh(edge_machine._walk)
    tables = CodeTables(rows, rows, rows, rows, targets_own=True)
    run_code((csr.indptr, csr.indices, None), *span, gate(), tables, out["function"], fresh=True)
    compiled["product"] = products._multiply = fresh(products._multiply)
    compiled["summed product"] = products._add_products = fresh(products._add_products)
    gathered = {name: table[:, :WIDTH] for name, table in out.items()}
    return gathered | {
        "product": products.row_products(x, x[:WIDTH]),
        "summed product": products.summed_products(x, gathered["sum"]),
    }


def fresh(kernel: Any) -> Any:
    """A kernel that is compiled here, not taken from a cache, which has no code to look at."""
    return numba.njit(nogil=True, error_model="numpy")(kernel.py_func)


def record_code(texts: dict[str, str]) -> None:
    """Note each library's code by its name before machine code is made of it, which leaves that of one processor behind."""
    plain = CPUCodeLibrary._finalize_final_module

    def noted(library: Any) -> None:
        texts[library.name] = str(library._final_module)
        plain(library)

    CPUCodeLibrary._finalize_final_module = noted


def main() -> None:
    compiled: dict[str, Any] = {}
    texts: dict[str, str] = {}
    record_code(texts)
    np.savez(sys.argv[1], **results(compiled))
    code = {}
    for name, kernel in compiled.items():
        library = next(iter(kernel.overloads.values())).library
        code[name] = [texts[library.name], library.get_asm_str()]
    Path(sys.argv[2]).write_text(json.dumps(code))


if __name__ == "__main__":
    main()
