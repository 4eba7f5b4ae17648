"""Fleet: the machines of a run, alike, and what they cost for as long as it takes."""

from dataclasses import dataclass

from siafu.cost.instances import Billing, Rental


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many machines of one kind, a graph server on each; weight servers share them.

    Of several spot instances the first is on demand: it is the cluster's head, and must not be taken away
    (`siafu cluster up --on aws-spot` rents them so).
    """

    rental: Rental
    servers: int

    def __str__(self) -> str:
        return f"{self.servers} × {self.rental}"

    @property
    def usd_h(self) -> float:
        """Dollars an hour of all machines together."""
        head = Rental(self.rental.instance) if self.servers > 1 else self.rental
        return head.usd_h + (self.servers - 1) * self.rental.usd_h

    def usd(self, seconds: float, billing: Billing) -> float:
        """Dollars for so many seconds, each machine charged for its least time."""
        return billing.usd(self.usd_h, seconds)
