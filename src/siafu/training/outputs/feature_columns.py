"""Features of another graph than a run was trained on: the same columns, known by name where both have names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from siafu.base.errors import BadInput
from siafu.base.storage.mapped import mapped_array
from siafu.base.words import counted
from siafu.graph import Graph

_MOST_NAMES = 8
_ROWS_AT_ONCE = 1 << 14


def columns_as_trained(
    graph: Graph, known: dict[str, Any], scratch: Path | None, told: Callable[[str], None]
) -> Graph:
    """The graph with its features in the order of the run's; refused if they are others.

    known:   what the run wrote about its graph: the number of `features`, and their names if they had any
    scratch: where features in another order are written; None: they are in memory
    told:    hears that the order was another one
    """
    wanted, names = known["features"], tuple(known.get("feature_names", ()))
    if names and graph.feature_names and names != graph.feature_names:
        _refuse_other_names(graph, names)
        told(
            f"features of {graph.name} are in another order than the run's ({_few(names)}): they are taken by their names"
        )
        return _in_order(graph, [graph.feature_names.index(name) for name in names], scratch)
    if graph.num_features != wanted:
        raise BadInput(
            f"graph {graph.name!r} has {graph.num_features} features, the run was trained with {wanted}: "
            "give a graph of the same kind"
        )
    return graph


def _refuse_other_names(graph: Graph, names: tuple[str, ...]) -> None:
    """Refuse features that are not the run's, each once."""
    missing = [name for name in names if name not in graph.feature_names]
    foreign = [name for name in graph.feature_names if name not in names]
    if missing or foreign:
        differences = [
            f"{word} {_few(found)}" for word, found in (("lacks", missing), ("also has", foreign)) if found
        ]
        raise BadInput(
            f"graph {graph.name!r} has other features than the {counted(len(names), 'feature')} of the run: it "
            f"{' and '.join(differences)}; import it with the run's (--feature-columns {','.join(names[:_MOST_NAMES])}"
            f"{',…' if len(names) > _MOST_NAMES else ''})"
        )
    if len(set(names)) != len(names) or len(graph.feature_names) != len(names):
        raise BadInput(
            f"graph {graph.name!r} has its features in another order than the run, and some have one name: "
            "give each a name of its own"
        )


def _in_order(graph: Graph, columns: list[int], scratch: Path | None) -> Graph:
    if graph.x is None:
        return graph
    shape = (graph.num_vertices, len(columns))
    if scratch is None:
        x = np.empty(shape, graph.x.dtype)
    else:
        x = mapped_array(scratch, shape[0] * shape[1], graph.x.dtype).reshape(shape)
    for start in range(0, len(x), _ROWS_AT_ONCE):
        x[start : start + _ROWS_AT_ONCE] = graph.x[start : start + _ROWS_AT_ONCE, columns]
    return graph.replace(x=x)


def _few(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
