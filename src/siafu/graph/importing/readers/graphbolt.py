"""Folders as DGL's GraphBolt keeps them: a `metadata.yaml` that names files of edges, features and sets."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line, parse_yaml
from siafu.graph import check
from siafu.graph.importing.readers.arrays import ArrayFile
from siafu.graph.importing.readers.blocks import EdgeSource, Rows, VertexData
from siafu.graph.importing.readers.edge_rows import with_rows
from siafu.graph.importing.readers.edges import ListedEdges, check_list
from siafu.graph.importing.readers.folders import file_inside
from siafu.graph.importing.readers.npz import array_rows, id_blocks
from siafu.graph.importing.readers.text import TextEdges, TextTable

METADATA = "metadata.yaml"
_SETS = {"train": "train_set", "val": "validation_set", "test": "test_set"}
_SEEDS = ("seeds", "seed_nodes")
_PAIRS_AT_ONCE = 1 << 20


def read_graphbolt(folder: Path) -> tuple[EdgeSource, VertexData]:
    """Edges and vertex data of a homogeneous graph."""
    described = _Metadata(folder)
    return described.edges(), described.vertex_data()


class _Metadata:
    """The content of `metadata.yaml`, and the files that it names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / METADATA
        content = self._object(_load_yaml(file_inside(folder, METADATA)), "it")
        self._graph = self._object(self._part(content, "graph"), "graph")
        self._features = self._objects(content, "feature_data")
        self._tasks = self._objects(content, "tasks")
        num_vertices = self._number(self._one_type("nodes"), "num", check.MAX_VERTICES)
        if num_vertices is None:
            raise BadInput(f"{self._path} has no 'num' of nodes: it is not a GraphBolt dataset")
        self._num_vertices = num_vertices

    def edges(self) -> EdgeSource:
        return with_rows(self._edge_list(), self._rows_of("edge", "features of edges"), None)

    def _edge_list(self) -> EdgeSource:
        entry = self._one_type("edges")
        if entry.get("format") == "csv":
            return TextEdges(TextTable(self._file(entry)), named=False, num_vertices=self._num_vertices)
        return ListedEdges((self._array(entry),), None, self._num_vertices)

    def vertex_data(self) -> VertexData:
        data = VertexData(features=self._rows_of("node", "features"))
        if not self._tasks:
            return data
        task = self._tasks[0]
        data.num_classes = self._number(task, "num_classes", check.MAX_CLASSES)
        sets = {part: self._set(task, name) for part, name in _SETS.items()}
        for part, found in sets.items():
            if found is not None:
                data.split_ids[part] = id_blocks(found.seeds)
        labelled = [found for found in sets.values() if found is not None and found.labels is not None]
        if labelled:
            data.labels = Rows(
                self._num_vertices,
                (),
                f"labels in {self._path}",
                partial(_labels_by_vertex, labelled, self._num_vertices),
            )
        return data

    def _rows_of(self, domain: str, what: str) -> Rows | None:
        entries = [entry for entry in self._features if entry.get("domain") == domain]
        if not entries:
            return None
        entry = next((entry for entry in entries if entry.get("name") == "feat"), entries[0])
        return array_rows(self._array(entry), what)

    def _set(self, task: dict[str, Any], name: str) -> "_LabelledSet | None":
        entries = self._objects(task, name)
        if not entries:
            return None
        data = self._objects(entries[0], "data")
        if not data:
            raise BadInput(f"{self._path}: {name} has no data: name a file of vertices")
        by_name = {str(entry.get("name")): entry for entry in data}
        if len(by_name) < len([entry for entry in data if "name" in entry]):
            raise BadInput(f"{self._path}: {name} has two entries of one name: give each its own")
        seeds = next((by_name[key] for key in _SEEDS if key in by_name), data[0])
        labels = by_name.get("labels", data[1] if len(data) > 1 and "name" not in data[1] else None)
        return _LabelledSet(self._array(seeds), None if labels is None else self._array(labels))

    def _one_type(self, what: str) -> dict[str, Any]:
        self._part(self._graph, what)
        entries = self._objects(self._graph, what)
        if len(entries) != 1:
            raise BadInput(
                f"{self._path} has {len(entries)} types of {what}: siafu reads graphs with one type of vertex and edge"
            )
        return entries[0]

    def _part(self, content: dict[str, Any], key: str) -> Any:
        if key not in content:
            raise BadInput(f"{self._path} has no {key!r}: it is not a GraphBolt dataset")
        return content[key]

    def _object(self, value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise BadInput(f"{self._path}: {what} is {one_line(repr(value))} instead of a mapping of names")
        return value

    def _objects(self, content: dict[str, Any], key: str) -> list[dict[str, Any]]:
        """The mappings in a list; nothing where there is no such list."""
        values = content.get(key) or []
        if not isinstance(values, list):
            raise BadInput(f"{self._path}: {key} is {one_line(repr(values))} instead of a list")
        return [self._object(value, f"an entry of {key}") for value in values]

    def _number(self, content: dict[str, Any], key: str, most: int) -> int | None:
        value = content.get(key)
        if value is not None and (type(value) is not int or not 0 <= value <= most):
            raise BadInput(
                f"{self._path}: {key} is {one_line(repr(value))}: give a whole number from 0 to {most:,}"
            )
        return value

    def _file(self, entry: dict[str, Any]) -> Path:
        name = self._part(entry, "path")
        if not isinstance(name, str):
            raise BadInput(f"{self._path}: path is {one_line(repr(name))} instead of a file's name")
        return file_inside(self._folder, name, self._path)

    def _array(self, entry: dict[str, Any]) -> ArrayFile:
        if entry.get("format") != "numpy":
            path, kind = (one_line(repr(entry.get(key))) for key in ("path", "format"))
            raise BadInput(f"{self._path}: {path} has format {kind}: siafu reads numpy, and csv for edges")
        return ArrayFile(self._file(entry))


@dataclass(frozen=True, slots=True)
class _LabelledSet:
    """Some vertices, and perhaps their labels."""

    seeds: ArrayFile
    labels: ArrayFile | None

    def pairs(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        assert self.labels is not None
        check_list(self.seeds)
        if len(self.labels) != len(self.seeds) or math.prod(self.labels.row_shape) != 1:
            raise BadInput(
                f"{self.labels.where} has labels of shape {self.labels.shape}: give one for each of the {len(self.seeds)} vertices in {self.seeds.where}"
            )
        with self.seeds.cursor() as seeds, self.labels.cursor() as labels:
            for start in range(0, len(self.seeds), _PAIRS_AT_ONCE):
                count = min(_PAIRS_AT_ONCE, len(self.seeds) - start)
                yield seeds.take(count), labels.take(count)


def _labels_by_vertex(
    sets: list[_LabelledSet], num_vertices: int, most_bytes: int
) -> Iterator[NDArray[np.int64]]:
    """Labels in the vertices' order, -1 where no set has the vertex. Reads the sets again for each block."""
    at_once = max(1, most_bytes // 8)
    for start in range(0, num_vertices, at_once):
        block = np.full(min(at_once, num_vertices - start), -1, np.int64)
        for found in sets:
            for seeds, labels in found.pairs():
                here = (seeds >= start) & (seeds < start + len(block))
                block[seeds[here] - start] = check.label_values(labels.reshape(-1), len(seeds))[here]
        yield block


def _load_yaml(path: Path) -> Any:
    try:
        return parse_yaml(path.read_bytes())
    except ImportError as error:
        raise BadInput(f"reading {path} needs PyYAML: pip install pyyaml") from error
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{path} is not YAML that siafu reads: {error}") from error
