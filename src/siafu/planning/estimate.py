"""Estimates of one setup: what it takes at least, in no time; and what it takes, simulated."""

import math
from collections.abc import Callable

from siafu.cost.fleet import Fleet
from siafu.cost.instances import Instance
from siafu.cost.lambda_prices import VCPU_MB
from siafu.cost.prices import PriceBook
from siafu.cost.ratios import ratios
from siafu.pipeline.ids import Mode
from siafu.planning.calibration import Calibration
from siafu.planning.machines import aws_lambda, machine_of, processor_of
from siafu.planning.offer import Bound, Offer, TrainingSetup
from siafu.planning.request import AUTO, Request
from siafu.planning.server_fits import ServerFits
from siafu.server.layout.layout_choice import ServerPace, chosen_layout
from siafu.server.layout.layouts import VERTICES
from siafu.server.memory.fitting import ServersFit
from siafu.virtual.costs import LambdaKind, Machine, compute_seconds, task_seconds
from siafu.virtual.server_sample import ServerSample
from siafu.virtual.stage_costs import StageCosts
from siafu.virtual.virtual import Simulated, simulate
from siafu.virtual.workload import Workload, traffic_of, workload_of

ASYNCHRONOUS_EPOCHS = 1.1
"""How many asynchronous epochs, S = 0, stand for an exact one: docs/convergence.md measured 0.91 to 1.09, the paper 1.00 to 1.14."""

_SIMULATED_EPOCHS = 3
_SIMULATED_SERVERS, _SIMULATED_INTERVALS = 3, 24  # at most: each stands for as many alike
_MB_PER_GB = 1024
_NUMBER = 4  # bytes of a feature, and of an edge's source


