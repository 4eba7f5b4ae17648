"""Paces: what an epoch takes on fewer machines than it has servers, by the pipeline's own machines in virtual time."""

import math
from dataclasses import dataclass, replace

from siafu.cost.lambda_prices import VCPU_MB
from siafu.planning.estimate import Estimates
from siafu.planning.machines import MOST_LAMBDAS, aws_lambda, memory_budget
from siafu.planning.offer import Offer
from siafu.server.layout.layouts import VERTICES
from siafu.virtual.server_sample import ServerSample
from siafu.virtual.stage_costs import StageCosts
from siafu.virtual.virtual import Simulated, simulate

_MOST_SERVERS = 8  # that are simulated one by one; with more, a machine with two servers takes twice as long
_MOST_INTERVALS = 24
_EPOCHS = 3
_STANDBY_LAMBDAS = (16, 64)  # of a server, to choose from
_MB_PER_GB = 1024


@dataclass(frozen=True, slots=True)
class Standby:
    """An epoch with Lambdas in place of the machines that are missing.

    usd: dollars of the Lambdas in it
    """

    seconds: float
    usd: float


@dataclass(frozen=True, slots=True)
class EagerPace:
    """An epoch with eager copies, for which gathers must be by vertices.

    forward: share of an epoch's work that is its forward part, which copies run, too
    plain:   seconds of an epoch by vertices without copies
    seconds: with eager copies
    """

    forward: float
    plain: float
    seconds: float

    def pays_every(self, epoch: float) -> float:
        """Epochs from loss to loss up to which eager copies are faster than warm ones; 0: never; infinite: always.

        A loss at a random moment repeats half an epoch with warm copies, and (1 - forward)² / 2 of one with eager copies.

        epoch: seconds of one with warm copies
        """
        saved = epoch / 2 - self.plain * (1 - self.forward) ** 2 / 2
        return max(0.0, saved) / (self.seconds - epoch) if self.seconds > epoch else math.inf


@dataclass(frozen=True, slots=True)
class Paces:
    """How an offer goes on with fewer machines.

    fewer:     seconds of an epoch on 1, 2, … machines, all of them at last; infinite: their memory does not do
    standby:   the same with Lambdas for tensor tasks, where that is faster; None: it is not
    eager:     with eager copies on all machines; None: their rows do not fit, or none can be
    copy_bytes: memory of a warm copy
    has_room:  whether a machine has it beside its server
    """

    fewer: tuple[float, ...]
    standby: tuple[Standby | None, ...]
    eager: EagerPace | None
    copy_bytes: float
    has_room: bool

    @property
    def eager_every(self) -> float:
        """As `EagerPace.pays_every`; 0 where there is none."""
        return 0.0 if self.eager is None else self.eager.pays_every(self.fewer[-1])


def paces_of(offer: Offer, estimates: Estimates) -> Paces:
    """Simulate an offer on fewer machines; all times are of training with its evaluations."""
    servers = offer.setup.fleet.servers
    epoch = _epoch(offer)
    ratio = epoch / offer.seconds_per_epoch
    room, copy = memory_budget(offer.setup.fleet.rental.instance), offer.copy_bytes
    found = _Fewer(offer, estimates)
    whole = found.on(servers)
    fewer, standby = [], list[Standby | None]()
    for machines in range(1, servers + 1):
        each = math.ceil(servers / machines)
        if each * offer.server_bytes > room:
            fewer.append(math.inf)
            standby.append(None)
            continue
        slower = found.on(machines) / whole
        fewer.append(epoch * slower)
        standby.append(found.standby(machines, slower * whole, ratio) if each > 1 else None)
    has_room = offer.server_bytes + copy <= room or servers == 1
    return Paces(tuple(fewer), tuple(standby), _eager(offer, estimates), copy, has_room)


def _epoch(offer: Offer) -> float:
    """Seconds of an epoch with its share of the evaluations."""
    return (offer.seconds - offer.start_seconds) / offer.epochs


