"""A graph server, its cores and its Lambdas as queues, in virtual time: how long do epochs take?"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from siafu.serverless.control.queue_watch import Period, QueueWatch
from siafu.virtual.agenda import Agenda


@dataclass(frozen=True, slots=True)
class Shop:
    """What decides an epoch's time.

    stages:  how often an interval goes to a Lambda and then to a core, an epoch
    gather:  seconds on a core; `tensor`: on a Lambda; `latency`: on the way to it and back
    crowd:   how many Lambdas run side by side: more slow each other down, and more than in proportion
    carry:   seconds on the server's own network for the rows of a task, shared by all
    """

    mode: Literal["sync", "pipe"]
    intervals: int
    cores: int
    gather: float
    tensor: float
    latency: float
    carry: float = 0.0
    crowd: float = 1e9
    stages: int = 3
    noise: float = 0.1


class Run:
    """Epochs one after the other, with as many Lambdas as is said at each one's end."""

    def __init__(self, shop: Shop, seed: int = 0) -> None:
        self._shop = shop
        self._source = random.Random(seed)
        self._agenda = Agenda()
        self._watch = QueueWatch(0.0)
        self._graph: deque[int] = deque()
        self._tensor: deque[int] = deque()
        self._on_cores = self._on_lambdas = 0
        self._network_free = 0.0
        self._count = 1

    def epoch(self, count: int) -> Period:
        self._count = count
        self._stage = [0] * self._shop.intervals
        self._finished = 0
        self._tensor.extend(range(self._shop.intervals))
        self._serve()
        while self._agenda.step():
            pass
        return self._watch.end_period(self._agenda.now, count)

    def _serve(self) -> None:
        while self._tensor and self._on_lambdas < self._count:
            self._on_lambdas += 1
            self._agenda.after(self._lambda_time(), self._lambda_done, self._tensor.popleft())
        while self._graph and self._on_cores < self._shop.cores:
            self._on_cores += 1
            self._agenda.after(self._vary(self._shop.gather), self._core_done, self._graph.popleft())
        self._watch.note(
            self._agenda.now,
            graph_waiting=len(self._graph),
            tensor_waiting=len(self._tensor),
            tensor_running=self._on_lambdas,
        )

    def _lambda_time(self) -> float:
        now = self._agenda.now
        self._network_free = max(now, self._network_free) + self._shop.carry
        slower = max(1.0, self._on_lambdas / self._shop.crowd) ** 1.5
        return self._network_free - now + self._vary(self._shop.tensor * slower + self._shop.latency)

    def _vary(self, seconds: float) -> float:
        return seconds * (1 + self._shop.noise * (2 * self._source.random() - 1))

    def _lambda_done(self, interval: int) -> None:
        self._on_lambdas -= 1
        self._arrive(interval, self._graph)
        self._serve()

    def _core_done(self, interval: int) -> None:
        self._on_cores -= 1
        self._stage[interval] += 1
        if self._stage[interval] < self._shop.stages:
            self._arrive(interval, self._tensor)
        self._serve()

    def _arrive(self, interval: int, queue: deque[int]) -> None:
        """In sync mode, once all have come so far."""
        if self._shop.mode == "pipe":
            queue.append(interval)
            return
        self._finished += 1
        if self._finished == self._shop.intervals:
            self._finished = 0
            queue.extend(range(self._shop.intervals))


def tuned(shop: Shop, start: int, epochs: int, decide: Callable[[list[Period]], int]) -> list[Period]:
    run, history, count = Run(shop), list[Period](), start
    for _ in range(epochs):
        history.append(run.epoch(count))
        count = decide(history)
    return history


def fixed(shop: Shop, count: int, epochs: int = 3) -> float:
    run = Run(shop)
    return sum(run.epoch(count).seconds for _ in range(epochs)) / epochs
