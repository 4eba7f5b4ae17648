"""`siafu explain`: what a model is compiled to for a dataset, and what an epoch of it costs."""

import json
import shutil
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siafu.base.choices import MODEL_NAMES
from siafu.base.errors import BadInput
from siafu.base.hardware.memory import budget_bytes
from siafu.base.loading import loading
from siafu.base.option import argument, option, same_option
from siafu.cli.common import refuse_unknown_dataset
from siafu.cli.early import refuse_early
from siafu.options import Options, Session
from siafu.training.recipe import Recipe, describe_graph

if TYPE_CHECKING:
    from siafu.server.costs.stage_cost import StageCost
    from siafu.server.memory.measures import Choice
    from siafu.server.memory.memory_list import MemoryList
    from siafu.training.explanation import Explanation

_PIPED_WIDTH = 120
_LEAST_SHOWN = 0.002  # of the sum: arrays that take less share a row
_FEW = 6  # operations of a phase that are named in the table


@dataclass(frozen=True, kw_only=True)
class Explain(Recipe):
    """Options of `siafu explain`."""

    model: str = argument("MODEL", "gcn, gat, gatv2, transformer, sage or gin.")
    dataset: str = argument("NAME|PATH", "A dataset's name, or a store's path.")
    memory: str | None = same_option(Session, "memory")
    scratch: str | Path | None = same_option(Session, "scratch")
    servers: int = same_option(Options, "servers")
    partition: str = same_option(Options, "partition")
    network: float = option(
        10.0, "Gigabits a second of a server's network, by which layouts are chosen.", least=0.001
    )
    advisor: str = same_option(Session, "advisor")
    ops: bool = option(False, "Print each tensor program, operation by operation.")
    json: bool = option(False, "Print one JSON object.")


def _refuse_turned_round(asked: Explain) -> None:
    if asked.dataset in MODEL_NAMES and asked.model not in MODEL_NAMES:
        refuse_unknown_dataset(asked.model)
        raise BadInput(
            f"{asked.dataset} is a model, and stands first: siafu explain {asked.dataset} {asked.model}"
        )


def explain(asked: Explain) -> None:
    """Say what runs in an epoch of a model on a dataset, what that costs, and what was decided why.

    T is a tensor phase (rows alone), G a gather (over the edges), ∇ the way back. Nothing is trained.
    """
    if asked.precision == "auto":
        raise BadInput("--precision auto is found by a training's trial: explain fp32, bf16 or mixed")
    _refuse_turned_round(asked)
    refuse_early(asked)
    refuse_unknown_dataset(asked.dataset)
    with loading():
        asked.check()

        import siafu
        from siafu.training.explanation import explain_layouts, explain_training

    if asked.memory is not None:
        budget_bytes(asked.memory)  # what is no size is refused before the data is loaded
    graph = siafu.load(asked.dataset)
    built = asked.build(graph, seed=0)
    scratch = None if asked.scratch is None else Path(asked.scratch)
    found = explain_training(graph, built, asked.memory, scratch, asked.advisor)
    if asked.servers > 1:
        found = explain_layouts(found, graph, built, asked.servers, asked.partition, asked.network)
    parameters = sum(each.numel() for each in built.parameters())
    if asked.json:
        said = {
            "dataset": graph.name,
            "model": asked.model,
            "parameters": parameters,
            **found.as_json(ops=asked.ops),
        }
        print(json.dumps(said))
        return
    print(describe_graph(graph))
    print(f"{asked.model}: {asked.layers} layers, {asked.hidden} wide, {parameters:,} parameters")
    for line in _lines(found, ops=asked.ops):
        print(line)
    for line in _layouts(found, asked.servers, asked.network):
        print(line)
    if found.memory is not None and found.choice is not None:
        disk = (f"  {line}" for line in found.disk)
        for line in (*_memory(found.memory), *disk, *_measures(found.choice, found.budget)):
            print(line)


def _layouts(found: "Explanation", servers: int, network: float) -> Iterator[str]:
    """Cost of each gather on several servers, and the layout to train with."""
    if found.layout is None:
        return
    yield ""
    yield f"on {servers} servers with {network:g} Gbit/s each: --layout {found.layout}"
    for line in found.layouts:
        yield f"  {line}"


