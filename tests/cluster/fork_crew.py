"""ForkCrew: a run's servers as processes of this machine, forked from one that has everything loaded: no Ray, no wait."""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput, SiafuError
from siafu.cluster.crew import Loss, Server, ServerLost
from siafu.cluster.post.member import Member
from siafu.cluster.stations.aside import run_aside
from siafu.cluster.stations.graph_station import Bounds, Share
from siafu.graph.partition import Partition
from siafu.graph.partition.reads import Reads
from siafu.options import Options
from siafu.pipeline.ids import Address
from siafu.pipeline.setup import Setup
from siafu.runtime.lambdas import Lambdas
from siafu.server.memory.savings import Savings
from siafu.server.plan import ServerPlan, WeightPlan
from tests.cluster.cases import case
from tests.cluster.dooms import FATE, Doom, DoomedGraphStation, DoomedWeightStation
from tests.cluster.networks import Place

NO_METADATA = dict.fromkeys(("AWS_EC2_METADATA_DISABLED", "NO_GCE_CHECK", "AZURE_METADATA_DISABLED"), "true")

_ANSWER_SECONDS = 60.0
_START_SECONDS = 60.0  # the first one of a session loads torch


@dataclass(frozen=True, slots=True)
class Part:
    """What a server is made by, as it goes to its process."""

    case: str
    options: Options
    partition: Partition
    counts: Sequence[int]
    address: Address
    life: int | None
    machine: str
    alone_after: float
    doom: Doom | None
    place: Place | None = None
    lambdas: Lambdas | None = None
    threads: int = 1
    savings: Savings = Savings()


