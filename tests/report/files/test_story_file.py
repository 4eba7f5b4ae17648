"""story.jsonl: written whole, read strictly."""

import json
from pathlib import Path

import pytest

from siafu.base.errors import BadInput
from siafu.report.files.story_file import MOST_WAITING, FailureStory, read_story, write_story
from siafu.runtime.story import MOST_ENTRIES, Entry

ENTRY = Entry(1.5, "graph server 0", "TaskDone", "∇G1 of interval 3 is done", 3, 2, 1)


def story(entries: int = 2, waiting: int = 1) -> FailureStory:
    return FailureStory(2.0, "KeyError: 'x'", [ENTRY] * entries, ["interval 3 waits"] * waiting)


def test_a_story_comes_back_as_it_was(tmp_path: Path) -> None:
    write_story(tmp_path / "s", story())
    assert read_story(tmp_path / "s") == story()
    assert all(isinstance(json.loads(line), dict) for line in (tmp_path / "s").read_text().splitlines())


def test_a_story_is_bounded(tmp_path: Path) -> None:
    write_story(tmp_path / "s", story(MOST_ENTRIES + 5, MOST_WAITING + 5))
    found = read_story(tmp_path / "s")
    assert (len(found.entries), len(found.waiting)) == (MOST_ENTRIES, MOST_WAITING)


def test_a_changed_byte_or_a_missing_end_is_found(tmp_path: Path) -> None:
    path = tmp_path / "s"
    write_story(path, story())
    whole = path.read_bytes()
    for content in (
        whole.replace(b"interval 3 is", b"interval 4 is"),
        whole[:-20],
        b"",
        b"[]\n",
        whole.split(b"\n", 1)[1],
    ):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="corrupted"):
            read_story(path)


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    write_story(path, story())
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(BadInput, match="version 2"):
        read_story(path)
