"""Linear maps of layers that others wrote, moved to the side of their gather where it costs less.

A gather that is a sum commutes with a map of columns: Σ (x W) = (Σ x) W. Siafu's own layers choose by `linear_first`;
here the choice is made in the recording, for layers that have none.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import fx

from siafu.nn import Layer, Sum
from siafu.program.record.cut import changing_nodes, is_gather, is_row
from siafu.program.record.record import GatherSite, Recording, output_of

_MM, _ADDMM = torch.ops.aten.mm.default, torch.ops.aten.addmm.default


def commute(recording: Recording, trainable: set[str]) -> tuple[Recording, list[str]]:
    """Move maps in place; the recording, whose output may be another node now, and what was moved and why, for people."""
    said = []
    for gather in [node for node in recording.graph.nodes if is_gather(node)]:
        site = _site(recording, gather)
        if isinstance(site.layer, Layer) or site.apply_edge is not None or not isinstance(site.gather, Sum):
            continue
        changing = changing_nodes(recording, trainable)
        reason = _after(recording, gather, site, changing) or _before(recording, gather, site, changing)
        if reason is not None:
            said.append(f"{site.layer_name}: {reason}")
    recording.graph.lint()
    return replace(recording, output=output_of(recording.graph)), said


def _after(recording: Recording, gather: fx.Node, site: GatherSite, changing: set[fx.Node]) -> str | None:
    """gather(x · W) becomes gather(x) · W."""
    (product,) = _sent(gather)
    if product.target is not _MM or len(product.users) != 1:
        return None
    rows, weight = _operands(product, 0)
    if rows is None or weight is None:
        return None
    wide, narrow = _width(rows), site.width
    if rows in changing and narrow <= wide:
        return None
    with recording.graph.inserting_before(gather):
        gathered = _gather(recording, gather, rows)
        mapped = _product(recording, gathered, weight, product)
    _replace(recording, gather, mapped, [gather, product])
    why = f"its gather, {wide} wide, runs once and never again"
    if rows in changing:
        why = f"rows are gathered {wide} wide instead of {narrow}"
    return f"the linear map goes after the gather: {why}"


def _before(recording: Recording, gather: fx.Node, site: GatherSite, changing: set[fx.Node]) -> str | None:
    """gather(x) · W becomes gather(x · W)."""
    (rows,) = _sent(gather)
    if rows not in changing or len(gather.users) != 1:
        return None
    (product,) = gather.users
    target: Any = product.target
    place = {_MM: 0, _ADDMM: 1}.get(target)
    if place is None or product.kwargs or product.args[place] is not gather:
        return None
    _, weight = _operands(product, place)
    if weight is None or _width(product) > site.width:
        return None
    with recording.graph.inserting_before(product):
        mapped = _product(recording, rows, weight, product)
        found = _gather(recording, gather, mapped)
        if place == 1:
            found = recording.graph.call_function(torch.ops.aten.add.Tensor, (found, product.args[0]))
            found.meta["val"] = product.meta["val"]
    narrow = _width(product)
    _replace(recording, product, found, [product, gather])
    return f"the linear map goes before the gather: rows are gathered {narrow} wide instead of {site.width}"


def _site(recording: Recording, gather: fx.Node) -> GatherSite:
    number: Any = gather.args[2]
    site: GatherSite = recording.sites[number]
    return site


def _sent(gather: fx.Node) -> tuple[fx.Node, ...]:
    sent: Any = gather.args[0]
    return tuple(sent)


def _operands(product: fx.Node, place: int) -> tuple[fx.Node, fx.Node] | tuple[None, None]:
    """Rows and the map, if that is what a product is of."""
    rows, weight = product.args[place : place + 2]
    fits = isinstance(rows, fx.Node) and isinstance(weight, fx.Node) and is_row(rows) and not is_row(weight)
    return (rows, weight) if fits else (None, None)  # type: ignore[return-value]


def _width(rows: fx.Node) -> int:
    return int(rows.meta["val"].shape[1])


def _gather(recording: Recording, old: fx.Node, rows: fx.Node) -> fx.Node:
    """The same gather of other rows."""
    number: Any = old.args[2]
    width = _width(rows)
    recording.sites[number] = replace(recording.sites[number], width=width)
    made = recording.graph.call_function(old.target, ([rows], [], number, width))  # type: ignore[arg-type]
    made.meta["val"] = rows.meta["val"]
    return made


def _product(recording: Recording, rows: fx.Node, weight: fx.Node, like: fx.Node) -> fx.Node:
    made = recording.graph.call_function(_MM, (rows, weight))
    made.meta["val"] = like.meta["val"]
    return made


def _replace(recording: Recording, old: fx.Node, new: fx.Node, unused: list[fx.Node]) -> None:
    old.replace_all_uses_with(new)
    for node in unused:
        recording.graph.erase_node(node)
