"""`siafu doctor`: the machine as Siafu sees it, and what is missing."""

import os
import re
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from siafu.base.option import argument
from siafu.cli.common import show
from siafu.cli.declared import json_flag

_OF_EXTRA = re.compile(r"""([A-Za-z0-9_.-]+).*;.*extra == ['"]([a-z]+)['"]""")
_OTHER_EXTRAS = re.compile(r"""siafu\[([a-z, ]+)\].*;.*extra == ['"]([a-z]+)['"]""")
_PURPOSES = {
    "all": "everything that users need, in one name",
    "aws": "run tensor tasks on AWS Lambda",
    "cluster": "train on several machines",
    "dev": "work on Siafu itself",
    "docs": "build the documentation",
    "parquet": "read and write Parquet",
    "partition": "partition with METIS",
    "tensorboard": "show runs in TensorBoard",
}


def doctor(
    store: Path | None = argument("[STORE]", "A store to verify as well.", None), as_json: bool = json_flag()
) -> None:
    """Show the machine, the versions, the speed of the memory and what is missing; verify a store."""
    checked = None if store is None else _verify(store)
    found = _examine()
    if checked is not None:
        found["store"] = checked
    show(found, _lines(found), as_json=as_json)


def _examine() -> dict[str, Any]:
    import torch

    from siafu.base.hardware import machine
    from siafu.base.storage.files import cache_directory
    from siafu.training.records.facts import environment

    found = environment()
    _, available = machine.memory_bytes()
    cache = cache_directory()
    return found | {
        "threads": {"siafu": found["threads"], "torch": torch.get_num_threads()},
        "memory_available_bytes": available,
        "read_bandwidth_bytes_per_second": machine.read_bandwidth(),
        "cache": {"path": str(cache), "writable": _writable(cache)},
        "versions": found["versions"] | {"safetensors": _version("safetensors")},
        "extras": {extra: all(map(_version, packages)) for extra, packages in _extras().items()},
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
        state = "ready" if there else f"not installed, pip install 'siafu[{extra}]' brings it"
        lines.append(f"extra       {extra}: {state} ({_PURPOSES.get(extra, 'more')})")
    if not all(found["extras"].values()):
        lines.append(
            "            extras are optional; in a clone of the repository: pip install -e '.[EXTRA]'"
        )
    if "store" in found:
        store = found["store"]
        counts = ", ".join(f"{count:,} {what}" for what, count in store.items() if isinstance(count, int))
        lines.append(f"store       {store['path']} is whole: {counts}")
    return lines


def _verify(path: Path) -> dict[str, Any]:
    from siafu.graph.stores.store import read_store
    from siafu.graph.triples import is_triple_store, read_triples

    if is_triple_store(path):
        triples = read_triples(path, verify=True)
        count = len(triples.train) + len(triples.valid) + len(triples.test)
        return {"path": str(path), "name": triples.name, "entities": triples.num_entities, "triples": count}
    graph = read_store(path, verify=True)
    return {"path": str(path), "name": graph.name, "vertices": graph.num_vertices, "edges": graph.num_edges}


def _extras() -> dict[str, set[str]]:
    """Packages of every extra, as the package's metadata declares them: those of other extras that it names, too."""
    own: dict[str, set[str]] = {}
    others: dict[str, set[str]] = {}
    for line in requires("siafu") or ():
        if named := _OTHER_EXTRAS.fullmatch(line):
            others.setdefault(named[2], set()).update(re.split(r",\s*", named[1]))
        elif named := _OF_EXTRA.fullmatch(line):
            own.setdefault(named[2], set()).add(named[1])

    def packages(extra: str) -> set[str]:
        return own.get(extra, set()).union(*map(packages, others.get(extra, ())))

    return {extra: packages(extra) for extra in sorted({*own, *others})}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _writable(path: Path) -> bool:
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    return os.access(existing, os.W_OK)


def _gigabytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 2**30:.1f} GiB"
