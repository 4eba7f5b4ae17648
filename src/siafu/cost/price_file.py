"""A price file: JSON, read strictly, so that a misspelt field is never a price that silently stays as it was."""

import difflib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_type_hints

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line, read_object
from siafu.cost.disks import Volume
from siafu.cost.instances import Accelerator, Billing, Instance, Processor
from siafu.cost.lambda_prices import Architecture, Discount, LambdaPrices

FORMAT, VERSION = "siafu prices", 1
T = TypeVar("T")


def _fields(kind: type, *others: str) -> tuple[str, ...]:
    """Fields that an entry of a file may have: those of a dataclass, but for what the file says elsewhere."""
    return tuple(each.name for each in fields(kind) if each.name not in others)


_TOP = ("format", "version", "edition", "region", "currency", "sources", "billing")
_ENTRIES = {
    "instances": _fields(Instance, "name"),
    "processors": _fields(Processor, "name"),
    "accelerators": _fields(Accelerator, "name"),
    "lambdas": _fields(LambdaPrices, "source"),
    "volumes": _fields(Volume, "name"),
}
_PARTS = {"sources": None, "billing": _fields(Billing)}


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
        """A number above 0; what is paid may be nothing."""
        value: Any = self.values.get(name)
        if not _is_amount(value):
            raise self.wrong(name, "a number of at least 0")
        if value == 0 and "usd" not in name and not name.startswith("minimum"):
            raise self.wrong(name, "a number above 0")
        return float(value)

    def whole(self, name: str) -> int:
        value = self.number(name)
        if value != int(value) or value >= 2**53:  # from where float no longer tells whole numbers apart
            raise self.wrong(name, "a whole number above 0")
        return int(value)

    def discounts(self, name: str) -> tuple[Discount, ...]:
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(_is_pair(each) for each in value):
            raise self.wrong(name, "a list of pairs [GB-seconds a month, USD a GB-second]")
        return tuple(Discount(float(volume), float(price)) for volume, price in value)

    def architecture(self, name: str) -> Architecture:
        value = self.values.get(name)
        if value not in get_args(Architecture):
            raise self.wrong(name, f"one of {', '.join(get_args(Architecture))}")
        return cast(Architecture, value)

    def words(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.wrong(name, "a list of texts")
        return tuple(value)

    def optional(self, name: str) -> float | None:
        return None if self.values.get(name) is None else self.number(name)

    def made(self, kind: type[T], **known: Any) -> T:
        """A dataclass of these fields, each read as its type says; known: those that stand elsewhere."""
        readers: dict[Any, Callable[[str], Any]] = {
            str: self.text,
            int: self.whole,
            float: self.number,
            float | None: self.optional,
            Architecture: self.architecture,
            tuple[str, ...]: self.words,
            tuple[Discount, ...]: self.discounts,
        }
        hints = get_type_hints(kind)
        return kind(**known, **{name: readers[hints[name]](name) for name in hints if name not in known})

    def instance(
        self, name: str, processors: Mapping[str, Processor], accelerators: Mapping[str, Accelerator]
    ) -> Instance:
        low, high = self.optional("spot_low_usd_h"), self.optional("spot_high_usd_h")
        if (low is None) != (high is None) or (low is not None and high is not None and low > high):
            raise BadInput(
                f"{self.path}: the spot prices of {self.where} are {low} and {high}: give the lower one as "
                "spot_low_usd_h and the higher one as spot_high_usd_h, or neither"
            )
        gpu = self.values.get("accelerator")
        return self.made(
            Instance,
            name=name,
            processor=self._named("processor", processors),
            accelerator=None if gpu is None else self._named("accelerator", accelerators),
        )

    def wrong(self, name: str, wanted: str) -> BadInput:
        """The error about a field."""
        field = f"{self.where}.{name}" if self.where else name
        found = f"is {one_line(json.dumps(self.values[name]))}" if name in self.values else "is missing"
        return BadInput(f"{self.path}: {one_line(field)} {found}: give {wanted}")

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
    values = read_object(path, "give a file of prices as docs/cost.md describes it")
    if values.get("format") != FORMAT:
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
    for part, known_fields in _ENTRIES.items():
        entries = values.get(part, {})
        if not isinstance(entries, dict) or not all(isinstance(each, dict) for each in entries.values()):
            kind = "a list of objects" if part == "lambdas" else "an object of objects, by name"
            raise BadInput(f"{path}: {part} is not {kind}: write it as docs/cost.md shows")
        for name, entry in entries.items():
            _refuse_strangers(entry, known_fields, path, f"{part}.{name}")


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