def _eager(offer: Offer, estimates: Estimates) -> EagerPace | None:
    """The offer with eager copies: by vertices, where it is by columns, since rows gathered by columns are not sent again.

    None where `siafu train` makes plain warm copies of them: with Lambdas, where memory is spared, and where a machine has no
    room for the rows of two servers.
    """
    setup = offer.setup
    if setup.fleet.servers == 1 or setup.mode == "async" or setup.lambda_count or setup.disk is not None:
        return None
    if offer.layout != VERTICES:
        by_vertices = replace(estimates.request, layout=VERTICES)
        estimates = Estimates(by_vertices, estimates.measured, estimates.book)
        if not estimates.fit(setup).fits:
            return None
        offer = estimates.offer(setup)
    if offer.measures or 2 * offer.server_bytes > memory_budget(setup.fleet.rental.instance):
        return None
    forward, plain = _forward_share(offer, estimates), _epoch(offer)
    return EagerPace(forward, plain, plain * _Fewer(offer, estimates).eager(forward))


class _Fewer:
    """Epochs of an offer on fewer machines."""

    def __init__(self, offer: Offer, estimates: Estimates) -> None:
        self._offer, self._estimates = offer, estimates
        self._servers = offer.setup.fleet.servers
        self._one_by_one = self._servers <= _MOST_SERVERS and offer.setup.lambda_count == 0

    def on(self, machines: int) -> float:
        if self._one_by_one:
            return self._simulate(machines).seconds_per_epoch
        return self._offer.seconds_per_epoch * math.ceil(self._servers / machines)

    def eager(self, forward: float) -> float:
        """How many times as long an epoch takes while eager copies run.

        forward: share of an epoch's work that they do
        """
        if self._one_by_one:
            whole = self.on(self._servers)
            return max(1.0, self._simulate(self._servers, eager=True).seconds_per_epoch / whole)
        return max(1.0, (1 + forward) * self._offer.utilisation)

    def standby(self, machines: int, without: float, ratio: float) -> Standby | None:
        """With Lambdas, if that is faster.

        without: seconds without them
        ratio:   an epoch's seconds with its evaluations to those without
        """
        if not self._one_by_one:
            return None
        prices, best = self._estimates.lambda_prices, None
        for count in _STANDBY_LAMBDAS:
            if count * self._servers > MOST_LAMBDAS:
                continue
            found = self._simulate(machines, count)
            if found.seconds_per_epoch < (without if best is None else best.seconds / ratio):
                billed = found.lambda_billed_seconds / _EPOCHS * VCPU_MB / _MB_PER_GB
                usd = prices.usd(billed, math.ceil(found.lambda_invocations / _EPOCHS))
                best = Standby(found.seconds_per_epoch * ratio, usd)
        return best

    def _simulate(self, machines: int, lambdas: int = 0, *, eager: bool = False) -> Simulated:
        estimates, setup = self._estimates, self._offer.setup
        return simulate(
            estimates.request.shape,
            estimates.workload_for(setup),
            estimates.machine(setup.fleet.rental.instance),
            servers=self._servers,
            mode=setup.mode,
            epochs=_EPOCHS,
            most_servers=_MOST_SERVERS,
            most_intervals=_MOST_INTERVALS,
            machines=machines,
            lambdas=aws_lambda(estimates.measured, lambdas) if lambdas else None,
            lambda_count=lambdas,
            eager=eager,
        )


def _forward_share(offer: Offer, estimates: Estimates) -> float:
    """Share of the core seconds of an epoch's tasks."""
    setup = offer.setup
    machine = estimates.machine(setup.fleet.rental.instance)
    workload = estimates.workload_for(setup)
    sample = ServerSample.of(setup.fleet.servers, machine.cores, 1, 0, most_servers=2, most_intervals=1)
    costs = StageCosts(workload, estimates.request.shape, machine, sample)
    seconds = {"forward": 0.0, "backward": 0.0}
    for stage in workload.training.stages:
        cost = costs.of("train", stage.id)
        assert cost is not None, "an epoch has no stage of an evaluation"
        seconds[stage.direction] += cost.seconds
    return seconds["forward"] / sum(seconds.values())
