"""A price file: JSON, read strictly, so that a misspelt field is never a price that silently stays as it was."""

import difflib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from siafu.base.documents import one_line, parse_json
from siafu.base.errors import BadInput
from siafu.cost.instances import Accelerator, Instance, Processor
from siafu.cost.lambda_prices import Architecture

FORMAT, VERSION = "siafu prices", 1
T = TypeVar("T")
_ARCHITECTURES = ("x86_64", "arm64")

# What each part may hold. A part that is a list of named entries gives what one entry may hold.
_TOP = ("format", "version", "edition", "region", "currency", "sources", "billing")
_ENTRIES = {
    "instances": (
        "processor",
        "vcpu",
        "memory_gib",
        "network_gbps",
        "network_burst_gbps",
        "accelerator",
        "on_demand_usd_h",
        "spot_low_usd_h",
        "spot_high_usd_h",
        "as_of",
    ),
    "processors": (
        "architecture",
        "cores",
        "threads_per_core",
        "clock_ghz",
        "flops_per_cycle",
        "memory_channels",
        "memory_mts",
        "l2_kib",
        "source",
        "cpu_ids",
    ),
    "accelerators": ("memory_gib", "tflops", "memory_gbs", "source"),
    "lambdas": (
        "region",
        "architecture",
        "usd_per_gb_second",
        "usd_per_million_requests",
        "discounts",
        "as_of",
    ),
}
_PARTS: dict[str, tuple[str, ...] | None] = {
    "sources": None,
    "billing": ("minimum_seconds", "increment_seconds"),
}


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of a price file, and where it stands in it: for messages.

    values: as JSON has them
    """

    values: Mapping[str, Any]
    path: Path
    where: str = ""

    def entries(self, name: str) -> dict[str, "Fields"]:
        """The entries of a part, by name."""
        found: Mapping[str, Any] = self.values.get(name, {})
        return {each: Fields(value, self.path, f"{name}.{each}") for each, value in found.items()}

    def entry(self, name: str) -> "Fields":
        return Fields(self.values.get(name, {}), self.path, name)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.values.get(name, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "some text")
        return value

    def texts(self) -> dict[str, str]:
        return {name: self.text(name) for name in self.values}

    def number(self, name: str) -> float:
        value: Any = self.values.get(name)
        if not _is_amount(value):
            raise self.wrong(name, "a number of at least 0")
        return float(value)

    def positive(self, name: str, *, zero: bool = False) -> float:
        value = self.number(name)
        if value == 0 and not zero:
            raise self.wrong(name, "a number above 0")
        return value

    def whole(self, name: str) -> int:
        value = self.positive(name)
        if value != int(value) or value >= 2**53:  # from where float no longer tells whole numbers apart
            raise self.wrong(name, "a whole number above 0")
        return int(value)

    def pairs(self, name: str) -> list[tuple[float, float]]:
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(_is_pair(each) for each in value):
            raise self.wrong(name, "a list of pairs [GB-seconds a month, USD a GB-second]")
        return [(float(volume), float(price)) for volume, price in value]

    def architecture(self) -> Architecture:
        value = self.values.get("architecture")
        if value not in _ARCHITECTURES:
            raise self.wrong("architecture", f"one of {', '.join(_ARCHITECTURES)}")
        return cast(Architecture, value)

    def processor(self, name: str) -> Processor:
        ids = self.values.get("cpu_ids", [])
        if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
            raise self.wrong("cpu_ids", "a list of texts")
        return Processor(
            name,
            self.architecture(),
            self.whole("cores"),
            self.whole("threads_per_core"),
            self.positive("clock_ghz"),
            self.whole("flops_per_cycle"),
            self.whole("memory_channels"),
            self.positive("memory_mts"),
            self.whole("l2_kib"),
            self.text("source"),
            tuple(ids),
        )

    def accelerator(self, name: str) -> Accelerator:
        return Accelerator(
            name,
            self.positive("memory_gib"),
            self.positive("tflops"),
            self.positive("memory_gbs"),
            self.text("source"),
        )

    def instance(
        self, name: str, processors: Mapping[str, Processor], accelerators: Mapping[str, Accelerator]
    ) -> Instance:
        low, high = self._optional("spot_low_usd_h"), self._optional("spot_high_usd_h")
        if (low is None) != (high is None) or (low is not None and high is not None and low > high):
            raise BadInput(
                f"{self.path}: the spot prices of {self.where} are {low} and {high}: give the lower one as "
                "spot_low_usd_h and the higher one as spot_high_usd_h, or neither"
            )
        gpu = self.values.get("accelerator")
        return Instance(
            name,
            self._named("processor", processors),
            self.whole("vcpu"),
            self.positive("memory_gib"),
            self.positive("network_gbps"),
            self.positive("network_burst_gbps"),
            None if gpu is None else self._named("accelerator", accelerators),
            self.number("on_demand_usd_h"),
            low,
            high,
            self.text("as_of"),
        )

    def wrong(self, name: str, wanted: str) -> BadInput:
        """What to raise about a field."""
        field = f"{self.where}.{name}" if self.where else name
        found = f"is {one_line(json.dumps(self.values[name]))}" if name in self.values else "is missing"
        return BadInput(f"{self.path}: {one_line(field)} {found}: give {wanted}")

    def _optional(self, name: str) -> float | None:
        return None if self.values.get(name) is None else self.number(name)

    def _named(self, name: str, known: Mapping[str, T]) -> T:
        value = self.values.get(name)
        if not isinstance(value, str) or value not in known:
            raise self.wrong(name, f"one of {', '.join(known)}, or add it to the file's {name}s")
        return known[value]


def read_fields(path: Path, *, over: Fields | None = None) -> Fields:
    """A price file.

    over: what it is laid over: entries of the same name give way field by field, the others stay
    """
    values = _read(path)
    _check_names(values, path)
    if over is None:
        return Fields(values, path)
    return Fields(_laid(values, over.values), path)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = parse_json(path.read_bytes())
    except OSError as error:
        raise BadInput(
            f"cannot read prices from {path} ({error.strerror}): give a file as docs/cost.md describes it"
        ) from error
    except ValueError as error:
        raise BadInput(f"{path} is not JSON ({error}): give a file as docs/cost.md describes it") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise BadInput(f'{path} is no price file: it must be a JSON object with "format": "{FORMAT}"')
    if values.get("version") != VERSION:
        raise BadInput(
            f"{path} is a price file of version {one_line(values.get('version'))}, this siafu reads {VERSION}: "
            "write it anew, or upgrade with pip install -U siafu"
        )
    return values


def _check_names(values: dict[str, Any], path: Path) -> None:
    """Refuse what is not known, and give the Lambdas of a list names to lay them over others by."""
    _refuse_strangers(values, (*_TOP, *_ENTRIES), path, "")
    if isinstance(values.get("lambdas"), list):
        values["lambdas"] = {_lambda_name(each, values): each for each in values["lambdas"]}
    for part, known in _PARTS.items():
        entry = values.get(part, {})
        if not isinstance(entry, dict):
            raise BadInput(f"{path}: {part} is {one_line(json.dumps(entry))}: give an object")
        if known is not None:
            _refuse_strangers(entry, known, path, part)
    for part, fields in _ENTRIES.items():
        entries = values.get(part, {})
        if not isinstance(entries, dict) or not all(isinstance(each, dict) for each in entries.values()):
            kind = "a list of objects" if part == "lambdas" else "an object of objects, by name"
            raise BadInput(f"{path}: {part} is not {kind}: write it as docs/cost.md shows")
        for name, entry in entries.items():
            _refuse_strangers(entry, fields, path, f"{part}.{name}")


def _refuse_strangers(found: Mapping[str, Any], known: tuple[str, ...], path: Path, where: str) -> None:
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1) or [", ".join(known)]
            raise BadInput(
                f"{path}: unknown field {one_line(f'{where}.{name}' if where else name)}: did you mean {near[0]}?"
            )


def _lambda_name(entry: Any, values: dict[str, Any]) -> str:
    if not isinstance(entry, dict):
        return "?"
    return f"{entry.get('region', values.get('region', 'us-east-1'))} {entry.get('architecture')}"


def _laid(over: Mapping[str, Any], under: Mapping[str, Any]) -> dict[str, Any]:
    """Objects are laid over each other name by name; anything else gives way."""
    laid = dict(under)
    for name, value in over.items():
        below = laid.get(name)
        laid[name] = _laid(value, below) if isinstance(value, dict) and isinstance(below, dict) else value
    return laid


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_amount, value))


def _is_amount(value: Any) -> bool:
    """Whether it is a number from 0 up that a float holds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max
