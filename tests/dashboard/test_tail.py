"""Lines of a file that grows, is cut and is replaced."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from siafu.dashboard import tail as module
from siafu.dashboard.tail import Tail


def all_lines(tail: Tail) -> list[bytes]:
    """Everything that is there to read now."""
    lines: list[bytes] = []
    while True:
        added = tail.read()
        lines += added.lines
        if not added.more:
            return lines


def test_lines_come_once_and_only_when_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    tail = Tail(path)
    path.write_bytes(b"one\ntwo\nthr")
    assert tail.read().lines == [b"one", b"two"]
    assert tail.read().lines == []
    with path.open("ab") as file:
        file.write(b"ee\n")
    added = tail.read()
    assert (added.restarted, added.lines) == (False, [b"three"])


def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "lines")
    assert not tail.read().restarted
    (tmp_path / "lines").write_bytes(b"one\n")
    assert tail.read().lines == [b"one"]


def test_a_file_cut_back_and_written_on_to_the_same_length_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    tail.read()
    with path.open("r+b") as file:
        file.truncate(4)
        file.seek(4)
        file.write(b"owt\nmore\n")
    added = tail.read()
    assert (added.restarted, added.lines) == (True, [b"one", b"owt", b"more"])


def test_a_file_that_was_replaced_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    tail = Tail(path)
    tail.read()
    (tmp_path / "other").write_bytes(b"one\ntwo\n")
    (tmp_path / "other").replace(path)
    added = tail.read()
    assert (added.restarted, added.lines) == (True, [b"one", b"two"])


def test_a_file_that_vanishes_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    tail = Tail(path)
    tail.read()
    path.unlink()
    assert [tail.read().restarted, tail.read().restarted] == [True, False]


def test_an_endless_line_is_passed_over_in_bounded_pieces(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" + b"x" * 1_000_000 + b"\ntwo\n")
    assert all_lines(Tail(path)) == [b"one", b"two"]


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"one\n")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    assert all_lines(Tail(tmp_path / "link")) == all_lines(Tail(tmp_path / "pipe")) == []


@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20),
    st.lists(st.integers(1, 40), min_size=1),
    st.integers(32, 64),
)
def test_whatever_the_pieces_lines_come_as_they_were_written(
    tmp_path_factory: object, lines: list[bytes], pieces: list[int], chunk: int
) -> None:
    path = tmp_path_factory.mktemp("tail") / "lines"  # type: ignore[attr-defined]
    data = b"".join(line + b"\n" for line in lines)
    before, module._CHUNK_BYTES = module._CHUNK_BYTES, chunk
    try:
        tail, got, written = Tail(path), [], 0
        while written < len(data):
            for size in pieces:
                with path.open("ab") as file:
                    file.write(data[written : written + size])
                written += size
                got += all_lines(tail)
        assert got == lines
    finally:
        module._CHUNK_BYTES = before
