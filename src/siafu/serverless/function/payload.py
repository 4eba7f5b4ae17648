"""Payload: what an invocation is told: where to ask for tasks, under which keys, and when to stop."""

from dataclasses import dataclass
from typing import Any

from siafu.base.errors import BadInput
from siafu.serverless.control.ids import InvocationId, SlotId
from siafu.serverless.function.checked import Checked
from siafu.wire.codec import PROTOCOL
from siafu.wire.keys import Keys, check_key


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server: where it listens, and the public key that it must prove."""

    address: str
    key: str

    def __post_init__(self) -> None:
        check_key(self.key)
        if not self.address.startswith(("tcp://", "ipc://", "inproc://")):
            raise BadInput(f"a server at {self.address!r}: addresses look like tcp://HOST:PORT")


@dataclass(frozen=True, slots=True)
class Payload:
    """What an invocation is told.

    run:       a name that no other run has
    graph:     the graph server to ask for tasks
    weights:   the weight servers
    keys:      the Lambda's own
    idle_ms:   it leaves when it was not given a task for so long
    margin_ms: it takes no further task when it has less time left than this
    stall_ms:  a server that says nothing for so long in the middle of a task is lost
    tasks:     it leaves after so many; 0: no limit
    places:    how many it may have in hand: while it is at one, rows of the next ones arrive
    streaming: compute the first parts while the others arrive; False: only when all have come
    """

    run: str
    invocation: InvocationId
    slot: SlotId
    graph: Endpoint
    weights: tuple[Endpoint, ...]
    keys: Keys
    idle_ms: int = 10_000
    margin_ms: int = 2_000
    stall_ms: int = 30_000
    tasks: int = 0
    streaming: bool = True
    places: int = 1

    def form(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "protocol": PROTOCOL,
            "run": self.run,
            "invocation": self.invocation,
            "slot": self.slot,
            "graph": _endpoint_form(self.graph),
            "weights": [_endpoint_form(each) for each in self.weights],
            "keys": {"public": self.keys.public, "secret": self.keys.secret},
            "idle_ms": self.idle_ms,
            "margin_ms": self.margin_ms,
            "stall_ms": self.stall_ms,
            "tasks": self.tasks,
            "streaming": self.streaming,
            "places": self.places,
        }

    @classmethod
    def of(cls, form: Any) -> "Payload":
        """What `form` gave; anything else is refused."""
        given = Checked(form, "the payload")
        protocol = given.number("protocol")
        if protocol != PROTOCOL:
            raise BadInput(f"a run of protocol {protocol}; this Lambda speaks {PROTOCOL}: deploy it again")
        keys = given.object("keys")
        payload = cls(
            run=given.text("run"),
            invocation=InvocationId(given.number("invocation")),
            slot=SlotId(given.number("slot")),
            graph=_endpoint(given.object("graph")),
            weights=tuple(_endpoint(Checked(each, "a weight server")) for each in given.list("weights")),
            keys=Keys(keys.text("public"), keys.text("secret")),
            idle_ms=given.number("idle_ms"),
            margin_ms=given.number("margin_ms"),
            stall_ms=given.number("stall_ms"),
            tasks=given.number("tasks"),
            streaming=given.truth("streaming"),
            places=given.number("places"),
        )
        keys.end()
        given.end()
        return payload


def _endpoint_form(endpoint: Endpoint) -> dict[str, str]:
    return {"address": endpoint.address, "key": endpoint.key}


def _endpoint(given: Checked) -> Endpoint:
    endpoint = Endpoint(given.text("address"), given.text("key"))
    given.end()
    return endpoint
