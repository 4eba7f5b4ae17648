"""The right reader for an input, and the user's options for it."""

import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from siafu.base.errors import BadInput
from siafu.graph.importing.readers import graphbolt, ogb
from siafu.graph.importing.readers.arrays import ArrayFile
from siafu.graph.importing.readers.blocks import EdgeSource, Rows, VertexData, VertexTable
from siafu.graph.importing.readers.columns import EdgeColumns, VertexColumns
from siafu.graph.importing.readers.edge_rows import with_rows
from siafu.graph.importing.readers.npz import array_rows, code_rows, read_npz
from siafu.graph.importing.readers.parquet import ParquetEdges, ParquetTable, ParquetVertices
from siafu.graph.importing.readers.text import BLOCK_BYTES, TextEdges, TextTable
from siafu.graph.importing.readers.vertex_text import TextVertices, number_rows, split_rows
from siafu.graph.stores.store import is_store

FORMATS = ("text", "parquet", "npz", "ogb", "graphbolt")
IdKind = Literal["auto", "dense", "relabel", "names"]

_MEMORY_PER_BLOCK_BYTE = 64  # blocks in flight, each with the text and what it is parsed into
_LEAST_BLOCK_BYTES = 1 << 16
_GZIP = b"\x1f\x8b"
_NO_TABLES = {
    "JSON": rb'[\[{]\s*["\[{\]}]',
    "XML, such as GraphML or GEXF": rb"<\?xml|<graphml|<gexf",
    "GML": rb"graph\s*\[|Creator\b",
    "DOT": rb"(strict\s+)?(di)?graph\b[^\n,\t]*\{",
    "a single array of NumPy's": rb"\x93NUMPY",
    "a pickle": rb"\x80[\x02-\x05]",
}
_MAGIC = {b"PAR1": "parquet", b"PK\x03\x04": "npz"}


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How to read an input.

    format:                  one of FORMATS; None: as the input looks
    columns:                 of a table of edges, by name, or by position from 0
    delimiter, header:       of text; None: as the first lines look
    ids:                     "dense": as they are; "relabel": integers, to be numbered; "names": strings;
                             "auto": strings if the first row has them, integers as they are if half of their range is used
    vertices:                a table with a row for each vertex; `vertex_columns` says which columns it has
    features, labels, split: files with a row for each vertex, in order; `split` names an OGB folder's split, too
    edge_features:           a file with a row for each edge, in order
    edge_types:              a file with a type for each edge, a number, in order
    """

    format: str | None = None
    columns: EdgeColumns = field(default_factory=EdgeColumns)
    delimiter: str | None = None
    header: bool | None = None
    ids: IdKind = "auto"
    vertices: Path | None = None
    vertex_columns: VertexColumns = field(default_factory=VertexColumns)
    features: Path | None = None
    labels: Path | None = None
    split: str | None = None
    edge_features: Path | None = None
    edge_types: Path | None = None


def open_input(source: Path, options: InputOptions, memory: int) -> tuple[EdgeSource, VertexData]:
    """Open the edges of `source` and the vertex data of it and of the files that the options name."""
    kind = options.format or detect_format(source)
    if kind not in FORMATS:
        raise BadInput(f"format {kind!r} is unknown: choose one of {', '.join(FORMATS)}")
    data = VertexData()
    if kind == "text":
        edges: EdgeSource = _text_edges(source, options, memory)
    elif kind == "parquet":
        edges = ParquetEdges(ParquetTable(source), options.columns)
    elif kind == "npz":
        edges, data = read_npz(source)
    elif kind == "ogb":
        edges, data = ogb.read_ogb(source, options.split)
    else:
        edges, data = graphbolt.read_graphbolt(source)
    if kind not in ("text", "parquet") and options.columns.asked:
        raise BadInput(
            f"{source} is no table: it has no column {options.columns.asked[0]!r}; leave the option out"
        )
    _add_files(data, options, split_is_file=kind != "ogb")
    return with_rows(edges, *_edge_files(options)), data


def detect_format(source: Path) -> str:
    """Detect the format of a file or folder."""
    if not source.exists():
        raise BadInput(f"no file or folder {source}: check the name")
    if source.is_dir():
        return _folder_format(source)
    with source.open("rb") as file:
        beginning = file.read(512)
    found = _MAGIC.get(beginning[:4], "text")
    if found == "npz" and _is_workbook(source):
        raise BadInput(f"{source} is a workbook: save its sheet as CSV, and import that")
    if found == "text":
        _refuse_no_table(source, beginning)
    return found


def _is_workbook(source: Path) -> bool:
    """Whether a zip archive is one of Excel's, whichever of its parts comes first."""
    try:
        with zipfile.ZipFile(source) as archive:
            return "[Content_Types].xml" in archive.namelist()
    except zipfile.BadZipFile:
        return False


