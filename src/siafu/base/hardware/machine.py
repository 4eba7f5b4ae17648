"""The machine of a run: its memory, processor and memory bandwidth."""

import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from siafu.base.hardware.memory import memory_bytes as memory_bytes
from siafu.base.hardware.memory import proc_kilobytes as _proc_kilobytes
from siafu.base.jit import kernel
from siafu.base.threads import run_all, thread_count

_MEASURED_BYTES = 1 << 30  # far more than any cache holds
_MEASURED_SECONDS = 1.0
_PIECES_PER_THREAD = 4


def peak_rss_bytes() -> int:
    """Peak memory of this process."""
    # getrusage counts what the parent held before exec; the kernel's own high-water mark does not.
    found = _proc_kilobytes(Path("/proc/self/status"), "VmHWM")
    if found is not None:
        return found
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def processor_name() -> str:
    """The processor's name as its maker writes it."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def architecture() -> Literal["x86_64", "arm64"]:
    """Architecture of this machine's processor."""
    return "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"


def cpu_id(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Vendor, family and model of the processor; unknown parts are '?'."""
    said = _cpuinfo(cpuinfo)
    x86, arm = ("vendor_id", "cpu family", "model"), ("CPU implementer", "CPU architecture", "CPU part")
    names = arm if "CPU part" in said else x86
    return "/".join(said.get(name, "?") for name in names)


def _cpuinfo(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """Fields of /proc/cpuinfo, by name."""
    try:
        fields = [line.partition(":") for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, colon, value in fields if colon}


def simd_features() -> list[str]:
    """The vector instructions that kernels are compiled for."""
    from llvmlite import binding

    known = ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512bf16")
    features: Any = binding.get_host_cpu_features()
    return [name for name in (*known, "amx-bf16", "neon", "sve", "bf16") if features.get(name)]


def read_bandwidth() -> float:
    """Memory bandwidth in bytes a second: sequential reads by all threads, the best pass of one second."""
    _, available = memory_bytes()
    size = min(_MEASURED_BYTES, (available or _MEASURED_BYTES) // 4)
    data = np.ones(size // 8, np.int64)
    step = -(-len(data) // (thread_count() * _PIECES_PER_THREAD))
    pieces = [data[start : start + step] for start in range(0, len(data), step)]
    _sum(data[:1])
    best = float("inf")
    deadline = time.perf_counter() + _MEASURED_SECONDS
    while best == float("inf") or time.perf_counter() < deadline:
        began = time.perf_counter()
        total = sum(run_all(_sum, pieces))
        best = min(best, time.perf_counter() - began)
        if total != len(data):
            raise RuntimeError("memory was not read as it was written")
    return data.nbytes / best


@kernel
def _sum(values: NDArray[np.int64]) -> int:
    total = 0
    for value in values:
        total += value
    return total
