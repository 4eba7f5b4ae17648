"""Kernels on other processors: AVX2 alone (run here), and NEON (compiled, since nothing here can run it)."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.kernels.processor_run import results

_RUN = Path(__file__).with_name("processor_run.py")
_ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        platform.machine() != "x86_64", reason="the code is compiled for x86 processors first"
    ),
]


@pytest.fixture(scope="module")
def on_avx2(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:
    """Results of a processor with AVX2 and FMA and nothing later, and the code that it ran."""
    folder = tmp_path_factory.mktemp("processor")
    given = os.environ | {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx2,+fma,+bmi,+bmi2,+popcnt,+sse4.2",
        "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    files = folder / "results.npz", folder / "code.json"
    subprocess.run([sys.executable, str(_RUN), *map(str, files)], env=given, check=True)
    return dict(np.load(files[0])), json.loads(files[1].read_text())


def test_avx2_gives_the_same_within_rounding(
    on_avx2: tuple[dict[str, np.ndarray], dict[str, list[str]]],
) -> None:
    found, code = on_avx2
    for name, expected in results({}).items():
        np.testing.assert_allclose(found[name], expected, rtol=2e-6, atol=2e-6, err_msg=name)
    for name, (_, assembly) in code.items():
        assert "ymm" in assembly, name
        assert "zmm" not in assembly, name


def test_the_same_code_compiles_for_neon(
    on_avx2: tuple[dict[str, np.ndarray], dict[str, list[str]]],
) -> None:
    _, code = on_avx2
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu="neoverse-n1", opt=3)
    for name, (source, _) in code.items():
        module = llvm.parse_assembly(_moved_to(triple, str(machine.target_data), source))
        module.verify()
        assert re.search(r"\bf(add|mla|cmgt)\s+v\d+\.4s", machine.emit_assembly(module)), name


def _moved_to(triple: str, layout: str, source: str) -> str:
    """Code for another processor. The counter of references, which Numba compiles beforehand for its own, becomes a call of a function elsewhere."""
    source = re.sub(r'target triple = "[^"]*"', f'target triple = "{triple}"', source)
    source = re.sub(r'target datalayout = "[^"]*"', f'target datalayout = "{layout}"', source)
    source = source.replace("@llvm.x86.atomic.sub.cc.i64", "@count_down").replace("i32 immarg)", "i32)")
    assert "llvm.x86" not in source
    return source
