"""Typed: values of JSON as dataclasses, checked against the types of their fields."""

from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

from siafu.base.storage.documents import one_line

_LONGEST = 1 << 16  # text, or items of a tuple


def typed(hint: Any, value: Any, name: str = "value") -> Any:
    """A value of JSON as the type `hint`: a dataclass has all of its fields, and no others.

    Whatever does not fit is a ValueError of one line, with the name of the field.
    """
    if isinstance(hint, NewType):
        return typed(hint.__supertype__, value, name)
    if is_dataclass(hint):
        return _dataclass(hint, value, name)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return None if value is None and NoneType in inner else typed(_present(inner), value, name)
    if origin in (list, tuple) and isinstance(value, list) and len(value) <= _LONGEST:
        kinds = inner[:1] * len(value) if origin is list or inner[-1] is Ellipsis else inner
        if len(kinds) == len(value):
            return origin(typed(kind, each, name) for kind, each in zip(kinds, value, strict=True))
    elif origin is dict and isinstance(value, dict):
        return {key: typed(inner[1], each, name) for key, each in value.items()}
    elif hint is float and type(value) in (int, float):
        return _float(value, name)
    elif (
        hint is Any
        or (origin is Literal and value in inner)
        or (type(value) is hint and (hint is not str or len(value) <= _LONGEST))
    ):
        return value
    raise ValueError(f"{name} is {one_line(repr(value))}")


def _float(value: float, name: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is a number of {len(str(value))} digits") from None


def _present(members: tuple[Any, ...]) -> Any:
    (present,) = (each for each in members if each is not NoneType)
    return present


def _dataclass(kind: Any, values: Any, name: str) -> Any:
    known = _fields(kind)
    if not isinstance(values, dict):
        raise ValueError(f"{name} is {one_line(repr(values))}")
    if strangers := values.keys() - known.keys():
        raise ValueError(f"unknown: {one_line(', '.join(sorted(strangers)))}")
    if missing := known.keys() - values.keys():
        raise ValueError(f"missing: {', '.join(sorted(missing))}")
    return kind(**{field: typed(hint, values[field], field) for field, hint in known.items()})


@lru_cache
def _fields(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}
