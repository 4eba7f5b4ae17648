"""The page on the architecture is true: its picture, its table of rooms, and what it says rooms do not import."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_ROW = re.compile(r"^\| `(?P<room>[\w/]+?)(?:/|\.py)` \| .+? \| (?P<unknown>[^|]*) \|$", re.MULTILINE)


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architecture_picture", _DOCS / "architecture_picture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_PICTURE = _script()
_ROOMS = {row["room"]: row["unknown"] for row in _ROW.finditer((_DOCS / "architecture.md").read_text())}


@pytest.mark.slow
def test_the_picture_is_the_one_that_the_imports_make() -> None:
    drawn = _PICTURE.draw()
    committed = (_DOCS / "architecture.svg").read_text()
    assert committed == drawn, "imports between rooms have changed: run 'python docs/architecture_picture.py'"


def test_the_order_of_rooms_names_every_room_there_is() -> None:
    inside = {path.parent.name for path in _PICTURE.SOURCE.glob("*/__init__.py")}
    files = {path.stem for path in _PICTURE.SOURCE.glob("[!_]*.py")}
    assert set(_PICTURE.rooms()) == inside | files


def test_the_table_names_every_room_and_every_room_inside() -> None:
    packages = {path.parent.relative_to(_PICTURE.SOURCE).as_posix() for path in _packages()} - {"."}
    files = {path.stem for path in _PICTURE.SOURCE.glob("[!_]*.py")}
    assert set(_ROOMS) == packages | files


def test_the_table_has_rooms_in_their_order() -> None:
    outer = [room for room in _ROOMS if "/" not in room]
    assert outer == _PICTURE.rooms()


@pytest.mark.parametrize("room", list(_ROOMS))
def test_a_room_does_not_import_what_the_table_says_it_does_not(room: str) -> None:
    place = _PICTURE.SOURCE / room
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    imported = {module for path in files for module in _PICTURE.modules(path)}
    for name in re.findall(r"`(\w+)`", _ROOMS[room]):
        known = f"siafu.{name}" if name in _PICTURE.rooms() else name
        assert not [module for module in imported if f"{module}.".startswith(f"{known}.")]


def _packages() -> list[Path]:
    return sorted(_PICTURE.SOURCE.rglob("__init__.py"))
