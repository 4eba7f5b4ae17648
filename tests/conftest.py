"""What every test may use."""

import os
import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real datasets that are kept beside the repository, or at `$SIAFU_SHARED`; tests skip without them."""
    shared = os.environ.get("SIAFU_SHARED")
    data = (Path(shared) if shared else _REPOSITORY.parent / "shared") / "data"
    if not data.is_dir():
        pytest.skip(f"no shared data at {data}: set SIAFU_SHARED to where it is")
    return data


@pytest.fixture(autouse=True)
def same_random_numbers_every_time() -> None:
    """A test that fails, fails again."""
    import torch

    torch.manual_seed(0)


_UNTRACED = pytest.StashKey[bool]()
_ELSEWHERE = {
    "bench",
    "browser",
    "cluster",
    "docs",
    "launch",
}  # slow tests that start processes and wait for them


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--cov`, tests that go over the same lines again and again are not traced: tracing takes twice as long as they do.

    Those are all but the first two parameters of a test, properties that Hypothesis tries a hundred times, the checker's schedules, and
    what is marked so; of slow tests all but the first of a file (of a command's tests, the first parameter of each: every option goes
    over lines of its own), and those whose work is done by other processes.
    """
    seen: Counter[str] = Counter()
    for item in items:
        function = item.nodeid.split("[")[0]
        seen[function] += 1
        is_property = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        is_slow = item.get_closest_marker("slow") is not None
        repeated = seen[function] > 2
        if is_slow:
            of_file = function if "cli" in item.path.parts else f"slow tests of {item.path}"
            seen[of_file] += of_file != function
            repeated = seen[of_file] > 1
        elsewhere = is_slow and not _ELSEWHERE.isdisjoint(item.path.parts)
        marked = item.get_closest_marker("untraced") is not None
        item.stash[_UNTRACED] = is_property or repeated or elsewhere or marked or "checker" in item.path.parts
    _compile_untraced()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test without the tracer, if it is one of those. pytest-cov's marker for that has no effect in xdist's workers."""
    of_threads = threading.gettrace()
    if not item.stash[_UNTRACED] or sys.gettrace() is None:
        return (yield)
    threading.settrace(None)  # type: ignore[arg-type]
    try:
        with _untraced():
            return (yield)
    finally:
        threading.settrace(of_threads)  # type: ignore[arg-type]


@contextmanager
def _untraced() -> Generator[None]:
    """Take the tracer off this thread."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


def _compile_untraced() -> None:
    """Have kernels compiled without the tracer, with which it takes half as long again: nearly all of that code is Numba's."""
    from siafu.base import jit

    turn = jit.turn

    @contextmanager
    def untraced_turn(directory: Path, name: str) -> Generator[None]:
        with turn(directory, name), _untraced():
            yield

    jit.turn = untraced_turn


# A busy machine is slow at making inputs too: that is no fault of a test.
settings.register_profile("siafu", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("siafu")