def _refuse_no_table(source: Path, beginning: bytes) -> None:
    """Refuse a file that is no text, or whose text is no table: its words would be taken for vertices."""
    if beginning[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BadInput(
            f"{source} is text in UTF-16: save it as UTF-8, for example iconv -f UTF-16 -t UTF-8 {source}"
        )
    if beginning.startswith(_GZIP):
        return
    kind = next((kind for kind, mark in _NO_TABLES.items() if re.match(mark, beginning.lstrip())), None)
    kind = "a binary file" if kind is None and b"\0" in beginning.split(b"\n", 1)[0] else kind
    if kind is not None:
        raise BadInput(
            f"{source} is {kind}, which siafu does not read: write its edges as a table of text or Parquet, a row for each edge, or "
            "as .npz; in Python, siafu.Graph.from_edges and from_pyg take arrays (if it is a table all "
            "the same: --format text)"
        )


def open_vertex_table(options: InputOptions, edges: EdgeSource, memory: int) -> VertexTable | None:
    """The table of vertices, if one is given; its ids are of the edges' kind."""
    if options.vertices is None:
        return None
    if any((options.features, options.labels, options.split)):
        raise BadInput("give either --vertices, or --features, --labels and --split, not both")
    table: VertexTable
    if detect_format(options.vertices) == "parquet":
        table = ParquetVertices(ParquetTable(options.vertices), options.vertex_columns)
    else:
        header = _header(None, options.vertex_columns.asked)
        size = block_bytes(memory)
        text = TextTable(options.vertices, delimiter=options.delimiter, header=header, block_bytes=size)
        table = TextVertices(text, options.vertex_columns, named=edges.named or None)
    if table.named != edges.named:
        kinds = ("strings", "integers") if table.named else ("integers", "strings")
        raise BadInput(
            f"{table.path} has {kinds[0]} as ids, but the edges have {kinds[1]}: both must be of one kind; see --ids"
        )
    return table


def _folder_format(folder: Path) -> str:
    if (folder / graphbolt.METADATA).is_file():
        return "graphbolt"
    if ogb.is_ogb(folder):
        return "ogb"
    if any(folder.glob("*.parquet")):
        return "parquet"
    if is_store(folder):
        raise BadInput(f"{folder} is a store already: use it as it is")
    raise BadInput(
        f"{folder} is no folder that siafu reads: it has neither {graphbolt.METADATA}, raw/edge.csv.gz, raw/data.npz nor Parquet files"
    )


def _text_edges(source: Path, options: InputOptions, memory: int) -> TextEdges:
    header = _header(options.header, options.columns.asked)
    table = TextTable(source, delimiter=options.delimiter, header=header, block_bytes=block_bytes(memory))
    named = {"auto": None, "names": True, "dense": False, "relabel": False}[options.ids]
    return TextEdges(table, options.columns, named=named)


def _header(given: bool | None, asked: list[str]) -> bool | None:
    """Whether a table has a header, where that is known: who names a column has read its name there."""
    return True if given is None and any(not column.isdecimal() for column in asked) else given


def block_bytes(memory: int) -> int:
    """Bytes of text that are parsed at once, so that an import stays within `memory`."""
    return max(_LEAST_BLOCK_BYTES, min(BLOCK_BYTES, memory // _MEMORY_PER_BLOCK_BYTE))


def _add_files(data: VertexData, options: InputOptions, *, split_is_file: bool) -> None:
    """Replace vertex data of the input by the files that the options name."""
    if options.features is not None:
        data.features = _rows(options.features, "features", wide=True)
    if options.labels is not None:
        data.labels = _rows(options.labels, "labels", wide=False)
    if options.split is not None and split_is_file:
        path = Path(options.split)
        data.split_ids = {}
        data.split_codes = code_rows(ArrayFile(path)) if path.suffix == ".npy" else split_rows(path)


def _edge_files(options: InputOptions) -> tuple[Rows | None, Rows | None]:
    attr, types = options.edge_features, options.edge_types
    return (
        None if attr is None else _rows(attr, "features of edges", wide=True),
        None if types is None else _rows(types, "types of edges", wide=False),
    )


def _rows(path: Path, what: str, *, wide: bool) -> Rows:
    if path.suffix == ".npy":
        return array_rows(ArrayFile(path), what)
    return number_rows(path, what, always_wide=wide)
