"""Assignment: a tensor task as a desk is given it."""

from dataclasses import dataclass

from siafu.program.tensor_program import TensorProgram
from siafu.serverless.control.ids import TaskId
from siafu.wire.tensors import Tensors


@dataclass(frozen=True, slots=True, eq=False)
class Shortcut:
    """How the two tasks of a pass over some rows may share what the first makes, if one Lambda does both.

    program: does what the task's own does; besides, it makes what is left for the second, or reads it
    names:   what is left: rows that the first's program makes or reads, and the second's reads
    tag:     of which pass, in one number: what another one left is never used
    """

    program: TensorProgram
    names: tuple[str, ...]
    tag: int


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """A tensor task, with all that a Lambda needs but the weights.

    rows:      how many
    precision: float32 or float64
    server:    the weight server that has the weights, by its place in the invocation's list
    version:   of the weights
    inputs:    every input of the program but the weights; must not change while the task is out
    block:     a number for the rows that it is about: a Lambda may keep things for other tasks on the same block
    home:      tasks of one home are best done by one Lambda; None: any will do
    constants: inputs with rows that never change, and may be kept
    leaves:    how to do it where something may be left for a later task
    finds:     how to do it where that was left
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
        """Whether it matters which Lambda does it."""
        return self.home is not None and bool(self.constants or self.leaves or self.finds)
