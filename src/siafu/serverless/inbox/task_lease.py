"""TaskLease: a task in one Lambda's hands, as its server sees it."""

from dataclasses import dataclass, field

import numpy as np

from siafu.program.tensor_program import Spec
from siafu.serverless.function.task_spec import TaskSpec, rows_slice
from siafu.serverless.inbox.task_step import TaskStep
from siafu.wire import messages as say
from siafu.wire.refusal import Refusal
from siafu.wire.tensors import Array


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Program that a Lambda runs for a task, and tensors that it has, keeps and leaves. Sizes are in bytes.

    spec:   of the program
    held:   inputs that the Lambda has
    keep:   inputs that never change, and that the Lambda keeps
    leave:  outputs and inputs that the Lambda keeps for a later task of the same pass: its stash
    unsent: tensors of `leave` that are not sent
    tag:    the pass of the stash that is left or used
    """

    spec: TaskSpec
    held: frozenset[str]
    keep: dict[str, int]
    leave: dict[str, int] = field(default_factory=dict)
    unsent: frozenset[str] = frozenset()
    tag: int = 0

    @property
    def bytes_kept(self) -> int:
        """Bytes that the Lambda keeps more once the task is done."""
        return sum(self.keep.values()) + sum(self.leave.values())


@dataclass(eq=False, slots=True)
class TaskLease:
    """A task in one Lambda's hands.

    credit:     number of parts that may still be sent
    sent, came: number of parts sent and received
    block_gone, stash_gone: the Lambda will forget the block, or its stash, as soon as the task is done
    """

    number: int
    step: TaskStep
    terms: LeaseTerms
    parts: int
    credit: int
    sent: int = 0
    came: int = 0
    block_gone: bool = False
    stash_gone: bool = False
    outputs: dict[str, Array] = field(default_factory=dict)

    def offer(self) -> say.TaskOffer:
        task, terms = self.step, self.terms
        return say.TaskOffer(
            self.number,
            terms.spec.program.hash,
            task.precision,
            task.rows,
            self.parts,
            task.server,
            task.version,
            task.block,
            tuple(sorted(terms.held)),
            tuple(sorted(terms.keep)),
            terms.tag,
            tuple(sorted(terms.leave)),
            tuple(sorted(terms.unsent)),
            {name: task.inputs[name] for name in terms.spec.whole_inputs},
        )

    def next_part(self) -> say.TaskInputPart:
        first, last = say.part_bounds(self.step.rows, self.parts, self.sent)
        rows = self.terms.spec.rows_of(self.travelling, self.step.inputs, first, last)
        return say.TaskInputPart(self.number, self.sent, rows)

    @property
    def travelling(self) -> dict[str, Spec]:
        """The inputs that come in parts."""
        return self.terms.spec.travelling(self.terms.held)

    @property
    def arriving(self) -> dict[str, Spec]:
        """The outputs that come in parts."""
        return self.terms.spec.arriving(self.terms.unsent)

    @property
    def bytes_sent(self) -> int:
        spec = self.terms.spec
        return spec.bytes(self.travelling | spec.whole_inputs, self.step.rows)

    def take(self, part: say.TaskOutputPart) -> None:
        """Put rows where they belong. Memory is allocated by what the task is, never by what a peer says."""
        if part.part != self.came or self.came == self.parts:
            raise Refusal("unexpected", f"part {part.part} of a result, after {self.came} of {self.parts}")
        spec, rows, arriving = self.terms.spec, self.step.rows, self.arriving
        first, last = say.part_bounds(rows, self.parts, part.part)
        spec.check(arriving, part.tensors, last - first)
        self.came += 1
        for name, each in arriving.items():
            if name not in self.outputs:
                self.outputs[name] = np.empty(each.sizes(rows), spec.dtype(each))
            self.outputs[name][rows_slice(each, first, last)] = part.tensors[name]

    def finish(self, result: say.TaskEnd) -> dict[str, Array]:
        if self.came != self.parts and self.arriving:
            raise Refusal("unexpected", f"a result after {self.came} of {self.parts} parts")
        self.terms.spec.check(self.terms.spec.sums, result.tensors, self.step.rows)
        return self.outputs | {name: each.copy() for name, each in result.tensors.items()}
