"""How long a Lambda takes to be there: the handler's process from nothing to its first invocation, and once it is warm.

    python bench/cold_start.py [TIMES]

Under AWS's runtime client on this machine, with what a Lambda imports (NumPy and ZeroMQ). On AWS the platform's own part
comes on top: fetching and unpacking the zip, and starting the machine. `siafu lambda invoke` shows that one.
"""

import queue
import statistics
import sys
import time

from siafu.serverless.control.ids import InvocationId
from siafu.serverless.function.probe import probe
from siafu.serverless.platforms.invoker import Invocation, InvocationAnswered, InvocationOutcome
from siafu.serverless.platforms.local_invoker import LocalInvoker
from siafu.serverless.platforms.platform import HANDLER


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    cold, warm = [], []
    for _ in range(times):
        invoker = LocalInvoker(HANDLER, 1)
        invoker.start()
        try:
            cold.append(_seconds(invoker))
            warm.append(_seconds(invoker))
        finally:
            invoker.stop()
    for name, seconds in (("cold", cold), ("warm", warm)):
        print(f"{name}: median {1000 * statistics.median(seconds):.1f} ms, best {1000 * min(seconds):.1f} ms")
    print(f"the start alone: {1000 * (statistics.median(cold) - statistics.median(warm)):.1f} ms")


def _seconds(invoker: LocalInvoker) -> float:
    """One invocation that finds no server, from the call to its receipt."""
    ended: queue.Queue[InvocationOutcome] = queue.Queue()
    began = time.perf_counter()
    invoker.invoke(Invocation(InvocationId(0), probe().payload), ended.put)
    outcome = ended.get(timeout=60)
    assert isinstance(outcome, InvocationAnswered), outcome
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
