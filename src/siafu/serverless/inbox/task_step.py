"""TaskStep: one program of a tensor task, with its inputs, as Lambdas get it."""

from dataclasses import dataclass

from siafu.program.tensor_program import TensorProgram
from siafu.serverless.control.ids import TaskId
from siafu.wire.tensors import Tensors


@dataclass(frozen=True, slots=True, eq=False)
class Shortcut:
    """A program for a task whose Lambda also runs the other task of the pass: they share a stash.

    program: computes what the task's own program does, and makes the stash or reads it
    names:   tensors of the stash: rows that the first program makes or reads and the second reads
    tag:     number of the pass: a stash of another pass is never used
    """

    program: TensorProgram
    names: tuple[str, ...]
    tag: int


@dataclass(frozen=True, slots=True, eq=False)
class TaskStep:
    """One program of a tensor task, and all that it reads but the weights. A task has one step, or two if it is not fused.

    rows:      number of rows
    precision: float32 or float64
    server:    the weight server that has the weights, by its place in the invocation's list
    version:   of the weights
    inputs:    every input of the program but the weights; must not change while the task is out
    block:     number of the rows that the task reads: a Lambda may keep tensors for other tasks on the same block
    home:      tasks of one home run best on one Lambda; None: any will do
    constants: inputs with rows that never change, and may be kept
    leaves:    program that leaves a stash for a later task
    finds:     program that uses that stash
    """

    task: TaskId
    program: TensorProgram
    rows: int
    precision: str
    server: int
    version: int
    inputs: Tensors
    block: int = 0
    constants: tuple[str, ...] = ()
    leaves: Shortcut | None = None
    finds: Shortcut | None = None
    home: int | None = None

    @property
    def has_home(self) -> bool:
        """Whether it matters which Lambda runs it."""
        return self.home is not None and bool(self.constants or self.leaves or self.finds)
