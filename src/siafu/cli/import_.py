"""siafu import: any graph that people have to a store."""

import resource
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from siafu.base.errors import BadInput
from siafu.cli.common import ProgressBar, parse_size


class Format(StrEnum):
    text = "text"
    parquet = "parquet"
    npz = "npz"
    ogb = "ogb"
    graphbolt = "graphbolt"


class IdKind(StrEnum):
    auto = "auto"
    dense = "dense"
    relabel = "relabel"
    names = "names"


class FeatureType(StrEnum):
    fp32 = "fp32"
    bf16 = "bf16"


_EDGES = "Edges"
_VERTICES = "Vertices"


def import_(
    source: Annotated[Path, typer.Argument(help="A file of edges, or an OGB or GraphBolt folder.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The store to write; by default SOURCE's name.")
    ] = None,
    format: Annotated[Format | None, typer.Option(help="By default, what SOURCE looks like.")] = None,
    src_column: Annotated[
        str | None, typer.Option(metavar="NAME|N", help="Sources; N counts from 0.", rich_help_panel=_EDGES)
    ] = None,
    dst_column: Annotated[
        str | None, typer.Option(metavar="NAME|N", help="Destinations.", rich_help_panel=_EDGES)
    ] = None,
    weight_column: Annotated[
        str | None, typer.Option(metavar="NAME|N", help="Edge weights.", rich_help_panel=_EDGES)
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            help="One character, or tab, comma, space; by default, as the file looks.", rich_help_panel=_EDGES
        ),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header", help="Whether the first row names columns.", rich_help_panel=_EDGES
        ),
    ] = None,
    ids: Annotated[
        IdKind,
        typer.Option(
            help="Integers as they are (dense), numbered anew (relabel), or strings (names).",
            rich_help_panel=_EDGES,
        ),
    ] = IdKind.auto,
    undirected: Annotated[
        bool, typer.Option("--undirected", help="Add each edge's reverse.", rich_help_panel=_EDGES)
    ] = False,
    merge_parallel: Annotated[
        bool,
        typer.Option(
            "--merge-parallel", help="Keep one of parallel edges, weights added up.", rich_help_panel=_EDGES
        ),
    ] = False,
    num_vertices: Annotated[
        int | None, typer.Option(min=0, help="Ids go from 0 to N - 1.", rich_help_panel=_EDGES)
    ] = None,
    vertices: Annotated[
        Path | None,
        typer.Option(help="A table: id, and any of label, split, features.", rich_help_panel=_VERTICES),
    ] = None,
    id_column: Annotated[str | None, typer.Option(metavar="NAME|N", rich_help_panel=_VERTICES)] = None,
    label_column: Annotated[str | None, typer.Option(metavar="NAME|N", rich_help_panel=_VERTICES)] = None,
    split_column: Annotated[str | None, typer.Option(metavar="NAME|N", rich_help_panel=_VERTICES)] = None,
    feature_columns: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="By default all other numbers.", rich_help_panel=_VERTICES),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="A row for each vertex, .npy or text.", rich_help_panel=_VERTICES)
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="One for each vertex, .npy or text.", rich_help_panel=_VERTICES)
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="train, val or test for each vertex, .npy or text; or which of an OGB folder's splits.",
            rich_help_panel=_VERTICES,
        ),
    ] = None,
    num_classes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Classes go from 0 to N - 1; by default, to the highest label.",
            rich_help_panel=_VERTICES,
        ),
    ] = None,
    features_dtype: Annotated[FeatureType, typer.Option(rich_help_panel=_VERTICES)] = FeatureType.fp32,
    memory_limit: Annotated[
        str | None, typer.Option(help="Such as 1GB; by default half of the machine's.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the store if it exists.")] = False,
    name: Annotated[
        str | None, typer.Option(help="What to call the graph; by default SOURCE's name.")
    ] = None,
) -> None:
    """Read a graph of any size and write a store, in bounded memory."""
    from siafu.graph.importing.importer import ImportOptions, import_graph
    from siafu.graph.importing.inputs import InputOptions
    from siafu.graph.importing.readers.columns import VertexColumns

    options = ImportOptions(
        input=InputOptions(
            format=format,
            src=src_column,
            dst=dst_column,
            weight=weight_column,
            delimiter=delimiter,
            header=header,
            ids=ids.value,
            vertices=vertices,
            vertex_columns=VertexColumns(
                id_column,
                label_column,
                split_column,
                None if feature_columns is None else tuple(feature_columns.split(",")),
            ),
            features=features,
            labels=labels,
            split=split,
        ),
        undirected=undirected,
        merge_parallel=merge_parallel,
        num_vertices=num_vertices,
        num_classes=num_classes,
        bf16=features_dtype is FeatureType.bf16,
        memory_limit=None if memory_limit is None else parse_size(memory_limit),
        overwrite=overwrite,
        name=name,
    )
    target = _beside(source) if output is None else output
    began = time.monotonic()
    with ProgressBar("edges") as progress:
        done = import_graph(source, target, options, progress)
    seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"wrote {target}: {done.num_vertices:,} vertices, {done.num_edges:,} edges in {seconds:.1f} s "
        f"({done.num_edges / seconds / 1e6:.2f} M edges/s), peak memory {peak / 1e6:,.0f} MB"
    )


def _beside(source: Path) -> Path:
    """SOURCE's name without endings, in the directory where the user is."""
    name = source.resolve().name.removesuffix(".gz").rsplit(".", 1)[0]
    if not name:
        raise BadInput(f"{source} gives the store no name: choose one with -o")
    return Path(name if Path(name) != source else f"{name}.store")
