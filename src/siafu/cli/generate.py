"""`siafu generate`: write a synthetic graph to a store."""

import time
from pathlib import Path

from siafu.base.dataset_names import refuse_not_generated
from siafu.base.option import argument, option
from siafu.cli.common import ProgressBar, bytes_of, say, told_rate
from siafu.cli.declared import memory_option, out_file


def generate(
    name: str = argument("NAME", "demo, reddit-small, reddit-large, products, amazon or friendster."),
    output: Path | None = out_file("Where to.", unset="the cache, to load by name", metavar="STORE"),
    scale: float = option(1.0, "Times so many vertices and edges, at the same degree."),
    shuffle: bool = option(False, "Give products ids in no order; the other graphs always have such ids."),
    seed: int = option(0, "Another seed, another graph of the same shape.", least=0),
    memory: str | None = memory_option("--memory-limit"),
    features_dtype: str = option("fp32", "How features are stored.", choices=("fp32", "bf16")),
    overwrite: bool = option(False, "Replace what is at STORE."),
) -> None:
    """Write a synthetic graph: power-law degrees, planted communities, noisy features and labels.

    The same name, scale and seed give the same bytes.
    """
    limit = bytes_of(memory)
    refuse_not_generated(name)
    from siafu.graph.datasets import cached_store
    from siafu.graph.generate import generate as write_graph
    from siafu.graph.generate import shape_named

    bf16 = features_dtype == "bf16"
    shape = shape_named(name).scaled(scale)
    if shuffle:
        shape = shape.shuffled()
    label = shape.name + (f"-seed{seed}" if seed else "") + ("-bf16" if bf16 else "")
    path = cached_store(label) if output is None else output
    began = time.monotonic()
    with ProgressBar("items") as progress:
        num_edges = write_graph(
            shape, path, seed=seed, memory_limit=limit, bf16=bf16, overwrite=overwrite, progress=progress
        )
    seconds = time.monotonic() - began
    say(
        f"{label}: {shape.num_vertices:,} vertices, {num_edges:,} edges in {seconds:.1f} s "
        f"({told_rate(num_edges, seconds, 'edges')})"
    )
    print(path if output is not None else label)
