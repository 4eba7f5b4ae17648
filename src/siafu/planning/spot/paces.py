"""Paces: what an epoch takes on fewer machines than it has servers, by the pipeline's own machines in virtual time."""

import math
from dataclasses import dataclass

from siafu.cost.lambda_prices import VCPU_MB
from siafu.planning.estimate import Estimates
from siafu.planning.machines import MOST_LAMBDAS, aws_lambda, memory_budget
from siafu.planning.offer import Offer
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
class Paces:
    """How an offer goes on with fewer machines.

    fewer:     seconds of an epoch on 1, 2, … machines, all of them at last; infinite: their memory does not do
    standby:   the same with Lambdas for tensor tasks, where that is faster; None: it is not
    forward:   share of an epoch's work that is its forward part
    eager:     seconds of an epoch while copies run that part, too; infinite: their rows do not fit, or none can be
    copy_bytes: memory of a warm copy
    has_room:  whether a machine has it beside its server
    """

    fewer: tuple[float, ...]
    standby: tuple[Standby | None, ...]
    forward: float
    eager: float
    copy_bytes: float
    has_room: bool

    @property
    def eager_every(self) -> float:
        """Epochs from loss to loss up to which eager copies are faster than warm ones; infinite: always.

        A loss at a random moment repeats half an epoch with warm copies, and (1 - forward)² / 2 of one with eager copies.
        """
        epoch = self.fewer[-1]
        saved = epoch * (1 - (1 - self.forward) ** 2) / 2
        return saved / (self.eager - epoch) if self.eager > epoch else math.inf


def paces_of(offer: Offer, estimates: Estimates) -> Paces:
    """Simulate an offer on fewer machines; all times are of training with its evaluations."""
    servers = offer.setup.fleet.servers
    epoch = (offer.seconds - offer.start_seconds) / offer.epochs
    ratio = epoch / offer.seconds_per_epoch
    room, copy = memory_budget(offer.setup.fleet.rental.instance), offer.copy_bytes
    found = _Fewer(offer, estimates)
    whole, forward = found.on(servers), _forward_share(offer, estimates)
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
    eager = math.inf
    if 2 * offer.server_bytes <= room:
        eager = epoch * found.eager(forward)
    return Paces(
        tuple(fewer), tuple(standby), forward, eager, copy, offer.server_bytes + copy <= room or servers == 1
    )


class _Fewer:
    """Epochs of an offer on fewer machines."""

    def __init__(self, offer: Offer, estimates: Estimates) -> None:
        self._offer, self._estimates = offer, estimates
        self._servers = offer.setup.fleet.servers
        self._one_by_one = self._servers <= _MOST_SERVERS and offer.setup.lambda_count == 0
        self._found = {each: self._simulate(each) for each in range(1, self._servers + 1) if self._one_by_one}

    def on(self, machines: int) -> float:
        if self._one_by_one:
            return self._found[machines].seconds_per_epoch
        return self._offer.seconds_per_epoch * math.ceil(self._servers / machines)

    def eager(self, forward: float) -> float:
        """How many times as long an epoch takes while eager copies run; infinite: gathers are by columns, and none can be eager.

        forward: share of an epoch's work that they do
        """
        stages = self._estimates.workload_for(self._offer.setup).training.stages
        if any(stage.everywhere for stage in stages):
            return math.inf
        if self._one_by_one and self._offer.setup.mode != "async":
            whole = self._found[self._servers].seconds_per_epoch
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
