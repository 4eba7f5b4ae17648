"""The planner: which machines, how many, with or without Lambdas, in which mode, train a graph best for the money.

What does not fit into memory, with all that can be spared and with a disk, is never offered. What cannot be better than something that was simulated already,
however well it goes, is not simulated. The rest runs in virtual time.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from siafu.base.errors import BadInput
from siafu.cost.disks import Disk
from siafu.cost.fleet import Fleet
from siafu.cost.instances import Instance, Rental
from siafu.cost.money import dollars
from siafu.cost.prices import PriceBook, price_book
from siafu.planning.calibration import Calibration, calibration
from siafu.planning.estimate import Estimates
from siafu.planning.machines import MOST_LAMBDAS, memory_budget
from siafu.planning.offer import Bound, Offer, TrainingSetup, pareto
from siafu.planning.request import Request

_MORE_SERVERS = (1, 1.5, 2, 3, 4, 6, 8, 16, 24)  # times as many as the graph needs
_FEWER_SERVERS = (1 / 8, 1 / 4, 1 / 2, 3 / 4)  # times as many as hold it in memory: with tables on disk
_LAMBDA_COUNTS = (8, 32, 128)  # of each server
_MOST_SIMULATIONS = 60
_MOST_ON_DISK = 12  # ways with tables on disk that are looked into
_UNHEARD_OF = 1_000_000  # servers
_WORTH_IT = 1.05  # what may be so many times as fast or as cheap as all others is simulated


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A type of machine on which nothing fits, on as many as may be rented.

    memory_bytes: that a server may take there
    least_bytes:  that one needs at least, with tables on disk; scratch_bytes: of these
    """

    instance: Instance
    servers: int
    memory_bytes: int
    least_bytes: int
    scratch_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The offers of a plan, and the best of them.

    offers:   all that were simulated, those that meet the request first, the best first
    chosen:   the best of them
    naive:    the dearest machine, as few of it as hold the graph, on demand, without Lambdas: what one takes without a plan
    threads, lambdas: the chosen machines without Lambdas, and with as many as are worth most; None: Lambdas were not to be
              considered, or an account does not allow so many
    own:      whether it was made with figures of this machine
    here:     seconds of an epoch and of the whole training on this machine; None: it was not measured, or has not the memory
    setups:   how many there were to choose from; simulations: how many were simulated
    complete: whether all that may be better was simulated; else the most promising
    left_out: types of machines on which nothing fits
    """

    request: Request
    offers: tuple[Offer, ...]
    chosen: Offer
    naive: Offer | None
    threads: Offer
    lambdas: Offer | None
    measured: Calibration
    own: bool
    here: tuple[float, float] | None
    book: PriceBook
    estimates: Estimates = field(repr=False)
    setups: int
    simulations: int
    complete: bool
    left_out: tuple[LeftOut, ...] = ()

    def __repr__(self) -> str:
        chosen = self.chosen
        return (
            f"Plan({chosen.setup}: {chosen.seconds:,.0f} s, ${chosen.usd:,.2f}; the best of {len(self.offers)} offers, "
            f"{self.setups} setups)"
        )

    @property
    def front(self) -> list[Offer]:
        """Offers to which no other is both faster and cheaper, the fastest first."""
        return pareto(list(self.offers))


def make_plan(
    request: Request,
    *,
    prices: PriceBook | None = None,
    measured: Calibration | None = None,
) -> Plan:
    """Find the best way to do what is requested.

    prices:   None: the user's, or those that come with Siafu
    measured: None: this machine's, or where it was never measured, the reference
    """
    book = prices or price_book()
    own = measured is not None
    if measured is None:
        measured, own = calibration()
    estimates = Estimates(request, measured, book)
    found, left_out = _all_setups(request, estimates, book)
    setups = {setup: estimates.bound(setup) for setup in found}
    search = _Search(request, estimates)
    naive_setup = _naive(request, estimates, book)
    naive = None if naive_setup is None else search.simulate(naive_setup)
    complete = search.run(setups)
    chosen = search.choose()
    threads, lambdas = _both_ways(chosen.setup, search)
    return Plan(
        request,
        tuple(search.ranked()),
        chosen,
        naive,
        threads,
        lambdas,
        measured,
        own,
        estimates.here() if own else None,
        book,
        estimates,
        len(setups),
        estimates.simulations,
        complete,
        tuple(left_out),
    )


def fewest_servers(estimates: Estimates, instance: Instance, most: int) -> int | None:
    """Number of machines that hold the graph, sparing all that can be, with every table in memory; None: more than `most`."""
    budget = memory_budget(instance)
    if estimates.fits.least(instance, most) > budget:
        return None
    few, enough = 0, most
    while enough - few > 1:
        middle = (few + enough) // 2
        if estimates.fits.least(instance, middle) <= budget:
            enough = middle
        else:
            few = middle
    return enough


class _Search:
    """Simulates what may be best, in an order in which the best come early."""

    def __init__(self, request: Request, estimates: Estimates) -> None:
        self._request, self._estimates = request, estimates
        self._offers: dict[TrainingSetup, Offer] = {}
        self._on_disk = 0

    def simulate(self, setup: TrainingSetup) -> Offer:
        if setup not in self._offers:
            self._offers[setup] = self._estimates.offer(setup)
        return self._offers[setup]

    def run(self, setups: dict[TrainingSetup, Bound]) -> bool:
        """All that can be on the front of the fastest and the cheapest, unless that takes too long; whether it was all."""
        complete = True
        for setup, bound in sorted(setups.items(), key=lambda each: -each[1].value):
            if self._is_beaten(bound):
                continue
            if self._estimates.simulations >= _MOST_SIMULATIONS:
                return False
            if setup.disk is not None and self._on_disk >= _MOST_ON_DISK:
                complete = False
                continue
            self._on_disk += setup.disk is not None
            if not self._estimates.fit(setup).fits or self._is_beaten(self._estimates.bound_as_fitted(setup)):
                continue
            self.simulate(setup)
        return complete

    def fits(self, setup: TrainingSetup) -> bool:
        """Whether its servers have the memory."""
        return self._estimates.fit(setup).fits

    def _is_beaten(self, bound: Bound) -> bool:
        """Whether something that was simulated is as good, even if all goes well."""
        seconds, usd = _WORTH_IT * bound.seconds, _WORTH_IT * bound.usd
        return any(offer.dominates(seconds, usd) for offer in self._offers.values())

    def choose(self) -> Offer:
        """The best that meets the request; if none does, what would be needed is said in one line."""
        best = self.ranked()[0]
        if self._meets(best):
            return best
        raise _impossible(self._request, list(self._offers.values()))

    def ranked(self) -> list[Offer]:
        """Offers that meet the request first, the best first.

        With a deadline alone the cheapest is best; with a budget alone the fastest; else the one worth most.
        """
        request = self._request

        def merit(offer: Offer) -> tuple[bool, float]:
            if request.deadline_s is not None and request.budget_usd is None:
                return not self._meets(offer), offer.usd
            if request.budget_usd is not None and request.deadline_s is None:
                return not self._meets(offer), offer.seconds
            return not self._meets(offer), -offer.value

        return sorted(self._offers.values(), key=merit)

    def _meets(self, offer: Offer) -> bool:
        request = self._request
        in_time = request.deadline_s is None or offer.seconds <= request.deadline_s
        return in_time and (request.budget_usd is None or offer.usd <= request.budget_usd)


def _all_setups(
    request: Request, estimates: Estimates, book: PriceBook
) -> tuple[list[TrainingSetup], list[LeftOut]]:
    """Every machine that may be rented, in every number that may be worth its price; and machines on which nothing fits."""
    setups, left_out, instances = list[TrainingSetup](), list[LeftOut](), _instances(request, book)
    for instance in instances:
        least = fewest_servers(estimates, instance, request.most_servers)
        disk = book.disk(instance) if request.disks else None
        if least is None and not _fits_on_disk(instance, disk, request, estimates):
            left_out.append(_left_out(instance, request, estimates))
            continue
        for rental in _rentals(instance, request):
            for servers in _numbers(least, _MORE_SERVERS, request):
                setups += _setups(Fleet(rental, servers), request)
            for servers in _numbers(least or request.most_servers, _FEWER_SERVERS, request):
                if disk is not None and servers != least:
                    setups.append(TrainingSetup(Fleet(rental, servers), disk=disk))
    if len(left_out) == len(instances):
        raise _fits_nowhere(request, estimates, left_out)
    return setups, left_out


def _numbers(servers: int | None, times: Sequence[float], request: Request) -> list[int]:
    """So many times as many servers, as far as they may be rented."""
    found = {math.ceil((servers or 0) * each) for each in times}
    return sorted(each for each in found if 0 < each <= request.most_servers)


def _fits_on_disk(instance: Instance, disk: Disk | None, request: Request, estimates: Estimates) -> bool:
    if disk is None:
        return False
    fleet = Fleet(Rental(instance), request.most_servers)
    return estimates.fit(TrainingSetup(fleet, disk=disk)).fits


def _left_out(instance: Instance, request: Request, estimates: Estimates) -> LeftOut:
    least, scratch = estimates.fits.least_with_disk(instance, request.most_servers)
    return LeftOut(instance, request.most_servers, memory_budget(instance), least, scratch)


def _instances(request: Request, book: PriceBook) -> list[Instance]:
    if not request.instances:
        return [each for each in book.instances.values() if each.accelerator is None]
    found = [book.instance(name) for name in request.instances]
    for each in found:
        if each.accelerator is not None:
            raise BadInput(f"{each.name} has a GPU, and Siafu computes on CPUs: choose a type without one")
    return found


def _rentals(instance: Instance, request: Request) -> Iterator[Rental]:
    if not request.spot:
        yield Rental(instance)
    elif instance.spot_high_usd_h is not None:
        yield Rental(instance, spot=True)


def _setups(fleet: Fleet, request: Request) -> Iterator[TrainingSetup]:
    yield TrainingSetup(fleet)
    if fleet.servers > 1:
        yield TrainingSetup(fleet, "async")
    if request.lambdas:
        for count in _lambda_counts(fleet):
            yield TrainingSetup(fleet, "pipe", count)
            yield TrainingSetup(fleet, "async", count)


def _lambda_counts(fleet: Fleet) -> list[int]:
    """Numbers of Lambdas of each server that an account allows."""
    return [count for count in _LAMBDA_COUNTS if count * fleet.servers <= MOST_LAMBDAS]


def _naive(request: Request, estimates: Estimates, book: PriceBook) -> TrainingSetup | None:
    for instance in sorted(_instances(request, book), key=lambda each: -each.on_demand_usd_h):
        least = fewest_servers(estimates, instance, request.most_servers)
        if least is not None:
            setup = TrainingSetup(Fleet(Rental(instance), least))
            return setup if estimates.fit(setup).fits else None
    return None


def _both_ways(setup: TrainingSetup, search: _Search) -> tuple[Offer, Offer | None]:
    """Offers of the same machines without Lambdas, and with as many as are worth most."""
    threads = replace(setup, lambda_count=0, mode=setup.mode if setup.fleet.servers > 1 else "pipe")
    without = search.simulate(threads if search.fits(threads) else setup)
    if setup.lambda_count:
        return without, search.simulate(setup)
    ways = [TrainingSetup(setup.fleet, setup.mode, count) for count in _lambda_counts(setup.fleet)]
    tried = [search.simulate(each) for each in ways if search.fits(each)]
    return without, max(tried, key=lambda each: each.value, default=None)


def _fits_nowhere(request: Request, estimates: Estimates, left_out: list[LeftOut]) -> BadInput:
    largest = max(left_out, key=lambda each: each.memory_bytes)
    needed = estimates.fits.least(largest.instance, request.most_servers)
    enough = fewest_servers(estimates, largest.instance, _UNHEARD_OF)
    many = f"{enough:,} of them (--most-servers)" if enough else "a smaller graph or model"
    return BadInput(
        f"{request.name} fits on no machine: on {request.most_servers:,} servers each would hold {_gib(needed)}, or "
        f"{_gib(largest.least_bytes)} with {_gib(largest.scratch_bytes)} of tables on disk, and {largest.instance.name} has room for "
        f"{_gib(largest.memory_bytes)}: allow {many}, or add a larger machine to the price book (--prices)"
    )


def _impossible(request: Request, offers: list[Offer]) -> BadInput:
    fastest = min(offers, key=lambda each: each.seconds)
    cheapest = min(offers, key=lambda each: each.usd)
    deadline, budget = request.deadline_s, request.budget_usd
    if deadline is not None and fastest.seconds > deadline:
        return BadInput(
            f"no plan trains {request.name} in {deadline:,.0f} s: the fastest takes {fastest.seconds:,.0f} s ({fastest.setup}, "
            f"{dollars(fastest.usd)}); give a deadline of at least that, or fewer epochs than {request.epochs}"
        )
    if budget is not None and cheapest.usd > budget:
        return BadInput(
            f"no plan trains {request.name} for {dollars(budget)}: the cheapest costs {dollars(cheapest.usd)} ({cheapest.setup}, "
            f"{cheapest.seconds:,.0f} s); give a budget of at least that, or fewer epochs than {request.epochs}"
        )
    assert deadline is not None and budget is not None, (
        "one limit alone is met by the fastest or the cheapest"
    )
    in_time = min((each for each in offers if each.seconds <= deadline), key=lambda each: each.usd)
    return BadInput(
        f"no plan trains {request.name} in {deadline:,.0f} s for {dollars(budget)}: in that time the cheapest costs "
        f"{dollars(in_time.usd)} ({in_time.setup}), for that money the fastest takes "
        f"{min(each.seconds for each in offers if each.usd <= budget):,.0f} s; give more of either"
    )


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"
