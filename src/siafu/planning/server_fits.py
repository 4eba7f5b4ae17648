"""ServerFits: whether the servers of a setup fit their machines' memory, with which measures, and at what price in seconds."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path

from siafu.cost.disks import Disk
from siafu.cost.instances import Instance
from siafu.cost.prices import PriceBook
from siafu.pipeline.ids import Mode
from siafu.planning.machines import PROGRAM_BYTES, memory_budget, memory_for_servers
from siafu.planning.offer import TrainingSetup
from siafu.planning.request import Request
from siafu.server.layout.layouts import VERTICES
from siafu.server.memory.fitting import ServersFit, fit_servers, least_of_servers
from siafu.server.memory.listing import RunListing
from siafu.server.memory.measures import least_peak
from siafu.server.memory.server_hardware import ServerHardware
from siafu.virtual.costs import Machine
from siafu.virtual.run_sizes import RunSizes

SCRATCH = Path("/mnt/scratch")
"""Where the commands of a plan take a rented machine's disk to be mounted."""

_Key = tuple[int, Mode, str, bool, int, int]


class ServerFits:
    """Of all setups of one request, by the list of arrays that `siafu train` makes."""

    def __init__(self, request: Request, book: PriceBook) -> None:
        self._request, self._book = request, book
        self._listings: dict[_Key, list[RunListing]] = {}
        self._fits: dict[tuple[str, int, Mode, bool, str, Disk | None], ServersFit] = {}

    @cached_property
    def _sizes(self) -> RunSizes:
        known = self._request.known
        if known is None:
            return RunSizes.of_shape(self._request.model, self._request.shape)
        return RunSizes.of_graph(known.graph, self._request.model, self._request.shape, known.parts)

    def fit(self, setup: TrainingSetup, layout: str) -> ServersFit:
        """The servers of a setup, sparing as little as makes them fit."""
        instance, servers = setup.fleet.rental.instance, setup.fleet.servers
        on_lambdas = setup.lambda_count > 0
        key = instance.name, servers, setup.mode, on_lambdas, layout, setup.disk
        if key not in self._fits:
            hardware = self._hardware(instance)
            listings = self._listed(servers, hardware, setup.mode, layout, on_lambdas=on_lambdas)
            directory, free = (None, None) if setup.disk is None else (SCRATCH, setup.disk.bytes)
            self._fits[key] = fit_servers(listings, memory_budget(instance), directory, free)
        return self._fits[key]

    def least(self, instance: Instance, servers: int) -> int:
        """Bytes of a server that spares all that it can, with every table in memory."""
        return max(least_peak(each) for each in self._plain(instance, servers))

    def least_with_disk(self, instance: Instance, servers: int) -> tuple[int, int]:
        """The least memory of a server with tables on disk, and the disk that it takes."""
        found = least_of_servers(self._plain(instance, servers))
        assert found is not None, "in pipe, without Lambdas, tables can be on disk"
        return found

    def fits_as_it_is(self, instance: Instance, servers: int, layout: str) -> bool:
        """Whether servers fit with a layout of their gathers, and spare nothing."""
        peak = max(each.listed.peak for each in self._plain(instance, servers, layout))
        return peak <= memory_budget(instance)

    def here(self, machine: Machine) -> ServersFit:
        """One server on the machine that was measured."""
        memory = int(machine.memory_bytes)
        hardware = ServerHardware(machine.cores, int(machine.near_cache), memory)
        return fit_servers(self._listed(1, hardware, "pipe", VERTICES), memory_for_servers(memory))

    def _plain(self, instance: Instance, servers: int, layout: str = VERTICES) -> list[RunListing]:
        return self._listed(servers, self._hardware(instance), "pipe", layout)

    def _listed(
        self, servers: int, hardware: ServerHardware, mode: Mode, layout: str, *, on_lambdas: bool = False
    ) -> list[RunListing]:
        """Lists are made once for machines that are alike but for their disks and memory."""
        key = servers, mode, layout, on_lambdas, hardware.threads, hardware.near_cache
        if key not in self._listings:
            self._listings[key] = self._sizes.listings(
                servers,
                hardware,
                PROGRAM_BYTES,
                mode=mode,
                layout=layout,
                evaluate_every=self._request.evaluate_every,
                on_lambdas=on_lambdas,
            )
        return [replace(each, hardware=hardware) for each in self._listings[key]]

    def _hardware(self, instance: Instance) -> ServerHardware:
        """Its disk has the store, whether scratch files lie there or not."""
        plain = ServerHardware(instance.vcpu, instance.processor.l2_kib * 1024, memory_budget(instance))
        disk = self._book.disk(instance)
        if disk is None:
            return plain
        return replace(plain, read_bytes_s=disk.read_bytes_s, write_bytes_s=disk.write_bytes_s)
