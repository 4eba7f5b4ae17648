"""`siafu import`: any graph, or any triples, that people have to a store."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from siafu.base.dataset_names import CATALOGUE_NAMES
from siafu.base.errors import BadInput
from siafu.base.option import argument, option
from siafu.base.storage.absent import near_file
from siafu.base.words import counted
from siafu.cli.common import ProgressBar, bytes_of, say, told_rate
from siafu.cli.declared import memory_option, out_file
from siafu.cli.info import named, told_counts

if TYPE_CHECKING:
    from siafu.graph.class_counts import ClassCounts
    from siafu.graph.importing.importer import Imported
    from siafu.graph.triples.triple_import import TripleImport

_edges, _vertices, _triples = (partial(option, panel=panel) for panel in ("Edges", "Vertices", "Triples"))
_COLUMN = "NAME|N"


def import_(
    source: Path = argument(
        "SOURCE",
        "A file of edges or triples, an OGB or GraphBolt folder, or one with train, valid and test triples.",
    ),
    output: Path | None = out_file("The store to write; by default SOURCE's name."),
    format: str | None = option(
        None,
        "By default, what SOURCE looks like.",
        choices=("text", "parquet", "npz", "ogb", "graphbolt", "triples"),
    ),
    src_column: str | None = _edges(None, "Sources, or heads; N counts from 0.", metavar=_COLUMN),
    dst_column: str | None = _edges(None, "Destinations, or tails.", metavar=_COLUMN),
    weight_column: str | None = _edges(None, "Edge weights.", metavar=_COLUMN),
    edge_feature_columns: str | None = _edges(
        None,
        "Features of edges (edge_attr); by default columns called edge_attr, edge_attr_0, …",
        metavar="A,B,…",
    ),
    type_column: str | None = _edges(
        None,
        "Types of edges (edge_type), numbers or names; by default a column called edge_type.",
        metavar=_COLUMN,
    ),
    edge_features: Path | None = _edges(None, "A row for each edge, .npy or text."),
    edge_types: Path | None = _edges(None, "A number for each edge, .npy or text."),
    delimiter: str | None = _edges(
        None, "One character, or tab, comma, space; by default, as the file looks."
    ),
    header: bool | None = _edges(
        None, "Whether the first row names columns.", flags=("--header/--no-header",)
    ),
    ids: str = _edges(
        "auto",
        "Integers as they are (dense), numbered anew (relabel), or strings (names).",
        choices=("auto", "dense", "relabel", "names"),
    ),
    undirected: bool = _edges(False, "Add each edge's reverse."),
    merge_parallel: bool = _edges(False, "Keep one of parallel edges, weights added up."),
    num_vertices: int | None = _edges(None, "Ids go from 0 to N - 1.", least=0),
    vertices: Path | None = _vertices(None, "A table: id, and any of label, split, features."),
    id_column: str | None = _vertices(None, "Ids.", metavar=_COLUMN),
    label_column: str | None = _vertices(None, "Labels.", metavar=_COLUMN),
    split_column: str | None = _vertices(None, "Splits.", metavar=_COLUMN),
    feature_columns: str | None = _vertices(None, "By default all other numbers.", metavar="A,B,…"),
    features: Path | None = _vertices(None, "A row for each vertex, .npy or text."),
    labels: Path | None = _vertices(None, "One for each vertex, .npy or text."),
    split: str | None = _vertices(
        None,
        "train, val or test for each vertex, .npy or text; which of an OGB folder's splits; or one to draw: random:60/20/20, "
        "or stratified:60/20/20 for the same shares in every class.",
    ),
    seed: int = _vertices(0, "Decides a split that is drawn.", least=0),
    num_classes: int | None = _vertices(
        None, "Classes go from 0 to N - 1; by default, to the highest label.", least=1
    ),
    features_dtype: str = _vertices("fp32", "How features are stored.", choices=("fp32", "bf16")),
    relation_column: str | None = _triples(
        None, "Relations of head, relation, tail; makes it --format triples.", metavar=_COLUMN
    ),
    holdout: float = _triples(
        0.0,
        "Share of one file's triples that is held out for validation, and as much again for the test.",
        least=0.0,
        most=0.45,
    ),
    memory: str | None = memory_option("--memory-limit"),
    overwrite: bool = option(False, "Replace the store if it exists."),
    name: str | None = option(None, "What to call the graph; by default the store's name."),
) -> None:
    """Read a graph of any size, or triples (head, relation, tail), and write a store, in bounded memory."""
    _refuse_absent(source)
    bytes_of(memory)
    from siafu.graph import read_store
    from siafu.graph.class_counts import ClassCounts
    from siafu.graph.feature_scales import told_scales
    from siafu.graph.importing.importer import ImportOptions, import_graph
    from siafu.graph.importing.inputs import InputOptions
    from siafu.graph.importing.readers.columns import EdgeColumns, VertexColumns
    from siafu.graph.random_split import RandomSplit

    _refuse_what_needs_no_import(source)
    target = _beside(source) if output is None else output
    of_a_graph = {
        "--weight-column": weight_column,
        "--edge-feature-columns": edge_feature_columns,
        "--type-column": type_column,
        "--edge-features": edge_features,
        "--edge-types": edge_types,
        "--undirected": undirected,
        "--merge-parallel": merge_parallel,
        "--num-vertices": num_vertices,
        "--vertices": vertices,
        "--id-column": id_column,
        "--label-column": label_column,
        "--split-column": split_column,
        "--feature-columns": feature_columns,
        "--features": features,
        "--labels": labels,
        "--split": split,
        "--num-classes": num_classes,
        "--features-dtype": None if features_dtype == "fp32" else features_dtype,
    }
    given = [flag for flag, value in of_a_graph.items() if value not in (None, False)]
    if _is_triples(source, format, asked=relation_column is not None, of_a_graph=bool(given)):
        if given:
            raise BadInput(f"{given[0]} is for graphs, and {source} is read as triples: leave it out")
        from siafu.graph.triples.triple_import import TripleImport
        from siafu.graph.triples.triple_sources import TripleOptions

        columns = TripleOptions(src_column, relation_column, dst_column, delimiter, header, ids == "names")
        _import_triples(
            source,
            target,
            TripleImport(columns, ids == "dense", holdout, bytes_of(memory), overwrite, name),
        )
        return
    if holdout:
        raise BadInput(f"--holdout is for triples, and {source} is read as a graph: give --format triples")
    drawn = None if split is None else RandomSplit.parsed(split)
    options = ImportOptions(
        input=InputOptions(
            format=format,
            columns=EdgeColumns(
                src_column, dst_column, weight_column, _listed(edge_feature_columns), type_column
            ),
            delimiter=delimiter,
            header=header,
            ids=ids,  # type: ignore[arg-type]
            vertices=vertices,
            vertex_columns=VertexColumns(id_column, label_column, split_column, _listed(feature_columns)),
            features=features,
            labels=labels,
            split=split if drawn is None else None,
            edge_features=edge_features,
            edge_types=edge_types,
        ),
        drawn=None if drawn is None else (drawn, seed),
        undirected=undirected,
        merge_parallel=merge_parallel,
        num_vertices=num_vertices,
        num_classes=num_classes,
        bf16=features_dtype == "bf16",
        memory_limit=bytes_of(memory),
        overwrite=overwrite,
        name=name,
    )
    began = time.monotonic()
    with ProgressBar("edges") as progress:
        done = import_graph(source, target, options, progress)
    stored = read_store(target)
    counts = ClassCounts.of(stored)
    for line in _understood(done, counts):
        say(line)
    if counts is not None and (lopsided := counts.lopsided()):
        say(lopsided)
    if far_apart := told_scales(stored.x, done.feature_names):
        say(far_apart)
    _told(
        target,
        f"{done.num_vertices:,} {'vertex' if done.num_vertices == 1 else 'vertices'}",
        done.num_edges,
        "edge",
        time.monotonic() - began,
    )


def _refuse_absent(source: Path) -> None:
    """Refuse a dataset's name, and a name of nothing, before Numba is loaded; what else is wrong with a place is told by its reader."""
    try:
        source.lstat()
    except FileNotFoundError:
        if str(source) in CATALOGUE_NAMES:
            raise BadInput(
                f"{source} is the name of a dataset, and needs no import: siafu train {source}"
            ) from None
        raise BadInput(f"no file or folder {source}: {near_file(source) or 'check the name'}") from None
    except (OSError, ValueError):
        return


