"""LambdaTable: the Lambdas that were invoked and have not ended."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from siafu.serverless.control.ids import InvocationId, PeerId, Seconds, SlotId, TaskId

NOBODY = PeerId("")


class Standing(Enum):
    """Whether a Lambda gets tasks. Trusted: yes. Doubted: it was late, and another may take its place. Dismissed: no more."""

    TRUSTED = "trusted"
    DOUBTED = "doubted"
    DISMISSED = "dismissed"


@dataclass(slots=True)
class Lambda:
    """One Lambda.

    made:     time of its invocation
    peer:     its connection; `NOBODY`: it has not spoken yet
    tasks:    its tasks in order, also those given to another since; it runs the first
    asks:     number of further tasks that it has asked for
    turn:     time at which it last finished a task
    patience: seconds that it may be silent
    homes:    of the tasks that it was given and no other since
    """

    id: InvocationId
    slot: SlotId
    made: Seconds
    standing: Standing = Standing.TRUSTED
    peer: PeerId = NOBODY
    tasks: list[TaskId] = field(default_factory=list)
    asks: int = 0
    turn: Seconds = 0.0
    patience: Seconds = 0.0
    homes: set[int] = field(default_factory=set)

    @property
    def has_come(self) -> bool:
        return self.peer != NOBODY

    def has_room(self, places: int) -> bool:
        """Whether it asks for a task and has fewer than `places`."""
        return self.asks > 0 and len(self.tasks) < places


class LambdaTable:
    def __init__(self) -> None:
        self.made = 0
        self._alive: dict[InvocationId, Lambda] = {}
        self._idle: dict[InvocationId, Lambda] = {}
        self._owners: dict[int, Lambda] = {}

    def __len__(self) -> int:
        return len(self._alive)

    def __iter__(self) -> Iterator[Lambda]:
        return iter(self._alive.values())

    def get(self, invocation: InvocationId) -> Lambda | None:
        return self._alive.get(invocation)

    def make(self, now: Seconds) -> Lambda:
        """Add a Lambda, in the lowest free slot."""
        used = {each.slot for each in self._alive.values()}
        slot = next(each for each in range(len(used) + 1) if each not in used)
        made = Lambda(InvocationId(self.made), SlotId(slot), now)
        self.made += 1
        self._alive[made.id] = made
        return made

    def remove(self, member: Lambda) -> None:
        del self._alive[member.id]
        self._idle.pop(member.id, None)
        for home in member.homes:
            del self._owners[home]

    def rest(self, member: Lambda) -> None:
        """Mark a Lambda as idle: it asked, and has no task."""
        self._idle[member.id] = member

    def wake(self, member: Lambda) -> None:
        """Mark a Lambda as not idle."""
        self._idle.pop(member.id, None)

    @property
    def poorest_idle(self) -> Lambda | None:
        """The idle Lambda with the fewest homes; of several the one that worked last, so that others may leave and cost nothing."""
        return min(reversed(self._idle.values()), key=lambda each: len(each.homes), default=None)

    def least_busy(self, places: int) -> Lambda | None:
        """Of the Lambdas with room, the one with the fewest tasks, and then the fewest homes."""
        able = self._with_room(places)
        return min(able, key=lambda each: (len(each.tasks), len(each.homes), each.turn), default=None)

    def has_room(self, places: int) -> bool:
        """Whether a Lambda asks for a task and has fewer than `places`."""
        return any(True for _ in self._with_room(places))

    def _with_room(self, places: int) -> Iterator[Lambda]:
        return (
            each
            for each in self._alive.values()
            if each.has_room(places) and each.standing is Standing.TRUSTED
        )

    def settle(self, member: Lambda, home: int) -> None:
        """Make a Lambda the owner of `home`: it has the latest rows of it, so the next task there is best run by it."""
        before = self._owners.get(home)
        if before is not None:
            before.homes.discard(home)
        self._owners[home] = member
        member.homes.add(home)

    def owner(self, home: int | None) -> Lambda | None:
        """The owner of `home`, if it may be given tasks."""
        found = None if home is None else self._owners.get(home)
        return found if found is not None and found.standing is Standing.TRUSTED else None

    @property
    def first_idle(self) -> Lambda | None:
        """The Lambda that has been idle longest."""
        return next(iter(self._idle.values()), None)

    @property
    def num_trusted(self) -> int:
        return sum(each.standing is Standing.TRUSTED for each in self._alive.values())

    @property
    def num_starting(self) -> int:
        """Number of Lambdas that are expected to ask for their first task."""
        return sum(
            each.standing is Standing.TRUSTED and not each.tasks and each.id not in self._idle
            for each in self._alive.values()
        )

    @property
    def num_at_work(self) -> int:
        """Number of Lambdas that run a task."""
        return sum(each.standing is Standing.TRUSTED and bool(each.tasks) for each in self._alive.values())

    @property
    def has_worker(self) -> bool:
        """Whether a Lambda that may be given tasks has spoken."""
        return any(each.standing is Standing.TRUSTED and each.has_come for each in self._alive.values())
