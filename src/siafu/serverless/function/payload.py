"""Payload: input of an invocation: where to ask for tasks, under which keys, and when to stop."""

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
    """Input of an invocation.

    run:       a name that no other run has
    graph:     the graph server to ask for tasks
    weights:   the weight servers
    keys:      the Lambda's own
    idle_ms:   the Lambda leaves when it gets no task for so long
    margin_ms: the Lambda takes no further task when it has less time left than this
    stall_ms:  a server that is silent for so long during a task is lost
    tasks:     number of tasks after which the Lambda leaves; 0: no limit
    places:    number of tasks it may have at once: while it computes one, rows of the next arrive
    streaming: compute the first parts while the others arrive; False: wait for all parts
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
        """The payload as a JSON object."""
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
        """The payload that `form` wrote; anything else is refused."""
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
