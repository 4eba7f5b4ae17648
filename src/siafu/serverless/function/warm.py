"""Warm: connections, programs and weights that a Lambda's process keeps from one invocation to the next."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Literal

import zmq

from siafu.program.execute.numpy_interpreter import NumpyInterpreter
from siafu.program.tensor_program import TensorProgram
from siafu.serverless.function.garbled_link import GarbledLink, plan_in
from siafu.serverless.function.payload import Endpoint
from siafu.serverless.function.slow_link import SlowLink, lines
from siafu.serverless.function.task_spec import TaskSpec
from siafu.wire.keys import Keys
from siafu.wire.link import Link
from siafu.wire.near import is_near
from siafu.wire.tensors import Array, Tensors
from siafu.wire.zeromq import ZmqLink

Connect = Callable[[Endpoint, Keys], Link]
Purpose = Literal["tasks", "weights"]
"""Purpose of a connection: each has its own, also where one server serves both."""

_MOST_PROGRAMS = 64
_MOST_VERSIONS = 4


class LoadedProgram:
    """A program that is ready to run."""

    def __init__(self, program: TensorProgram) -> None:
        self._program = program
        self._specs: dict[str, TaskSpec] = {}
        self.run = NumpyInterpreter(program)

    def spec(self, precision: str) -> TaskSpec:
        if precision not in self._specs:
            self._specs[precision] = TaskSpec(self._program, precision)
        return self._specs[precision]


class Warm:
    """Connections, programs and weights of a Lambda's process. Weights are of one run, connections of one pair of keys;
    programs are named by their hash and may be of any run.

    connect: makes a link to a server
    """

    def __init__(self, connect: Connect) -> None:
        self.invocations = 0
        self._connect = connect
        self._run = ""
        self._keys: Keys | None = None
        self._gone_in = self._gone_out = 0
        self._links: dict[tuple[Purpose, Endpoint], Link] = {}
        self._programs: OrderedDict[str, LoadedProgram] = OrderedDict()
        self._weights: OrderedDict[int, dict[str, Array]] = OrderedDict()

    def begin(self, run: str, keys: Keys) -> None:
        """Begin an invocation: forget what it does not need."""
        self.invocations += 1
        while len(self._programs) > _MOST_PROGRAMS:
            self._programs.popitem(last=False)
        if run != self._run:
            self._run = run
            self._weights.clear()
        if keys != self._keys:
            self._keys = keys
            self.close()

    def link(self, purpose: Purpose, endpoint: Endpoint) -> tuple[Link, bool]:
        """A connection, and whether it is from an earlier invocation: it may have died since, unnoticed."""
        assert self._keys is not None, "an invocation has begun"
        name = purpose, endpoint
        known = name in self._links
        if not known:
            self._links[name] = self._connect(endpoint, self._keys)
        return self._links[name], known

    def drop(self, purpose: Purpose, endpoint: Endpoint) -> None:
        """Close a connection: the next will be a new one."""
        link = self._links.pop((purpose, endpoint), None)
        if link is not None:
            self._close(link)

    def traffic(self) -> tuple[int, int]:
        """Bytes received and sent through all connections so far."""
        alive = [each.traffic for each in self._links.values()]
        return (
            self._gone_in + sum(each.bytes_in for each in alive),
            self._gone_out + sum(each.bytes_out for each in alive),
        )

    @property
    def programs(self) -> tuple[str, ...]:
        """Hashes of the programs."""
        return tuple(self._programs)

    def program(self, hash: str) -> LoadedProgram | None:
        if hash in self._programs:
            self._programs.move_to_end(hash)
        return self._programs.get(hash)

    def keep_program(self, hash: str, text: str) -> None:
        self._programs[hash] = LoadedProgram(TensorProgram.from_json(text))

    def weights(self, version: int) -> Tensors:
        """Weights of a version that were fetched."""
        return self._weights.get(version, {})

    def missing(self, version: int, names: Iterable[str]) -> tuple[str, ...]:
        known = self.weights(version)
        return tuple(name for name in names if name not in known)

    def keep_weights(self, version: int, weights: Tensors) -> None:
        self._weights.setdefault(version, {}).update(weights)
        self._weights.move_to_end(version)
        while len(self._weights) > _MOST_VERSIONS:
            self._weights.popitem(last=False)

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            self._close(link)
        self._links.clear()

    def _close(self, link: Link) -> None:
        self._gone_in += link.traffic.bytes_in
        self._gone_out += link.traffic.bytes_out
        link.close()


def over_tcp() -> Connect:
    """Links by ZeroMQ, encrypted unless they end on this machine; slow or garbled ones, if the environment asks for it."""
    context = zmq.Context()
    both, faults = lines(), plan_in()

    def connect(endpoint: Endpoint, keys: Keys) -> Link:
        proof = (None if is_near(endpoint.address) else endpoint.key), keys
        if faults is None:
            link = ZmqLink(context, endpoint.address, *proof)
        else:
            link = GarbledLink(faults, context, endpoint.address, *proof)
        return link if both is None else SlowLink(link, *both)

    return connect
