"""Folders as the Open Graph Benchmark keeps them for node property prediction.

raw/       edge.csv.gz, num-node-list.csv.gz, node-feat.csv.gz, node-label.csv.gz, edge-feat.csv.gz, edge_reltype.csv.gz,
           or, for the largest, data.npz and node-label.npz
split/S/   train.csv.gz, valid.csv.gz, test.csv.gz, where S names the kind of split
"""

from functools import partial
from pathlib import Path

from siafu.base.errors import BadInput
from siafu.graph.importing.readers.blocks import EdgeSource, Rows, VertexData
from siafu.graph.importing.readers.edge_rows import with_rows
from siafu.graph.importing.readers.edges import ListedEdges
from siafu.graph.importing.readers.folders import file_inside
from siafu.graph.importing.readers.npz import Archive, array_rows, vertex_data
from siafu.graph.importing.readers.text import TextEdges, TextTable
from siafu.graph.importing.readers.vertex_text import integer_blocks, number_rows, one_count

_ON_EDGES = {"edge-feat.csv.gz": "features", "edge_reltype.csv.gz": "types"}
_PARTS = {"train": "train", "val": "valid", "test": "test"}


def is_ogb(path: Path) -> bool:
    return (path / "raw" / "edge.csv.gz").is_file() or (path / "raw" / "data.npz").is_file()


def read_ogb(path: Path, split: str | None = None) -> tuple[EdgeSource, VertexData]:
    """Edges and vertex data; `split` chooses among several splits, by its folder's name."""
    edges, data = _binary(path) if (path / "raw" / "data.npz").is_file() else _text(path)
    folder = _split_folder(path / "split", split)
    if folder is not None:
        data.split_ids = {
            part: partial(integer_blocks, file_inside(path, f"split/{folder.name}/{name}.csv.gz"))
            for part, name in _PARTS.items()
        }
    return edges, data


def _text(folder: Path) -> tuple[EdgeSource, VertexData]:
    table = TextTable(file_inside(folder, "raw/edge.csv.gz"), delimiter=",", header=False)
    num_vertices = one_count(file_inside(folder, "raw/num-node-list.csv.gz"))
    data = VertexData()
    if (folder / "raw" / "node-feat.csv.gz").is_file():
        features = file_inside(folder, "raw/node-feat.csv.gz")
        data.features = number_rows(features, "features", always_wide=True, header=False)
    if (folder / "raw" / "node-label.csv.gz").is_file():
        data.labels = number_rows(file_inside(folder, "raw/node-label.csv.gz"), "labels", header=False)
    edges = TextEdges(table, named=False, num_vertices=num_vertices)
    return with_rows(edges, *(_edge_rows(folder, name, what) for name, what in _ON_EDGES.items())), data


def _edge_rows(folder: Path, name: str, what: str) -> Rows | None:
    if not (folder / "raw" / name).is_file():
        return None
    return number_rows(file_inside(folder, f"raw/{name}"), f"{what} of edges", always_wide=True, header=False)


def _binary(folder: Path) -> tuple[EdgeSource, VertexData]:
    archive = Archive(file_inside(folder, "raw/data.npz"))
    edges: EdgeSource = ListedEdges(
        (archive.array("edge_index"),), None, archive.number("num_nodes_list", "num_nodes")
    )
    data = vertex_data(archive)
    attr, types = (archive.first(name) for name in ("edge_feat", "edge_reltype"))
    edges = with_rows(
        edges,
        None if attr is None else array_rows(attr, "features of edges"),
        None if types is None else array_rows(types, "types of edges"),
    )
    if (folder / "raw" / "node-label.npz").is_file():
        labels = Archive(file_inside(folder, "raw/node-label.npz"))
        data.labels = array_rows(labels.array("node_label"), "labels")
    return edges, data


def _split_folder(folder: Path, asked: str | None) -> Path | None:
    found = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if asked is not None and asked not in found:
        raise BadInput(f"{folder} has no split {asked!r}: it has {', '.join(found) or 'none'}")
    if asked is None and len(found) > 1:
        raise BadInput(f"{folder} has the splits {', '.join(found)}: choose one with --split")
    name = asked or (found[0] if found else None)
    return None if name is None else folder / name
