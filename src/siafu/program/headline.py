"""A program in one line, for people who train."""

from collections import Counter
from collections.abc import Iterable

from siafu.program.program import Program
from siafu.program.record.record import GatherSite


def headline(program: Program) -> str:
    """Which gathers run in every epoch, and which ran once and never again."""
    every = _listed(step.site for group in program.gathers for step in group)
    once = _listed(program.cut.folded)
    said = f"each epoch gathers {every}" if every else "no gather is left in an epoch"
    return f"{said}; computed once: {once}" if once else said


def describe_gather(site: GatherSite) -> str:
    """Such as 'GcnSum, 16 wide'."""
    edges = "" if site.apply_edge is None else " of edge messages"
    return f"{site.gather.title}{edges}, {site.width} wide"


def _listed(sites: Iterable[GatherSite]) -> str:
    counts = Counter(describe_gather(site) for site in sites)
    return " · ".join(words if count == 1 else f"{count} × {words}" for words, count in counts.items())
