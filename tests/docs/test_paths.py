"""Files that pages name are where they say."""

import re
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
_PAGES = [*sorted(_REPOSITORY.glob("*.md")), *sorted((_REPOSITORY / "docs").glob("*.md"))]
_PLACES = (_REPOSITORY, _REPOSITORY / "src", _REPOSITORY / "src" / "siafu")
_MISSING = re.compile(r"(?ms)^\*Missing\*.*?(?=\n\n|\Z)")
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*?(?:\.py|\.md|\.json|\.yml|/))`")


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    """But those that it says are missing, and patterns: PAGE, NAME."""
    named = set(_PATH.findall(_MISSING.sub("", page.read_text())))
    concrete = {path for path in named if not re.search(r"\b[A-Z]{2,}\.", path)}
    assert not [path for path in sorted(concrete) if not any((place / path).exists() for place in _PLACES)]
