"""Fleet: the Lambdas that have been asked for and have not ended."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from siafu.serverless.control.ids import InvocationId, PeerId, Seconds, SlotId, TaskId

NOBODY = PeerId("")


class Standing(Enum):
    """What is expected of a Lambda: trusted, it counts; doubted, it was late, and another may take its place;
    dismissed, it gets no task any more."""

    TRUSTED = "trusted"
    DOUBTED = "doubted"
    DISMISSED = "dismissed"


@dataclass(slots=True)
class Lambda:
    """One Lambda.

    made:     when it was asked for
    peer:     who speaks for it; `NOBODY`: it has not been heard of
    tasks:    what it has in hand, in its order, whether or not another was given the same since: it is at the first
    asks:     how many more it has asked for
    turn:     when it was last through with a task
    patience: how long it may be silent
    homes:    of the tasks that it was given, and that no other was given since
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


class Fleet:
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
        """A new one, in the lowest slot that is free."""
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
        """It asked, and has nothing to do."""
        self._idle[member.id] = member

    def wake(self, member: Lambda) -> None:
        """It is not idle, if it was."""
        self._idle.pop(member.id, None)

    @property
    def poorest_idle(self) -> Lambda | None:
        """Of the idle one with the fewest homes; of those the one that worked last: the others may leave, and stop costing."""
        return min(reversed(self._idle.values()), key=lambda each: len(each.homes), default=None)

    @property
    def least_busy(self) -> Lambda | None:
        """Of those that ask, the one with the fewest tasks in hand, and then the fewest homes."""
        return min(self._asking, key=lambda each: (len(each.tasks), len(each.homes), each.turn), default=None)

    @property
    def has_asking(self) -> bool:
        return any(True for _ in self._asking)

    @property
    def _asking(self) -> Iterator[Lambda]:
        return (each for each in self._alive.values() if each.asks and each.standing is Standing.TRUSTED)

    def settle(self, member: Lambda, home: int) -> None:
        """It has what is known at `home` last: the next task there is best done by it, not by who was there before."""
        before = self._owners.get(home)
        if before is not None:
            before.homes.discard(home)
        self._owners[home] = member
        member.homes.add(home)

    def owner(self, home: int | None) -> Lambda | None:
        """Who has what is known at `home`, if it may be given tasks."""
        found = None if home is None else self._owners.get(home)
        return found if found is not None and found.standing is Standing.TRUSTED else None

    @property
    def first_idle(self) -> Lambda | None:
        """The one that has been idle longest."""
        return next(iter(self._idle.values()), None)

    @property
    def num_trusted(self) -> int:
        return sum(each.standing is Standing.TRUSTED for each in self._alive.values())

    @property
    def num_starting(self) -> int:
        """Those that will ask for a task, as far as one can expect."""
        return sum(
            each.standing is Standing.TRUSTED and not each.tasks and each.id not in self._idle
            for each in self._alive.values()
        )

    @property
    def num_at_work(self) -> int:
        """Those that are at a task."""
        return sum(each.standing is Standing.TRUSTED and bool(each.tasks) for each in self._alive.values())

    @property
    def has_worker(self) -> bool:
        """Whether one that may be given tasks has been heard of."""
        return any(each.standing is Standing.TRUSTED and each.has_come for each in self._alive.values())
