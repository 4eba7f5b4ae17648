"""`siafu reorder`: put a layout into a store, in which gathers find more of their rows in the cache."""

import time
from pathlib import Path

from siafu.base.option import argument, option
from siafu.cli.common import ProgressBar, find_store, say
from siafu.cli.declared import memory_option, out_file


def reorder(
    store: Path = argument("STORE", "A store's path, or the name of a cached dataset."),
    output: Path | None = out_file(
        "Write a copy of the store with the layout.", unset="the layout goes into STORE", metavar="STORE"
    ),
    order: str = option(
        "auto",
        "rabbit, rcm, degree or metis; auto: rabbit if it pays.",
        choices=("auto", "rabbit", "rcm", "degree", "metis"),
    ),
    memory: str | None = memory_option(),
    overwrite: bool = option(False, "Replace a layout, or a store at -o, that is there."),
) -> None:
    """Add an order of the vertices to a store in which training walks the graph faster.

    Ids, features, labels, splits, partitions and predictions stay as they are: the order lies beside them.
    """
    from siafu.graph import read_store, write_store
    from siafu.graph.reorder import advise, make_order, write_layout
    from siafu.graph.reorder.layout import check_no_layout

    path = find_store(store)
    graph = read_store(path).replace(layout=None)
    if output is None and not overwrite:
        check_no_layout(path)
    began = time.monotonic()
    with ProgressBar("items") as progress:
        if order == "auto":
            advice = advise(graph, progress, memory)
            name, vertex_order, reason = advice.order, advice.vertex_order, advice.reason
        else:
            name, vertex_order, reason = order, make_order(graph, order, progress, memory), f"{order} order"
        ordered = time.monotonic() - began
        if name is not None and vertex_order is not None:
            target = path
            if output is not None:
                write_store(graph, output, overwrite=overwrite)
                target = output
            write_layout(target, graph, vertex_order, name, overwrite=overwrite, progress=progress)
    say(f"{graph.name}: {reason}")
    if name is None:
        say("nothing was written: name an --order to have one all the same")
        return
    seconds = time.monotonic() - began
    say(f"{graph.num_edges:,} edges ordered in {ordered:.1f} s, written in {seconds - ordered:.1f} s")
    print(target)
