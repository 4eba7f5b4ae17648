"""`siafu calibrate`: measure this machine, so that plans are made with its figures."""

import os
from dataclasses import asdict
from pathlib import Path

from siafu.cli.common import say, show
from siafu.cli.declared import json_flag, out_file

_BUSY = 0.5  # of the cores


def calibrate(
    out: Path | None = out_file("Where to write it.", unset="in the cache, where plans find it"),
    as_json: bool = json_flag(),
) -> None:
    """Measure what this machine's cores, memory and Lambdas do in a second: `siafu plan` works with it.

    Takes well under a minute. Other work on the machine makes it look slower than it is.
    """
    from siafu.planning.calibration import calibrate as measured
    from siafu.planning.calibration import calibration_path, describe

    busy = (load := os.getloadavg()[0]) > _BUSY * (os.cpu_count() or 1)
    if busy:
        say(f"other work is going on here (load {load:.1f}): this machine will look slower than it is")
    found = measured(lambda what: say(f"measuring {what}"))
    path = out or calibration_path()
    found.save(path)
    show(asdict(found) | {"path": str(path)}, [*describe(found), f"saved in {path}"], as_json=as_json)
    if busy:
        say(
            "plans will be too slow with these figures: run 'siafu calibrate' again when the machine is quiet"
        )
