"""The zip of the handler."""

import io
import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import files
from pathlib import Path

import pytest

from siafu.base.errors import BadInput
from siafu.serverless.deployment import package
from siafu.serverless.deployment.package import (
    LambdaTarget,
    Package,
    build,
    fetch_wheels,
    find_wheels,
    handler_files,
)

_MACHINE = "manylinux_2_28_x86_64"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A directory with small wheels that have what real ones have."""
    _wheel(
        tmp_path / f"numpy-2.0.0-cp312-cp312-{_MACHINE}.whl",
        [
            "numpy/__init__.py",
            "numpy/_core/x.so",
            "numpy/tests/test_x.py",
            "numpy/__init__.pyi",
            "numpy/f2py/a.py",
        ],
    )
    _wheel(tmp_path / f"pyzmq-27.0.0-cp311-abi3-manylinux_2_26_x86_64.{_MACHINE}.whl", ["zmq/__init__.py"])
    return tmp_path


def _wheel(path: Path, names: list[str], date: tuple[int, int, int] = (2026, 1, 1)) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name, (*date, 0, 0, 0)), f"# {name}\n")


def _names(made: Package) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(made.body)).namelist()


def test_the_zip_has_the_libraries_and_the_handler_and_no_tests(wheels: Path) -> None:
    names = _names(build(find_wheels(wheels, LambdaTarget())))
    assert {"numpy/__init__.py", "numpy/_core/x.so", "zmq/__init__.py"} <= set(names)
    assert "siafu/serverless/function/handler.py" in names
    assert not [name for name in names if "tests" in name or "f2py" in name or name.endswith(".pyi")]


def test_equal_contents_make_equal_bytes(wheels: Path) -> None:
    first = build(find_wheels(wheels, LambdaTarget()))
    numpy = next(wheels.glob("numpy-*"))
    _wheel(numpy, ["numpy/_core/x.so", "numpy/__init__.py"], date=(2020, 5, 5))
    second = build(find_wheels(wheels, LambdaTarget()))
    assert first.body == second.body
    assert first.digest == second.digest


def test_the_handler_brings_neither_torch_nor_numba_nor_the_graph() -> None:
    names = set(handler_files())
    assert "siafu/program/execute/numpy_interpreter.py" in names
    assert not [name for name in names if name.startswith(("siafu/graph/", "siafu/nn/", "siafu/runtime/"))]


def test_a_module_that_needs_more_than_a_lambda_has_is_refused() -> None:
    with pytest.raises(BadInput, match=r"imports (torch|numba)"):
        handler_files("siafu.program.execute.torch_executor")


def test_the_handler_starts_with_only_what_the_zip_has(tmp_path: Path) -> None:
    for name, source in handler_files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(source)
    for library in ("numpy", "pyzmq"):
        for file in files(library) or []:
            top = file.parts[0]
            if top != ".." and not (tmp_path / top).exists():
                (tmp_path / top).symlink_to(Path(str(file.locate())).parents[len(file.parts) - 2])
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import siafu.serverless.function.handler as h, json; "
        "print(json.dumps([h.__file__, sorted(sys.modules)]))"
    )
    # Without its site-packages, Python has nothing but itself and what we put there.
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    place, modules = json.loads(ended.stdout)
    assert Path(place).is_relative_to(tmp_path)
    assert "numpy" in modules
    assert not {"torch", "numba", "boto3"} & set(modules)


@pytest.mark.parametrize("limit", ["MOST_UNPACKED", "MOST_ZIPPED"])
def test_a_package_that_is_too_large_is_refused(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(package, limit, 1000)
    with pytest.raises(BadInput, match="use wheels of versions that are smaller"):
        build(find_wheels(wheels, LambdaTarget()))


@pytest.mark.parametrize("target", [LambdaTarget("arm64"), LambdaTarget("x86_64", "3.13")])
def test_wheels_for_another_machine_or_python_are_not_used(wheels: Path, target: LambdaTarget) -> None:
    with pytest.raises(BadInput, match="no wheel of numpy"):
        find_wheels(wheels, target)


def test_a_broken_wheel_is_one_line(wheels: Path) -> None:
    found = find_wheels(wheels, LambdaTarget())
    found[0].write_bytes(b"not a zip")
    with pytest.raises(BadInput, match="cannot be read as a wheel"):
        build(found)


@pytest.mark.parametrize(
    ("architecture", "python"), [("sparc", "3.12"), ("x86_64", "3.11"), ("x86_64", "2.7")]
)
def test_a_target_that_aws_does_not_have_is_refused(architecture: str, python: str) -> None:
    with pytest.raises(BadInput, match="choose"):
        LambdaTarget(architecture, python)


@pytest.mark.slow
def test_what_pip_cannot_fetch_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "libraries", lambda: ["numpy==0.0.0.dev0"])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(BadInput, match="--wheels") as refused:
        fetch_wheels(LambdaTarget(), tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_the_real_package_fits(tmp_path: Path, architecture: str) -> None:
    try:
        found = fetch_wheels(LambdaTarget(architecture), tmp_path)
    except BadInput as unreachable:
        pytest.skip(f"pip reaches no index: {unreachable}")
    made = build(found)
    assert made.unpacked_bytes < package.MOST_UNPACKED
    assert any(name.startswith("numpy.libs/libscipy_openblas") for name in _names(made))
    assert any("libsodium" in name for name in _names(made))
