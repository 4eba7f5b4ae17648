"""Messages between graph servers, weight servers and Lambdas.

A Lambda begins with Hello and asks for tasks. All messages about a task have the number of its *lease*: one offer of that
task to that Lambda. Rows travel in *parts*: `part_bounds` says where they are cut. A server sends only as many parts as it
has credit for, so that a slow Lambda costs it no memory. Parts of the outputs need no credit: a Lambda's socket blocks
until the server has read the parts before.

Rows that never change are *blocks*: the server says which of them a Lambda keeps until it leaves, and does not send them
again. With a block a Lambda may keep a *stash*: rows that one task made for one later task.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from siafu.wire.refusal import Refusal
from siafu.wire.tensors import Tensors

MOST_CREDIT = 64
"""The most parts of one lease that a peer may have credit for."""
MOST_PLACES = 8
"""The most tasks that a peer may have or ask for at once."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Lambda → graph server: the beginning of a session.

    programs: hashes of the programs that the Lambda still has
    """

    run: str
    invocation: int
    slot: int
    programs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to Hello: tasks may be asked for."""

    invocation: int


@dataclass(frozen=True, slots=True)
class AskTask:
    """Lambda → graph server: a request for a task, with credit for so many parts of its inputs."""

    credit: int


@dataclass(frozen=True, slots=True, eq=False)
class ProgramText:
    """Graph server → Lambda: a program that the next TaskOffer needs, as the bytes of its JSON."""

    hash: str
    tensors: Tensors

    @classmethod
    def of(cls, hash: str, text: str) -> "ProgramText":
        return cls(hash, {"json": np.frombuffer(text.encode(), np.uint8)})

    def text(self) -> str:
        """The JSON, if it is what its hash says."""
        if set(self.tensors) != {"json"} or self.tensors["json"].dtype != np.uint8:
            raise Refusal("tensor", "a program that is not sent as the bytes of its JSON")
        content = self.tensors["json"].tobytes()
        if hashlib.sha256(content).hexdigest() != self.hash:
            raise Refusal("tensor", "a program that is not the one its hash names")
        return content.decode(errors="replace")


@dataclass(frozen=True, slots=True, eq=False)
class TaskOffer:
    """Graph server → Lambda: a task.

    program:   its hash
    precision: what the program's "float" is: float32 or float64
    rows:      number of rows
    parts:     number of messages that they come in
    server:    the weight server that has the weights, by its place in the payload's list
    version:   of the weights
    block:     the block that `held` and `keep` are about
    held:      inputs that are not sent: the Lambda has them in that block, or in its stash, which is then used up.
               If there are no others, no parts are sent
    keep:      inputs that are sent, and kept in the block once the task is done
    tag:       the pass of the stash that is used or made
    leave:     outputs and inputs that are the block's stash once the task is done; the stash before may be freed at once
    unsent:    outputs in `leave` that are not sent
    tensors:   the inputs that are neither rows nor weights
    """

    lease: int
    program: str
    precision: str
    rows: int
    parts: int
    server: int
    version: int
    block: int
    held: tuple[str, ...]
    keep: tuple[str, ...]
    tag: int
    leave: tuple[str, ...]
    unsent: tuple[str, ...]
    tensors: Tensors


@dataclass(frozen=True, slots=True, eq=False)
class TaskInputPart:
    """Graph server → Lambda: rows of the inputs, of one part."""

    lease: int
    part: int
    tensors: Tensors


@dataclass(frozen=True, slots=True)
class Credit:
    """Lambda → graph server: `parts` parts were used; as many more may be sent."""

    lease: int
    parts: int


@dataclass(frozen=True, slots=True, eq=False)
class TaskOutputPart:
    """Lambda → graph server: rows of the outputs, of one part. Parts come in order."""

    lease: int
    part: int
    tensors: Tensors


@dataclass(frozen=True, slots=True, eq=False)
class TaskEnd:
    """Lambda → graph server: the end of a task, and the outputs that are sums over its rows."""

    lease: int
    compute_us: int
    wait_us: int
    tensors: Tensors


@dataclass(frozen=True, slots=True)
class TaskReturn:
    """Lambda → graph server: the task will not be finished; also the answer to TaskCancel."""

    lease: int
    why: str


@dataclass(frozen=True, slots=True)
class TaskCancel:
    """Graph server → Lambda: nobody waits for the task any more."""

    lease: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Graph server → Lambda: this block need not be kept any longer, nor its stash."""

    block: int


@dataclass(frozen=True, slots=True)
class ForgetStash:
    """Graph server → Lambda: the stash of this block will not be used."""

    block: int


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Graph server → Lambda: there are no more tasks for it."""

    invocation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Lambda → graph server: the end of the session. Tasks that were offered and not answered are returned."""

    invocation: int


@dataclass(frozen=True, slots=True)
class Left:
    """The answer to Leave, after all messages before it: now the Lambda may end."""

    invocation: int


@dataclass(frozen=True, slots=True)
class AskWeights:
    """Lambda → weight server: a request for these weights, of one version."""

    version: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WeightsReply:
    """Weight server → Lambda: the answer to AskWeights, all of it."""

    version: int
    tensors: Tensors


@dataclass(frozen=True, slots=True)
class WeightsMissing:
    """Weight server → Lambda: that version is not held here, or has no such weight."""

    version: int
    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Server → Lambda: a message was invalid, and the session is over."""

    why: str


Message = (
    Hello
    | Welcome
    | AskTask
    | ProgramText
    | TaskOffer
    | TaskInputPart
    | Credit
    | TaskOutputPart
    | TaskEnd
    | TaskReturn
    | TaskCancel
    | Forget
    | ForgetStash
    | Dismiss
    | Leave
    | Left
    | AskWeights
    | WeightsReply
    | WeightsMissing
    | Refused
)


def part_bounds(rows: int, parts: int, part: int) -> tuple[int, int]:
    """The rows of one part: the same on both sides, whatever arrives when, so that sums come out equal."""
    return rows * part // parts, rows * (part + 1) // parts
