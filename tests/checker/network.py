"""Network: messages that are delayed, reordered, lost and sent again, and duplicated, but that arrive."""

import random
from collections.abc import Callable

from siafu.pipeline.ids import Address
from siafu.runtime.letter import Letter
from siafu.virtual.agenda import Agenda
from tests.checker.durations import Durations
from tests.checker.faults import Faults

Deliver = Callable[[Address, Address, Letter], bool]
"""Hands a letter over; False: no one is there."""

IsAlive = Callable[[Letter], bool]
"""Whether the life that sent a letter lives on."""


class Network:
    """An at-least-once transport: the sender sends again until it hears that the message came.

    deliver: False: no one is there; the message comes again later
    """

    def __init__(
        self,
        agenda: Agenda,
        durations: Durations,
        faults: Faults,
        source: random.Random,
        deliver: Deliver,
        is_alive: IsAlive,
    ) -> None:
        self._is_alive = is_alive
        self.lost_with_sender = 0
        self._agenda = agenda
        self._durations = durations
        self._faults = faults
        self._draw = source.random
        self._deliver = deliver
        self.sent = 0

    def send(self, sender: Address, to: Address, letter: Letter) -> None:
        self.sent += 1
        self._bring(self._delay(sender, to, letter), sender, to, letter)
        if self._draw() < self._faults.duplicated:
            # The acknowledgement was lost: the second copy comes later, perhaps by whole epochs.
            again = self._faults.resend + self._delay(sender, to, letter)
            if self._draw() < 0.5:
                again += self._draw() * self._faults.hold
            self._bring(again, sender, to, letter)

    def _delay(self, sender: Address, to: Address, letter: Letter) -> float:
        delay = self._durations.message(letter.event, sender, to)
        while self._draw() < self._faults.lost:
            delay += self._faults.resend
        if self._draw() < self._faults.held_up and isinstance(letter.event, self._faults.victims):
            delay += self._draw() * self._faults.hold
        return delay

    def _bring(self, delay: float, sender: Address, to: Address, letter: Letter) -> None:
        self._agenda.after(delay, self._arrive, sender, to, letter)

    def _arrive(self, sender: Address, to: Address, letter: Letter) -> None:
        if not self._is_alive(letter) and self._draw() < self._faults.with_sender:
            self.lost_with_sender += 1
            return
        if not self._deliver(sender, to, letter):
            self._bring(self._faults.resend, sender, to, letter)
