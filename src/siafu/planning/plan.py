"""siafu.plan: which machines train a graph best for the money."""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from siafu.cost.prices import price_book
from siafu.graph import Graph
from siafu.planning.durations import seconds_in
from siafu.planning.planner import Plan, make_plan
from siafu.planning.request import Request
from siafu.planning.shapes import model_shape, planned_graph
from siafu.virtual.graph_shape import GraphShape


def plan(
    graph: Graph | GraphShape | str | Path,
    model: str | nn.Module = "gcn",
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 8,
    epochs: int = 200,
    evaluate_every: int = 10,
    deadline: float | str | None = None,
    budget: float | None = None,
    spot: bool = False,
    instances: Sequence[str] = (),
    most_servers: int = 100,
    lambdas: bool = True,
    disks: bool = True,
    layout: str = "auto",
    precision: str = "fp32",
    prices: str | Path | None = None,
    name: str | None = None,
) -> Plan:
    """The best way to train `model` on `graph`, on rented machines: with a deadline the cheapest, with a budget the
    fastest, else the one of most value, 1 / (time × dollars).

    graph:        a graph, a dataset's name, a store's path, or the sizes alone
    model:        "gcn", "gat", "gatv2", "transformer", "sage" or "gin", of these sizes; or one of siafu's models
    epochs, evaluate_every: how long to train, and how often to look
    deadline:     seconds, or text such as "1h"; None: no matter
    budget:       dollars; None: no matter
    spot:         rent machines that may be taken away
    instances:    types of machines to choose from; none: all that have no GPU
    most_servers: how many may be rented
    lambdas:      whether tensor tasks may run on Lambdas
    disks:        whether tables that do not fit memory may be on machines' disks
    layout:       of gathers: "vertices", "columns", or "auto": the faster one that fits
    precision:    how rows are stored while gathered: "fp32", or "bf16", which takes half the memory
    prices:       a price file, laid over the built-in one; None: $SIAFU_PRICES
    name:         what the commands call the graph; None: its own
    """
    found, shape, known = planned_graph(graph)
    sizes = model_shape(model, hidden=hidden, layers=layers, heads=heads, precision=precision)
    seconds, types = seconds_in(deadline) if isinstance(deadline, str) else deadline, tuple(instances)
    limits = (seconds, budget, spot, types, most_servers, lambdas, disks, layout, known)
    request = Request(name or found, shape, sizes, epochs, evaluate_every, *limits)
    return make_plan(request, prices=price_book(prices))
