"""JSON and YAML from others: parsed as a whole, or refused with a clear error."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput

_DEEPEST = 64
_MOST_VALUES = 100_000
_MOST_YAML_BYTES = 1 << 20
_LONGEST_SCALAR = 4096  # as long as a path may be
_LONGEST_LINE = 300


def parse_json(data: bytes | str) -> Any:
    """Parse a JSON document. Any fault in it is a ValueError of one line."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_object(path: Path, advice: str) -> dict[str, Any]:
    """The JSON object in a file; what is wrong with it is one line that ends in `advice`."""
    try:
        found = parse_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read {path} ({error.strerror}): {advice}") from error
    except ValueError as error:
        raise BadInput(f"{path} is not JSON ({error}): {advice}") from error
    if not isinstance(found, dict):
        raise BadInput(f"{path} has no JSON object: {advice}")
    return found


def parse_yaml(data: bytes) -> Any:
    """Parse a YAML document. Any fault in it is a ValueError of one line.

    Aliases count as often as they are used, so a short document cannot stand for an endless one.
    """
    import yaml

    if len(data) > _MOST_YAML_BYTES:
        raise ValueError(f"it has {len(data):,} bytes, where at most {_MOST_YAML_BYTES:,} are read")
    try:
        _check_events(yaml, yaml.parse(data, yaml.SafeLoader))
        return yaml.safe_load(data)
    except ImportError:
        raise
    except Exception as error:  # dates and numbers that cannot be fail in ways of their own
        raise ValueError(one_line(error)) from error


def one_line(error: object) -> str:
    """An error's message on one line, short enough to be read."""
    words = " ".join(str(error).split()) or type(error).__name__
    text = "".join(letter if letter.isprintable() else "?" for letter in words[: _LONGEST_LINE + 1])
    return text if len(text) <= _LONGEST_LINE else text[:_LONGEST_LINE] + "…"


def _check_events(yaml: Any, events: Iterable[Any]) -> None:
    """Refuse a document that is nested too deeply, too large or has too long values, before it is built."""
    total = 0
    opened: list[
        tuple[str | None, int]
    ] = []  # a list's or a mapping's anchor, and how many values came before
    sizes: dict[str, int] = {}  # of what each anchor names
    for event in events:
        before = total
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, before))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor or ""] = total - before
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"*{event.anchor} stands for nothing, or for what it is part of")
            total += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            if len(event.value) > _LONGEST_SCALAR:
                raise ValueError(
                    f"a value has {len(event.value):,} characters: more than {_LONGEST_SCALAR:,}"
                )
            sizes[event.anchor or ""] = 1
            total += 1
        if len(opened) > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} deep")
        if total > _MOST_VALUES:
            raise ValueError(f"it stands for more than {_MOST_VALUES:,} values")
