"""Receipt: output of an invocation, as it says. It is for the meter; no result depends on it."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from siafu.base.errors import BadInput
from siafu.serverless.control.ids import InvocationId, SlotId
from siafu.serverless.function.checked import Checked
from siafu.wire.codec import PROTOCOL

ENDS = ("idle", "dismissed", "deadline", "enough", "lost", "refused")
"""No task came; the server sent it home; its time ran out; it had done as many tasks as it may; a server fell silent;
a server refused what it said, or said what cannot be."""


@dataclass(slots=True)
class Receipt:
    """Work and time of an invocation.

    ended:     one of `ENDS`
    why:       in words, where it was lost or refused; else ""
    tasks:     done; `given_back`: begun and not finished
    programs, weights: number fetched; others were there from earlier
    cold:      1 if the Lambda had never run before
    compute_ms, wait_ms, total_ms: in the programs, waiting for the servers, in all
    """

    run: str
    invocation: InvocationId
    slot: SlotId
    ended: str = "idle"
    why: str = ""
    tasks: int = 0
    given_back: int = 0
    rows: int = 0
    programs: int = 0
    weights: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    compute_ms: int = 0
    wait_ms: int = 0
    total_ms: int = 0
    cold: int = 0

    def form(self) -> dict[str, Any]:
        """The receipt as a JSON object."""
        return {"protocol": PROTOCOL, **asdict(self)}

    @classmethod
    def of(cls, form: Any) -> "Receipt":
        """The receipt that `form` wrote; anything else is refused."""
        given = Checked(form, "a receipt")
        if given.number("protocol") != PROTOCOL:
            raise BadInput("a receipt of another protocol: deploy the Lambda again")
        words = ("run", "ended", "why")
        read: dict[str, Any] = {name: given.text(name, 2000) for name in words}
        read |= {each.name: given.number(each.name) for each in fields(cls) if each.name not in words}
        given.end()
        if read["ended"] not in ENDS:
            raise BadInput(f"a receipt that ends with {read['ended']!r}")
        return cls(**read)
