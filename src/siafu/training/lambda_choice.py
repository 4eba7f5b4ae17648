"""Lambdas that a training uses: on which platform, and how many."""

from typing import TYPE_CHECKING

from siafu.base.threads import thread_count
from siafu.options import Options

if TYPE_CHECKING:
    from siafu.runtime.lambdas import Lambdas
    from siafu.serverless.platforms.platform import Platform


def lambdas_asked(options: Options) -> "Lambdas | None":
    """Those of this machine, if options ask for Lambdas."""
    if options.lambdas == "off":
        return None

    from siafu.serverless.platforms.platform import LocalPlatform

    return lambdas_on(LocalPlatform(), options.lambda_count)


def lambdas_on(platform: "Platform", count: int | str | None) -> "Lambdas":
    """As many as wanted: a number, "auto", or None, what is usual there: where they cost nothing, one a core."""
    from siafu.runtime.lambdas import Lambdas

    one_a_core = count is None and not platform.paid
    if count is None:
        count = "auto" if platform.paid else thread_count()
    return Lambdas(None if isinstance(count, str) else count, platform, one_a_core)