def _refuse_what_needs_no_import(source: Path) -> None:
    """Refuse a store: it can be trained on as it is."""
    from siafu.graph.stores.store import is_store

    if is_store(source):
        raise BadInput(
            f"{source} is a store already: use it as it is (siafu info {source} tells what is in it)"
        )


def _understood(done: "Imported", counts: "ClassCounts | None") -> Iterator[str]:
    """Lines that tell what the import took its input for."""
    yield from done.notes
    weights = "weighted" if done.weighted else "without weights"
    ways = "each edge both ways" if done.symmetric else "directed"
    ends = f", from column {done.end_names[0]} to column {done.end_names[1]}" if done.end_names else ""
    names = "; vertices are numbered anew, their names are kept" if done.relabelled else ""
    features = f", {counted(done.num_edge_features, 'feature')} an edge" if done.num_edge_features else ""
    types = f", {counted(done.num_types, 'type')}{named(done.type_names)}" if done.num_types else ""
    yield f"edges: {weights}{features}{types}, {ways}{ends}{names}"
    if done.parallel:
        merge = "" if done.num_types or done.num_edge_features else ": --merge-parallel keeps one of each"
        yield f"{counted(done.parallel, 'edge')} more than once between the same vertices{merge}"
    if done.first_vertex == 1:
        yield "vertex 0 has no edges: if your ids count from 1, --ids relabel leaves it out"
    yield "features: " + (
        f"{done.num_features:,} a vertex{named(done.feature_names)}" if done.num_features else "none"
    )
    yield "labels: " + (
        f"{done.num_classes:,} classes{named(done.class_names)}{told_counts(counts)}"
        if done.num_classes
        else "none"
    )
    if done.unknown_words:
        yield f"read as no label: {', '.join(done.unknown_words)}"
    if done.split:
        yield "split: " + ", ".join(f"{count:,} {part}" for part, count in done.split.items())
    elif done.num_classes:
        yield "split: none, and training needs one: --split random:60/20/20 draws it, here or for 'siafu train'"
    for table, columns in done.ignored.items():
        # The way to have them is told for edges: of a table of vertices only words are left out.
        how = (
            " (take them with --weight-column, --edge-feature-columns or --type-column; head, relation, tail: --format triples)"
            if table == done.edge_table
            else ("" if done.num_classes else " (--label-column NAME takes one of them as labels)")
        )
        yield f"not taken from {table}: {', '.join(columns)}{how}"


