"""An option that is declared once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from siafu.base.errors import BadInput
from siafu.base.option import check, described, option, options_of


@dataclass(frozen=True, kw_only=True)
class Soup:
    salt: float = option(1.0, "Grams of salt.", least=0, most=9, wants="give grams from 0 to 9")
    spoons: int | None = option(None, "Spoons on the table.", more="Not in --pot.", unset="one each", least=1)
    pot: str | Path = option("iron", "Which one.")
    kind: str = option("leek", "Of what.", choices=("leek", "pea"), noun="soup")
    bread: int | str | None = option(None, "Slices.", least=0, choices=("all",))
    guests: "list[str] | str" = option("", "Who comes.")
    hot: bool = option(True, "Or cold.")
    stirs: int = option(3, "How often.", least=0, valid=(lambda stirs: stirs % 2 == 1, "give an odd number"))
    note: str = "not an option"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"salt": 10.0}, "salt is 10.0: give grams from 0 to 9"),
        ({"salt": float("nan")}, "salt is nan"),
        ({"spoons": 0}, "spoons is 0: give a whole number from 1 up"),
        ({"spoons": 1.5}, "spoons is 1.5: give a whole number from 1 up"),
        ({"kind": "fish"}, "unknown soup 'fish': choose one of leek, pea"),
        ({"kind": "leak"}, "unknown soup 'leak': did you mean leek? There are leek, pea"),
        ({"bread": "some"}, "bread is 'some': give a whole number from 0 up, or all"),
        ({"bread": -1}, "bread is -1: give a whole number from 0 up, or all"),
        ({"stirs": 4}, "stirs is 4: give an odd number"),
        ({"stirs": None}, "stirs is None: give a whole number from 0 up"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        check(Soup(**given))
    assert str(refused.value).startswith(said)


def test_what_can_be_is_let_through() -> None:
    check(Soup())
    check(Soup(salt=0, spoons=None, kind="pea", bread="all", guests=["me"], stirs=1))


@pytest.mark.parametrize(
    ("name", "fits", "other", "said"),
    [
        ("salt", [1, 1.5], ["1", True, None], "give grams from 0 to 9"),
        ("spoons", [1, None], [1.0, True, "1"], "give a whole number"),
        ("pot", ["iron", Path("iron")], [1], "give text, or a path"),
        ("bread", [1, "all", None], [1.5], "give a whole number from 0 up, or all"),
        ("guests", ["me"], [["me"], 1], "give text"),
        ("hot", [True, False], [1, "yes", None], "give true or false"),
    ],
)
def test_a_value_of_another_type_is_refused(
    name: str, fits: list[object], other: list[object], said: str
) -> None:
    asked = options_of(Soup)[name]
    for value in fits:
        asked.check_kind(value)
    for value in other:
        with pytest.raises(BadInput, match=f"^{name} is .*: {said}"):
            asked.check_kind(value)


def test_fields_that_are_no_options_are_left_alone() -> None:
    assert "note" not in options_of(Soup)


def test_options_are_described_as_docstrings_have_it() -> None:
    lines = described(options_of(Soup).values()).splitlines()
    assert lines[0] == "salt:   Grams of salt."
    assert lines[1] == "spoons: Spoons on the table. Not in `pot`. None: one each."
    assert all(len(line) <= 110 for line in lines)
