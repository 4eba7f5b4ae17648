"""Readers as plain as they can be, to say what damaged inputs hold: whole files in memory, no detection, no speed.

Each raises what it likes where there is nothing to be read.
"""

import csv
import gzip
import io
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pyarrow import parquet

Rows = list[list[str]]
SPLITS = {"train": 0, "training": 0, "0": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "1": 1}
SPLITS |= {"test": 2, "testing": 2, "2": 2, "": -1, "-": -1, "none": -1, "nan": -1, "-1": -1}


@dataclass
class Found:
    """A graph as an input holds it.

    edges:  (source, destination, weight) of each edge; the weight is 1 where there are none
    x:      [V, F]; y: [V], -1 where unknown; split: [V], 0 train, 1 val, 2 test, -1 none
    """

    num_vertices: int
    edges: list[tuple[int, int, float]]
    x: Any = None
    y: Any = None
    split: Any = None
    ids: list[Any] | None = field(default=None)


def table(data: bytes, delimiter: str) -> Rows:
    """The rows of CSV, comments left out."""
    lines = data.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape").split("\n")
    rows = []
    for line in lines:
        if not line.strip(" \t\r") or line.lstrip(" \t\r")[0] in "#%":
            continue
        (fields,) = csv.reader([line.rstrip("\r")], delimiter=delimiter, skipinitialspace=True, strict=True)
        rows.append([each.strip(" \t\r") for each in fields])
    return rows


def unpacked(data: bytes) -> bytes:
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(str(error)) from error


def number(text: str) -> float:
    return float("nan") if text == "" else float(text)


def edge_rows(rows: Rows, weighted: bool) -> list[tuple[int, int, float]]:
    return [(int(row[0]), int(row[1]), float(row[2]) if weighted else 1.0) for row in rows]


def text_edges(data: bytes, delimiter: str, num_vertices: int) -> Found:
    """A table src, dst, weight with a header."""
    header, *rows = table(unpacked(data), delimiter)
    assert header[:3] == ["src", "dst", "weight"]
    return Found(num_vertices, edge_rows(rows, weighted=True))


def vertex_table(data: bytes, edges: list[tuple[int, int, float]], num_vertices: int) -> Found:
    """A table id, label, split, f0, f1 with a header, for edges that are whole."""
    header, *rows = table(data, ",")
    assert header[:5] == ["id", "label", "split", "f0", "f1"]
    x = np.full((num_vertices, 2), np.nan, np.float32)
    y, split = np.full(num_vertices, -1), np.full(num_vertices, -1)
    for row in rows:
        vertex = int(row[0])
        y[vertex] = -1 if np.isnan(number(row[1])) else int(number(row[1]))
        split[vertex] = SPLITS[row[2].lower()]
        x[vertex] = [number(value) for value in row[3:5]]
    return Found(num_vertices, edges, x, y, split)


def parquet_edges(path: Path) -> Found:
    """Columns src, dst and weight, as pyarrow reads them without any care."""
    columns = parquet.read_table(path).to_pydict()
    weights = columns.get("weight", [1.0] * len(columns["src"]))
    edges = list(zip(columns["src"], columns["dst"], weights, strict=True))
    return Found(1 + max(max(src, dst) for src, dst, _ in edges), edges)


def archive(path: Path) -> Found:
    """src, dst, num_nodes, x, y and split out of an `.npz` archive."""
    with np.load(path, allow_pickle=False) as arrays:
        held = {
            name: arrays[name] for name in ("src", "dst", "num_nodes", "x", "y", "split") if name in arrays
        }
    count = int(held["num_nodes"])
    edges = [(int(src), int(dst), 1.0) for src, dst in zip(held["src"], held["dst"], strict=True)]
    return Found(count, edges, held.get("x"), held.get("y"), held.get("split"))


def ogb(folder: Path) -> Found:
    def rows(name: str) -> Rows:
        return table(unpacked((folder / name).read_bytes()), ",")

    ((count,),) = rows("raw/num-node-list.csv.gz")
    x = [[number(value) for value in row] for row in rows("raw/node-feat.csv.gz")]
    labels = [number(row[0]) for row in rows("raw/node-label.csv.gz")]
    split = np.full(int(count), -1)
    for code, name in enumerate(("train", "valid", "test")):
        for row in rows(f"split/time/{name}.csv.gz"):
            split[int(row[0])] = code
    y = np.array([-1 if np.isnan(label) else int(label) for label in labels])
    return Found(int(count), edge_rows(rows("raw/edge.csv.gz"), weighted=False), np.array(x), y, split)


def graphbolt(folder: Path) -> Found:
    content = yaml.safe_load((folder / "metadata.yaml").read_bytes())

    def array(entry: dict[str, Any]) -> Any:
        assert ".." not in entry["path"]
        return np.load(folder / entry["path"], allow_pickle=False)

    (edges,), (nodes,) = content["graph"]["edges"], content["graph"]["nodes"]
    src, dst = array(edges)
    y, split = np.full(nodes["num"], -1), np.full(nodes["num"], -1)
    for code, name in enumerate(("train_set", "validation_set", "test_set")):
        seeds, labels = content["tasks"][0][name][0]["data"]
        split[array(seeds)] = code
        y[array(seeds)] = array(labels)
    pairs = [(int(one), int(other), 1.0) for one, other in zip(src, dst, strict=True)]
    return Found(nodes["num"], pairs, array(content["feature_data"][0]), y, split)


def from_bytes(data: bytes) -> Any:
    return np.load(io.BytesIO(data), allow_pickle=False)
