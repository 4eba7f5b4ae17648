"""The pages on models name every model of the command line."""

from pathlib import Path

import pytest

from siafu.nn import MODELS

_DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["quickstart.md", "models.md"])
def test_every_model_of_the_command_line_is_on_the_page(page: str) -> None:
    text = (_DOCS / page).read_text(encoding="utf-8")
    assert [name for name in MODELS if f"`{name}`" not in text] == []
