"""Calibration: what this machine does in a second, measured once and kept, for plans to be made with."""

import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from siafu.base.documents import one_line, parse_json
from siafu.base.errors import BadInput
from siafu.base.files import cache_directory, replacing
from siafu.base.machine import architecture, cpu_id, memory_bytes, processor_name
from siafu.base.threads import thread_count
from siafu.cost.lambda_prices import Architecture
from siafu.kernels import near_cache_bytes
from siafu.planning import probes, task_probes
from siafu.virtual.costs import Curve, EdgeCosts, LambdaKind, Machine, Processor

FORMAT, VERSION = "siafu calibration", 2
_REFERENCE = Path(__file__).parent / "data" / "reference.json"
_RATES = frozenset(
    [
        "stream",
        "draws",
        "functions",
        "memory",
        "network_bytes_s",
        "memory_bytes",
        "bytes_s",
        "server_bytes_s",
        "near_cache",
        "cores",
        "memory_mb",
    ]
)
"""What others are divided by."""
T = TypeVar("T")

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
        with replacing(path) as file:
            text = json.dumps(
                {"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1, allow_nan=False
            )
            file.write(text.encode() + b"\n")

    @classmethod
    def read(cls, path: Path) -> "Calibration":
        """What `save` wrote."""
        again = "measure again with 'siafu calibrate'"
        try:
            found = parse_json(path.read_bytes())
        except OSError as error:
            raise BadInput(f"no calibration at {path} ({error.strerror}): {again}") from error
        except ValueError as error:
            raise BadInput(f"{path} is not JSON ({error}): {again}") from error
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise BadInput(f"{path} is no calibration: {again}")
        if found.pop("version", None) != VERSION:
            raise BadInput(f"{path} is a calibration of another version: {again}")
        try:
            made = found | {
                "machine": _machine(found["machine"]),
                "local_lambda": _lambda_kind(found["local_lambda"]),
            }
            return _exactly(cls, made)
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
            raise BadInput(f"{path} is not as this siafu writes it ({one_line(error)}): {again}") from error


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
    """What was measured, for people."""
    machine, local = found.machine, found.local_lambda
    rows = machine.edges

    def gathered(number: int) -> str:
        return f"{256 / rows.sparse[number].at(256) / 1e9:.1f} GB/s from {_size(rows.tables[number])}"

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


def _size(count: float) -> str:
    return f"{count / 2**20:,.0f} MiB"


def _machine(found: dict[str, Any]) -> Machine:
    return _exactly(
        Machine,
        found
        | {
            "core": _processor(found["core"]),
            "edges": _edge_costs(found["edges"]),
            "attention": _forth_and_back(found["attention"]),
            "attention_rows": _forth_and_back(found["attention_rows"]),
        },
    )


def _edge_costs(found: dict[str, Any]) -> EdgeCosts:
    curves = [_curve(each) for each in found["sparse"]]
    # Lowest to highest, and one curve for each: what a curve through them would be asked for.
    sizes = _curve({"points": [[size, 1] for size in found["tables"]]})
    if len(sizes.points) != len(curves):
        raise ValueError(f"{len(curves)} curves for {len(sizes.points)} sizes of tables")
    return EdgeCosts(tuple(size for size, _ in sizes.points), tuple(curves), _curve(found["dense"]))


def _forth_and_back(found: list[Any]) -> tuple[float, float]:
    forth, back = (_number("attention", each) for each in found)
    return forth, back


def _number(name: str, value: Any) -> float:
    """A number from 0 up; above 0 where something is divided by it."""
    number = float(value) if type(value) in (int, float) else math.nan
    if not (number > 0 if name in _RATES else number >= 0) or number == math.inf:
        raise ValueError(f"{name} is {value!r}")
    return number


def _lambda_kind(found: dict[str, Any]) -> LambdaKind:
    return _exactly(LambdaKind, found | {"thread": _processor(found["thread"])})


def _processor(found: dict[str, Any]) -> Processor:
    return _exactly(Processor, found | {"products": _curve(found["products"])})


def _curve(found: dict[str, Any]) -> Curve:
    points = tuple((float(size), float(quantity)) for size, quantity in found["points"])
    if not points or not all(0 < each < math.inf for point in points for each in point):
        raise ValueError("a curve has points that are not above 0")
    if any(one >= other for (one, _), (other, _) in pairwise(points)):
        raise ValueError("a curve's sizes do not rise")
    return Curve(points)


def _exactly(kind: Callable[..., T], values: dict[str, Any]) -> T:
    """A dataclass from its fields: none missing, none too many. A default would be a machine that was never measured."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if strangers := set(values) - known:
        raise ValueError(f"unknown: {one_line(', '.join(sorted(strangers)))}")
    if missing := known - set(values):
        raise ValueError(f"missing: {', '.join(sorted(missing))}")
    for name, wanted in get_type_hints(kind).items():
        _check_plain(name, values[name], wanted)
    return kind(**values)


def _check_plain(name: str, value: Any, wanted: Any) -> None:
    """Refuse a number, a text or a truth that is another kind of thing."""
    if wanted in (int, float):
        _number(name, value)
    is_kind = type(value) is wanted or wanted not in (int, str, bool)
    is_choice = get_origin(wanted) is not Literal or value in get_args(wanted)
    if not (is_kind and is_choice):
        raise ValueError(f"{name} is {value!r}")
