"""A program in one line, for people who train."""

from collections import Counter
from collections.abc import Iterable

from siafu.graph import Graph
from siafu.program.program import Program
from siafu.program.record.record import GatherSite


def headline(program: Program) -> str:
    """Which gathers run in every epoch, and which ran once and never again."""
    every = _listed(step.site for group in program.gathers for step in group)
    once = _listed(program.cut.folded)
    said = f"each epoch gathers {every}" if every else "no gather is left in an epoch"
    return f"{said}; computed once: {once}" if once else said


def unused_edge_data(program: Program, graph: Graph) -> list[str]:
    """Lines that say which data of the graph's edges no gather of the program looks at; none, if a gather is a user's own."""
    sites = [*(step.site for group in program.gathers for step in group), *program.cut.folded]
    if any(not type(site.gather).__module__.startswith("siafu.") or site.apply_edge for site in sites):
        return []
    # What edges have, and the field of a gather that says that it looks at it.
    fields = {
        "weights": (graph.edge_weight, "weighted"),
        "features (edge_attr)": (graph.edge_attr, "features"),
        "types (edge_type)": (graph.edge_type, "relations"),
    }
    unused = [
        what
        for what, (values, field) in fields.items()
        if values is not None and not any(getattr(site.gather, field, False) for site in sites)
    ]
    return [f"edges have {' and '.join(unused)}, which this model does not look at"] if unused else []


def describe_gather(site: GatherSite) -> str:
    """Such as 'GcnSum, 16 wide'."""
    edges = "" if site.apply_edge is None else " of edge messages"
    return f"{site.gather.title}{edges}, {site.width} wide"


def _listed(sites: Iterable[GatherSite]) -> str:
    counts = Counter(describe_gather(site) for site in sites)
    return " · ".join(words if count == 1 else f"{count} × {words}" for words, count in counts.items())
