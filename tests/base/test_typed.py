"""Values of JSON as dataclasses: what fits comes out typed, and all else is refused by the field's name."""

from dataclasses import dataclass
from typing import Any, Literal, NewType

import pytest

from siafu.base.typed import typed

Number = NewType("Number", int)


@dataclass(frozen=True)
class Inner:
    size: float


@dataclass(frozen=True)
class Outer:
    name: str
    number: Number
    kind: Literal["one", "other"]
    inner: Inner | None
    pair: tuple[int, float]
    many: tuple[Inner, ...]
    listed: dict[str, list[bool]]


GOOD: dict[str, Any] = {
    "name": "a",
    "number": 3,
    "kind": "one",
    "inner": None,
    "pair": [1, 2],
    "many": [{"size": 1}],
    "listed": {"x": [True]},
}


def test_every_field_is_of_its_type() -> None:
    assert typed(Outer, GOOD) == Outer("a", Number(3), "one", None, (1, 2.0), (Inner(1.0),), {"x": [True]})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": 7}, "name is 7"),
        ({"number": True}, "number is True"),
        ({"kind": "third"}, "kind is 'third'"),
        ({"inner": {"size": "large"}}, "size is 'large'"),
        ({"inner": {"size": 10**400}}, "size is a number of 401 digits"),
        ({"pair": [1]}, "pair is"),
        ({"many": {}}, "many is"),
        ({"listed": {"x": [1]}}, "listed is 1"),
        ({"more": 1}, "unknown: more"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        typed(Outer, GOOD | change)


def test_a_missing_field_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="missing: pair"):
        typed(Outer, {name: value for name, value in GOOD.items() if name != "pair"})
