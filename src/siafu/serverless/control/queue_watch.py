"""QueueWatch: how a graph server's queues stood during an epoch."""

from dataclasses import dataclass

from siafu.serverless.control.ids import Seconds


@dataclass(frozen=True, slots=True)
class Period:
    """An epoch, as far as it says whether there are too many Lambdas or too few.

    count:   how many Lambdas there were
    seconds: how long it took
    drained: the share of that time in which no graph task waited for a core
    hungry:  the share of it in which, besides, tensor tasks waited for a Lambda: with more, cores would have had work
    most:    the most tensor tasks at once, waiting or at a Lambda
    """

    count: int
    seconds: Seconds
    drained: float
    hungry: float
    most: int


class QueueWatch:
    """Told of every change, it gives each epoch's `Period`."""

    def __init__(self, now: Seconds) -> None:
        self._graph_waiting = self._tensor_waiting = self._tensor_running = 0
        self._began = self._seen = now
        self._drained = self._hungry = 0.0
        self._most = 0

    def note(self, now: Seconds, *, graph_waiting: int, tensor_waiting: int, tensor_running: int) -> None:
        """So many tasks wait, and so many are at Lambdas, from now on."""
        self._pass_time(now)
        self._graph_waiting, self._tensor_waiting = graph_waiting, tensor_waiting
        self._tensor_running = tensor_running
        self._most = max(self._most, tensor_waiting + tensor_running)

    def end_period(self, now: Seconds, count: int) -> Period:
        """What passed since the last one ended, with `count` Lambdas."""
        self._pass_time(now)
        seconds = max(self._seen - self._began, 1e-9)
        period = Period(count, seconds, self._drained / seconds, self._hungry / seconds, self._most)
        self._began = self._seen
        self._drained = self._hungry = 0.0
        self._most = self._tensor_waiting + self._tensor_running
        return period

    def _pass_time(self, now: Seconds) -> None:
        passed = max(0.0, now - self._seen)
        self._seen = max(self._seen, now)
        if self._graph_waiting == 0:
            self._drained += passed
            if self._tensor_waiting:
                self._hungry += passed
