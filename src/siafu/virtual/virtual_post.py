"""VirtualPost: letters in virtual time: they take the network's latency, and what they carry takes bandwidth."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from siafu.pipeline.events import (
    GradientArrived,
    RowsArrived,
    RunAhead,
    StateMade,
    WeightsGranted,
    WeightsMade,
)
from siafu.pipeline.ids import Address
from siafu.pipeline.setup import Setup
from siafu.runtime.letter import Letter
from siafu.runtime.post import Counter
from siafu.virtual.agenda import Agenda
from siafu.virtual.costs import Machine
from siafu.virtual.resources import FIRST, Cores, VirtualLink
from siafu.virtual.stage_costs import StageCosts, TaskCost

_STATE_SIZES = 3
"""The size of a version and its optimizer's state, in versions: Adam's."""

Hear = Callable[[Address, Address, Letter], None]
"""Takes a letter: its sender, its receiver, and the letter."""


T = TypeVar("T")


def in_turn(there: list[T], count: int) -> list[T]:
    """Spread so many over what there is, in turn."""
    return [there[each % len(there)] for each in range(count)]


def beside(address: Address, servers: int) -> int:
    """The server whose machine one is on: of an eager copy, the one after its own."""
    return (address.index + (address.role == "copy")) % servers


@dataclass(frozen=True, slots=True)
class Links:
    """The network interfaces of all servers, each way. Servers on one machine share its own.

    weight_adding: what a weight server adds gradients with, in turn
    """

    out: list[VirtualLink]
    come_in: list[VirtualLink]
    weight_out: list[VirtualLink]
    weight_in: list[VirtualLink]
    weight_adding: list[VirtualLink]

    @classmethod
    def of(cls, setup: Setup, costs: StageCosts, weight_machine: Machine, machines: int) -> "Links":
        """Fewer weight servers than there are stand for all: together they carry as much.

        machines: that graph servers share
        """
        rate, graph, weight = costs.machine.network_bytes_s, setup.layout.num_servers, setup.weight_servers
        scale = costs.sample.weight_servers / weight
        own, adding = weight_machine.network_bytes_s * scale, weight_machine.core.stream * scale
        return cls(
            in_turn([VirtualLink(rate) for _ in range(machines)], graph),
            in_turn([VirtualLink(rate) for _ in range(machines)], graph),
            [VirtualLink(own) for _ in range(weight)],
            [VirtualLink(own) for _ in range(weight)],
            [VirtualLink(adding) for _ in range(weight)],
        )


class VirtualPost:
    """Carries letters between hosts in virtual time.

    near:      weight servers and graph servers are one process, and nothing travels between them
    lambdas:   weights go to Lambdas, not to graph servers
    scattered: bytes of rows sent between graph servers; weights: of weights and gradients
    """

    def __init__(
        self,
        agenda: Agenda,
        setup: Setup,
        costs: StageCosts,
        links: Links,
        hear: Hear,
        cores: list[Cores],
        *,
        near: bool,
        lambdas: bool,
    ) -> None:
        self.scattered = self.weights = 0.0
        self._agenda, self._setup, self._costs, self._links, self._hear = agenda, setup, costs, links, hear
        self._cores, self._near, self._lambdas = cores, near, lambdas

    def of(self, address: Address) -> Counter:
        """The post as the host at `address` uses it."""
        return Counter(self, address)

    def carry(self) -> None:
        """Letters are on their way as soon as they are put down."""

    def put(self, sender: Address, to: Address, letter: Letter) -> None:
        arrive = partial(self._hear, sender, to, letter)
        match letter.event:
            case RowsArrived() as rows:
                self._send_rows(sender, to, self._costs.of(rows.lane, rows.stage), arrive)
            case GradientArrived() as gradient:
                self._send_gradient(sender, to, self._costs.gradient_bytes(gradient.phase), arrive)
            case WeightsGranted() if to.role == "graph" and letter.tensors and not self._lambdas:
                self._send_version(sender, to, arrive)
            case WeightsMade():
                self._share_weights(sender, to, arrive)
            case StateMade() if not self._near:
                self._send_state(sender, arrive)
            case RunAhead():
                self._send_to_copy(to, arrive)
            case _:
                self._travel(arrive)

    def _travel(self, arrive: Callable[[], None]) -> None:
        self._agenda.after(0.0 if self._near else self._costs.machine.latency_s, arrive)

    def _send_rows(
        self, sender: Address, to: Address, cost: TaskCost | None, arrive: Callable[[], None]
    ) -> None:
        if cost is None:
            self._agenda.after(0.0, arrive)
            return
        now = self._agenda.now
        self.scattered += cost.sent
        there = beside(to, len(self._cores))
        place = partial(self._cores[there].add, FIRST, "ghosts", cost.packing, arrive)
        if self._cores[there] is self._cores[sender.index]:
            self._agenda.after(0.0, place)
            return
        gone = self._links.out[sender.index].carry(now, cost.sent)
        came = self._links.come_in[there].carry(now, cost.sent)
        self._agenda.after(max(gone, came) - now + self._costs.machine.latency_s, place)

    def _send_gradient(self, sender: Address, to: Address, size: float, arrive: Callable[[], None]) -> None:
        now = self._agenda.now
        self.weights += size
        added = self._links.weight_adding[to.index].carry(now, size)
        if self._near:
            self._agenda.after(added - now, arrive)
            return
        one = size / self._costs.sample.servers_each
        gone = self._links.out[sender.index].carry(now, one)
        came = self._links.weight_in[to.index].carry(now, size)
        self._agenda.after(max(gone, came, added) - now + self._costs.machine.latency_s, arrive)

    def _send_version(self, sender: Address, to: Address, arrive: Callable[[], None]) -> None:
        if self._near:
            self._travel(arrive)
            return
        now, size = self._agenda.now, self._costs.weight_bytes
        each = self._costs.sample.servers_each
        self.weights += size * each
        gone = self._links.weight_out[sender.index].carry(now, size * each)
        came = self._links.come_in[to.index].carry(now, size)
        self._agenda.after(max(gone, came) - now + self._costs.machine.latency_s, arrive)

    def _send_to_copy(self, copy: Address, arrive: Callable[[], None]) -> None:
        """A version from the run to an eager copy. The run's own interface is taken to be idle."""
        now, size = self._agenda.now, self._costs.weight_bytes
        self.weights += size
        came = self._links.come_in[beside(copy, len(self._cores))].carry(now, size)
        self._agenda.after(came - now + self._costs.machine.latency_s, arrive)

    def _send_state(self, sender: Address, arrive: Callable[[], None]) -> None:
        """To the run: weights, and Adam's two moments of them. The run's own interface is taken to be idle."""
        size = _STATE_SIZES * self._costs.weight_bytes / self._setup.weight_servers
        self.weights += size
        gone = self._links.weight_out[sender.index].carry(self._agenda.now, size)
        self._agenda.after(gone - self._agenda.now + self._costs.machine.latency_s, arrive)

    def _share_weights(self, sender: Address, to: Address, arrive: Callable[[], None]) -> None:
        now = self._agenda.now
        size = self._costs.weight_bytes / self._setup.weight_servers
        gone = self._links.weight_out[sender.index].carry(now, size)
        came = self._links.weight_in[to.index].carry(now, size)
        self._agenda.after(
            0.0 if self._near else max(gone, came) - now + self._costs.machine.latency_s, arrive
        )
