"""Option: a setting that is declared once, as a field of a dataclass or a parameter of a command.

The command line (`siafu.cli.declared`), the keywords of `siafu.train`, config files and the reference are made of it.
"""

import dataclasses
import numbers
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from siafu.base.errors import BadInput
from siafu.base.nearest import choose

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
    argument:    whether its value stands there without a flag
    flags:       its spellings there; none: made of its name
    envvar:      the environment variable that gives it there
    name, kinds, default: the field's; kinds are those that a command line and a file can give
    many:        whether the field is a list
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
    flags: tuple[str, ...] = ()
    envvar: str | None = None
    name: str = ""
    kinds: tuple[type, ...] = ()
    default: Any = None
    many: bool = False

    @property
    def meaning(self) -> str:
        """Description in the reference, where other options are keywords."""
        unset = f"None: {self.unset}." if self.unset else ""
        told = " ".join(part for part in (self.help, self.more, unset) if part)
        return re.sub(r"--([a-z]+)", r"`\1`", told)

    def check(self, value: Any) -> None:
        """Refuse a number out of bounds and a text that is no choice. Values that only Python can give are not checked."""
        if value is None and self.default is None:
            return
        if self.choices and isinstance(value, str):
            if value not in self.choices:
                raise self._refused(value, self._chosen(value))
        elif int in self.kinds or float in self.kinds:
            if not ((self.many or isinstance(value, numbers.Real)) and self._is_within(value)):
                raise self._refused(value, self._wanted)
            if self.valid is not None and not self.valid[0](value):
                raise self._refused(value, self.valid[1])

    def check_kind(self, value: Any) -> None:
        """Refuse a value of another type than the field."""
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

    def _chosen(self, value: str) -> str:
        """Advice for a text that is no choice: the nearest one, and all there are."""
        return choose(value, self.choices) if self.kinds == (str,) and not self.wants else self._wanted

    def _refused(self, value: Any, ending: str) -> BadInput:
        if self.noun and isinstance(value, str):
            return BadInput(f"unknown {self.noun} {value!r}: {ending}")
        return BadInput(f"{self.name} is {repr(value) if self.choices else value}: {ending}")


REQUIRED: Any = dataclasses.MISSING
"""The default of an option that must be given."""


def option(default: Any, help: str, **more: Any) -> Any:
    """A field of a dataclass, or the default of a command's parameter, that is an `Option`."""
    return dataclasses.field(default=default, metadata={_KEY: Option(help, **more)})


def argument(metavar: str, help: str, default: Any = REQUIRED) -> Any:
    """A field that is an `Option`, and has no flag on the command line."""
    return option(default, help, metavar=metavar, argument=True)


def same_option(declaration: type, name: str, default: Any = None) -> Any:
    """An option of a dataclass, for another dataclass or command; default: another one than there."""
    field = declaration.__dataclass_fields__[name]  # type: ignore[attr-defined]
    return dataclasses.field(default=field.default if default is None else default, metadata=field.metadata)


def options_of(declaration: type) -> dict[str, Option]:
    """Options of a dataclass, by name."""
    fields = dataclasses.fields(declaration)
    return {field.name: option_of(field.name, field.type, field) for field in fields if is_option(field)}


def is_option(declared: Any) -> bool:
    """Whether `option` or `argument` made a dataclass's field, or a function's default."""
    return isinstance(declared, dataclasses.Field) and _KEY in declared.metadata


def option_of(name: str, annotation: Any, declared: dataclasses.Field[Any]) -> Option:
    """The option of a field or parameter with this name and type."""
    made: Option = declared.metadata[_KEY]
    return dataclasses.replace(
        made,
        name=name,
        kinds=_kinds(annotation),
        default=declared.default,
        many=any(get_origin(each) is list for each in _members(annotation)),
    )


def check(values: object) -> None:
    """Refuse a dataclass with an invalid option."""
    for name, each in options_of(type(values)).items():
        each.check(getattr(values, name))


def described(options: Iterable[Option]) -> str:
    """Names and descriptions of options, in the form of a docstring."""
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
    simple = [get_args(each)[0] if get_origin(each) is list else each for each in _members(annotation)]
    return tuple(kind for kind in _KINDS if kind in simple)


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)


def _is_a(kind: type, value: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return kind is type(value)
    if kind is Path:
        return isinstance(value, str | Path)
    return isinstance(value, numbers.Real if kind is float else kind)
