"""`siafu doctor`: the machine as Siafu sees it, and what is missing."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

_PACKAGES = ("siafu", "torch", "numpy", "numba", "llvmlite", "pyzmq", "safetensors")
_EXTRAS = {
    "dashboard": ("uvicorn", "watch runs on a web page"),
    "parquet": ("pyarrow", "read and write Parquet"),
    "partition": ("pymetis", "partition with METIS"),
}


def doctor(
    store: Annotated[
        Path | None, typer.Argument(metavar="[STORE]", help="A store to verify as well.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the machine, the versions, the speed of the memory and what is missing; verify a store."""
    checked = None if store is None else _verify(store)
    found = _examine()
    if checked is not None:
        found["store"] = checked
    if as_json:
        print(json.dumps(found))
        return
    for line in _lines(found):
        print(line)


def _examine() -> dict[str, Any]:
    import torch

    from siafu.base import machine
    from siafu.base.files import cache_directory
    from siafu.base.threads import thread_count

    memory, available = machine.memory_bytes()
    cache = cache_directory()
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": machine.processor_name(),
        "cores": os.cpu_count(),
        "threads": {"siafu": thread_count(), "torch": torch.get_num_threads()},
        "simd": machine.simd_features(),
        "memory_bytes": memory,
        "memory_available_bytes": available,
        "read_bandwidth_bytes_per_second": machine.read_bandwidth(),
        "cache": {"path": str(cache), "writable": _writable(cache)},
        "versions": {package: _version(package) for package in _PACKAGES},
        "extras": {extra: find_spec(module) is not None for extra, (module, _) in _EXTRAS.items()},
    }


def _lines(found: dict[str, Any]) -> list[str]:
    threads, cache = found["threads"], found["cache"]
    versions = ", ".join(f"{package} {number or 'missing'}" for package, number in found["versions"].items())
    lines = [
        f"system      {found['system']}, Python {found['python']}",
        f"processor   {found['processor']}, {found['cores']} cores, {' '.join(found['simd']) or 'no SIMD known'}",
        f"threads     {threads['siafu']} for kernels (SIAFU_THREADS), {threads['torch']} for PyTorch (OMP_NUM_THREADS)",
        f"memory      {_gigabytes(found['memory_bytes'])}, {_gigabytes(found['memory_available_bytes'])} free to use",
        f"bandwidth   {found['read_bandwidth_bytes_per_second'] / 1e9:.1f} GB/s read in order, all threads",
        f"versions    {versions}",
        f"cache       {cache['path']}" + ("" if cache["writable"] else " (not writable: set SIAFU_CACHE)"),
    ]
    for extra, there in found["extras"].items():
        what = _EXTRAS[extra][1]
        lines.append(f"extra       {extra}: {'ready' if there else _how_to_install(extra)} ({what})")
    if "store" in found:
        store = found["store"]
        lines.append(
            f"store       {store['path']} is whole: {store['vertices']:,} vertices, {store['edges']:,} edges"
        )
    return lines


def _verify(path: Path) -> dict[str, Any]:
    from siafu.graph.store import read_store

    graph = read_store(path, verify=True)
    return {"path": str(path), "name": graph.name, "vertices": graph.num_vertices, "edges": graph.num_edges}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _how_to_install(extra: str) -> str:
    return f"missing; pip install 'siafu[{extra}]'"


def _writable(path: Path) -> bool:
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    return os.access(existing, os.W_OK)


def _gigabytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 2**30:.1f} GiB"
