"""The page on errors quotes messages that the code still has."""

import re
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| (`.+?)(?<!\\) \| ", re.MULTILINE)


def quoted() -> list[str]:
    rows = _ROW.findall((_REPOSITORY / "docs/troubleshooting.md").read_text(encoding="utf-8"))
    return [text for row in rows for text in re.findall(r"`([^`]+)`", row)]


@pytest.fixture(scope="module")
def messages() -> str:
    """All the code's text: strings that are written in several parts are one, and braces are `…`."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in (_REPOSITORY / "src").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", code)
    return re.sub(r"\{[^{}]*\}", "…", joined)


@pytest.mark.parametrize("text", quoted())
def test_a_message_on_the_page_is_one_of_the_code(text: str, messages: str) -> None:
    pattern = r"[^\n]{0,200}".join(re.escape(part.strip()) for part in text.split("…") if part.strip())
    assert re.search(pattern, messages), f"no message has {text!r}: what does the code say now?"
