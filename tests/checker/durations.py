"""Durations: how long things take. A planner models them; a test draws them."""

import random
from typing import Protocol

from siafu.pipeline.events import Event
from siafu.pipeline.ids import Address
from siafu.pipeline.task import Task


class Durations(Protocol):
    """Seconds, in virtual time."""

    def task(self, task: Task, server: Address) -> float:
        """One task, on one core or one Lambda, from its start to its result."""

    def message(self, message: Event, sender: Address, to: Address) -> float:
        """A message and the rows, gradient or weights it carries."""

    def update(self, server: Address) -> float:
        """The optimizer's step on one weight server's part of the parameters."""

    def checkpoint(self) -> float:
        """Saving everything."""


class RandomDurations:
    """Anything may take long: tasks from 0 to 1, messages from 0 to `latency`, on slow servers ten times that."""

    def __init__(self, source: random.Random, latency: float, slow: frozenset[Address]) -> None:
        self._draw = source.random
        self._latency = latency
        self._slow = slow

    def task(self, task: Task, server: Address) -> float:
        return self._draw() * (10.0 if server in self._slow else 1.0)

    def message(self, message: Event, sender: Address, to: Address) -> float:
        return self._draw() * self._latency

    def update(self, server: Address) -> float:
        return self._draw()

    def checkpoint(self) -> float:
        return self._draw() * 3
