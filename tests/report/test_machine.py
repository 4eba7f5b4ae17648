"""What the machine is said to be."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from siafu.report import machine


def test_peak_memory_grows_with_what_is_held() -> None:
    before = machine.peak_rss_bytes()
    held = np.ones(before // 8 + (1 << 23))
    assert machine.peak_rss_bytes() >= before + held.nbytes // 2


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
