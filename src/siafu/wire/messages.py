"""What graph servers, weight servers and Lambdas say to each other.

A Lambda opens with Hello and asks for tasks; everything about a task then names its *lease*, the number under which
the server gave that task to that Lambda, once. Rows travel in *parts*: `part_bounds` says where they are cut.
A server sends no more parts than it has credit for, so that a slow Lambda costs it no memory.
Rows that never change make up *blocks*: the server says which of them a Lambda keeps until it leaves, and need not
be sent again. With a block a Lambda may keep a *stash*: what one task made of these rows, for one later task.
Parts of the outputs need no credit: a Lambda's socket blocks until the server has read what came before.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from siafu.wire.refusal import Refusal
from siafu.wire.tensors import Tensors

MOST_CREDIT = 64
"""Parts that a peer may be owed at once, of one lease."""
MOST_PLACES = 8
"""Leases that a peer may hold at once, with those that it asks for."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Lambda → graph server: who I am.

    programs: hashes of the programs that I still have
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
class Ask:
    """Lambda → graph server: I can take a task. With it may come `credit` parts of its inputs, unasked."""

    credit: int


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Graph server → Lambda: a program that the next Offer needs, as the bytes of its JSON."""

    hash: str
    tensors: Tensors

    @classmethod
    def of(cls, hash: str, text: str) -> "Program":
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
class Offer:
    """Graph server → Lambda: a task.

    program:   its hash
    precision: what the program's "float" is: float32 or float64
    rows:      how many
    parts:     how many messages they come in
    server:    which weight server has the weights, by its place in the invocation's list
    version:   of the weights
    block:     the block that `held` and `keep` are about
    held:      inputs that do not come: the Lambda has them in that block, or in its stash, which is then used up.
               If there are no others, no parts come at all
    keep:      inputs that come, and are to be kept in it once the task is done
    tag:       of which pass the stash is, that is to be used or made
    leave:     outputs and inputs that are to be the block's stash once the task is done; the one before it may go at once
    unsent:    those of them that are not sent
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
class InputPart:
    """Graph server → Lambda: the inputs that have rows, those of one part."""

    lease: int
    part: int
    tensors: Tensors


@dataclass(frozen=True, slots=True)
class Credit:
    """Lambda → graph server: I have used `parts` parts; as many more may come."""

    lease: int
    parts: int


@dataclass(frozen=True, slots=True, eq=False)
class OutputPart:
    """Lambda → graph server: the outputs that have rows, those of one part. Parts come in order."""

    lease: int
    part: int
    tensors: Tensors


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Lambda → graph server: the end of a task, and the outputs that are sums over its rows."""

    lease: int
    compute_us: int
    wait_us: int
    tensors: Tensors


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Lambda → graph server: I shall not finish this; also the answer to Cancel."""

    lease: int
    why: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Graph server → Lambda: nobody waits for this any more."""

    lease: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Graph server → Lambda: this block need not be kept any longer, nor its stash."""

    block: int


@dataclass(frozen=True, slots=True)
class ForgetStash:
    """Graph server → Lambda: what a task left in this block will not be used."""

    block: int


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Graph server → Lambda: there will be nothing more for you."""

    invocation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Lambda → graph server: I go. What was offered and not answered is given back."""

    invocation: int


@dataclass(frozen=True, slots=True)
class Left:
    """The answer to Leave, after everything that was said before: now the Lambda may go."""

    invocation: int


@dataclass(frozen=True, slots=True)
class AskWeights:
    """Lambda → weight server: these weights, of one version."""

    version: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Weight server → Lambda: the answer to AskWeights, all of it."""

    version: int
    tensors: Tensors


@dataclass(frozen=True, slots=True)
class NoWeights:
    """Weight server → Lambda: that version is not held here, or has no such weight."""

    version: int
    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Server → Lambda: what you said cannot be, and I shall not listen further."""

    why: str


Message = (
    Hello
    | Welcome
    | Ask
    | Program
    | Offer
    | InputPart
    | Credit
    | OutputPart
    | Result
    | GiveBack
    | Cancel
    | Forget
    | ForgetStash
    | Dismiss
    | Leave
    | Left
    | AskWeights
    | Weights
    | NoWeights
    | Refused
)


def part_bounds(rows: int, parts: int, part: int) -> tuple[int, int]:
    """The rows of one part: the same on both sides, whatever arrives when, so that sums come out equal."""
    return rows * part // parts, rows * (part + 1) // parts
