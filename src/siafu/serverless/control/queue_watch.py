"""QueueWatch: length of a graph server's queues during an epoch."""

from dataclasses import dataclass

from siafu.serverless.control.ids import Seconds


@dataclass(frozen=True, slots=True)
class Period:
    """An epoch, as the autotuner sees it.

    count:   number of Lambdas
    seconds: epoch time
    drained: the share of that time in which no graph task waited for a core
    hungry:  the share in which also tensor tasks waited for a Lambda: more Lambdas would have given the cores work
    most:    the most tensor tasks at once, waiting or at a Lambda
    """

    count: int
    seconds: Seconds
    drained: float
    hungry: float
    most: int


class QueueWatch:
    """Makes each epoch's `Period` of the changes of the queues."""

    def __init__(self, now: Seconds) -> None:
        self._graph_waiting = self._tensor_waiting = self._tensor_running = 0
        self._began = self._seen = now
        self._drained = self._hungry = 0.0
        self._most = 0

    def note(self, now: Seconds, *, graph_waiting: int, tensor_waiting: int, tensor_running: int) -> None:
        """Note the number of tasks that wait, and that Lambdas run, from now on."""
        self._pass_time(now)
        self._graph_waiting, self._tensor_waiting = graph_waiting, tensor_waiting
        self._tensor_running = tensor_running
        self._most = max(self._most, tensor_waiting + tensor_running)

    def end_period(self, now: Seconds, count: int) -> Period:
        """The period since the last one, with `count` Lambdas."""
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
