"""Refusals of options before PyTorch and Numba are loaded: a mistyped word is told in half a second."""

import json
import sys
from pathlib import Path

from siafu.base.choices import (
    OBJECTIVE_NAMES,
    refuse_other_method,
    refuse_other_objective,
    refuse_other_scheduler,
)
from siafu.base.errors import BadInput
from siafu.base.hardware.memory import own_bytes
from siafu.base.storage.absent import STORE_MANIFEST, refuse_absent_directory
from siafu.cli.common import bytes_of
from siafu.cost.prices import price_book
from siafu.options import Options, Session
from siafu.training.recipe import Recipe, nothing_to_learn
from siafu.training.redundancy import checked_redundancy


def refuse_early(asked: "Recipe | Options | Session") -> None:
    """Refuse what needs neither the graph nor PyTorch to be known as wrong."""
    if isinstance(asked, Recipe):
        asked.check_names()
    if isinstance(asked, Options):
        _refuse_names(asked)
    if isinstance(asked, Session):
        refuse_tiny_budget(asked.memory)
        refuse_absent_directory(asked.scratch)
        refuse_prices(asked.instance, asked.prices)
    if isinstance(asked, Options) and isinstance(asked, Session):
        checked_redundancy(asked, asked)


def _refuse_names(asked: Options) -> None:
    if isinstance(asked.objective, str):
        # A program that has added objectives of its own has loaded their registry.
        registry = sys.modules.get("siafu.objective.registry")
        refuse_other_objective(asked.objective, OBJECTIVE_NAMES if registry is None else registry.OBJECTIVES)
    if isinstance(asked.partition, str):
        refuse_other_method(asked.partition)
    if isinstance(asked.scheduler, str):
        refuse_other_scheduler(asked.scheduler)
    if asked.split is not None:
        from siafu.graph.random_split import RandomSplit

        RandomSplit.asked(asked.split)


def refuse_tiny_budget(memory: str | None) -> None:
    """Refuse a size that is none, or less than this program takes before it loads anything: a unit was forgotten."""
    budget, taken = bytes_of(memory), own_bytes()
    if budget is not None and budget < taken:
        raise BadInput(
            f"memory is {memory}, and this program takes {taken / 1e6:.0f} MB before it loads anything: "
            "write a size with its unit, like 8GB"
        )


def refuse_unlabelled(dataset: str) -> None:
    """Refuse a store whose graph has no labels. What cannot be read as one is left to `siafu.load`."""
    try:
        form = json.loads((Path(dataset) / STORE_MANIFEST).read_bytes())
    except (OSError, ValueError):
        return
    if (
        isinstance(form, dict)
        and form.get("format") == "siafu graph"
        and "y" not in form.get("arrays", {"y": None})
    ):
        raise nothing_to_learn(str(form.get("name")))


def refuse_prices(instance: str | None, prices: str | Path | None) -> None:
    """Refuse a type of machine that has no price, and a file of prices that cannot be read."""
    if instance is not None or prices is not None:
        book = price_book(prices)
        if instance is not None:
            book.rental(instance)
