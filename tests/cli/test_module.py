"""`python -m siafu`."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_package_is_the_command() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "siafu", "--help"], capture_output=True, text=True, check=True
    )
    assert "train" in found.stdout
