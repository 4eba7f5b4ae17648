"""Draw docs/architecture.svg out of the imports: `python docs/architecture_picture.py`.

A row is a room, in the order of import-linter's layers in pyproject.toml; a square in it says that its files import the room
that stands above the column. tests/docs/test_architecture.py compares the committed picture with the one drawn here.
"""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from siafu.base.svg import label, picture

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src" / "siafu"
PICTURE = REPOSITORY / "docs" / "architecture.svg"

_SIDE = 26  # of a square
_LEFT, _TOP = 330, 92
_SHADES = ((10, "#1f5fa8"), (3, "#7fb0e0"), (1, "#d3e5f7"))
"""The least number of importing files, and the colour of a square; the darkest first."""

Imports = dict[str, Counter[str]]


def rooms() -> list[str]:
    """Rooms from top to bottom, as the contract in pyproject.toml has them."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    (contract,) = project["tool"]["importlinter"]["contracts"]
    return [layer.removeprefix("siafu.") for layer in contract["layers"]]


def inner_rooms(room: str) -> list[str]:
    """Packages within a room, such as `importing/readers`."""
    found = sorted((SOURCE / room).rglob("__init__.py"))
    inside = [path.parent.relative_to(SOURCE / room).as_posix() for path in found]
    return [path for path in inside if path != "."]


def imports() -> Imports:
    """For each room: how many of its files import each other room."""
    counted: Imports = {room: Counter() for room in rooms()}
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room in counted:
            found = {module.split(".")[1] for module in modules(path) if module.startswith("siafu.")}
            counted[room].update(found & counted.keys() - {room})
    return counted


def modules(path: Path) -> Iterator[str]:
    """What a file imports, wherever in it: names with dots, ours and others'."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module="siafu"):
                yield from (f"siafu.{alias.name}" for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield module


def draw() -> str:
    """The picture's text."""
    names, counted = rooms(), imports()
    size = len(names) * _SIDE
    body = [*_grid(len(names)), *_explanation(len(names))]
    for place, room in enumerate(names):
        body += _row_head(place, room)
        body += _squares(place, names, counted[room])
    return picture(_LEFT + size + 60, _TOP + size + 16, body)


def _grid(count: int) -> Iterator[str]:
    """Lines to follow a row or a column by; only above the diagonal, where imports can be."""
    for place in range(count):
        y, x = _TOP + (place + 0.5) * _SIDE, _LEFT + (place + 0.5) * _SIDE
        right = _LEFT + count * _SIDE
        yield f'<path d="M{x} {y} H{right} M{x} {y} V{_TOP}" stroke="#e3e3e3"/>'


def _row_head(place: int, room: str) -> Iterator[str]:
    y = _TOP + (place + 0.5) * _SIDE + 4
    x = _LEFT + (place + 0.5) * _SIDE
    yield label(12, y, room, "start", 'font-weight="bold"')
    yield label(96, y, " · ".join(inner_rooms(room)), "start", 'font-size="10" opacity="0.75"')
    yield label(x, _TOP - 6, room, "start", f'transform="rotate(-50 {x:.1f} {_TOP - 6:.1f})"')
    yield _square(place, place, "#444", f"{room}: itself")


def _squares(place: int, names: list[str], counted: Counter[str]) -> Iterator[str]:
    for other, name in enumerate(names):
        if counted[name]:
            colour = next(shade for least, shade in _SHADES if counted[name] >= least)
            yield _square(place, other, colour, f"{names[place]} imports {name}")


def _square(row: int, column: int, colour: str, words: str) -> str:
    x, y = _LEFT + column * _SIDE + 3, _TOP + row * _SIDE + 3
    side = _SIDE - 6
    return (
        f'<rect x="{x}" y="{y}" width="{side}" height="{side}" rx="3" fill="{colour}">'
        f"<title>{words}</title></rect>"
    )


def _explanation(count: int) -> Iterator[str]:
    x, y = _LEFT + 10, _TOP + (count - 7) * _SIDE
    yield label(x, y, "Empty below the diagonal:", "start")
    yield label(x, y + 16, "no room imports one above it.", "start")
    words = {10: "in 10 files or more", 3: "in 3 to 9 files", 1: "in 1 or 2 files"}
    yield label(x, y + 44, "The row's room imports the column's:", "start")
    for place, (least, shade) in enumerate(_SHADES):
        top = y + 52 + 20 * place
        yield f'<rect x="{x}" y="{top}" width="14" height="14" rx="3" fill="{shade}"/>'
        yield label(x + 22, top + 11, words[least], "start")


if __name__ == "__main__":
    PICTURE.write_text(draw())
