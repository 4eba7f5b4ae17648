"""Platform: where Lambdas run, their limits and their prices."""

import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from siafu.base.errors import BadInput
from siafu.cost.prices import Architecture, LambdaPrices, lambda_prices, price_book
from siafu.serverless.control.ids import Seconds
from siafu.serverless.deployment.aws import Place
from siafu.serverless.function.faults import FaultPlan
from siafu.serverless.platforms.aws_invoker import AwsInvoker, DeployedFunction, deployed_function
from siafu.serverless.platforms.environment import Function, Limits
from siafu.serverless.platforms.invoker import Invoker
from siafu.serverless.platforms.local_invoker import LocalInvoker

HANDLER = Function("siafu.serverless.function.handler.handler", (Path(__file__).parents[3],))
_LIKELY = "us-east-1"  # whose prices are near to those of most regions
_ENDING_SECONDS = 60.0  # to hear of an invocation's end after the platform's own timeout


class Platform(Protocol):
    """Where Lambdas run. Write one to have them elsewhere.

    name:     for options and summaries
    where:    for messages
    host:     this machine's address as Lambdas reach it
    listen:   the address to listen at, which may be "0.0.0.0"; None: Lambdas are processes of this machine and user
    lifetime: after so many seconds an invocation has ended for certain
    memory_mb: of each Lambda
    most:     how many Lambdas there may be
    prices:   of Lambdas, or of the same on AWS where they are free
    paid:     whether Lambdas cost money
    """

    @property
    def name(self) -> str: ...
    @property
    def where(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def listen(self) -> str | None: ...
    @property
    def lifetime(self) -> Seconds: ...
    @property
    def memory_mb(self) -> int: ...
    @property
    def most(self) -> int: ...
    @property
    def prices(self) -> LambdaPrices: ...
    @property
    def paid(self) -> bool: ...

    def invoker(self, slots: int, warm: int) -> Invoker:
        """An invoker of at most `slots` invocations at once; `warm`: number of processes to have ready, where possible."""

    def share(self, host: str, servers: int) -> "Platform":
        """The platform for one of several graph servers, each on its own machine: this one's address is `host`."""


@dataclass(frozen=True, slots=True)
class LocalPlatform:
    """Processes of this machine, each under AWS's own runtime client.

    limits: of each Lambda
    faults: faults on purpose; None: none
    """

    limits: Limits = field(default_factory=Limits)
    faults: FaultPlan | None = None
    most: int = 100

    name = "local"
    where = "processes of this machine"
    host = "127.0.0.1"
    listen = None
    paid = False

    @property
    def lifetime(self) -> Seconds:
        return self.limits.timeout_seconds + _ENDING_SECONDS

    @property
    def memory_mb(self) -> int:
        return self.limits.memory_mb

    @property
    def prices(self) -> LambdaPrices:
        """AWS's prices for the same."""
        return lambda_prices(_LIKELY, "x86_64")

    def invoker(self, slots: int, warm: int) -> Invoker:
        twins = slots if self.faults is not None and self.faults.duplicate else 0
        return LocalInvoker(HANDLER, slots + twins, self.limits, keep_warm=warm, faults=self.faults)

    def share(self, host: str, servers: int) -> "LocalPlatform":
        return replace(self, most=max(1, self.most // servers))


@dataclass(frozen=True, slots=True)
class AwsPlatform:
    """A function that `siafu lambda deploy` made.

    host:   this machine's address as the function's VPC reaches it
    prices: those of its region; where we do not know them, another's: they say which
    """

    function: DeployedFunction
    host: str
    prices: LambdaPrices
    most: int = 1000

    name = "aws"
    listen = "0.0.0.0"
    paid = True

    @classmethod
    def of(
        cls,
        function: str = "siafu",
        place: Place | None = None,
        *,
        qualifier: str | None = None,
        host: str | None = None,
    ) -> "AwsPlatform":
        """Ask AWS how the function was deployed.

        host: this machine's address as the function reaches it; None: the one it has in its own network
        """
        found, region, architecture = deployed_function(function, place or Place(), qualifier)
        return cls(found, host or _own_address(), _prices(region, architecture))

    @property
    def where(self) -> str:
        return self.function.where

    @property
    def lifetime(self) -> Seconds:
        return self.function.timeout_seconds + _ENDING_SECONDS

    @property
    def memory_mb(self) -> int:
        return self.function.memory_mb

    def invoker(self, slots: int, warm: int) -> Invoker:
        return AwsInvoker(self.function, most=slots)

    def share(self, host: str, servers: int) -> "AwsPlatform":
        return replace(self, host=host, most=max(1, self.most // servers))


def _prices(region: str, architecture: Architecture) -> LambdaPrices:
    if any(each.region == region for each in price_book().lambdas):
        return lambda_prices(region, architecture)
    others = lambda_prices(_LIKELY, architecture)
    return replace(others, source=f"{others.source}; those of {region} are not in it")


def _own_address() -> str:
    """The address that this machine has in the network through which it reaches others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: a documentation address
            address: str = probe.getsockname()[0]
        except OSError:
            raise BadInput(
                "this machine has no network: give the address that Lambdas reach it at (lambda_host, --lambda-host)"
            ) from None
    return address
