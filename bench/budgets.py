"""Budget against time, and growth at fixed shares of the memory that is needed.

    python bench/budgets.py STORE --scratch DIR [--model sage] [--layers 3] [--hidden 128] [--epochs 2]
    python bench/budgets.py products --growth 0.08 0.16 0.32 0.64 --scratch DIR [--model sage] [--layers 3] [--hidden 128]

The first trains with all the memory that the list asks for, then with a half and a quarter of it, and prints a table. With --growth the name
is a shape of `siafu generate`, which is made at each scale in DIR; each size is trained with all memory and with a quarter. Every training has
a process of its own. Losses are compared to the last bit. CPU is that of all epochs and evaluations.
"""

import argparse
import tempfile
from argparse import Namespace
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from memory import MODELS, in_process

_SHARES = {"full": 1.0, "half": 0.5, "quarter": 0.25}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", help="a store; with --growth the name of a shape")
    parser.add_argument("--scratch", required=True, help="directory for tables on disk")
    parser.add_argument("--growth", nargs="+", type=float, metavar="SCALE", help="scales of the shape")
    parser.add_argument("--model", choices=MODELS, default="sage")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    asked = parser.parse_args()
    if asked.growth:
        growth(asked)
        return
    print(
        "| budget | list, MB | peak, MB | epoch, s | × | evaluation, s | CPU, s | read, GB | written, GB | disk busy | hidden |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    full: dict[str, Any] | None = None
    for name, share in _SHARES.items():
        found = trained(asked.store, asked, None if full is None else share * full["list"]["peak_bytes"])
        full = full or found
        print(f"| {name}, {told(found, full)} |", flush=True)


def growth(asked: Namespace) -> None:
    """Every size with all memory, and with a quarter of it."""
    from siafu.graph.generate import generate, shape_named

    print("| vertices | edges | budget | peak, MB | epoch, s | M edges/s | hidden |")
    print("|---|---|---|---|---|---|---|")
    for scale in asked.growth:
        shape = shape_named(asked.store).scaled(scale)
        with tempfile.TemporaryDirectory(dir=asked.scratch) as made:
            edges = generate(shape, Path(made) / "store", memory_limit=2 << 30)
            full: dict[str, Any] | None = None
            for name in ("full", "quarter"):
                size = None if full is None else _SHARES[name] * full["list"]["peak_bytes"]
                found = trained(str(Path(made) / "store"), asked, size)
                full = full or found
                hidden = f"{found['disk']['hidden']:.0%}" if found["disk"] else ""
                print(
                    f"| {shape.num_vertices:,} | {edges:,} | {name} | {found['peak'] / 1e6:,.0f} | {found['seconds']:.2f} | "
                    f"{edges / found['seconds'] / 1e6:.1f} | {hidden} |",
                    flush=True,
                )


def trained(store: str, asked: Namespace, budget: float | None) -> dict[str, Any]:
    """One training; budget: bytes, None: all that it asks for."""
    how = Namespace(
        store=store,
        layers=asked.layers,
        hidden=asked.hidden,
        epochs=asked.epochs,
        memory=None if budget is None else str(int(budget)),
        scratch=None if budget is None else asked.scratch,
    )
    try:
        return in_process(store, asked.model, how)
    except CalledProcessError as error:
        raise SystemExit(error.stderr.strip().splitlines()[-1]) from None


def told(found: dict[str, Any], full: dict[str, Any]) -> str:
    """A row of the table."""
    disk = found["disk"]
    traffic = ["", "", "", ""]
    if disk:
        traffic = [
            f"{disk['read_gb']:.1f}",
            f"{disk['written_gb']:.1f}",
            f"{disk['busy']:.0%}",
            f"{disk['hidden']:.0%}",
        ]
    same = "" if found["loss"] == full["loss"] else " (LOSS DIFFERS)"
    cells = [
        f"{found['list']['peak_bytes'] / 1e6:,.0f}",
        f"{found['peak'] / 1e6:,.0f}",
        f"{found['seconds']:.2f}",
        f"{found['seconds'] / full['seconds']:.2f}{same}",
        f"{found['evaluate_seconds']:.2f}",
        f"{found['cpu_seconds']:.1f}",
        *traffic,
    ]
    return f"{found['list']['peak_bytes'] / full['list']['peak_bytes']:.0%} | {' | '.join(cells)}"


if __name__ == "__main__":
    main()
