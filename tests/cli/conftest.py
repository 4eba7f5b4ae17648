"""What tests of commands share."""

from pathlib import Path

import pytest

from tests.cli.command import Siafu
from tests.toys import toy_graph


@pytest.fixture
def siafu(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Siafu:
    """The command, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return Siafu(monkeypatch, capfd)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store whose vertices have names."""
    path = tmp_path_factory.mktemp("data") / "toy"
    toy_graph(ids=[f"v{number}".encode() for number in range(210)]).save(path)
    return path