def _memory(listed: "MemoryList") -> Iterator[str]:
    """The arrays as a table, those that are too small to matter together in one row."""
    shown = [each for each in listed.allocations if each.bytes >= _LEAST_SHOWN * listed.total]
    rest = sum(each.bytes for each in listed.allocations if not each.mapped) - sum(
        each.bytes for each in shown if not each.mapped
    )
    rows = [("array", "memory", "there", "what for")]
    for each in shown:
        size = f"({_size(each.bytes)})" if each.mapped else _size(each.bytes)
        rows.append((each.name, size, "in a file" if each.mapped else str(each.lifetime), each.purpose))
    rows += [("smaller ones", _size(rest), "", ""), ("sum", _size(listed.total), "", "")]
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    yield ""
    yield f"memory of a training in this process: {_size(listed.peak)} at its peak, while {listed.peak_when}"
    for name, size, there, purpose in rows:
        yield f"  {name:<{widths[0]}}  {size:>{widths[1]}}  {there:<{widths[2]}}  {purpose}".rstrip()


def _measures(choice: "Choice", budget: int | None) -> Iterator[str]:
    """Whether it fits, and what could be done that it does: each measure alone, and those that are taken."""
    peak = choice.listed.peak
    if budget is not None:
        fits = "fits" if peak <= budget else "does not fit"
        least = "" if peak <= budget else f": {_size(choice.least)} is the least"
        yield f"  it {fits} into {_size(budget)}{least}"
    if not choice.offered:
        return
    rows = [("way to spare memory", "spares", "price an epoch", "")]
    for each in choice.offered:
        price = f"about {each.seconds:.2g} s" if each.seconds else "none"
        rows.append((each.name, _size(each.bytes), price, "taken" if each in choice.measures else ""))
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    yield ""
    for name, spares, price, taken in rows:
        yield f"  {name:<{widths[0]}}  {spares:>{widths[1]}}  {price:<{widths[2]}}  {taken}".rstrip()


def _lines(found: "Explanation", *, ops: bool) -> Iterator[str]:
    width = shutil.get_terminal_size((_PIPED_WIDTH, 0)).columns
    yield ""
    yield from _pass("one epoch of training", found.training)
    yield ""
    yield from _pass("its evaluation", found.evaluation)
    yield ""
    once = [f"computed once, before the first epoch: {rows}" for rows in found.once]
    for reason in (*once, *found.choices, found.needed):
        yield from textwrap.wrap(reason, max(40, width), initial_indent="- ", subsequent_indent="  ")
    if ops:
        shown: set[str] = set()
        for stage in (*found.training, *found.evaluation):
            if stage.text and stage.program not in shown:
                shown.add(stage.program or "")
                yield ""
                yield f"{stage.name}, program {stage.program}"
                yield from (f"  {line}" for line in stage.text.splitlines())


def _pass(title: str, stages: "tuple[StageCost, ...]") -> Iterator[str]:
    yield f"{title}: {' · '.join(stage.name for stage in stages)}"
    cells = [[text for _, text in _COLUMNS], *([show(each) for show, _ in _COLUMNS] for each in stages)]
    cells.append(_total(stages))
    widths = [max(len(row[k]) for row in cells) for k in range(len(_COLUMNS))]
    for row in cells:
        first, *numbers, last = (
            text.ljust(width) if k in (0, len(row) - 1) else text.rjust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(["", first, *numbers, last]).rstrip()


def _total(stages: "tuple[StageCost, ...]") -> list[str]:
    flops, moved, kept = (sum(getattr(each, name) for each in stages) for name in ("flops", "bytes", "kept"))
    return ["sum", "", "", "", _count(flops), _size(moved), _size(kept), "", ""]


def _count(number: int) -> str:
    """Such as '1.2 G'."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(number) if number else ""


def _size(number: int) -> str:
    return f"{_count(number)}B" if number >= 1000 else f"{number} B" if number else ""


def _rows(widths: tuple[int, ...]) -> str:
    return "+".join(map(str, widths)) or "-"


def _operations(stage: "StageCost") -> str:
    named = list(dict.fromkeys(stage.operations))
    return " ".join(named[:_FEW]) + (" …" if len(named) > _FEW else "")


_COLUMNS: list[tuple[Callable[[Any], str], str]] = [
    (lambda stage: stage.name, "stage"),
    (lambda stage: f"{stage.count:,} {stage.over}", "over"),
    (lambda stage: f"{_rows(stage.widths_in)} → {_rows(stage.widths_out)}", "widths"),
    (lambda stage: f"{stage.parameters:,}" if stage.parameters else "", "parameters"),
    (lambda stage: _count(stage.flops), "FLOP"),
    (lambda stage: _size(stage.bytes), "moved"),
    (lambda stage: _size(stage.kept), "kept"),
    (lambda stage: (stage.program or "")[:12], "program"),
    (_operations, "operations"),
]
