"""`siafu generate`: write a synthetic graph to a store."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from siafu.base.errors import BadInput
from siafu.cli.common import ProgressBar, parse_size


def generate(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="demo, reddit-small, reddit-large, amazon or friendster.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="STORE", help="Where to. [default: the cache, to load by name]"
        ),
    ] = None,
    scale: Annotated[float, typer.Option(help="Times so many vertices and edges, at the same degree.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another graph of the same shape.")] = 0,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Like 2GB. [default: half of the machine's]")
    ] = None,
    features_dtype: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at STORE.")] = False,
) -> None:
    """Write a synthetic graph: power-law degrees, planted communities, noisy features and labels.

    The same name, scale and seed give the same bytes.
    """
    if features_dtype not in ("fp32", "bf16"):
        raise BadInput(f"--features-dtype is {features_dtype!r}: choose fp32 or bf16")
    limit = None if memory_limit is None else parse_size(memory_limit)
    from siafu.graph.datasets import cached_store
    from siafu.graph.generate import generate as write_graph
    from siafu.graph.generate import shape_named

    bf16 = features_dtype == "bf16"
    shape = shape_named(name).scaled(scale)
    label = shape.name + (f"-seed{seed}" if seed else "") + ("-bf16" if bf16 else "")
    path = cached_store(label) if output is None else output
    began = time.monotonic()
    with ProgressBar("items") as progress:
        num_edges = write_graph(
            shape, path, seed=seed, memory_limit=limit, bf16=bf16, overwrite=overwrite, progress=progress
        )
    seconds = time.monotonic() - began
    print(
        f"{label}: {shape.num_vertices:,} vertices, {num_edges:,} edges in {seconds:.1f} s "
        f"({num_edges / seconds / 1e6:.1f} M edges/s)",
        file=sys.stderr,
    )
    print(path if output is not None else label)
