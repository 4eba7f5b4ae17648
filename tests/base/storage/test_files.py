"""Files that are replaced: links stay, and what is no file is written to."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from siafu.base.errors import BadInput
from siafu.base.storage.files import replacing

TO_STDOUT = """
import sys
from pathlib import Path
from siafu.base.storage.files import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"new\\n")
"""


def write(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(content)


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "target"
    target.write_bytes(b"old")
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to(target)
    before = target.stat().st_ino
    write(tmp_path / "first")
    assert target.read_bytes() == b"new"
    assert target.stat().st_ino != before
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "second").is_symlink()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["first", "second", "target", "there"]


def test_the_target_of_a_link_is_kept_if_the_block_fails(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    with pytest.raises(RuntimeError), replacing(tmp_path / "link") as file:
        file.write(b"half")
        raise RuntimeError
    assert (tmp_path / "target").read_bytes() == b"old"


def test_a_link_to_nothing_gets_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_links_in_a_circle_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(BadInput, match="symbolic links"):
        write(tmp_path / "a")


def test_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    device = tmp_path / "null"
    device.symlink_to(os.devnull)
    before = Path(os.devnull).stat()
    write(device)
    write(Path(os.devnull))
    assert device.is_symlink()
    assert Path(os.devnull).is_char_device()
    assert Path(os.devnull).stat().st_ino == before.st_ino


def test_a_device_that_is_full_is_one_clear_line(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    with pytest.raises(BadInput, match="no space left"):
        write(Path("/dev/full"))
    assert Path("/dev/full").is_char_device()


def test_a_pipe_gets_what_is_written_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[bytes] = []
    listener = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    listener.start()
    write(pipe)
    listener.join()
    assert heard == [b"new"]
    assert pipe.is_fifo()


def test_a_pipe_gets_nothing_if_the_block_fails(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(RuntimeError), replacing(pipe) as file:
        file.write(b"half")
        raise RuntimeError
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_written_on_from_where_it_is(tmp_path: Path, name: str) -> None:
    if not os.path.lexists(name):
        pytest.skip(f"the system has no {name}")
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    with log.open("ab") as file:
        subprocess.run([sys.executable, "-c", TO_STDOUT, name], stdout=file, check=True)
        file.write(b"after\n")
    assert log.read_bytes() == b"before\nnew\nafter\n"
    piped = subprocess.run([sys.executable, "-c", TO_STDOUT, name], stdout=subprocess.PIPE, check=True)
    assert piped.stdout == b"new\n"


def test_a_directory_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(BadInput, match="Is a directory"), replacing(tmp_path / "d"):
        pytest.fail("there is nothing to write to")
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "f").chmod(0o600)
    write(tmp_path / "f")
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600
