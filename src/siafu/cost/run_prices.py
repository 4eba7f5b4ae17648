"""RunPrices: what a run costs while it lasts and when it has ended, by what the money goes to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from siafu.cost.fleet import Fleet
from siafu.cost.lambda_prices import Architecture, LambdaPrices
from siafu.cost.money import dollars
from siafu.cost.prices import PriceBook


@dataclass(frozen=True, slots=True)
class RunPrices:
    """Prices that a run is charged by.

    assumed: nobody said what it runs on: the fleet is of the type most like this machine, and what it would cost there
    lambdas: what its Lambdas cost; None: nothing, they are processes of machines that are paid for anyway
    """

    fleet: Fleet
    book: PriceBook
    assumed: bool
    lambdas: LambdaPrices | None = None

    @classmethod
    def of(
        cls,
        book: PriceBook,
        instance: str | None,
        machines: int,
        *,
        like: tuple[int, int | None, Architecture],
        lambdas: LambdaPrices | None = None,
    ) -> "RunPrices":
        """Prices of so many machines of the type that `instance` names.

        like: threads, memory in bytes and architecture of this machine, to find the type most like it where
              `instance` is None
        """
        if instance is not None:
            return cls(Fleet(book.rental(instance), machines), book, assumed=False, lambdas=lambdas)
        threads, memory, architecture = like
        nearest = book.nearest(threads, memory, architecture)
        return cls(Fleet(book.rental(nearest.name), machines), book, assumed=True, lambdas=lambdas)

    @property
    def wanted(self) -> bool:
        """Whether people are told of dollars: somebody named the machines, or the run has Lambdas that cost."""
        return not self.assumed or self.lambdas is not None

    def usd(self, seconds: float, gb_seconds: float = 0.0, requests: int = 0) -> float:
        """Dollars of so many seconds, with this use of Lambdas."""
        return self.fleet.usd(seconds, self.book.billing) + self._lambda_usd(gb_seconds, requests)

    def bill(self, seconds: float, used: Mapping[str, Any]) -> dict[str, Any]:
        """The bill of a run of so many seconds, by what the money goes to; as JSON has it.

        used: what its summary says under "lambda"
        """
        servers = self.fleet.usd(seconds, self.book.billing)
        computing = self._lambda_usd(used["billed_gb_seconds"], 0)
        requests = self._lambda_usd(0.0, used.get("requests", used["invocations"]))
        total = servers + computing + requests
        return {
            "instance": self.fleet.rental.instance.name,
            "spot": self.fleet.rental.spot,
            "machines": self.fleet.servers,
            "assumed": self.assumed,
            "usd_h": self.fleet.usd_h,
            "graph_servers_usd": servers,
            "weight_servers_usd": 0.0,  # they share the graph servers' machines
            "lambda_compute_usd": computing,
            "lambda_requests_usd": requests,
            "usd": total,
            "value": 1 / (seconds * total) if seconds * total > 0 else None,
            "prices": self.book.name,
        }

    def _lambda_usd(self, gb_seconds: float, requests: int) -> float:
        return 0.0 if self.lambdas is None else self.lambdas.usd(gb_seconds, requests)


def wanted(bill: object) -> bool:
    """Whether people are told of this bill, as a summary has it; see `RunPrices.wanted`."""
    return isinstance(bill, dict) and (not bill.get("assumed") or bool(bill.get("lambda_compute_usd")))


def told(bill: Mapping[str, Any], seconds: str) -> str:
    """A bill in a line for people."""
    kind = f"{bill['machines']} × {bill['instance']}{':spot' if bill['spot'] else ''}"
    lambdas = bill["lambda_compute_usd"] + bill["lambda_requests_usd"]
    parts = f" ({dollars(bill['graph_servers_usd'])} machines, {dollars(lambdas)} Lambdas)" if lambdas else ""
    if bill["assumed"]:
        return (
            f"cost: nobody said what it ran on (--instance); on {kind}, the type most like this machine, {seconds} would cost "
            f"{dollars(bill['usd'])}{parts} ({bill['prices']})"
        )
    value = "" if bill["value"] is None else f", value {bill['value']:.3g}"
    return f"cost: {seconds} on {kind}: {dollars(bill['usd'])}{parts}{value} ({bill['prices']})"


def told_lambdas(used: Mapping[str, Any], *, paid: bool) -> str:
    """The use of Lambdas in a line for people, with their cost where they have one.

    used: what a run's summary says under "lambda"
    paid: whether they ran where they cost something
    """
    prices, again = used["prices"], used["relaunched"] + used["retried"]
    place = f"{prices['region']} {prices['architecture']}, {prices['as_of']}"
    return (
        f"Lambdas: {used['invocations']:,} invocations, {used['billed_gb_seconds']:,.1f} GB-seconds"
        + (f", {again:,} tasks done again" if again else "")
        + (f"; they cost ${used['usd']:,.6f} (list prices, {place})" if paid else "")
    )
