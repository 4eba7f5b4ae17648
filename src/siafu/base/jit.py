"""Numba, set up once for all rooms: compiled without the GIL and cached on disk.

Numba's own cache looks only at the file a function stands in. Our kernels are emitted by helpers in
other files, so the cache is stamped with the source of every file that takes part in compilation.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching, event
from numba.core.compiler_lock import global_compiler_lock

from siafu.base.compile_turns import turn
from siafu.base.compiling import compile_begins, compile_ends
from siafu.base.storage.files import cache_directory

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).resolve().parents[1]
_KEPT_SECONDS = 30 * 24 * 3600


@cache
def _stamp() -> str:
    digest = hashlib.sha256()
    base, kernels = _PACKAGE / "base", _PACKAGE / "kernels"
    for path in [base / "jit.py", base / "hashing.py", base / "prefetch.py", *sorted(kernels.rglob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _SiafuCache(caching._CacheLocator):  # type: ignore[misc]
    """Cache of compiled kernels in the user's cache directory, outside of the installed package."""

    def __init__(self, function: Any, file: str, path: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._file, self._path = Path(file), path

    def get_cache_path(self) -> str:
        return self._path

    def get_source_stamp(self) -> str:
        return _stamp() + hashlib.sha256(self._file.read_bytes()).hexdigest()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Any, file: str) -> "_SiafuCache | None":
        path = _cache_path(file, cache_directory())
        return None if path is None else cls(function, file, path)


@cache
def _cache_path(file: str, directory: Path) -> str | None:
    """Where the compiled kernels of a file go; None: it is not ours, or nothing can be written there.

    Installations of the same code share them, wherever they are.
    """
    resolved = Path(file).resolve()
    if not resolved.is_relative_to(_PACKAGE):
        return None
    name = hashlib.sha256(str(resolved.relative_to(_PACKAGE)).encode()).hexdigest()[:12]
    try:
        path = _kernels_of_this_code(directory / "kernels") / name
        path.mkdir(exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return None
    return str(path)


@cache
def _kernels_of_this_code(kernels: Path) -> Path:
    """The directory of kernels compiled from this code. Those of other code that nobody used for a month are removed."""
    mine = kernels / f"code-{_stamp()[:12]}"
    mine.mkdir(parents=True, exist_ok=True)
    os.utime(mine)
    for other in kernels.glob("code-*"):
        if other.stat().st_mtime < time.time() - _KEPT_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return mine


caching.CompileResultCacheImpl._locator_classes.insert(0, _SiafuCache)


class _Compilations(event.Listener):  # type: ignore[misc]
    """Tells of kernels that are compiled; those that come from the cache are not."""

    def on_start(self, event: Any) -> None:
        compile_begins("kernels")

    def on_end(self, event: Any) -> None:
        compile_ends()


event.register("numba:compile", _Compilations())


# Nobody calls kernels from C: without wrappers for that they compile in less time.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def kernel(function: F) -> F:
    """Compile `function` with Numba on first call; it runs without the GIL."""
    return cast(F, _in_turns(numba.njit(**_OPTIONS)(function)))


def fast_kernel(function: F) -> F:
    """As `kernel`, and sums may be added up in another order, so that they are vectorised. NaN and infinity keep their meaning."""
    relaxed = {"reassoc", "contract", "nsz", "arcp"}
    return cast(F, _in_turns(numba.njit(**_OPTIONS, fastmath=relaxed)(function)))


def _in_turns(compiled: Any) -> Any:
    """Have processes that share a cache compile each form of a kernel once: servers of a machine start at the same time.

    A kernel that another one calls is compiled while this thread holds Numba's lock. It takes no turn: who has the turn may be waiting for
    that lock, in this process or, by way of another turn, in one that waits for us.
    """
    compile_alone, name = compiled.compile, f"{compiled.__module__}.{compiled.__name__}"

    def compile_in_turn(signature: Any) -> Any:
        if global_compiler_lock.is_locked():  # by this thread
            return compile_alone(signature)
        with turn(cache_directory() / "kernels", f"{name}{signature}"):
            return compile_alone(signature)

    compiled.compile = compile_in_turn
    return compiled
