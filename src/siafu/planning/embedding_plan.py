"""Plans for embeddings: on which machine they fit, in memory or on disk, how long they take, and what that costs.

Every batch is three products of matrices for each side; the rest of the work is a share of their time that was measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from siafu.base.errors import BadInput
from siafu.cost.fleet import Fleet
from siafu.cost.instances import Instance, Rental
from siafu.cost.money import dollars
from siafu.cost.prices import PriceBook, price_book
from siafu.embedding.disk.bucket_orders import ORDERS, count_swaps
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_memory import disk_bytes, needed_bytes, on_disk, table_bytes
from siafu.graph.triples import Triples
from siafu.planning.calibration import Calibration, calibration
from siafu.planning.durations import seconds_in
from siafu.planning.machines import machine_of, room_for_vectors
from siafu.report.progress import duration

# Share of the matrix products' limit that training and ranking reach, measured on FB15k-237 at widths of 50 and 100 with 500
# negatives (docs/embeddings.md); distances of L1 and of complex numbers are sums, not products.
_TRAINING = {"transe": 0.5, "transe-l1": 0.28, "rotate": 0.28}
_TRAINING_BY_PRODUCTS = 0.55
_RANKING = {"transe": 0.4, "transe-l1": 0.22, "rotate": 0.24}
_RANKING_BY_PRODUCTS = 0.45

DISK_BYTES_S = 125e6
"""A volume of AWS's kind gp3, as it comes."""


@dataclass(frozen=True, slots=True)
class EmbeddingOffer:
    """One machine, and what training there would take.

    options:           with partitions, where the vectors do not fit its memory
    memory_bytes:      that are allocated at the peak
    disk_bytes:        of the partitions; 0: all is in memory
    seconds_per_epoch: evaluations left out
    disk_bound:        whether the disk takes longer than the cores
    """

    rental: Rental
    options: EmbedOptions
    memory_bytes: int
    disk_bytes: int
    seconds_per_epoch: float
    seconds: float
    usd: float
    disk_bound: bool

    @property
    def value(self) -> float:
        """1 / (time × dollars)."""
        return 1 / (self.seconds * self.usd)

    @property
    def where(self) -> str:
        """Memory, or how the partitions are kept."""
        if self.options.partitions is None:
            return "in memory"
        return f"on disk, {self.options.buffer} of {self.options.partitions} parts in memory"

    def summary(self) -> dict[str, Any]:
        return {
            "instance": str(self.rental),
            "partitions": self.options.partitions,
            "buffer": self.options.buffer,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
            "seconds_per_epoch": self.seconds_per_epoch,
            "seconds": self.seconds,
            "usd": self.usd,
            "disk_bound": self.disk_bound,
            "value": self.value,
        }


@dataclass(frozen=True, slots=True)
class EmbeddingPlan:
    """Offers, the best first.

    own: whether the speeds were measured on this machine; else on the one that Siafu was made on
    """

    offers: tuple[EmbeddingOffer, ...]
    reason: str
    measured: Calibration
    own: bool
    book: PriceBook

    @property
    def chosen(self) -> EmbeddingOffer:
        return self.offers[0]


def plan_embedding(
    triples: Triples,
    options: EmbedOptions,
    *,
    deadline: float | str | None = None,
    budget: float | None = None,
    spot: bool = False,
    instances: Sequence[str] = (),
    disk_bytes_s: float = DISK_BYTES_S,
    prices: str | Path | None = None,
    measured: Calibration | None = None,
) -> EmbeddingPlan:
    """The best machine to train these embeddings on: with a deadline the cheapest, with a budget the fastest, else the one of most
    value, 1 / (time × dollars). A machine is taken where they fit its memory, or else its disk.
    """
    book, own = price_book(prices), measured is not None
    if measured is None:
        measured, own = calibration()
    options = options.for_triples(len(triples.train))
    estimate = _Estimate(triples, options, disk_bytes_s, measured, book)
    types = [book.instance(name) for name in instances] or list(book.instances.values())
    found = [
        offer
        for instance in types
        if instance.accelerator is None
        for rental in _rentals(instance, spot=spot)
        if (offer := estimate.offer(rental)) is not None
    ]
    if not found:
        need = needed_bytes(triples, options) / 1e9
        raise BadInput(
            f"these embeddings need {need:,.1f} GB in memory, and fit no machine, on disk neither: choose a smaller dim"
        )
    limit = seconds_in(deadline) if isinstance(deadline, str) else deadline
    kept = [
        each
        for each in found
        if (limit is None or each.seconds <= limit) and (budget is None or each.usd <= budget)
    ]
    if not kept:
        fastest, cheapest = (
            min(found, key=lambda each: each.seconds),
            min(found, key=lambda each: each.usd),
        )
        raise BadInput(
            f"no machine meets that: the fastest is {fastest.rental} ({duration(fastest.seconds)}, {dollars(fastest.usd)}), "
            f"the cheapest {cheapest.rental} ({duration(cheapest.seconds)}, {dollars(cheapest.usd)})"
        )
    if limit is not None and budget is None:
        kept.sort(key=lambda each: (each.usd, each.seconds))
        reason = f"the cheapest that ends within {duration(limit)}"
    elif budget is not None and limit is None:
        kept.sort(key=lambda each: (each.seconds, each.usd))
        reason = f"the fastest for at most {dollars(budget)}"
    else:
        kept.sort(key=lambda each: -each.value)
        reason = "worth most, 1 / (time × dollars)"
    return EmbeddingPlan(tuple(kept), reason, measured, own, book)


