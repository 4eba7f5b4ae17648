"""NamedExecutor: a tensor program run with torch, from named inputs to named outputs."""

from collections.abc import Mapping

from torch import Tensor

from siafu.program.execute.sparse_rows import SparseRows
from siafu.program.execute.torch_executor import TorchExecutor
from siafu.program.tensor_program import TensorProgram


class NamedExecutor:
    """A program made ready once and run many times, on the calling thread."""

    def __init__(self, program: TensorProgram) -> None:
        self._names = program.output_names
        self._execute = TorchExecutor(program)

    def __call__(self, inputs: Mapping[str, Tensor | SparseRows]) -> dict[str, Tensor]:
        return dict(zip(self._names, self._execute(inputs), strict=True))
