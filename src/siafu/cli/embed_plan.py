"""`siafu embed plan`: where embeddings fit, how long they take, and what that costs."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from siafu.base.errors import BadInput
from siafu.base.option import argument, option, same_option
from siafu.cli.common import NUMBER, WORD, show_table
from siafu.cli.declared import json_flag
from siafu.embedding.embed_options import EmbedOptions
from siafu.options import Session

if TYPE_CHECKING:
    from siafu.graph.triples import Triples
    from siafu.planning.embedding_plan import EmbeddingPlan

_SHOWN = 10
_size = partial(option, panel="The graph's sizes, in place of a store")
_limit = partial(option, panel="What must hold")


@dataclass(frozen=True, kw_only=True)
class PlannedEmbedding(EmbedOptions):
    """Embeddings to plan for."""

    store: Path | None = argument("[STORE]", "A store of triples.", None)
    entities: int | None = _size(None, "How many.", least=1)
    triples: int | None = _size(None, "How many to train on.", least=1)
    relations: int = _size(1, "How many.", least=1)
    held_out: int = _size(0, "Triples to validate on, and as many again to test on.", least=0)

    def data(self) -> "Triples":
        """The store's triples, or as many that do not exist."""
        if (self.store is None) == (self.entities is None and self.triples is None):
            raise BadInput("nothing to plan for: name a store of triples, or give --entities and --triples")
        if self.store is not None:
            from siafu.graph.triples import triples_at

            return triples_at(self.store, verify=False)
        if self.entities is None or self.triples is None:
            raise BadInput("one size is missing: give both --entities and --triples")
        import numpy as np

        from siafu.graph.triples import Triples

        row = np.zeros((1, 3), np.int32)
        splits = [np.broadcast_to(row, (count, 3)) for count in (self.triples, self.held_out, self.held_out)]
        return Triples(splits[0], splits[1], splits[2], self.entities, self.relations, name="STORE")

    def options(self) -> EmbedOptions:
        return EmbedOptions(**self.as_json())

    def command(self, found: "EmbeddingPlan") -> str:
        """The command that trains as planned."""
        chosen = found.chosen.options
        given = [
            f"--{each.name.replace('_', '-')} {getattr(chosen, each.name)}"
            for each in fields(EmbedOptions)
            if getattr(chosen, each.name) != each.default and not isinstance(each.default, bool)
        ]
        flags = [
            f"--{'' if getattr(chosen, each.name) else 'no-'}{each.name.replace('_', '-')}"
            for each in fields(EmbedOptions)
            if isinstance(each.default, bool) and getattr(chosen, each.name) != each.default
        ]
        store = "STORE" if self.store is None else shlex.quote(str(self.store))
        return " ".join(["siafu embed", store, *given, *flags])


def plan(
    asked: PlannedEmbedding,
    deadline: str | None = _limit(None, "Such as 90s, 15m, 1h30m.", metavar="TIME"),
    budget: float | None = _limit(None, "Dollars at most.", metavar="USD"),
    spot: bool = _limit(False, "Rent machines that may be taken away, too."),
    instance: list[str] | None = _limit(
        None, "A type to choose from; may be given several times.", unset="all"
    ),
    disk_speed: float = _limit(125.0, "MB/s that the disk reads or writes.", least=1.0),
    prices: Path | None = same_option(Session, "prices"),
    as_json: bool = json_flag(),
) -> None:
    """Say on which machine embeddings train best for the money: in memory or on disk, how long, for how much."""
    triples = asked.data()

    from siafu.planning.embedding_plan import plan_embedding

    found = plan_embedding(
        triples,
        asked.options(),
        deadline=deadline,
        budget=budget,
        spot=spot,
        instances=instance or (),
        disk_bytes_s=disk_speed * 1e6,
        prices=prices,
    )
    if as_json:
        offers = [each.summary() for each in found.offers]
        told = {"dataset": triples.name, "chosen": offers[0], "offers": offers, "reason": found.reason}
        print(
            json.dumps({**told, "command": asked.command(found), "prices": found.book.name, "own": found.own})
        )
        return
    print(
        f"{triples.name}: {triples.num_entities:,} entities, {triples.num_relations:,} relations, {len(triples.train):,} triples; "
        f"{asked.score}, {asked.dim} wide, {asked.epochs} epochs"
    )
    _show(found)
    print("", f"  {asked.command(found)}", "", *_basis(found), sep="\n")


def _show(found: "EmbeddingPlan") -> None:
    from siafu.cost.money import dollars
    from siafu.report.progress import duration

    rows = [
        (
            "→" if each is found.chosen else "",
            str(each.rental),
            each.where,
            f"{each.memory_bytes / 2**30:.1f} GiB",
            duration(each.seconds_per_epoch) + (", disk-bound" if each.disk_bound else ""),
            duration(each.seconds),
            dollars(each.usd),
        )
        for each in found.offers[:_SHOWN]
    ]
    names = {"": WORD, "machine": WORD, "vectors": WORD}
    names |= dict.fromkeys(("memory", "an epoch", "in all", "dollars"), NUMBER)
    show_table(names, rows, styles={"→": "bold green"})
    chosen = found.chosen
    print(f"\nchoice: {chosen.rental}: {found.reason}: {duration(chosen.seconds)} and {dollars(chosen.usd)}.")


def _basis(found: "EmbeddingPlan") -> Iterator[str]:
    speeds = (
        "what was measured on this machine"
        if found.own
        else "the figures of a reference machine that come with Siafu; run 'siafu calibrate' to plan with this machine's"
    )
    yield f"{found.book.name}; times by the products of matrices, with {speeds}"
