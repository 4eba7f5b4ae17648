"""ControllerOptions: limits on the number of Lambdas, on waiting for them, and on failures."""

from dataclasses import dataclass

from siafu.base.errors import BadInput
from siafu.serverless.control.ids import Seconds
from siafu.wire.messages import MOST_PLACES


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Limits on the number of Lambdas, on waiting for them, and on failures. Times are in seconds.

    where:         the function and region, or the local pool: for messages
    count:         number of Lambdas to start with
    places:        the most tasks that a Lambda may have at once: while it runs one, rows of the others travel
    spares:        number of further Lambdas while late ones have not ended
    ratio, floor:  a task is late after `ratio` × the mean time of its kind, but not within `floor`
    default:       the longest time of the first tasks of a kind, while there is no mean
    start:         the longest silence of a Lambda before its first task and between two
    lifetime:      time after which a Lambda has ended for certain: the function's timeout, and some time to hear of it
    attempts:      the most Lambdas that a task is given to
    setbacks:      the most setbacks in a row (new Lambdas that do not come) while no Lambda works
    first_setbacks: the same before any Lambda has come, when the function itself fails
    wait, longest_wait: wait after the first setback, doubled each time up to the longest
    """

    where: str
    count: int
    spares: int
    ratio: float = 4.0
    floor: Seconds = 1.0
    default: Seconds = 30.0
    start: Seconds = 30.0
    lifetime: Seconds = 960.0
    attempts: int = 12
    setbacks: int = 10
    first_setbacks: int = 4
    wait: Seconds = 0.2
    longest_wait: Seconds = 20.0
    places: int = 1

    def __post_init__(self) -> None:
        if self.count < 1 or self.spares < 0:
            raise BadInput(
                f"{self.count} Lambdas and {self.spares} spares: give a count of at least 1, and spares of 0 or more"
            )
        if not 1 <= self.places <= MOST_PLACES:
            raise BadInput(f"{self.places} tasks in a Lambda's hands: give 1 to {MOST_PLACES}")
        if self.ratio <= 1:
            raise BadInput(f"a task is late after {self.ratio} times the mean: give a ratio above 1")
        waits = (self.floor, self.default, self.start, self.lifetime, self.wait, self.longest_wait)
        if min(waits) <= 0:
            raise BadInput(f"a wait of {min(waits)} s for a Lambda: every wait must be above 0")
        if min(self.attempts, self.setbacks, self.first_setbacks) < 1:
            raise BadInput("a controller that never tries: attempts and setbacks must be at least 1")
