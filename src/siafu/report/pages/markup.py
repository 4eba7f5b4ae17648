"""HTML out of values: nothing gets into a page that was not escaped here."""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, NewType

Html = NewType("Html", str)
"""Text that is HTML already."""

_SCRIPTS = ("uplot/uPlot.iife.min.js", "theme.js", "charts.js", "gantt.js")
_STYLES = ("uplot/uPlot.min.css", "style.css", "report.css")


def text(value: object) -> Html:
    """Any value, so that a browser shows it as it is."""
    return Html(html.escape(str(value)))


def join(parts: Iterable[Html]) -> Html:
    return Html("\n".join(parts))


def section(title: str, *parts: Html, note: str = "") -> Html:
    """A heading, a sentence about what is below it, and that; nothing if there is nothing."""
    inner = join(part for part in parts if part)
    if not inner:
        return Html("")
    said = f'<p class="note">{text(note)}</p>\n' if note else ""
    return Html(f"<section>\n<h2>{text(title)}</h2>\n{said}{inner}\n</section>")


def columns(*parts: Html) -> Html:
    """Side by side where there is room; nothing if there is nothing."""
    inner = join(part for part in parts if part)
    return Html(f'<div class="columns">\n{inner}\n</div>') if inner else Html("")


def facts(items: Iterable[tuple[str, object]]) -> Html:
    """Figures in a row of boxes, each under its name."""
    boxes = (f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in items)
    return Html(f'<dl class="facts">{"".join(boxes)}</dl>')


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """The first column names the row; cells that are Html stay as they are."""
    # A column without a name has no header: an empty one is read out as nothing.
    heads = "".join(f'<th scope="col">{text(each)}</th>' if each else "<td></td>" for each in head)
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td>{each if isinstance(each, Cell) else text(each)}</td>" for each in others)
        lines.append(f'<tr><th scope="row">{text(first)}</th>{cells}</tr>')
    if not lines:
        return Html("")
    return Html(
        f'<div class="wide"><table><caption>{text(caption)}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


class Cell(str):
    """A cell that is HTML."""


def bar(share: float, mark: float | None = None) -> Cell:
    """A bar as long as `share` of its cell, and a line at `mark` of it. For eyes alone: the number stands beside it."""
    at = "" if mark is None else f'<i style="left:{100 * min(max(mark, 0.0), 1.0):.2f}%"></i>'
    wide = 100 * min(max(share, 0.0), 1.0)
    return Cell(f'<div class="bar" aria-hidden="true"><b style="width:{wide:.2f}%"></b>{at}</div>')


def page(title: str, body: Html, data: dict[str, Any], script: str) -> str:
    """A whole page in one file: styles, scripts and data inside, and nothing that any network could add.

    script: the name of one of ours, which draws `data`
    """
    scripts = [asset(name) for name in (*_SCRIPTS, script)]
    # "</script>" in a name must not end the script; U+2028 and U+2029 are harmless in JSON that is parsed.
    held = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    digests = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts)
    hashes = " ".join(f"'sha256-{each}'" for each in digests)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    styles = "\n".join(asset(name) for name in _STYLES)
    inline = "\n".join(f"<script>{each}</script>" for each in scripts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{text(title)}</title>
<style>{styles}</style>
</head>
<body>
<a class="skip" href="#main">To the content</a>
<header><span class="brand">Siafu</span><div id="theme"></div></header>
<main id="main">
{body}
</main>
<script type="application/json" id="data">{held}</script>
{inline}
</body>
</html>
"""


@lru_cache
def asset(name: str) -> str:
    """The text of a file that pages are made of."""
    return files("siafu.report.pages").joinpath("web", *name.split("/")).read_text(encoding="utf-8")
