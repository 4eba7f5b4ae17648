"""How fast, and in how much memory, a large text file is imported.

    python bench/import_text.py DIRECTORY [--edges 100000000] [--vertices 1000000] [--memory-limit 1GB]

Writes a text file of random pairs of integers to DIRECTORY (needs pyarrow), imports it in a process of its own,
prints the rate and the process's peak memory, and removes what it wrote.
"""

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

_EDGES_AT_ONCE = 1 << 20


def write_text(path: Path, num_edges: int, num_vertices: int) -> None:
    rng = np.random.default_rng(0)
    schema = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    options = csv.WriteOptions(include_header=False, delimiter="\t")
    with csv.CSVWriter(path, schema, write_options=options) as writer:
        for start in range(0, num_edges, _EDGES_AT_ONCE):
            count = min(_EDGES_AT_ONCE, num_edges - start)
            columns = [rng.integers(0, num_vertices, count) for _ in range(2)]
            writer.write_table(pa.table(columns, schema=schema))


def run_import(source: Path, store: Path, memory_limit: str) -> tuple[float, float, int]:
    """Seconds, seconds of all cores together, and peak resident bytes of a `siafu import`."""
    began = time.monotonic()
    arguments = ["import", str(source), "-o", str(store), "--memory-limit", memory_limit]
    child = os.spawnv(
        os.P_NOWAIT, sys.executable, [sys.executable, "-c", "from siafu.cli import main; main()", *arguments]
    )
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit("the import failed")
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the import of a text file of random edges.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--vertices", type=int, default=1_000_000)
    parser.add_argument("--memory-limit", default="1GB")
    asked = parser.parse_args()
    asked.directory.mkdir(parents=True, exist_ok=True)
    source, store = asked.directory / "edges.tsv", asked.directory / "edges.store"
    try:
        write_text(source, asked.edges, asked.vertices)
        size = source.stat().st_size
        seconds, cpu_seconds, peak = run_import(source, store, asked.memory_limit)
        result = {
            "edges": asked.edges,
            "text_bytes": size,
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu_seconds, 2),
            "edges_per_second": round(asked.edges / seconds),
            "peak_rss_bytes": peak,
            "memory_limit": asked.memory_limit,
        }
        print(json.dumps(result))
    finally:
        source.unlink(missing_ok=True)
        shutil.rmtree(store, ignore_errors=True)


if __name__ == "__main__":
    main()
