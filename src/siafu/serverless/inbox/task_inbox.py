"""TaskInbox: a graph server's side of its sessions with Lambdas. It checks, streams and collects; it decides nothing.

The controller decides: through `Dispatch` it gets `InboxEvent`s and calls `offer`, `dismiss` and `cancel`. Everything
happens in one thread, that of `InboxLoop`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from siafu.base.errors import BadInput
from siafu.program.tensor_program import TensorProgram
from siafu.serverless.control.ids import InvocationId, PeerId, TaskId
from siafu.serverless.function.task_spec import TaskSpec
from siafu.serverless.inbox.blocks import Evicted, KeptBlocks
from siafu.serverless.inbox.task_lease import LeaseTerms, TaskLease
from siafu.serverless.inbox.task_step import TaskStep
from siafu.wire import messages as say
from siafu.wire.link import Peer
from siafu.wire.refusal import Refusal
from siafu.wire.tensors import Array

PART_BYTES = 1 << 20
_MOST_PEERS = 4
"""Of one invocation: a platform may run it again, but not for ever."""

SendMessage = Callable[[Peer, say.Message], bool]


@dataclass(frozen=True, slots=True)
class LambdaAsked:
    """A Lambda can take a task."""

    invocation: InvocationId
    peer: PeerId


@dataclass(frozen=True, slots=True, eq=False)
class TaskFinished:
    """A Lambda has finished a task. Told once for each offer.

    outputs:    all outputs of the program, checked
    compute_us, wait_us: microseconds, as the Lambda says
    bytes_sent: bytes of inputs that were sent to it
    """

    invocation: InvocationId
    peer: PeerId
    task: TaskId
    outputs: dict[str, Array]
    compute_us: int
    wait_us: int
    bytes_sent: int


@dataclass(frozen=True, slots=True)
class TaskGivenBack:
    """A Lambda will not finish a task: it said so, left, or sent an invalid message."""

    invocation: InvocationId
    peer: PeerId
    task: TaskId
    why: str


@dataclass(frozen=True, slots=True)
class TaskFinishedLate:
    """A Lambda has finished a task that was cancelled. Its result is dropped."""

    invocation: InvocationId
    peer: PeerId
    task: TaskId


InboxEvent = LambdaAsked | TaskFinished | TaskGivenBack | TaskFinishedLate


@dataclass(eq=False, slots=True)
class _Session:
    """A Lambda that has said hello.

    asks:      number of tasks that it has asked for
    cancelled: tasks by lease, until the Lambda answers
    """

    peer: Peer
    id: PeerId
    invocation: InvocationId
    programs: set[str]
    kept: KeptBlocks
    asks: int = 0
    credit: int = 0
    leases: dict[int, TaskLease] = field(default_factory=dict)
    cancelled: dict[int, TaskId] = field(default_factory=dict)


class TaskInbox:
    """Sessions with Lambdas and the tasks in their hands.

    run:           only Lambdas of this run are served
    send:          sends to a peer, without waiting; False: the peer cannot be reached
    tell:          called with every event, in the same thread
    part_bytes:    bytes in a part of a task's rows, about
    keep_bytes:    bytes that each Lambda may keep for later tasks
    largest_frame: bytes that the transport carries in one frame

    shortcuts: number of tasks offered to a Lambda that had a stash for them
    """

    hears = (say.Hello, say.AskTask, say.Credit, say.TaskOutputPart, say.TaskEnd, say.TaskReturn, say.Leave)

    def __init__(
        self,
        run: str,
        send: SendMessage,
        tell: Callable[[InboxEvent], None],
        *,
        part_bytes: int = PART_BYTES,
        keep_bytes: int = 0,
        largest_frame: int = 64 << 20,
    ) -> None:
        self.shortcuts = 0
        self._keep_bytes = keep_bytes
        self._run, self._send, self._tell = run, send, tell
        self._part_bytes, self._largest_frame = part_bytes, largest_frame
        self._expected: dict[InvocationId, str] = {}
        self._sessions: dict[PeerId, _Session] = {}
        self._next_lease = 1
        self._specs: dict[tuple[str, str], TaskSpec] = {}

    def expect(self, invocation: InvocationId, key: str = "") -> None:
        """Accept a Lambda with this number that proves this public key."""
        self._expected[invocation] = key

    def forget(self, invocation: InvocationId) -> None:
        """Accept nothing more from an invocation that is over. Its leases are not reported."""
        self._expected.pop(invocation, None)
        for session in [each for each in self._sessions.values() if each.invocation == invocation]:
            del self._sessions[session.id]
            self._send(
                session.peer, say.Dismiss(invocation)
            )  # who is there all the same need not wait for rows

    def offer(self, peer: PeerId, step: TaskStep) -> bool:
        """Give a task to a Lambda that has asked. False: the Lambda is gone."""
        session = self._sessions.get(peer)
        if session is None or session.asks < 1:
            return False
        spec = self._spec(step.program, step.precision)
        constants = step.constants if self._keep_bytes else ()
        # Whichever program a Lambda runs, parts are those of the task's own: sums come out equal.
        parts = spec.parts(step.rows, self._part_bytes, constants)
        self._check_inputs(step, spec)
        terms = self._terms(session, step, spec, parts)
        lease = TaskLease(self._next_lease, step, terms, parts, session.credit)
        self._check_sizes(lease)
        self._next_lease += 1
        session.asks -= 1
        session.leases[lease.number] = lease
        session.kept.promised += terms.bytes_kept
        return self._send_offer(session, lease)

    def bytes_moved(self, step: TaskStep) -> int:
        """Bytes that a task moves in the direction in which it moves more, at a Lambda that has what it may keep for it."""
        if not self._keep_bytes:
            return self._spec(step.program, step.precision).moved(step.rows)
        if step.finds is None:
            return self._spec(step.program, step.precision).moved(step.rows, step.constants)
        held = (*step.constants, *step.finds.names)
        return self._spec(step.finds.program, step.precision).moved(step.rows, held)

    def dismiss(self, peer: PeerId) -> None:
        """Tell a Lambda that it may go."""
        if peer in self._sessions:
            session = self._sessions[peer]
            self._send(session.peer, say.Dismiss(session.invocation))

    def cancel(self, task: TaskId) -> None:
        """Take a task from all Lambdas that have it: nobody waits for it any more."""
        for session in list(self._sessions.values()):
            for lease in [each for each in session.leases.values() if each.step.task == task]:
                self._end(session, lease.number)
                session.cancelled[lease.number] = task
                self._send(session.peer, say.TaskCancel(lease.number))
                if lease.terms.keep or lease.terms.leave:  # who knows how far it got
                    self._forget_block(session, lease.step.block)

    def receive(self, peer: Peer, message: say.Message) -> None:
        """Handle a Lambda's message. A Refusal ends its session, and its tasks are given back."""
        if isinstance(message, say.Hello):
            self._open(peer, message)
            return
        session = self._sessions.get(PeerId(peer.address.hex()))
        if session is None:
            raise Refusal("unexpected", f"{type(message).__name__} from a Lambda that is not expected")
        try:
            self._hear(session, message)
        except Refusal as refusal:
            self._close(session, f"refused: {refusal}")
            raise

    def _open(self, peer: Peer, hello: say.Hello) -> None:
        invocation = InvocationId(hello.invocation)
        if hello.run != self._run or self._expected.get(invocation) != peer.key:
            raise Refusal("unexpected", f"Hello from invocation {invocation}, which nobody expects")
        name = PeerId(peer.address.hex())
        if name in self._sessions:
            self._close(self._sessions[name], "its Lambda began anew")
        twins = [each for each in self._sessions.values() if each.invocation == invocation]
        if len(twins) >= _MOST_PEERS:
            self._close(twins[0], "its Lambda was run too often")
        kept = KeptBlocks(self._keep_bytes)
        self._sessions[name] = _Session(peer, name, invocation, set(hello.programs), kept)
        self._send(peer, say.Welcome(invocation))

    def _hear(self, session: _Session, message: say.Message) -> None:
        match message:
            case say.AskTask():
                self._hear_ask(session, message)
            case say.Credit() if lease := self._lease(session, message.lease):
                if lease.credit + message.parts > say.MOST_CREDIT:
                    raise Refusal("unexpected", f"more credit than {say.MOST_CREDIT} parts")
                lease.credit += message.parts
                self._stream(session, lease)
            case say.TaskOutputPart() if lease := self._lease(session, message.lease):
                lease.take(message)
            case say.TaskEnd():
                self._hear_result(session, message)
            case say.TaskReturn():
                lease = self._lease(session, message.lease)
                self._end(session, message.lease)
                if lease is not None:
                    self._tell(TaskGivenBack(session.invocation, session.id, lease.step.task, message.why))
            case say.Leave():
                self._close(session, "its Lambda left")
                self._send(session.peer, say.Left(session.invocation))

    def _hear_ask(self, session: _Session, ask: say.AskTask) -> None:
        in_hand = session.asks + len(session.leases) + len(session.cancelled)
        if in_hand >= say.MOST_PLACES or not 1 <= ask.credit <= say.MOST_CREDIT:
            raise Refusal(
                "unexpected",
                f"an AskTask for more than {say.MOST_PLACES} tasks at once, or for over {say.MOST_CREDIT} parts",
            )
        session.asks += 1
        session.credit = ask.credit
        self._tell(LambdaAsked(session.invocation, session.id))

    def _hear_result(self, session: _Session, result: say.TaskEnd) -> None:
        lease = self._lease(session, result.lease)
        if lease is None:
            task = session.cancelled[result.lease]
            self._end(session, result.lease)
            self._tell(TaskFinishedLate(session.invocation, session.id, task))
            return
        outputs = lease.finish(result)
        block, terms = lease.step.block, lease.terms
        self._end(session, result.lease)
        if terms.keep and not lease.block_gone:
            session.kept.add(block, terms.keep)
        if terms.leave and not lease.stash_gone:
            session.kept.add_stash(block, terms.tag, terms.leave)
        task = lease.step.task
        took = result.compute_us, result.wait_us
        self._tell(TaskFinished(session.invocation, session.id, task, outputs, *took, lease.bytes_sent))

    def _lease(self, session: _Session, number: int) -> TaskLease | None:
        """The lease of this number; None: it was cancelled, and the Lambda may not have known."""
        if number in session.leases:
            return session.leases[number]
        if number in session.cancelled:
            return None
        raise Refusal("unexpected", f"lease {number}, which this Lambda does not hold")

    def _end(self, session: _Session, number: int) -> None:
        lease = session.leases.pop(number, None)
        session.cancelled.pop(number, None)
        if lease is not None:
            session.kept.promised -= lease.terms.bytes_kept

    def _send_offer(self, session: _Session, lease: TaskLease) -> bool:
        program = lease.terms.spec.program
        if program.hash not in session.programs:
            session.programs.add(program.hash)
            self._send(session.peer, say.ProgramText.of(program.hash, program.to_json()))
        if not self._send(session.peer, lease.offer()):
            self._end(session, lease.number)
            self._close(session, "its Lambda cannot be reached")
            return False
        self._stream(session, lease)
        return True

    def _stream(self, session: _Session, lease: TaskLease) -> None:
        """Send as many parts as there is credit for."""
        if not lease.travelling and lease.terms.spec.row_inputs:
            return
        while lease.credit and lease.sent < lease.parts:
            if not self._send(session.peer, lease.next_part()):
                self._close(session, "its Lambda does not take what it has asked for")
                return
            lease.sent += 1
            lease.credit -= 1

    def _close(self, session: _Session, why: str) -> None:
        self._sessions.pop(session.id, None)
        for lease in session.leases.values():
            self._tell(TaskGivenBack(session.invocation, session.id, lease.step.task, why))

    def _terms(self, session: _Session, task: TaskStep, spec: TaskSpec, parts: int) -> LeaseTerms:
        """Terms of a lease, by what the Lambda has and may keep."""
        if task.leaves is not None or task.finds is not None:
            terms = self._find(session, task, parts) or self._leave(session, task, spec, parts)
            if terms is not None:
                return terms
        return LeaseTerms(spec, *self._constants(session, task, spec))

    def _find(self, session: _Session, task: TaskStep, parts: int) -> LeaseTerms | None:
        """Terms that use a stash; None: this Lambda has none for the task."""
        way, kept = task.finds, session.kept
        if way is None or not kept.has_stash(task.block, way.tag, way.names):
            return None
        spec = self._spec(way.program, task.precision)
        if not spec.can_be_cut and parts > 1:
            return None
        kept.drop_stash(task.block)  # whatever becomes of the task
        self.shortcuts += 1
        held, keep = self._constants(session, task, spec)
        return LeaseTerms(spec, held | frozenset(way.names), keep, tag=way.tag)

    def _leave(self, session: _Session, task: TaskStep, plain: TaskSpec, parts: int) -> LeaseTerms | None:
        """Terms that leave a stash; None: the task leaves none."""
        way, kept = task.leaves, session.kept
        if way is None:
            return None
        spec = self._spec(way.program, task.precision)
        if not spec.can_be_cut and parts > 1:
            return None
        held, keep = self._constants(session, task, spec)
        kept.drop_stash(task.block)
        rows = spec.row_inputs | spec.row_outputs
        left = spec.each_bytes({name: rows[name] for name in way.names}, task.rows)
        if kept.bytes + sum(keep.values()) + sum(left.values()) > kept.most:
            self._forget_stash(session, task.block)
            return LeaseTerms(plain, held, keep)
        unsent = frozenset(left) & spec.row_outputs.keys() - plain.row_outputs.keys()
        return LeaseTerms(spec, held, keep, left, unsent, way.tag)

    def _constants(
        self, session: _Session, task: TaskStep, spec: TaskSpec
    ) -> tuple[frozenset[str], dict[str, int]]:
        """Constants of a task that a Lambda has, and those that it shall keep, with their bytes."""
        read = {name: spec.row_inputs[name] for name in task.constants if name in spec.row_inputs}
        held = session.kept.names(task.block) & frozenset(read)
        session.kept.use(task.block)
        missing = spec.each_bytes({name: read[name] for name in read.keys() - held}, task.rows)
        gone = session.kept.make_room(task.block, sum(missing.values())) if missing else None
        if gone is None:
            return held, {}
        self._tell_gone(session, gone)
        return held, missing

    def _tell_gone(self, session: _Session, gone: Evicted) -> None:
        for block in gone.stashes:
            self._forget_stash(session, block)
        for block in gone.blocks:
            self._forget_block(session, block)

    def _forget_block(self, session: _Session, block: int) -> None:
        """Have a Lambda forget a block, also what its current tasks will add to it, once they are done."""
        session.kept.drop(block)
        self._send(session.peer, say.Forget(block))
        for lease in session.leases.values():
            if lease.step.block == block:
                lease.block_gone = lease.stash_gone = True

    def _forget_stash(self, session: _Session, block: int) -> None:
        session.kept.drop_stash(block)
        self._send(session.peer, say.ForgetStash(block))
        for lease in session.leases.values():
            if lease.step.block == block:
                lease.stash_gone = True

    def _spec(self, program: TensorProgram, precision: str) -> TaskSpec:
        name = program.hash, precision
        if name not in self._specs:
            self._specs[name] = TaskSpec(program, precision)
        return self._specs[name]

    def _check_inputs(self, task: TaskStep, spec: TaskSpec) -> None:
        given: Mapping[str, Array] = {
            name: task.inputs[name] for name in (*spec.row_inputs, *spec.whole_inputs) if name in task.inputs
        }
        try:
            spec.check(spec.row_inputs | spec.whole_inputs, given, task.rows)
        except Refusal as refusal:  # ours, not a peer's
            raise BadInput(f"a tensor task was given {refusal}") from refusal

    def _check_sizes(self, lease: TaskLease) -> None:
        """Refuse a task with a tensor too large for one frame, before anything is sent."""
        spec, rows = lease.terms.spec, -(-lease.step.rows // lease.parts)
        sizes = [spec.largest(each, rows) for each in (lease.travelling, lease.arriving, spec.sums)]
        if max(sizes) > self._largest_frame:
            raise BadInput(
                f"a tensor task moves {max(sizes):,} bytes in one piece, {self._largest_frame:,} at most: use --lambdas off"
            )