class ForkServer:
    """A server in a process; see `crew.Server`.

    machine:      what counts as one: all have the same network
    out_of_reach: nothing that is said to it arrives, also not that it should end
    """

    def __init__(self, part: Part, machine: str) -> None:
        self.address, self.life, self.place = part.address, part.life or 0, part.place
        self.machine = machine
        self.out_of_reach = False
        self._pipe, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_serve, args=(part, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self._member: Member | None = None
        self._lock = threading.Lock()

    @property
    def member(self) -> Member:
        if self._member is None:
            self._member = self._call("member")
        return self._member

    @property
    def where(self) -> str:
        return f"process {self.process.pid}"

    def share(self) -> Share:
        return self._call("share")  # type: ignore[no-any-return]

    def reads(self, bounds: Sequence[Bounds]) -> Reads:
        return self._call("reads", bounds)  # type: ignore[no-any-return]

    def join(self, setup: Setup, members: Sequence[Member]) -> None:
        self._call("join", setup, list(members))

    def warm_up(self) -> None:
        self._call("warm_up")

    def take_in(self, life: int, doom: Doom | None) -> None:
        self.life = life
        self._call("take_in", life, doom)

    def run_ahead(self, life: int, setup: Setup, members: Sequence[Member]) -> Member:
        return self._call("run_ahead", life, setup, list(members))  # type: ignore[no-any-return]

    def stop(self) -> None:
        if not self.out_of_reach:
            with suppress(OSError):
                self._pipe.send(("stop", ()))

    def kill(self) -> None:
        if not self.out_of_reach:
            self.process.kill()

    def loss(self) -> Loss | None:
        """Why it is not there any more; None: it is."""
        if self.out_of_reach or self.process.is_alive():
            return None
        told: Any = None
        with suppress(EOFError, OSError):
            while self._pipe.poll():
                told = self._pipe.recv()
        if isinstance(told, BaseException):
            given = isinstance(told, BadInput)
            return Loss(self.address, self.life, str(told), final=True, given=given)
        return Loss(self.address, self.life, f"its process ended with {self.process.exitcode}")

    def _call(self, name: str, *arguments: Any) -> Any:
        with self._lock:
            try:
                self._pipe.send((name, arguments))
                if not self._pipe.poll(_ANSWER_SECONDS):
                    raise ServerLost(f"{self.address} did not answer")
                answer = self._pipe.recv()
            except (EOFError, OSError):
                raise ServerLost(f"the process of {self.address} is gone") from None
        if isinstance(answer, BaseException):
            raise answer
        return answer


@dataclass
class ForkSeat:
    """A warm copy in a process; see `crew.WarmSeat`."""

    server: ForkServer
    crew: "ForkCrew"

    @property
    def machine(self) -> str:
        return self.server.machine

    @property
    def where(self) -> str:
        return self.server.where

    @property
    def is_there(self) -> bool:
        return self.server.process.is_alive()

    def share(self) -> Share | None:
        return self.server.share() if self.server.address.role == "graph" else None

    def run_ahead(self, life: int, setup: Setup, members: Sequence[Member]) -> Member:
        return self.server.run_ahead(life, setup, members)

    def take_in(self, life: int) -> ForkServer:
        address = self.server.address
        self.server.take_in(life, self.crew.dooms.get((address, life)))
        _ = self.server.member
        self.crew.servers[address] = self.server
        return self.server

    def drop(self) -> None:
        self.server.process.kill()


@dataclass
class ForkCrew:
    """Servers as processes.

    case:         which of `cases`: a forked process has it ready
    alone_after:  of the servers: seconds until one that hears nothing of the driver ends
    dooms:        what happens to a server in one of its lives
    apart:        every server has an address of its own, so that they talk as machines do, and not through files
    places:       machines with a network of their own to start servers on, one each; None: all are here
    lambdas:      of all graph servers together
    threads:      of each graph server
    names:        of the machines; servers are spread over them
    """

    case: str
    plan: ServerPlan
    alone_after: float = 30.0
    dooms: Mapping[tuple[Address, int], Doom] = field(default_factory=dict)
    apart: bool = False
    machine: str = "127.0.0.1"
    places: Iterator[Place] | None = None
    lambdas: Lambdas | None = None
    threads: int = 1
    names: list[str] = field(default_factory=lambda: ["here"])
    servers: dict[Address, ForkServer] = field(default_factory=dict)
    all_ever: list[ForkServer] = field(default_factory=list)
    _noticed: set[tuple[Address, int]] = field(default_factory=set)
    _closed: bool = False

    def employ(self, servers: Iterable[tuple[Address, int]]) -> dict[Address, Server]:
        for address, life in servers:
            self._start(address, life, self.names[address.index % len(self.names)])
        return dict(self.servers)

    def replace(self, server: Address, life: int, *, elsewhere: bool) -> Server:
        if self._closed:
            raise ServerLost("the run is over")
        lost = self.servers[server].machine
        crowd = Counter(each.machine for address, each in self.servers.items() if address != server)
        others = [each for each in self.names if each != lost] if elsewhere else []
        chosen = min(others or self.names, key=lambda each: (crowd[each], each != lost))
        fresh = self._start(server, life, chosen)
        _ = fresh.member
        return fresh

    def machines(self) -> list[str]:
        return list(self.names)

    def prepare(self, server: Address, machine: str, *, aside: bool) -> ForkSeat:
        made = ForkServer(self.part(server, None), machine)
        self.all_ever.append(made)
        made.warm_up()
        if self._closed or machine not in self.names:
            made.process.kill()
            raise ServerLost("the run is over, or the machine is gone")
        return ForkSeat(made, self)

    def take_away(self, machine: str) -> None:
        """End a machine, with everything on it and without a word."""
        self.names.remove(machine)
        for each in self.all_ever:
            if each.machine == machine:
                each.process.kill()

    def losses(self) -> list[Loss]:
        found = [loss for each in list(self.servers.values()) if (loss := each.loss()) is not None]
        news = [loss for loss in found if (loss.server, loss.life) not in self._noticed]
        self._noticed |= {(loss.server, loss.life) for loss in news}
        return news

    def close(self) -> None:
        self._closed = True
        deadline = time.monotonic() + 2.0
        for server in self.servers.values():
            server.process.join(max(0.0, deadline - time.monotonic()))
            server.kill()

    def end_all(self) -> None:
        """No process outlives a test, whatever it was."""
        for server in self.all_ever:
            with suppress(ProcessLookupError):
                os.kill(server.process.pid or 0, signal.SIGKILL)
            server.process.join(5.0)

    def part(self, address: Address, life: int | None) -> Part:
        """What a server is made by."""
        plan = self.plan
        place = None if self.places is None else next(self.places)
        return Part(
            self.case,
            plan.options,
            plan.partition,
            list(plan.interval_counts),
            address,
            life,
            self._machine_of(address, life) if place is None else place.address,
            self.alone_after,
            None if life is None else self.dooms.get((address, life)),
            place,
            self.lambdas,
            self.threads,
            plan.savings,
        )

    def _machine_of(self, address: Address, life: int | None) -> str:
        if not self.apart:
            return self.machine
        return f"127.0.{1 + (life or 0)}.{1 + address.index + 100 * (address.role == 'weight')}"

    def _start(self, address: Address, life: int, machine: str) -> ForkServer:
        fresh = self.servers[address] = ForkServer(self.part(address, life), machine)
        self.all_ever.append(fresh)
        return fresh


def _serve(part: Part, pipe: Connection) -> None:
    """A server's process, from its beginning to its end."""
    os.environ.update(NO_METADATA)
    try:
        if part.place is not None:
            part.place.enter()
        host = _host_of(part)
    except Exception as error:
        pipe.send(error)
        return
    FATE.doom = part.doom
    for name, arguments in iter(pipe.recv, None):
        if name == "stop":
            host.stop()
            break
        pipe.send(_answer(host, name, arguments))
        if name == "join":
            threading.Thread(target=_listen, args=(pipe, host), daemon=True).start()
            break
    try:
        host.wait()
    except Exception as error:
        with suppress(OSError):
            pipe.send(SiafuError(f"{type(error).__name__}: {error}"))
    os._exit(0)


def _listen(pipe: Connection, host: Any) -> None:
    # A driver that is gone says nothing: that is for the post to notice.
    with suppress(EOFError, OSError):
        while pipe.recv()[0] != "stop":
            pass
        host.stop()


def _answer(host: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    try:
        if name == "warm_up":
            return run_aside(host.warm_up)
        if name == "take_in":
            life, FATE.doom = arguments
            return host.take_in(life)
        return host.post.member if name == "member" else getattr(host, name)(*arguments)
    except Exception as error:
        return SiafuError(f"{type(error).__name__}: {error}")


def _host_of(part: Part) -> Any:
    given = case(part.case)
    plan = ServerPlan.of(
        given.graph,
        given.model,
        part.options,
        part.partition,
        programs=given.programs,
        interval_counts=part.counts,
    ).saving(part.savings)
    options = {"alone_after": part.alone_after}
    if part.address.role == "graph":
        return DoomedGraphStation(
            part.address, part.life, part.machine, plan, part.threads, part.lambdas, **options
        )
    weights = WeightPlan(plan.weights, plan.groups, plan.settings)
    return DoomedWeightStation(part.address, part.life, part.machine, weights, **options)


def _context() -> Any:
    root = str(Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.cluster.preloaded"])
    return context


_CONTEXT = _context()
