"""story.jsonl: what happened to a run that failed, and what waited then.

The first line is the head, one JSON object: format, version, a checksum of the file, when and why the run failed, and
how many lines of either kind follow. Then come the entries, the oldest first, and then what waited, a line each.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.storage.documents import parse_json
from siafu.base.storage.files import replacing
from siafu.base.typed import typed
from siafu.report.files import checksum
from siafu.runtime.story import MOST_ENTRIES, Entry, fit

VERSION = 1
MOST_WAITING = 1_000
_FORMAT = "siafu story"
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class FailureStory:
    """The last events of a run that failed.

    time:    when it failed, seconds since 1970
    why:     the error
    waiting: what waited for what, in words
    """

    time: float
    why: str
    entries: list[Entry]
    waiting: list[str]


def write_story(path: Path, story: FailureStory) -> None:
    """Write it, whole or not at all; of entries and of what waits, as many as there may be."""
    entries, waiting = story.entries[-MOST_ENTRIES:], story.waiting[:MOST_WAITING]
    head = {
        "format": _FORMAT,
        "version": VERSION,
        checksum.KEY: checksum.BLANK,
        "time": story.time,
        "why": fit(story.why),
        "entries": len(entries),
        "waiting": len(waiting),
    }
    lines = [head, *map(as_json, entries), *({"waits": fit(each)} for each in waiting)]
    content = b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in lines)
    with replacing(path) as file:
        file.write(checksum.sealed(content, content.index(b"\n")))


def read_story(path: Path) -> FailureStory:
    """Read the story at `path`; refused if a single bit of it has changed."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _damaged(path, f"it is larger than {_MOST_BYTES >> 20} MB")
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): copy the run again") from error
    head, _, rest = content.partition(b"\n")
    told = _parsed(path, head)
    if told.get("format") != _FORMAT:
        raise _damaged(path, "its first line is not that of a story")
    if told.get("version") != VERSION:
        raise BadInput(
            f"{path} is of version {told.get('version')}, this siafu reads {VERSION}: upgrade with pip install -U siafu"
        )
    if not checksum.is_whole(content, len(head)):
        raise _damaged(path, "its checksum is wrong")
    lines = [_parsed(path, line) for line in rest.splitlines()]
    count = told.get("entries")
    if not isinstance(count, int) or not 0 <= count <= len(lines):
        raise _damaged(path, "its first line does not fit the others")
    entries = [_entry(path, line) for line in lines[:count]]
    return FailureStory(
        float(told["time"]), str(told["why"]), entries, [str(each.get("waits")) for each in lines[count:]]
    )


def as_json(entry: Entry) -> dict[str, Any]:
    """An entry, without what it does not have."""
    return {name: value for name, value in asdict(entry).items() if value is not None}


def _entry(path: Path, told: dict[str, Any]) -> Entry:
    absent = {each.name: None for each in fields(Entry) if each.default is None}
    try:
        entry: Entry = typed(Entry, absent | told)
        return entry
    except ValueError as error:
        raise _damaged(path, f"an entry has not the fields of one: {error}") from error


def _parsed(path: Path, line: bytes) -> dict[str, Any]:
    try:
        found = parse_json(line)
    except ValueError as error:
        raise _damaged(path, f"a line is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise _damaged(path, "a line is no JSON object")
    return found


def _damaged(path: Path, why: str) -> BadInput:
    return BadInput(f"{path} is corrupted ({why}): copy the run again, or remove this file and see the trace")
