"""Pages: the files for browsers. Values of a request are inserted as text, never as HTML."""

import html
import mimetypes
import re
from functools import cache
from pathlib import Path
from string import Template

import siafu.report.pages

_OWN = Path(__file__).parent / "web"
_SHARED = Path(siafu.report.pages.__file__).parent / "web"  # what the report is made of, too
_SERVED = re.compile(r".*\.(js|css|svg)")


@cache
def assets() -> dict[str, tuple[bytes, str]]:
    """Bytes and type of the files that pages load, by name. No other file can be requested."""
    found = {}
    for home in (_SHARED, _OWN):
        for path in sorted(home.rglob("*")):
            if path.is_file() and _SERVED.fullmatch(path.name):
                kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
                found[path.name] = (path.read_bytes(), kind)
    return found


def page(name: str, /, **texts: str) -> str:
    """A page with the texts inserted, escaped."""
    return _template(name).substitute({place: html.escape(text) for place, text in texts.items()})


@cache
def _template(name: str) -> Template:
    return Template((_OWN / f"{name}.html").read_text())
