"""Cards: an object as a small HTML table, for notebooks."""

import html
from collections.abc import Iterable

_BOX = (
    "display:inline-block;border:1px solid rgba(128,128,128,.5);border-radius:6px;padding:.5em .8em;"
    "font:13px/1.45 system-ui,sans-serif"
)
_NAME = "text-align:left;padding:0 1.2em 0 0;opacity:.75;font-weight:normal;border:0;background:none"
_VALUE = "text-align:left;padding:0;border:0;background:none"


def card(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """HTML of a card, for light and dark notebooks; every name and value is escaped."""
    lines = "".join(
        f'<tr><th scope="row" style="{_NAME}">{html.escape(name)}</th>'
        f'<td style="{_VALUE}">{html.escape(str(value))}</td></tr>'
        for name, value in rows
    )
    table = f'<table style="border-collapse:collapse;margin:.3em 0 0;border:0"><tbody>{lines}</tbody></table>'
    return f'<div style="{_BOX}"><strong>{html.escape(title)}</strong>{table}</div>'