class Estimates:
    """Of all setups of one request."""

    def __init__(self, request: Request, measured: Calibration, book: PriceBook) -> None:
        self.request, self.measured, self.book = request, measured, book
        self.workload: Workload = workload_of(request.model, request.shape)
        self.fits = ServerFits(request, book)
        self.lambda_gb = VCPU_MB / _MB_PER_GB
        self.lambda_prices = book.lambda_prices(book.region, "x86_64")
        self._machines: dict[str, Machine] = {}
        self._layouts: dict[tuple[str, int], str] = {}
        self._by_layout: dict[tuple[str, int], Workload] = {}
        self._simulated: dict[tuple[str, int, str, int, str], Simulated] = {}

    @property
    def simulations(self) -> int:
        """How many there were."""
        return len(self._simulated)

    def machine(self, instance: Instance) -> Machine:
        if instance.name not in self._machines:
            self._machines[instance.name] = machine_of(instance, self.measured, self.book)
        return self._machines[instance.name]

    def fit(self, setup: TrainingSetup) -> ServersFit:
        """How its servers fit their machines' memory."""
        return self.fits.fit(setup, self.layout(setup))

    def layout(self, setup: TrainingSetup) -> str:
        """Of its gathers: as asked for, or the faster one if it fits as it is."""
        instance, servers = setup.fleet.rental.instance, setup.fleet.servers
        if servers == 1 or setup.mode == "async":
            return VERTICES
        if self.request.layout != AUTO:
            return self.request.layout
        if setup.disk is not None:  # what columns need would have to be in memory
            return VERTICES
        key = instance.name, servers
        if key not in self._layouts:
            machine, shape = self.machine(instance), self.request.shape
            ghosts, gbps = shape.ghosts_of_server(servers), machine.network_bytes_s * 8e-9
            pace = ServerPace(shape.vertices, shape.edges, ghosts, servers, machine.cores, gbps)
            traffic = traffic_of(self.request.model, shape, servers)
            found = chosen_layout([pace.price(each) for each in traffic])
            fits = found == VERTICES or self.fits.fits_as_it_is(instance, servers, found)
            self._layouts[key] = found if fits else VERTICES
        return self._layouts[key]

    def workload_for(self, setup: TrainingSetup) -> Workload:
        """What its stages cost, as its gathers are laid out."""
        return self._laid_out(self.layout(setup), setup.fleet.servers)

    def _laid_out(self, layout: str, servers: int) -> Workload:
        if layout == VERTICES:
            return self.workload
        key = layout, servers
        if key not in self._by_layout:
            request = self.request
            self._by_layout[key] = workload_of(request.model, request.shape, layout, servers=servers)
        return self._by_layout[key]

    def start_seconds(self, fleet: Fleet) -> float:
        """Until the first epoch: a process and its model, and the server's part of the store over its network.

        A server reads the edges into its vertices, and the features of its vertices and of its ghosts.
        """
        shape, servers, instance = self.request.shape, fleet.servers, fleet.rental.instance
        rows = shape.vertices / servers + shape.ghosts_of_server(servers)
        size = _NUMBER * (rows * shape.features + shape.edges / servers)
        return self._process_seconds(instance) + size / self.machine(instance).network_bytes_s

    def epochs(self, setup: TrainingSetup) -> int:
        wanted = self.request.epochs
        return wanted if setup.mode != "async" else math.ceil(round(wanted * ASYNCHRONOUS_EPOCHS, 6))

    def bound(self, setup: TrainingSetup) -> Bound:
        """All cores, links and Lambdas busy all of the time, and nothing waiting for a disk."""
        return self._bound(setup, lambda epoch: epoch)

    def bound_as_fitted(self, setup: TrainingSetup) -> Bound:
        """The same with what sparing memory takes, which is not known at once."""
        return self._bound(setup, self.fit(setup).epoch)

    def _bound(self, setup: TrainingSetup, lengthened: Callable[[float], float]) -> Bound:
        fleet, epochs = setup.fleet, self.epochs(setup)
        epoch, lambda_seconds = self._epoch_at_least(setup)
        plain = self._with_evaluations(epoch, epochs, self.machine(fleet.rental.instance)) / epochs
        seconds = self.start_seconds(fleet) + epochs * lengthened(plain)
        usd = self._usd_servers(fleet, seconds) + self._usd_lambdas(lambda_seconds * epochs, 0)
        return Bound(seconds, usd)

    def offer(self, setup: TrainingSetup) -> Offer:
        """Time and cost of a setup, by the pipeline's own machines in virtual time; its servers must fit."""
        fleet, epochs, fit = setup.fleet, self.epochs(setup), self.fit(setup)
        found = self.simulated(setup)
        start, machine = self.start_seconds(fleet), self.machine(fleet.rental.instance)
        plain = self._with_evaluations(found.seconds_per_epoch, epochs, machine) / epochs
        seconds = start + epochs * fit.epoch(plain)
        usd_disks = 0.0
        if setup.disk is not None:
            rent = fleet.servers * setup.disk.usd_per_hour(fit.scratch)
            usd_disks = self.book.billing.usd(rent, seconds)
        share = epochs / _SIMULATED_EPOCHS
        billed = found.lambda_billed_seconds * share
        requests = math.ceil(found.lambda_invocations * share)
        return Offer(
            setup,
            fit.epoch(found.seconds_per_epoch),
            epochs,
            start,
            seconds,
            fit.peak,
            found.utilisation,
            billed * VCPU_MB / _MB_PER_GB,
            requests,
            self._usd_servers(fleet, seconds),
            self._usd_lambdas(billed, requests),
            self.layout(setup),
            fit.budget,
            fit.copy,
            fit.scratch,
            fit.measures,
            fit.epoch(plain) - plain,
            usd_disks,
        )

    def here(self) -> tuple[float, float] | None:
        """Seconds of an epoch and of the whole training on the machine that was measured; None: it does not fit."""
        machine, epochs = self.measured.machine, self.request.epochs
        fit = self.fits.here(machine)
        if not fit.fits:
            return None
        epoch = self._simulate(machine, 1, "pipe", 0, None, self.workload).seconds_per_epoch
        plain = self._with_evaluations(epoch, epochs, machine) / epochs
        return fit.epoch(epoch), self.measured.start_seconds + epochs * fit.epoch(plain)

    def simulated(self, setup: TrainingSetup) -> Simulated:
        """Once for each setup; what a machine costs does not matter to it."""
        instance, servers = setup.fleet.rental.instance, setup.fleet.servers
        key = instance.name, servers, setup.mode, setup.lambda_count, self.layout(setup)
        if key not in self._simulated:
            kind = self._lambda_kind(setup)
            self._simulated[key] = self._simulate(
                self.machine(instance),
                servers,
                setup.mode,
                setup.lambda_count,
                kind,
                self.workload_for(setup),
            )
        return self._simulated[key]

    def _simulate(
        self,
        machine: Machine,
        servers: int,
        mode: Mode,
        lambda_count: int,
        kind: LambdaKind | None,
        workload: Workload,
    ) -> Simulated:
        return simulate(
            self.request.shape,
            workload,
            machine,
            servers=servers,
            mode=mode,
            lambdas=kind,
            lambda_count=lambda_count,
            epochs=_SIMULATED_EPOCHS,
            most_servers=_SIMULATED_SERVERS,
            most_intervals=_SIMULATED_INTERVALS,
        )

    def tensor_seconds(self, setup: TrainingSetup) -> tuple[float, float]:
        """What the tensor tasks of an epoch take cores of the servers, and threads of Lambdas."""
        machine = self.machine(setup.fleet.rental.instance)
        kind = aws_lambda(self.measured, max(1, setup.lambda_count))
        work = [
            self.workload.work["train", stage.id]
            for stage in self.workload.training.stages
            if stage.kind.remote
        ]
        return (
            sum(compute_seconds(each, machine.core) for each in work),
            sum(compute_seconds(each, kind.thread) for each in work),
        )

    def _lambda_kind(self, setup: TrainingSetup) -> LambdaKind | None:
        return aws_lambda(self.measured, setup.lambda_count) if setup.lambda_count else None

    def _epoch_at_least(self, setup: TrainingSetup) -> tuple[float, float]:
        """Seconds of an epoch, and of all Lambdas in it."""
        fleet, kind = setup.fleet, self._lambda_kind(setup)
        machine = self.machine(fleet.rental.instance)
        sample = ServerSample.of(fleet.servers, machine.cores, 1, 0, most_servers=4, most_intervals=64)
        workload = self.workload_for(setup)
        costs = StageCosts(workload, self.request.shape, machine, sample)
        cores, sent = 0.0, 0.0
        for stage in workload.training.stages:
            cost = costs.of("train", stage.id)
            assert cost is not None, "an epoch has no stage of an evaluation"
            if kind is None or not stage.kind.remote:
                cores += cost.seconds * sample.simulated_intervals
            sent += cost.sent * sample.simulated_intervals * (sample.simulated_servers - 1)
        epoch = max(cores / machine.cores, sent / machine.network_bytes_s)
        if kind is None:
            return epoch, 0.0
        _, thread_seconds = self.tensor_seconds(setup)
        return max(epoch, thread_seconds / (fleet.servers * setup.lambda_count)), thread_seconds

    def _with_evaluations(self, epoch: float, epochs: int, machine: Machine) -> float:
        """An evaluation takes as much of an epoch as its work is of an epoch's."""
        share = self._evaluation_share(machine)
        return epoch * (epochs + share * math.ceil(epochs / self.request.evaluate_every))

    def _evaluation_share(self, machine: Machine) -> float:
        def all_of(lane: str) -> float:
            return sum(
                task_seconds(work, machine) for (of, _), work in self.workload.work.items() if of == lane
            )

        return all_of("evaluate") / all_of("train")

    def _process_seconds(self, instance: Instance) -> float:
        there = ratios(instance.processor, processor_of(self.measured, self.book))
        return self.measured.start_seconds / there.pace

    def _usd_servers(self, fleet: Fleet, seconds: float) -> float:
        return fleet.usd(seconds, self.book.billing)

    def _usd_lambdas(self, seconds: float, requests: int) -> float:
        return self.lambda_prices.usd(seconds * VCPU_MB / _MB_PER_GB, requests) if seconds else 0.0
