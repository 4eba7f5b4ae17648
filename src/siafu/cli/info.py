"""`siafu info`: what a graph, or a store of triples, has."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siafu.base.dataset_names import refuse_unknown_name
from siafu.base.loading import loading
from siafu.base.option import argument
from siafu.base.storage.absent import refuse_absent_dataset
from siafu.base.words import counted
from siafu.cli.declared import json_flag

if TYPE_CHECKING:
    from siafu.graph.class_counts import ClassCounts

_MOST_NAMES = 8


def info(
    graph: str = argument("GRAPH", "A dataset's name, a store, or a store of triples."),
    as_json: bool = json_flag("Print one JSON object."),
) -> None:
    """Show what a graph has: vertices, edges with weights, features and types, labels, splits, layout. Or triples."""
    refuse_absent_dataset(graph)
    refuse_unknown_name(graph)
    with loading():
        from siafu.graph.triples import is_triple_store

    facts, lines = _of_triples(Path(graph)) if is_triple_store(Path(graph)) else _of_graph(graph)
    if as_json:
        print(json.dumps(facts))
        return
    for title, value in lines:
        print(f"{title:<12}{value}")


def _of_graph(name: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    with loading():
        import siafu
        from siafu.graph.class_counts import ClassCounts

    found = siafu.load(name)
    counts = ClassCounts.of(found)
    facts: dict[str, Any] = {
        "name": found.name,
        "vertices": found.num_vertices,
        "edges": found.num_edges,
        "symmetric": found.is_symmetric,
        "weighted": found.edge_weight is not None,
        "edge_features": found.num_edge_features,
        "edge_types": found.num_relations,
        "type_names": list(found.type_names),
        "features": found.num_features,
        "feature_names": list(found.feature_names),
        "labels": None if found.y is None else found.num_classes,
        "several_labels": found.multi_label,
        "quantities": found.has_quantities,
        "class_names": list(found.class_names),
        "split": {
            part: len(ids)
            for part, ids in (("train", found.train), ("val", found.val), ("test", found.test))
            if ids is not None
        },
        "named_vertices": found.ids is not None,
        "layout": found.layout is not None,
    }
    if counts is not None:
        facts |= {"classes_that_occur": counts.occurring, "unlabelled_vertices": counts.unlabelled}
    return facts, _lines(facts, told_counts(counts))


def _of_triples(path: Path) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    from siafu.graph.triples import read_triples
    from siafu.graph.triples.triples import SPLITS

    found = read_triples(path)
    names = [] if found.relations is None else [_text(name) for name in found.relations.tolist()]
    facts: dict[str, Any] = {
        "name": found.name,
        "entities": found.num_entities,
        "relations": found.num_relations,
        "relation_names": names,
        "triples": {split: len(getattr(found, split)) for split in SPLITS},
        "named_entities": found.ids is not None,
    }
    triples = ", ".join(f"{count:,} {split}" for split, count in facts["triples"].items())
    return facts, [
        ("name", found.name),
        ("entities", f"{found.num_entities:,}" + (", with names" if facts["named_entities"] else "")),
        ("relations", f"{found.num_relations:,}{named(names)}"),
        ("triples", triples),
    ]


def _text(name: bytes | int) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _lines(facts: dict[str, Any], of_classes: str) -> list[tuple[str, str]]:
    """A title and a value for each fact that there is something to say of."""
    on_edges = [
        "weighted" if facts["weighted"] else "without weights",
        "each both ways" if facts["symmetric"] else "directed",
    ]
    if facts["edge_features"]:
        on_edges.append(f"{counted(facts['edge_features'], 'feature')} an edge (edge_attr)")
    if facts["edge_types"]:
        on_edges.append(f"{counted(facts['edge_types'], 'type')} (edge_type){named(facts['type_names'])}")
    kind = "labels, any number a vertex" if facts["several_labels"] else "classes"
    if facts["quantities"]:
        kind = "quantities a vertex"
    labels = facts["labels"]
    split = ", ".join(f"{count:,} {part}" for part, count in facts["split"].items())
    return [
        ("name", facts["name"]),
        ("vertices", f"{facts['vertices']:,}" + (", with names" if facts["named_vertices"] else "")),
        ("edges", f"{facts['edges']:,}: {', '.join(on_edges)}"),
        (
            "features",
            f"{facts['features']:,} a vertex{named(facts['feature_names'])}" if facts["features"] else "none",
        ),
        (
            "labels",
            "none" if labels is None else f"{labels:,} {kind}{named(facts['class_names'])}{of_classes}",
        ),
        ("split", split or "none"),
        ("layout", "in an order that is faster to walk" if facts["layout"] else "none"),
    ]


def told_counts(counts: "ClassCounts | None") -> str:
    """Classes that no vertex has, and vertices without a label, as the end of a line; nothing where there are none."""
    told = ""
    if counts is not None and counts.occurring < len(counts.all):
        told += f", of which {counts.occurring:,} occur{'s' if counts.occurring == 1 else ''}"
    if counts is not None and counts.unlabelled:
        vertices = "1 vertex has" if counts.unlabelled == 1 else f"{counts.unlabelled:,} vertices have"
        told += f"; {vertices} no label"
    return told


def named(names: list[str] | tuple[str, ...]) -> str:
    """The first names in brackets; nothing where there are none."""
    few = [repr(name) if "," in name else name for name in names[:_MOST_NAMES]]
    return f" ({', '.join(few)}{', …' if len(names) > len(few) else ''})" if few else ""