def _listed(columns: str | None) -> tuple[str, ...] | None:
    return None if columns is None else tuple(columns.split(","))


def _is_triples(source: Path, format: str | None, *, asked: bool, of_a_graph: bool) -> bool:
    from siafu.graph.triples.triple_sources import looks_like_triples

    if format is not None or asked:
        return format == "triples" or asked
    if of_a_graph:
        return False
    return looks_like_triples(source)


def _import_triples(source: Path, target: Path, options: "TripleImport") -> None:
    from siafu.graph.triples.triple_import import import_triples

    began = time.monotonic()
    with ProgressBar("triples") as progress:
        done = import_triples(source, target, options, progress)
    for line in done.warnings():
        say(line)
    entities = f"{done.num_entities:,} {'entity' if done.num_entities == 1 else 'entities'}, {counted(done.num_relations, 'relation')}"
    splits = ", ".join(f"{count:,} {split}" for split, count in done.triples.items())
    total = sum(done.triples.values())
    _told(target, f"{entities}, {splits}", total, "triple", time.monotonic() - began)


def _told(target: Path, counts: str, total: int, unit: str, seconds: float) -> None:
    from siafu.base.hardware.machine import peak_rss_bytes

    print(
        f"wrote {target}: {counts}, {counted(total, unit)} in {seconds:.1f} s "
        f"({told_rate(total, seconds, f'{unit}s')}), peak memory {peak_rss_bytes() / 1e6:,.0f} MB"
    )


def _beside(source: Path) -> Path:
    """SOURCE's name without endings, in the directory where the user is."""
    name = source.resolve().name.removesuffix(".gz").rsplit(".", 1)[0]
    if not name:
        raise BadInput(f"{source} gives the store no name: choose one with -o")
    return Path(name if Path(name) != source else f"{name}.store")
