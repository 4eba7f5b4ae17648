"""Option: a setting that is declared once, as a field of a dataclass.

The command line (`siafu.cli.declared`), the keywords of `siafu.train`, config files and the reference are made of it.
"""

import dataclasses
import numbers
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from types import UnionType
from typing import Any, get_args

from siafu.base.errors import BadInput

_KEY = "option"
_WIDTH = 110
_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """The declaration that a field carries.

    help:        one sentence, for the command line and the reference
    more:        what the reference says besides
    unset:       what None means
    least, most: bounds of a number
    valid:       what else must hold, and how the refusal ends if it does not
    choices:     what a text may be
    noun:        a text that is none of them is refused as an unknown one of these
    wants:       how the refusal ends; "": as the bounds and choices say
    panel:       the heading that it stands under on the command line
    metavar:     what its value is called there
    argument:    whether its value stands there without a flag; then there is no default
    name, kinds, default: the field's; kinds are those that a command line and a file can give
    """

    help: str
    more: str = ""
    unset: str = ""
    least: float | None = None
    most: float | None = None
    valid: tuple[Callable[[Any], bool], str] | None = None
    choices: tuple[str, ...] = ()
    noun: str = ""
    wants: str = ""
    panel: str | None = None
    metavar: str | None = None
    argument: bool = False
    name: str = ""
    kinds: tuple[type, ...] = ()
    default: Any = None

    @property
    def meaning(self) -> str:
        """The sentences about it in the reference, where other options are keywords."""
        unset = f"None: {self.unset}." if self.unset else ""
        told = " ".join(part for part in (self.help, self.more, unset) if part)
        return re.sub(r"--([a-z]+)", r"`\1`", told)

    def check(self, value: Any) -> None:
        """Refuse a number out of bounds and a text that is no choice; whatever only Python can give is left alone."""
        if value is None and self.default is None:
            return
        if self.choices and isinstance(value, str):
            if value not in self.choices:
                raise self._refused(value, self._wanted)
        elif int in self.kinds or float in self.kinds:
            if not self._is_within(value):
                raise self._refused(value, self._wanted)
            if self.valid is not None and not self.valid[0](value):
                raise self._refused(value, self.valid[1])

    def check_kind(self, value: Any) -> None:
        """Refuse what is of another type than the field."""
        is_unset = value is None and self.default is None
        if not is_unset and not any(_is_a(kind, value) for kind in self.kinds):
            raise self._refused(value, self._wanted)

    def _is_within(self, value: Any) -> bool:
        if float not in self.kinds and not isinstance(value, int):
            return False
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    @property
    def _wanted(self) -> str:
        if self.wants:
            return self.wants
        if self.choices and self.kinds == (str,):
            return f"choose one of {', '.join(self.choices)}"
        end = "up" if self.most is None else f"to {self.most:g}"
        bounds = "" if self.least is None else f" from {self.least:g} {end}"
        kinds = [
            _KINDS[kind] + (bounds if kind in (int, float) else "")
            for kind in self.kinds
            if kind is not str or not self.choices
        ]
        return "give " + ", or ".join([*kinds, *self.choices])

    def _refused(self, value: Any, ending: str) -> BadInput:
        if self.noun and isinstance(value, str):
            return BadInput(f"unknown {self.noun} {value!r}: {ending}")
        return BadInput(f"{self.name} is {repr(value) if self.choices else value}: {ending}")


def option(default: Any, help: str, **more: Any) -> Any:
    """A field of a dataclass that is an `Option`."""
    return dataclasses.field(default=default, metadata={_KEY: Option(help, **more)})


def argument(metavar: str, help: str, **more: Any) -> Any:
    """The same for what has no default, and on the command line no flag."""
    return dataclasses.field(metadata={_KEY: Option(help, metavar=metavar, argument=True, **more)})


def options_of(declaration: type) -> dict[str, Option]:
    """Those that a dataclass declares, by name."""
    return {
        field.name: dataclasses.replace(
            field.metadata[_KEY],
            name=field.name,
            kinds=_kinds(field.type),
            default=dataclasses.MISSING if field.metadata[_KEY].argument else field.default,
        )
        for field in dataclasses.fields(declaration)
        if _KEY in field.metadata
    }


def check(values: object) -> None:
    """Refuse a dataclass with an option that cannot be."""
    for name, each in options_of(type(values)).items():
        each.check(getattr(values, name))


def described(options: Iterable[Option]) -> str:
    """Name and meaning of each, as docstrings have it."""
    told = {each.name: each.meaning for each in options}
    indent = max(map(len, told)) + 2
    lines = [textwrap.wrap(meaning, _WIDTH - indent) for meaning in told.values()]
    return "\n".join(
        f"{name + ':':<{indent}}" + f"\n{'':{indent}}".join(each)
        for name, each in zip(told, lines, strict=True)
    )


def _kinds(annotation: Any) -> tuple[type, ...]:
    """The simple types in a field's annotation, which is text where it names one that is not loaded yet."""
    if isinstance(annotation, str):
        words = {word.strip() for word in annotation.split("|")}
        return tuple(kind for kind in _KINDS if kind.__name__ in words)
    members = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return tuple(kind for kind in _KINDS if kind in members)


def _is_a(kind: type, value: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return kind is type(value)
    if kind is Path:
        return isinstance(value, str | Path)
    return isinstance(value, numbers.Real if kind is float else kind)