class _Estimate:
    """Time and memory of one training on any machine."""

    def __init__(
        self,
        triples: Triples,
        options: EmbedOptions,
        disk_bytes_s: float,
        measured: Calibration,
        book: PriceBook,
    ) -> None:
        self._triples, self._options, self._disk_bytes_s = triples, options, disk_bytes_s
        self._measured, self._book = measured, book

    def offer(self, rental: Rental) -> EmbeddingOffer | None:
        """None: neither its memory nor a buffer of partitions in it is large enough."""
        instance, triples = rental.instance, self._triples
        room = room_for_vectors(instance)
        options, memory = self._options, needed_bytes(triples, self._options, threads=instance.vcpu)
        if options.partitions is not None and options.buffer is None:
            options = replace(options, buffer=max(2, options.partitions // 4))
        if options.partitions is None and memory > room:
            chosen = on_disk(triples, options, int(room), threads=instance.vcpu)
            if chosen is None:
                return None
            options = chosen
        if options.partitions is not None:
            memory = disk_bytes(triples, options, threads=instance.vcpu)
        if memory > room:
            return None
        computing, moving = self._computing(instance), self._moving(options)
        epoch = max(computing, moving)
        seconds = options.epochs * epoch + self._evaluations() * self._ranking(instance)
        return EmbeddingOffer(
            rental,
            options,
            memory,
            0 if options.partitions is None else table_bytes(triples.num_entities, options),
            epoch,
            seconds,
            Fleet(rental, 1).usd(seconds, self._book.billing),
            moving > computing,
        )

    def _products(self, instance: Instance) -> float:
        """FLOP/s of matrix products on all of its cores."""
        machine = machine_of(instance, self._measured, self._book)
        return machine.cores * machine.core.products.at(self._options.dim)

    def _computing(self, instance: Instance) -> float:
        options = self._options
        negatives = self._triples.num_entities if options.all_entities else options.negatives
        flops = 2.0 * 3 * 2 * len(self._triples.train) * negatives * options.dim
        share = _TRAINING.get(options.score, _TRAINING_BY_PRODUCTS)
        return flops / (share * self._products(instance))

    def _ranking(self, instance: Instance) -> float:
        options, triples = self._options, self._triples
        candidates = min(triples.num_entities, options.candidates or triples.num_entities)
        flops = 2.0 * 2 * len(triples.valid) * candidates * options.dim
        return flops / (_RANKING.get(options.score, _RANKING_BY_PRODUCTS) * self._products(instance))

    def _evaluations(self) -> float:
        """Rankings of the validation triples in all; the test at the end counts by its size."""
        options, valid = self._options, len(self._triples.valid)
        if valid == 0:
            return 0.0
        return -(-options.epochs // options.evaluate_every) + 1 + len(self._triples.test) / valid

    def _moving(self, options: EmbedOptions) -> float:
        """Seconds of an epoch that partitions are read and written."""
        if options.partitions is None or options.buffer is None:
            return 0.0
        states = ORDERS[options.order](options.partitions, options.buffer, np.random.default_rng(0))
        moved = count_swaps(states) + options.buffer
        return (
            2
            * moved
            * table_bytes(self._triples.num_entities, options)
            / options.partitions
            / self._disk_bytes_s
        )


def _rentals(instance: Instance, *, spot: bool) -> Iterator[Rental]:
    yield Rental(instance)
    if spot and instance.spot_high_usd_h is not None:
        yield Rental(instance, spot=True)
