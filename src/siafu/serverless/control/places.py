"""Places: how many tasks a Lambda has at once."""

from dataclasses import dataclass

from siafu.wire.messages import MOST_PLACES

LINK_BYTES = 4 << 20
"""Bytes that a Lambda's connection holds: 200 Mbit/s for 170 ms, which is a round trip and the time to compute."""


@dataclass(frozen=True, slots=True)
class Places:
    """Number of tasks that a Lambda has at once: as many as fill its connection, and one at which it computes.

    With too few, the connection is idle while results and the rows of further tasks travel: small tasks need many.
    With too many, a task waits at a Lambda while others have none.

    least, most: whatever the tasks' size
    """

    least: int
    most: int = MOST_PLACES

    def of(self, task_bytes: int) -> int:
        """For tasks that move so many bytes in the direction in which they move more."""
        filling = -(-LINK_BYTES // max(1, task_bytes)) + 1
        return max(self.least, min(filling, self.most))


ONE_PLACE = Places(1, 1)
