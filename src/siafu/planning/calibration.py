"""Calibration: what this machine does in a second, measured once and kept, for plans to be made with."""

import json
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.hardware.machine import architecture, cpu_id, memory_bytes, processor_name
from siafu.base.storage.documents import read_object
from siafu.base.storage.files import cache_directory, replace_text
from siafu.base.threads import thread_count
from siafu.base.typed import typed
from siafu.cost.lambda_prices import Architecture
from siafu.kernels import near_cache_bytes
from siafu.planning import probes, task_probes
from siafu.virtual.costs import Curve, EdgeCosts, LambdaKind, Machine

FORMAT, VERSION = "siafu calibration", 2
_REFERENCE = Path(__file__).parent / "data" / "reference.json"
_RATES = {"stream", "draws", "functions", "memory", "network_bytes_s", "memory_bytes", "bytes_s"}
_RATES |= {"server_bytes_s", "near_cache", "cores", "memory_mb"}
"""Fields that others are divided by."""

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A machine, measured.

    host:         its name; made: the day; siafu: the version that measured
    processor:    as its maker calls it
    cpu_id:       how price books know it: vendor/family/model, or on arm64 implementer/architecture/part
    seconds:      what measuring took
    start_seconds: from starting a process to its having a compiled model
    machine:      its cores, memory and network; between servers on this machine the network is the loopback
    local_lambda: a Lambda of `--lambdas local` on one of its cores
    """

    host: str
    made: str
    siafu: str
    processor: str
    cpu_id: str
    architecture: Architecture
    seconds: float
    start_seconds: float
    machine: Machine
    local_lambda: LambdaKind

    def __str__(self) -> str:
        return f"{self.host} ({self.processor}, {self.machine.cores} threads), measured {self.made}"

    def save(self, path: Path) -> None:
        form = {"format": FORMAT, "version": VERSION, **asdict(self)}
        replace_text(path, json.dumps(form, indent=1, allow_nan=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Calibration":
        """Read a file that `save` wrote."""
        again = "measure again with 'siafu calibrate'"
        found = read_object(path, again)
        if found.pop("format", None) != FORMAT:
            raise BadInput(f"{path} is no calibration: {again}")
        if found.pop("version", None) != VERSION:
            raise BadInput(f"{path} is a calibration of another version: {again}")
        try:
            made: Calibration = typed(cls, found)
            _check(made, "calibration")
            return made
        except ValueError as error:
            raise BadInput(f"{path} is not as this siafu writes it ({error}): {again}") from error


def calibration_path() -> Path:
    """Where this machine's calibration is kept; a cache directory may be shared by several machines."""
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in platform.node())
    return cache_directory() / f"calibration-{name or 'machine'}.json"


def calibration() -> tuple[Calibration, bool]:
    """This machine's, and True; where it was never measured, that of the machine Siafu was made on, and False."""
    path = calibration_path()
    if path.is_file():
        return Calibration.read(path), True
    return Calibration.read(_REFERENCE), False


def calibrate(told: Told = lambda _: None) -> Calibration:
    """Measure this machine; takes well under a minute once kernels are compiled.

    told: hears what is being measured
    """
    began = time.perf_counter()
    with probes.all_cores() as cores:
        told("tensors: products, streams, dropout")
        core = probes.core_rates(cores)
        told("gathers: rows of several widths, from tables of several sizes")
        edges = probes.edge_costs(cores)
        told("attention")
        rows = probes.row_costs(cores)
    told("how long a process takes to start")
    start_seconds = task_probes.start_seconds()
    told("tasks on threads")
    task_seconds = task_probes.task_seconds(core.call_seconds)
    told("tasks on local Lambdas")
    local = task_probes.local_lambda(task_seconds)
    memory, _ = memory_bytes()
    machine = Machine(
        cores=thread_count(),
        core=core,
        edges=edges,
        attention=rows.attention,
        task_seconds=task_seconds,
        network_bytes_s=local.bytes_s,
        latency_s=local.latency_s,
        memory_bytes=float(memory or 0),
        message_seconds=local.latency_s,  # on a loopback, all of the way is work of a core
        near_cache=near_cache_bytes(),
        row_seconds=rows.row_seconds,
        attention_rows=rows.attention_rows,
    )
    return Calibration(
        platform.node(),
        time.strftime("%Y-%m-%d"),
        version("siafu"),
        processor_name(),
        cpu_id(),
        architecture(),
        time.perf_counter() - began,
        start_seconds,
        machine,
        local,
    )


def describe(found: Calibration) -> list[str]:
    """Measured rates, in lines for people."""
    machine, local = found.machine, found.local_lambda
    rows = machine.edges

    def gathered(number: int) -> str:
        rate, table = 256 / rows.sparse[number].at(256), rows.tables[number]
        return f"{rate / 1e9:.1f} GB/s from {table / 2**20:,.0f} MiB"

    return [
        f"machine    {found}",
        f"products   {machine.core.products.at(128) / 1e9:.1f} GFLOP/s a core at width 128, "
        f"{machine.core.products.at(8) / 1e9:.1f} at width 8",
        f"gathers    {gathered(0)}, {gathered(-1)}, {256 / rows.dense.at(256) / 1e9:.1f} block by block "
        "(a core, rows of 256 bytes)",
        f"attention  {machine.attention[0] * 1e9:.1f} ns an edge and head, {machine.attention[1] * 1e9:.1f} ns back; "
        f"{machine.attention_rows[0] * 1e9:.0f} and {machine.attention_rows[1] * 1e9:.0f} ns a row and head",
        f"dropout    {machine.core.draws / 1e6:,.0f} M numbers/s a core",
        f"a task     {machine.task_seconds * 1e6:,.0f} µs besides its work; an operation {machine.core.call_seconds * 1e6:.1f} µs",
        f"a Lambda   {local.thread.products.at(128) / 1e9:.1f} GFLOP/s at width 128; {local.invoke_s * 1e3:.1f} ms to be invoked, "
        f"{local.cold_start_s * 1e3:,.0f} ms when new; a task {local.task_seconds * 1e6:,.0f} µs, and "
        f"{local.server_task_seconds * 1e6:,.0f} µs of the server",
        f"loopback   {local.latency_s * 1e6:.0f} µs one way, {local.bytes_s / 1e9:.1f} GB/s",
        f"a start    {found.start_seconds:.1f} s until a process has a compiled model",
        f"measured in {found.seconds:.0f} s on {os.cpu_count()} cores",
    ]


def _check(value: Any, name: str) -> None:
    """Refuse numbers that no machine has."""
    if is_dataclass(value):
        for each in fields(value):
            _check(getattr(value, each.name), each.name)
    if isinstance(value, Curve):
        _check_rising([size for size, _ in value.points])
        if not all(quantity > 0 for _, quantity in value.points):
            raise ValueError("a curve has quantities that are not above 0")
    elif isinstance(value, EdgeCosts):
        _check_rising(value.tables)
        if len(value.tables) != len(value.sparse):
            raise ValueError(f"{len(value.sparse)} curves for {len(value.tables)} sizes of tables")
    elif isinstance(value, tuple):
        for each in value:
            _check(each, name)
    elif type(value) in (int, float) and not (0 < value < math.inf or (value == 0 and name not in _RATES)):
        raise ValueError(f"{name} is {value!r}")


def _check_rising(sizes: Sequence[float]) -> None:
    if not sizes or sizes[0] <= 0 or any(one >= other for one, other in pairwise(sizes)):
        raise ValueError("a curve's sizes do not rise from above 0")
