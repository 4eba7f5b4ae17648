"""Folders as the Open Graph Benchmark keeps them for node property prediction.

raw/       edge.csv.gz, num-node-list.csv.gz, node-feat.csv.gz, node-label.csv.gz,
           or, for the largest, data.npz and node-label.npz
split/S/   train.csv.gz, valid.csv.gz, test.csv.gz, where S names the kind of split
"""

from functools import partial
from pathlib import Path

from siafu.base.errors import BadInput
from siafu.graph.importing.readers.blocks import EdgeSource, VertexData
from siafu.graph.importing.readers.edges import ListedEdges
from siafu.graph.importing.readers.npz import Archive, array_rows, vertex_data
from siafu.graph.importing.readers.text import TextEdges, TextTable
from siafu.graph.importing.readers.vertex_text import first_integer, integer_blocks, number_rows

_PARTS = {"train": "train", "val": "valid", "test": "test"}


class OgbEdges(TextEdges):
    """The edges of raw/edge.csv.gz, with the count of vertices that stands next to it."""

    def __init__(self, raw: Path) -> None:
        super().__init__(TextTable(raw / "edge.csv.gz", delimiter=",", header=False), named=False)
        self.num_vertices = first_integer(raw / "num-node-list.csv.gz")


def is_ogb(path: Path) -> bool:
    return (path / "raw" / "edge.csv.gz").is_file() or (path / "raw" / "data.npz").is_file()


def read_ogb(path: Path, split: str | None = None) -> tuple[EdgeSource, VertexData]:
    """Edges and vertex data; `split` chooses among several splits, by its folder's name."""
    raw = path / "raw"
    if (raw / "data.npz").is_file():
        edges, data = _binary(raw)
    else:
        edges, data = _text(raw)
    folder = _split_folder(path / "split", split)
    if folder is not None:
        data.split_ids = {
            part: partial(integer_blocks, folder / f"{name}.csv.gz") for part, name in _PARTS.items()
        }
    return edges, data


def _text(raw: Path) -> tuple[EdgeSource, VertexData]:
    data = VertexData()
    if (raw / "node-feat.csv.gz").is_file():
        data.features = number_rows(raw / "node-feat.csv.gz", "features", always_wide=True)
    if (raw / "node-label.csv.gz").is_file():
        data.labels = number_rows(raw / "node-label.csv.gz", "labels")
    return OgbEdges(raw), data


def _binary(raw: Path) -> tuple[EdgeSource, VertexData]:
    archive = Archive(raw / "data.npz")
    edges = ListedEdges((archive.array("edge_index"),), None, archive.number("num_nodes_list", "num_nodes"))
    data = vertex_data(archive)
    if (raw / "node-label.npz").is_file():
        data.labels = array_rows(Archive(raw / "node-label.npz").array("node_label"), "labels")
    return edges, data


def _split_folder(folder: Path, asked: str | None) -> Path | None:
    found = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if asked is not None and asked not in found:
        raise BadInput(f"{folder} has no split {asked!r}: it has {', '.join(found) or 'none'}")
    if asked is None and len(found) > 1:
        raise BadInput(f"{folder} has the splits {', '.join(found)}: choose one with --split")
    name = asked or (found[0] if found else None)
    return None if name is None else folder / name
