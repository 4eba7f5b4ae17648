"""A probe: an invocation without work, which shows that a function exists, has this version, and how long it takes."""

from siafu.serverless.control.ids import InvocationId, SlotId
from siafu.serverless.function.payload import Endpoint, Payload
from siafu.serverless.platforms.invoker import Invocation
from siafu.wire.keys import make_keys

_NOBODY = "tcp://127.0.0.1:9"  # the Lambda's own port for discarding: no server, no task


def probe(number: int = 0) -> Invocation:
    """The handler starts, finds nobody to ask for a task, and says so: its receipt's end is "lost"."""
    keys = make_keys()
    nobody = Endpoint(_NOBODY, keys.public)
    payload = Payload("probe", InvocationId(number), SlotId(0), nobody, (), keys, idle_ms=1, stall_ms=1)
    return Invocation(InvocationId(number), payload.form())
