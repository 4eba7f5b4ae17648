"""Hostile messages at every ZeroMQ socket of a run change nothing: `bench/hostile.py`, with fewer of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "hostile.py"
COUNT = 2000
MOST_GROWTH_MB = 32


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inbox-tcp", "inbox-ipc", "post-tcp", "post-ipc"])
def test_a_run_does_not_notice_thousands_of_hostile_messages(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--messages", str(COUNT), "--only", name, "--json"],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["attacker"] for row in rows] == ["stranger", "member"]
    for row in rows:
        assert row["run_equal"]
        assert row["rss_peak_mb"] - row["rss_before_mb"] < MOST_GROWTH_MB
        assert row["refused"] >= 1
    assert "Traceback" not in ran.stderr
