"""PriceBook: what machines and Lambdas cost. A dated file that comes with Siafu, over which a user can lay another."""

import difflib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from siafu.base.errors import BadInput
from siafu.cost.disks import Disk, Volume, local_disk, volume_disk
from siafu.cost.instances import Accelerator, Billing, Instance, Processor, Rental
from siafu.cost.lambda_prices import Architecture, LambdaPrices
from siafu.cost.price_file import Fields, read_fields

__all__ = ["Architecture", "LambdaPrices", "PriceBook", "lambda_prices", "price_book"]

VARIABLE = "SIAFU_PRICES"
_BUILT_IN = Path(__file__).parent / "data" / "prices.json"
_NEAREST = 3


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices of machines and Lambdas in one region.

    edition:   the month that the file is of; a single price may be older and says so
    path:      the file that was laid over the built-in one; None: there is none
    sources:   where each kind of figure was taken from
    """

    edition: str
    region: str
    instances: Mapping[str, Instance]
    processors: Mapping[str, Processor]
    lambdas: tuple[LambdaPrices, ...]
    volumes: Mapping[str, Volume]
    billing: Billing
    sources: Mapping[str, str]
    path: Path | None = None

    @property
    def name(self) -> str:
        """The book's name in tables and summaries."""
        own = "" if self.path is None else f", with {self.path.name}"
        return f"list prices, {self.region}, {self.edition}{own}"

    def instance(self, name: str) -> Instance:
        """The type of that name; if there is none, the message names the nearest."""
        found = self.instances.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self.instances, _NEAREST, cutoff=0.0)
            raise BadInput(
                f"no price of instance type {name!r} (the nearest known: {', '.join(near)}): choose one of those, or "
                f"give its price in a file (--prices, or ${VARIABLE})"
            )
        return found

    def rental(self, text: str) -> Rental:
        """The rental that `c5.2xlarge` or `c5.2xlarge:spot` stands for."""
        name, colon, kind = text.partition(":")
        if colon and kind not in ("spot", "on-demand"):
            raise BadInput(
                f"instance {text!r} ends in {kind!r}: write {name}, {name}:on-demand or {name}:spot"
            )
        return Rental(self.instance(name), spot=kind == "spot")

    def processor(self, cpu_id: str) -> Processor | None:
        """The processor that names itself so; None: it is not known."""
        return next((each for each in self.processors.values() if cpu_id in each.cpu_ids), None)

    def nearest(self, vcpu: int, memory_bytes: int | None, architecture: Architecture) -> Instance:
        """The type most like a machine of one's own, without a GPU: it may be smaller or larger."""
        alike = [each for each in self.instances.values() if each.accelerator is None]
        alike = [each for each in alike if each.architecture == architecture] or alike
        if not alike:
            where = "" if self.path is None else f" with {self.path}"
            raise BadInput(f"the price book{where} has no instance without a GPU: add one")

        def distance(each: Instance) -> tuple[float, float]:
            memory = 0.0 if memory_bytes is None else math.log(each.memory_bytes / memory_bytes)
            return abs(math.log(each.vcpu / vcpu)) + abs(memory), each.on_demand_usd_h

        return min(alike, key=distance)

    def disk(self, instance: Instance) -> Disk | None:
        """The disk for scratch files: the machine's own, or the cheapest volume; None: the book knows neither."""
        volumes = sorted(self.volumes.values(), key=lambda each: each.usd_per_gb_month)
        return local_disk(instance) or next((volume_disk(instance, each) for each in volumes), None)

    def lambda_prices(self, region: str, architecture: Architecture) -> LambdaPrices:
        """Prices of Lambdas in a region; those of an unknown one must be given in a file."""
        for each in self.lambdas:
            if (each.region, each.architecture) == (region, architecture):
                return each
        known = ", ".join(f"{each.region} {each.architecture}" for each in self.lambdas)
        raise BadInput(
            f"no Lambda prices for {region} {architecture} (known: {known}): give them in a file (--prices, or "
            f"${VARIABLE}), or `LambdaPrices` of your own"
        )


def price_book(path: str | Path | None = None) -> PriceBook:
    """The built-in prices, with those of a file laid over them.

    path: of the file; None: `$SIAFU_PRICES`, and no file where that is not set
    """
    given = path or os.environ.get(VARIABLE) or None
    return _read(None if given is None else Path(given).expanduser())


def lambda_prices(region: str, architecture: Architecture) -> LambdaPrices:
    """Prices of Lambdas, by the user's price book."""
    return price_book().lambda_prices(region, architecture)


@cache
def _built_in() -> Fields:
    return read_fields(_BUILT_IN)


def _read(path: Path | None) -> PriceBook:
    fields = _built_in() if path is None else read_fields(path, over=_built_in())
    processors = {
        name: each.made(Processor, name=name) for name, each in fields.entries("processors").items()
    }
    accelerators = {
        name: each.made(Accelerator, name=name) for name, each in fields.entries("accelerators").items()
    }
    instances = {
        name: each.instance(name, processors, accelerators)
        for name, each in fields.entries("instances").items()
    }
    region = fields.text("region")
    source = fields.entry("sources").text("prices")
    lambdas = tuple(
        each.made(LambdaPrices, region=each.text("region", region), source=source)
        for each in fields.entries("lambdas").values()
    )
    return PriceBook(
        fields.text("edition"),
        region,
        instances,
        processors,
        lambdas,
        {name: each.made(Volume, name=name) for name, each in fields.entries("volumes").items()},
        fields.entry("billing").made(Billing),
        fields.entry("sources").texts(),
        path,
    )
