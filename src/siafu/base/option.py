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
    """What a field says about itself.

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
        """What the reference says of it, where other options are keywords."""
        unset = f"None: {self.unset}." if self.unset else ""
        told = " ".join(part for part in (self.help, self.more, unset) if part)
        return re.sub(r"--([a-z]+)", r"`\1`", told)

    def check(self, value: Any) -> None:
        """Refuse a number out of bounds and a text that is no choice; whatever only Python can give is left alone."""
        if value is None and self.default is None:
            return
        if self.choices and isinstance(value, str):
            self._check_choice(value)
        elif int in self.kinds or float in self.kinds:
            self._check_number(value)

    def check_kind(self, value: Any) -> None:
        """Refuse what is of another type than the field."""
        fits = any(_is_a(kind, value) for kind in self.kinds)
        if not fits and not (value is None and self.default is None):
            raise self._refused(value, f"give {' or '.join(_KINDS[kind] for kind in self.kinds)}")

    def _check_choice(self, value: str) -> None:
        if value in self.choices:
            return
        if self.noun:
            raise BadInput(f"unknown {self.noun} {value!r}: choose one of {', '.join(self.choices)}")
        raise self._refused(value, f"choose one of {', '.join(self.choices)}")

    def _check_number(self, value: Any) -> None:
        whole = float not in self.kinds
        if (whole and not isinstance(value, int)) or not self._is_within(value):
            raise self._refused(
                value, f"give a {'whole ' if whole else ''}number from {_short(self.least)} up"
            )
        if self.valid is not None and not self.valid[0](value):
            raise self._refused(value, self.valid[1])

    def _is_within(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def _refused(self, value: Any, ending: str) -> BadInput:
        shown = repr(value) if self.choices else value
        return BadInput(f"{self.name} is {shown}: {self.wants or ending}")


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


def _short(number: float | None) -> str:
    return f"{number:g}" if number is not None else "anything"
