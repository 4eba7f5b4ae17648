"""What the machine is said to be."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from siafu.base.hardware import machine

_HOLDING = """
import numpy as np
from siafu.base.hardware.machine import peak_rss_bytes
before = peak_rss_bytes()
held = np.ones(1 << 25)
print(peak_rss_bytes() - before, held.nbytes)
"""


def test_peak_memory_grows_with_what_is_held() -> None:
    # In a process of its own: here other tests may have held more before than is held now.
    said = subprocess.run([sys.executable, "-c", _HOLDING], capture_output=True, text=True, check=True)
    grown, held = map(int, said.stdout.split())
    assert 0.9 * held <= grown <= 1.2 * held


def test_peak_memory_is_known_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_proc_kilobytes", lambda path, field: None)
    known = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert machine.peak_rss_bytes() in (known, known * 1024)


def test_memory_is_what_the_system_says() -> None:
    total, available = machine.memory_bytes()
    if total is None or available is None:
        pytest.skip("this system has no /proc/meminfo")
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert total == pytest.approx(pages, rel=0.05)
    assert 0 < available <= total


def test_a_field_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    assert machine._proc_kilobytes(tmp_path / "none", "VmHWM") is None
    (tmp_path / "status").write_text("VmPeak:\t 5 kB\n")
    assert machine._proc_kilobytes(tmp_path / "status", "VmHWM") is None
    assert machine._proc_kilobytes(tmp_path / "status", "VmPeak") == 5 * 1024


def test_the_processor_has_a_name() -> None:
    assert machine.processor_name()


def test_processors_are_known_by_what_the_system_says_of_them(tmp_path: Path) -> None:
    intel, arm = tmp_path / "intel", tmp_path / "arm"
    intel.write_text("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n")
    arm.write_text("CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd40\n")
    assert machine.cpu_id(intel) == "GenuineIntel/6/143"
    assert machine.cpu_id(arm) == "0x41/8/0xd40"
    assert machine.cpu_id(tmp_path / "none") == "?/?/?"
