"""Tests that kill, pause and cut off processes, or start a Ray cluster, take minutes and a machine to themselves: they run
where they are asked for, with SIAFU_CLUSTER_TESTS=1."""

import os
from pathlib import Path

import pytest

_LONG = ("test_kills.py", "test_links.py", "test_ray.py", "test_sessions.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "SIAFU_CLUSTER_TESTS" in os.environ:
        return
    skip = pytest.mark.skip(reason="takes minutes: set SIAFU_CLUSTER_TESTS=1")
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.path.name in _LONG:
            item.add_marker(skip)
