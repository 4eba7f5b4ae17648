"""The paper's tables and figures beside what was predicted of them, in Markdown and JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from siafu.bench.paper.cells import CALIBRATED, CLOSE, PaperRatio, run_of
from siafu.bench.paper.published import BACKENDS, TABLE_4, PublishedRow
from siafu.bench.paper.tasks import TaskSeconds
from siafu.bench.results import markdown as table


def markdown(
    cells: Sequence[PaperRatio], tasks: Sequence[TaskSeconds], rows: Sequence[PublishedRow] = TABLE_4
) -> str:
    """Everything, table by table; rows: whose epochs to tell."""
    parts = ["### An epoch of every row", _epochs(rows)]
    for where in dict.fromkeys(cell.where for cell in cells):
        parts += [f"### {where}", _cells([cell for cell in cells if cell.where == where])]
    parts += ["### Figure 10", _tasks(tasks), summary(cells)]
    return "\n\n".join(parts) + "\n"


def summary(cells: Sequence[PaperRatio]) -> str:
    """Number of close predictions, in a sentence."""
    listed = [cell for cell in cells if cell.listed]
    return (
        f"Within {CLOSE:.0%}: {_share(listed)} of the ratios of Table 4, Figure 6 and Figure 8 from 4 to 16 servers; "
        f"{_share(cells)} of all."
    )


def as_json(cells: Sequence[PaperRatio], tasks: Sequence[TaskSeconds]) -> str:
    """One line."""
    rows = [asdict(cell) | {"ratio": cell.ratio, "close": cell.close} for cell in cells]
    return json.dumps({"bench": "paper", "cells": rows, "tasks": [asdict(each) for each in tasks]})


def _share(cells: Sequence[PaperRatio]) -> str:
    close = sum(cell.close for cell in cells)
    return f"{close} of {len(cells)} ({close / len(cells):.0%})"


def _epochs(wanted: Sequence[PublishedRow]) -> str:
    rows = []
    for row in wanted:
        found = {backend: run_of(row, backend) for backend in BACKENDS}
        epochs = [f"{row.seconds[backend] / each.seconds:.0f}" for backend, each in found.items()]
        costs = [f"{each.seconds:.2f} s, {each.dollars:.4f} $" for each in found.values()]
        star = " *" if f"{row.model.upper()} {row.graph}" in CALIBRATED else ""
        rows.append([f"{row}{star}", *costs, " / ".join(epochs)])
    many = "epochs that the published times would be, if all three had as many"
    return table(["row", "Lambdas", "CPU", "GPU", many], rows)


def _cells(cells: Sequence[PaperRatio]) -> str:
    rows = [
        [
            f"{cell.row}{' *' if cell.where == 'Table 4' and cell.row in CALIBRATED else ''}",
            cell.what,
            f"{cell.published:.2f}",
            f"{cell.predicted:.2f}",
            f"{cell.ratio:.2f}" if cell.close else f"**{cell.ratio:.2f}**",
        ]
        for cell in cells
    ]
    return table(["row", "ratio", "published", "predicted", "predicted : published"], rows)


def _tasks(tasks: Sequence[TaskSeconds]) -> str:
    rows = [
        [each.task, each.backend.upper(), f"{each.published:.1f}", f"{each.predicted:.2f}"] for each in tasks
    ]
    return table(["task", "on", "published s", "predicted s"], rows)
