"""`siafu calibrate`: measure this machine, so that plans are made with its figures."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

_BUSY = 0.5  # of the cores


def calibrate(
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Where to write it. [default: in the cache, where plans find it]"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure what this machine's cores, memory and Lambdas do in a second: `siafu plan` works with it.

    Takes well under a minute. Other work on the machine makes it look slower than it is.
    """
    from siafu.planning.calibration import calibrate as measured
    from siafu.planning.calibration import calibration_path, describe

    if (load := os.getloadavg()[0]) > _BUSY * (os.cpu_count() or 1):
        print(
            f"other work is going on here (load {load:.1f}): measure again when the machine is quiet",
            file=sys.stderr,
        )
    found = measured(lambda what: print(f"measuring {what}", file=sys.stderr, flush=True))
    path = out or calibration_path()
    found.save(path)
    if as_json:
        print(json.dumps(asdict(found) | {"path": str(path)}))
        return
    for line in describe(found):
        print(line)
    print(f"saved in {path}")
