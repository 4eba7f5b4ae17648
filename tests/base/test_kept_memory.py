"""Memory that is kept: blocks that come and go are not cleared again, and go back at the end."""

import platform
import subprocess
import sys

import pytest

_SCRIPT = """
import ctypes, resource
from siafu.base.kept_memory import kept_memory

c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def pages():
    return int(open("/proc/self/statm").read().split()[1])

def touched():
    before = faults()
    for _ in range(4):
        block = c.malloc(48 << 20)
        ctypes.memset(block, 1, 48 << 20)
        c.free(ctypes.c_void_p(block))
    return faults() - before

given = touched()
with kept_memory(), kept_memory():
    touched()
    with kept_memory():
        kept, held = touched(), pages()
print(given, kept, held, pages(), touched())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
def test_blocks_that_come_and_go_are_kept_within_and_given_back_afterwards() -> None:
    told = subprocess.run([sys.executable, "-c", _SCRIPT], check=True, capture_output=True, text=True)
    given, kept, held, after, again = map(int, told.stdout.split())
    block = (48 << 20) // 4096
    assert given >= 4 * block * 0.9 and again >= 4 * block * 0.9  # not kept before and after
    assert kept < block * 0.1
    assert held - after > block * 0.9
