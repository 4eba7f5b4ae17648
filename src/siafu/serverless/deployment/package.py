"""The zip that a Lambda runs: NumPy and ZeroMQ from wheels, and those modules of Siafu that the handler imports."""

import ast
import base64
import hashlib
import io
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from siafu.base.errors import BadInput
from siafu.serverless.control.failure import one_line

HANDLER = "siafu.serverless.function.handler.handler"
MOST_UNPACKED = 80 * 10**6
MOST_ZIPPED = 50 * 2**20  # what AWS takes without a detour over S3

_LIBRARIES = {"numpy": "numpy", "zmq": "pyzmq"}  # what the handler may import, and the package that has it
_MACHINES = {"x86_64": "x86_64", "arm64": "aarch64"}  # AWS's name and the wheels'
_PYTHONS = ("3.12", "3.13", "3.14")  # earlier ones run on a system that today's wheels are too new for
_UNUSED = re.compile(
    r"(^|/)(tests|f2py|include|__pycache__)/|\.(pyi|h|a|lib)$|^numpy/_core/_simd\.|^[^/]*\.data/"
)
_SOURCES = Path(__file__).parents[3]
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip can tell


@dataclass(frozen=True, slots=True)
class LambdaTarget:
    """Processor ("x86_64" or "arm64") and Python ("3.12") of a Lambda."""

    architecture: str = "x86_64"
    python: str = _PYTHONS[0]

    def __post_init__(self) -> None:
        if self.architecture not in _MACHINES:
            raise BadInput(f"--architecture is {self.architecture!r}: choose {' or '.join(_MACHINES)}")
        if self.python not in _PYTHONS:
            raise BadInput(f"--python is {self.python!r}: choose one of {', '.join(_PYTHONS)}")

    @property
    def platforms(self) -> list[str]:
        """The wheels' platforms that run there, newest first."""
        machine = _MACHINES[self.architecture]
        return [f"manylinux_{system}_{machine}" for system in ("2_34", "2_28", "2_27", "2_26", "2_17")] + [
            f"manylinux2014_{machine}"
        ]


@dataclass(frozen=True, slots=True)
class Package:
    """A zip: equal wheels and sources make equal bytes."""

    body: bytes
    unpacked_bytes: int
    contents: tuple[str, ...]  # the wheels in it

    @property
    def digest(self) -> str:
        """SHA-256 in the form that AWS tells of its own copy."""
        return base64.b64encode(hashlib.sha256(self.body).digest()).decode()


def libraries() -> list[str]:
    """Libraries in the zip, in the versions that the servers have, so that both compute the same."""
    return [f"{package}=={version(package)}" for package in _LIBRARIES.values()]


def fetch_wheels(target: LambdaTarget, directory: Path) -> list[Path]:
    """The wheels for `target`, in `directory`, from wherever pip gets packages."""
    wanted = libraries()
    platforms = [word for platform in target.platforms for word in ("--platform", platform)]
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--only-binary", ":all:", "--implementation", "cp", "--python-version", target.python),
            *platforms,
            *("--dest", str(directory), *wanted),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")]
        told = one_line(errors[-1] if errors else ended.stderr[-200:])
        raise BadInput(
            f"pip cannot fetch {' and '.join(wanted)} for Python {target.python} on {target.architecture} ({told}): "
            "check the network, or fetch the wheels elsewhere and name their directory with --wheels"
        )
    return find_wheels(directory, target)


def find_wheels(directory: Path, target: LambdaTarget) -> list[Path]:
    """One wheel of each library in `directory`, for `target`."""
    return [_find_wheel(directory, name, target) for name in _LIBRARIES.values()]


def _find_wheel(directory: Path, name: str, target: LambdaTarget) -> Path:
    tag = "cp" + target.python.replace(".", "")
    for wheel in sorted(directory.glob(f"{name}-*.whl")):
        python, abi, platforms = wheel.stem.split("-")[-3:]
        fits = python == tag or (abi == "abi3" and _number(python) <= _number(tag))
        if fits and set(platforms.split(".")) & set(target.platforms):
            return wheel
    raise BadInput(
        f"{directory} has no wheel of {name} for Python {target.python} on {target.architecture}: "
        f"leave --wheels out to have it fetched"
    )


def _number(tag: str) -> int:
    return int(tag.removeprefix("cp")) if tag.removeprefix("cp").isdecimal() else sys.maxsize


def build(wheels: Iterable[Path]) -> Package:
    """Put the wheels and the handler's modules into one zip."""
    wheels = list(wheels)
    files = handler_files()
    for wheel in wheels:
        files |= _unpacked(wheel)
    unpacked = sum(map(len, files.values()))
    body = _zipped(files)
    if unpacked > MOST_UNPACKED or len(body) > MOST_ZIPPED:
        raise BadInput(
            f"the Lambda's package has {unpacked / 1e6:.0f} MB ({len(body) / 1e6:.0f} MB zipped), more than "
            f"{MOST_UNPACKED / 1e6:.0f} ({MOST_ZIPPED / 1e6:.0f}): use wheels of versions that are smaller"
        )
    return Package(body, unpacked, tuple(wheel.name for wheel in wheels))


def handler_files(entry: str = HANDLER.rpartition(".")[0]) -> dict[str, bytes]:
    """Every module of Siafu that `entry` imports, directly or not, by its path in the zip.

    It may import the standard library, NumPy and ZeroMQ; anything else would be missing on the Lambda.
    """
    files: dict[str, bytes] = {}
    waiting = [entry]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        found = _file_of(name)
        if found is None:
            _check_allowed(name)
            continue
        source = found.read_bytes()
        files[found.relative_to(_SOURCES).as_posix()] = source
        waiting += [name.rpartition(".")[0]] if "." in name else []
        waiting += _imported(ast.parse(source))
    return files


def _file_of(name: str) -> Path | None:
    """The source of a module of ours. Nothing is imported to find it."""
    place = _SOURCES.joinpath(*name.split("."))
    files = (place / "__init__.py", place.with_suffix(".py"))
    return next((file for file in files if name.split(".")[0] == "siafu" and file.is_file()), None)


def _check_allowed(name: str) -> None:
    top = name.split(".")[0]
    # `from siafu.wire import messages` may name a module or what a module holds: the latter is nothing to pack.
    if top in _LIBRARIES or top in sys.stdlib_module_names or top == "siafu":
        return
    raise BadInput(f"the handler imports {name}, which a Lambda does not have: import it elsewhere, or later")


def _imported(tree: ast.AST) -> Iterator[str]:
    """The names that a module imports when it is run, not when it is checked."""
    for statement in ast.iter_child_nodes(tree):
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            continue
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            yield statement.module
            if statement.module.split(".")[0] == "siafu":
                yield from (f"{statement.module}.{alias.name}" for alias in statement.names)
        else:
            yield from _imported(statement)


def _unpacked(wheel: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return {
                name: archive.read(name)
                for name in archive.namelist()
                if not name.endswith("/") and not _UNUSED.search(name)
            }
    except (zipfile.BadZipFile, OSError) as error:
        raise BadInput(f"{wheel} cannot be read as a wheel ({error}): fetch it again") from error


def _zipped(files: Mapping[str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, wherever this runs
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return held.getvalue()
