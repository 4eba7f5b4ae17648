"""`siafu info`: what a graph has."""

import json
from typing import Any

from siafu.base.loading import loading
from siafu.base.option import argument
from siafu.cli.common import refuse_unknown_dataset
from siafu.cli.declared import json_flag

_MOST_NAMES = 8


def info(
    graph: str = argument("GRAPH", "A dataset's name or a store."),
    as_json: bool = json_flag("Print one JSON object."),
) -> None:
    """Show what a graph has: vertices, edges with weights, features and types, labels, splits, layout."""
    refuse_unknown_dataset(graph)
    with loading():
        import siafu

    found = siafu.load(graph)
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
    if as_json:
        print(json.dumps(facts))
        return
    for title, value in _lines(facts):
        print(f"{title:<12}{value}")


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
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
        ("features", f"{facts['features']:,} a vertex" if facts["features"] else "none"),
        ("labels", "none" if labels is None else f"{labels:,} {kind}{named(facts['class_names'])}"),
        ("split", split or "none"),
        ("layout", "in an order that is faster to walk" if facts["layout"] else "none"),
    ]


def counted(number: int, noun: str) -> str:
    """Such as '1 feature' or '2,000 features'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def named(names: list[str] | tuple[str, ...]) -> str:
    """The first names in brackets; nothing where there are none."""
    few = names[:_MOST_NAMES]
    return f" ({', '.join(few)}{', …' if len(names) > len(few) else ''})" if few else ""
