"""Folders as DGL's GraphBolt keeps them: a `metadata.yaml` that names files of edges, features and sets."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph.importing.readers.arrays import ArrayFile
from siafu.graph.importing.readers.blocks import EdgeSource, Rows, VertexData
from siafu.graph.importing.readers.edges import ListedEdges
from siafu.graph.importing.readers.npz import array_rows, id_blocks
from siafu.graph.importing.readers.text import TextEdges, TextTable

METADATA = "metadata.yaml"
_SETS = {"train": "train_set", "val": "validation_set", "test": "test_set"}
_SEEDS = ("seeds", "seed_nodes")
_PAIRS_AT_ONCE = 1 << 20


class _GraphBoltText(TextEdges):
    def __init__(self, path: Path, num_vertices: int) -> None:
        super().__init__(TextTable(path), named=False)
        self.num_vertices = num_vertices


def read_graphbolt(folder: Path) -> tuple[EdgeSource, VertexData]:
    """Edges and vertex data of a homogeneous graph."""
    described = _Metadata(folder)
    return described.edges(), described.vertex_data()


class _Metadata:
    """What `metadata.yaml` says, and where the files are that it names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / METADATA
        self._content = _load_yaml(self._path)
        self._graph = self._part(self._content, "graph")
        self._num_vertices = int(self._one_type("nodes")["num"])

    def edges(self) -> EdgeSource:
        entry = self._one_type("edges")
        if entry.get("format") == "csv":
            return _GraphBoltText(self._file(entry), self._num_vertices)
        return ListedEdges((self._array(entry),), None, self._num_vertices)

    def vertex_data(self) -> VertexData:
        data = VertexData(features=self._features())
        task = next(iter(self._content.get("tasks") or []), None)
        if task is None:
            return data
        data.num_classes = task.get("num_classes")
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

    def _features(self) -> Rows | None:
        entries = [
            entry for entry in self._content.get("feature_data") or [] if entry.get("domain") == "node"
        ]
        if not entries:
            return None
        entry = next((entry for entry in entries if entry.get("name") == "feat"), entries[0])
        return array_rows(self._array(entry), "features")

    def _set(self, task: dict[str, Any], name: str) -> "_LabelledSet | None":
        entries = task.get(name)
        if not entries:
            return None
        data = self._part(entries[0], "data")
        by_name = {entry.get("name"): entry for entry in data}
        seeds = next((by_name[key] for key in _SEEDS if key in by_name), data[0])
        labels = by_name.get("labels", data[1] if len(data) > 1 and "name" not in data[1] else None)
        return _LabelledSet(self._array(seeds), None if labels is None else self._array(labels))

    def _one_type(self, what: str) -> dict[str, Any]:
        entries = self._part(self._graph, what)
        if len(entries) != 1:
            raise BadInput(
                f"{self._path} has {len(entries)} types of {what}: siafu reads graphs with one type of vertex and edge"
            )
        return dict(entries[0])

    def _part(self, content: Any, key: str) -> Any:
        if not isinstance(content, dict) or key not in content:
            raise BadInput(f"{self._path} has no {key!r}: it is not a GraphBolt dataset")
        return content[key]

    def _file(self, entry: dict[str, Any]) -> Path:
        path: Path = self._folder / self._part(entry, "path")
        if not path.is_file():
            raise BadInput(f"no file {path}: {self._path} names it")
        return path

    def _array(self, entry: dict[str, Any]) -> ArrayFile:
        if entry.get("format") != "numpy":
            raise BadInput(
                f"{self._path}: {entry.get('path')} has format {entry.get('format')!r}: siafu reads numpy, and csv for edges"
            )
        return ArrayFile(self._file(entry))


@dataclass(frozen=True, slots=True)
class _LabelledSet:
    """Some vertices, and perhaps their labels."""

    seeds: ArrayFile
    labels: ArrayFile | None

    def pairs(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        assert self.labels is not None
        if len(self.labels) != len(self.seeds):
            raise BadInput(
                f"{self.labels.where} has {len(self.labels)} labels: give one for each of the {len(self.seeds)} vertices in {self.seeds.where}"
            )
        with self.seeds.cursor() as seeds, self.labels.cursor() as labels:
            for start in range(0, len(self.seeds), _PAIRS_AT_ONCE):
                count = min(_PAIRS_AT_ONCE, len(self.seeds) - start)
                yield seeds.take(count), labels.take(count)


def _labels_by_vertex(
    sets: list[_LabelledSet], num_vertices: int, most_bytes: int
) -> Iterator[NDArray[np.int64]]:
    """Labels in the vertices' order, -1 where no set has the vertex: the sets are gone through for each block."""
    at_once = max(1, most_bytes // 8)
    for start in range(0, num_vertices, at_once):
        block = np.full(min(at_once, num_vertices - start), -1, np.int64)
        for found in sets:
            for seeds, labels in found.pairs():
                here = (seeds >= start) & (seeds < start + len(block))
                block[seeds[here] - start] = labels.reshape(len(seeds))[here]
        yield block


def _load_yaml(path: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise BadInput(f"reading {path} needs PyYAML: pip install pyyaml") from error
    try:
        return yaml.safe_load(path.read_text())
    except FileNotFoundError as error:
        raise BadInput(f"no file {path}: give the folder that holds it") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not YAML: {error}") from error
