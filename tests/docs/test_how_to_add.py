"""The page on how to add things names registries and sections that are there."""

import re
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
_PAGE = (_REPOSITORY / "docs" / "how-to-add.md").read_text()
_PROSE = re.sub(r"(?s)```.*?```", "", re.sub(r"(?ms)^\*Missing\*.*?(?=\n\n|\Z)", "", _PAGE))


def test_the_table_leads_to_every_section() -> None:
    sections = re.findall(r"(?m)^## (.+)$", _PAGE)
    led_to = re.findall(r"\[(.+?)\]\(#([\w-]+)\)", _PAGE)
    assert [title.lower() for title, _ in led_to] == [section.lower() for section in sections]
    assert all(anchor == title.lower().replace(" ", "-") for title, anchor in led_to)


@pytest.mark.parametrize("name", re.findall(r"`([A-Z]{3,}|_[a-z_]+)`", _PROSE))
def test_a_registry_that_is_named_is_there(name: str) -> None:
    sources = (_REPOSITORY / "src" / "siafu").rglob("*.py")
    assert any(re.search(rf"\b{name}\b", path.read_text()) for path in sources)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/]+\.py)`", _PROSE))))
def test_a_file_that_is_named_is_there(name: str) -> None:
    source = _REPOSITORY / "src" / "siafu"
    rooms = [_REPOSITORY, source, source / "server" / "gathers"]
    assert any((room / name).is_file() for room in rooms)


@pytest.mark.parametrize("what", ["a gather", "a kind of stage"])
def test_it_touches_four_files_at_most(what: str) -> None:
    row = next(line for line in _PAGE.splitlines() if line.startswith(f"| [{what}]"))
    _, _, files, registry, _ = row.split("|")
    assert len(re.findall(r"\ba file\b|\bone\b(?! to copy)", files.split("(")[0])) + 1 <= 4
    assert ".py" in registry
