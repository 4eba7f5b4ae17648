"""A directory lasts as long as the process that made it."""

import signal
import subprocess
import sys
from pathlib import Path

from siafu.base.storage.owned import OwnedDirectory

_MAKE = "import sys, time; from siafu.base.storage.owned import OwnedDirectory; made = OwnedDirectory(parent=sys.argv[1]); print(made.path, flush=True); time.sleep(600)"


def maker(parent: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A process that has made one, and the directory."""
    process = subprocess.Popen([sys.executable, "-c", _MAKE, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_it_is_for_its_owner_alone_and_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    with OwnedDirectory(parent=tmp_path) as path:
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "deep").mkdir()
        (path / "deep" / "file").touch()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_when_the_next_is_made_and_what_others_use_stays(
    tmp_path: Path,
) -> None:
    killed, left = maker(tmp_path)
    living, used = maker(tmp_path)
    (left / "socket").touch()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    try:
        assert left.is_dir()
        with OwnedDirectory(parent=tmp_path) as path:
            assert sorted(tmp_path.iterdir()) == sorted([path, used])
    finally:
        living.kill()
        living.wait()
        for each in (killed, living):
            assert each.stdout is not None
            each.stdout.close()


def test_directories_that_are_not_known_to_be_ours_stay(tmp_path: Path) -> None:
    (tmp_path / "siafu-of-somebody").mkdir()
    (tmp_path / "siafu-link").symlink_to(tmp_path / "siafu-of-somebody")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".owner").touch()
    OwnedDirectory(parent=tmp_path).remove()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other", "siafu-link", "siafu-of-somebody"]


def test_removing_it_twice_is_no_trouble(tmp_path: Path) -> None:
    made = OwnedDirectory(parent=tmp_path)
    made.remove()
    made.remove()
