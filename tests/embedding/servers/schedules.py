"""Schedules: an epoch of several servers in which messages are lost, come late and twice, and servers are lost."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from siafu.embedding.servers.bucket_server import (
    BucketServer,
    Computed,
    ComputeState,
    KeepPartition,
    PartitionArrived,
    PartitionKept,
    ReadPartition,
    Reminded,
    TellLock,
)
from siafu.embedding.servers.kept_versions import KeptVersions
from siafu.embedding.servers.lock_events import (
    AbandonLease,
    AcceptLease,
    CopyPartition,
    EpochBegins,
    EpochEnds,
    KeeperGone,
    KeeperReplaced,
    LockEvent,
    PartitionCopied,
    PartitionLost,
    ServerAsks,
    TrainState,
)
from siafu.embedding.servers.lock_server import LockServer

Content = tuple[int, ...]
"""States that a partition has been through, in order."""


@dataclass(slots=True)
class Disk:
    """What a keeper has, by partition and place."""

    versions: KeptVersions
    contents: dict[tuple[int, int], Content] = field(default_factory=dict)

    def write(self, partition: int, place: int | None, version: int, content: Content) -> None:
        if place is not None:
            self.contents[partition, place] = content
            self.versions.fill(partition, place, version)

    def read(self, partition: int, version: int) -> Content | None:
        place = self.versions.find(partition, version)
        return None if place is None else self.contents[partition, place]


class Machine:
    """One life of a server: its machine, its memory and its disk."""

    def __init__(self, server: int, life: int, kept: tuple[int, ...], *, fresh: bool) -> None:
        self.place = server, life
        self.machine = BucketServer(self.place)
        self.disk = Disk(KeptVersions(kept))
        self.memory: dict[int, Content] = {}
        self.wanted: set[tuple[int, int]] = set()  # (lease, partition) that are read into memory
        for partition in kept if fresh else ():
            self.disk.write(partition, 0, 0, ())


class Schedule:
    """One epoch. `run` ends with it, or with a partition that nobody has any more."""

    def __init__(self, seed: int, servers: int = 3, partitions: int = 6, kills: int = 2) -> None:
        self.random = random.Random(seed)
        self.keepers = [(p % servers, (p + 1) % servers) for p in range(partitions)]
        self.states = tuple((a, b) for a in range(partitions) for b in range(a + 1, partitions))
        self.lock = LockServer(servers, self.keepers)
        self.machines = {server: self._machine(server, 1, fresh=True) for server in range(servers)}
        self.to_replace: list[tuple[int, int]] = []
        self.flying: list[tuple[tuple[int, int] | None, Any]] = []
        self.kills = kills
        self.trained: Counter[int] = Counter()
        self.abandoned: Counter[int] = Counter()
        self.state_of: dict[int, int] = {}
        self.order: list[int] = []
        self.ended = self.lost = False

    def _machine(self, server: int, life: int, *, fresh: bool) -> Machine:
        kept = tuple(p for p, keepers in enumerate(self.keepers) if server in keepers)
        return Machine(server, life, kept, fresh=fresh)

    def run(self) -> None:
        self._tell(EpochBegins(self.states))
        for machine in self.machines.values():
            self._obey(machine, machine.machine.begin())
        for _ in range(20_000):
            if self.ended or self.lost:
                return
            self._step()
        raise AssertionError("the epoch does not end")

    def _step(self) -> None:
        chance = self.random.random()
        if self.kills and chance < 0.01:
            self._kill(self.random.choice(list(self.machines)))
        elif self.to_replace and (chance < 0.05 or not self.flying):
            self._replace()
        elif not self.flying or chance > 0.98:
            for machine in list(self.machines.values()):
                self._obey(machine, machine.machine.handle(Reminded()))
        else:
            at = self.random.randrange(len(self.flying))
            to, what = self.flying[at]
            fate = self.random.random()
            if fate > 0.1:  # else it comes now, and again later
                self.flying.pop(at)
            if fate < 0.9:  # else it is lost
                self._deliver(to, what)

    def _kill(self, server: int) -> None:
        self.kills -= 1
        machine = self.machines.pop(server)
        self.to_replace.append((server, machine.place[1] + 1))
        self._tell(KeeperGone(server))

    def _replace(self) -> None:
        server, life = self.to_replace.pop(0)
        self.machines[server] = self._machine(server, life, fresh=False)
        self._tell(KeeperReplaced((server, life)))
        self._obey(self.machines[server], self.machines[server].machine.begin())

    def _deliver(self, to: tuple[int, int] | None, what: Any) -> None:
        if to is None:
            self._tell(what)
            return
        machine = self.machines.get(to[0])
        if machine is None or machine.place != to:
            return
        match what:
            case TrainState():
                self._obey(machine, machine.machine.handle(what))
            case CopyPartition():
                self._ask(machine, what.holder, ("copy", what.partition, what.version))
            case ("read", asker, purpose):
                _, partition, version, *_ = purpose
                self._send(asker, ("rows", purpose, machine.disk.read(partition, version)))
            case ("rows", ("copy", partition, version), content):
                self._copied(machine, partition, version, content)
            case ("rows", ("train", partition, _, lease), content):
                if content is not None and (lease, partition) in machine.wanted:
                    machine.wanted.remove((lease, partition))
                    machine.memory[partition] = content
                    self._obey(machine, machine.machine.handle(PartitionArrived(lease, partition)))
            case ("keep", asker, lease, partition, base, content):
                if machine.disk.read(partition, lease) is None:
                    place = machine.disk.versions.place_for_trained(partition, lease, base)
                    machine.disk.write(partition, place, lease, content)
                if machine.disk.read(partition, lease) is not None:
                    self._send(asker, PartitionKept(lease, partition, machine.place))
            case PartitionKept():
                self._obey(machine, machine.machine.handle(what))
            case _:
                raise AssertionError(what)

    def _copied(self, machine: Machine, partition: int, version: int, content: Content | None) -> None:
        if content is not None and machine.disk.read(partition, version) is None:
            place = machine.disk.versions.place_for_copy(partition, version)
            machine.disk.write(partition, place, version, content)
        there = machine.disk.read(partition, version) is not None
        self._send(None, PartitionCopied(machine.place, partition, version if there else -1))

    def _ask(self, machine: Machine, holder: int, purpose: tuple[Any, ...]) -> None:
        if holder in self.machines:
            self._send(self.machines[holder].place, ("read", machine.place, purpose))

    def _obey(self, machine: Machine, instructions: Iterable[Any]) -> None:
        for each in instructions:
            match each:
                case TellLock(event):
                    self._send(None, event)
                case ReadPartition(lease, partition, version, holder):
                    machine.wanted.add((lease, partition))
                    self._ask(machine, holder, ("train", partition, version, lease))
                case ComputeState(lease, state):
                    self.trained[state] += 1
                    for partition in self.states[state]:
                        machine.memory[partition] += (state,)
                    self._obey(machine, machine.machine.handle(Computed(lease)))
                case KeepPartition(lease, partition, base, keeper):
                    content = machine.memory[partition]
                    self._send(keeper, ("keep", machine.place, lease, partition, base, content))

    def _send(self, to: tuple[int, int] | None, what: Any) -> None:
        self.flying.append((to, what))

    def _tell(self, event: LockEvent) -> None:
        for each in self.lock.handle(event):
            match each:
                case TrainState():
                    self.state_of[each.lease] = each.state
                    self._send(each.place, each)
                case CopyPartition():
                    self._send(each.place, each)
                case AcceptLease(lease):
                    self.order.append(self.state_of[lease])
                case AbandonLease(lease):
                    self.abandoned[self.state_of[lease]] += 1
                case EpochEnds():
                    self.ended = True
                case PartitionLost():
                    self.lost = True
        locked = [p for _, state in self.lock._leases.values() for p in self.states[state]]
        assert len(locked) == len(set(locked)), "two leases share a partition"

    def check(self) -> None:
        """Every state went into each of its partitions once, in one order, wherever a partition is held."""
        assert sorted(self.order) == list(range(len(self.states)))
        for state, count in self.trained.items():
            assert count <= 1 + self.abandoned[state], f"state {state} was trained {count} times"
        for partition in range(len(self.keepers)):
            version, holders = self.lock.place_of(partition)
            assert holders
            expected = tuple(state for state in self.order if partition in self.states[state])
            for holder in holders:
                assert self.machines[holder].disk.read(partition, version) == expected


def asks(server: int, life: int = 1) -> ServerAsks:
    """That a server is there."""
    return ServerAsks((server, life))
