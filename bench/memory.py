"""Peak memory of trainings against the list that is made before anything is allocated.

    python bench/memory.py [--shape NAME] [--model NAME] [--memory SIZE]
    python bench/memory.py --store products.store --model sage --layers 3 --hidden 256 --memory 14GB
    python bench/memory.py --store amazon.store --model gcn --memory 7GB --scratch DIR

--memory is the budget of the training, which then spares memory; "least" is the tightest that there is. A store (`siafu generate
products`) is used in place of the graphs that are made here; then seconds of an epoch are printed, too. --scratch is a directory for tables
on disk; then bytes read and written in all are printed, how busy epochs kept the disk, and which share of that was hidden: seconds for which
computing waited against seconds in which the disk was busy. `bench/budgets.py` has tables of budget against time, and of growth.

Each training runs in a process of its own, on a graph that is made there. Before it is listed, a small training of the same model
compiles and loads the kernels. Peak: `RssAnon` of /proc/self/status, sampled every 2 ms: memory that no file backs. Pages of mapped
files are not in it, and not in the list's peak. Memory that the allocator keeps after it was freed is in it.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MODELS = ("gcn", "sage", "gin", "gat")
OTHERS = (
    "gatv2",
    "transformer",
    "edges",
)  # whose gathers need both ends of an edge; edges: a product on each, and maxima
_MEGA = 1e6


class Shape(NamedTuple):
    """A random graph: vertices, edges of each, features, share of features that are not zero, share in training."""

    vertices: int
    degree: int
    features: int
    density: float
    train: float
    symmetric: bool = True
    hidden: int = 64


SHAPES = {
    "sparse": Shape(200_000, 12, 64, 1.0, 0.1),
    "directed": Shape(150_000, 16, 64, 1.0, 0.3, symmetric=False),
    "dense": Shape(30_000, 400, 128, 1.0, 0.5),
    "wide": Shape(40_000, 10, 800, 1.0, 0.1, hidden=32),
    "words": Shape(60_000, 6, 1000, 0.01, 0.1, hidden=32),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--model", choices=(*MODELS, *OTHERS))
    parser.add_argument("--store", help="a store to train on")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, help="width; default: the shape's")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--memory", help='budget, such as 8GB, or "least"')
    parser.add_argument("--scratch", help="directory for tables on disk")
    parser.add_argument("--one", action="store_true", help="train here, and print JSON")
    parser.add_argument("--list", action="store_true", help="print the arrays, too")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measured(asked)))
        return
    print("| graph | model | list, MB | peak, MB | peak / list | at its peak while | s an epoch |")
    print("|---|---|---|---|---|---|---|")
    for shape in [asked.store or asked.shape] if asked.store or asked.shape else SHAPES:
        for model in [asked.model] if asked.model else MODELS:
            found = in_process(shape, model, asked)
            listed, peak = found["list"]["peak_bytes"] / _MEGA, found["peak"] / _MEGA
            when = found["list"]["peak_when"]
            print(
                f"| {shape} | {model} | {listed:,.0f} | {peak:,.0f} | {peak / listed:.2f} | {when} | {found['seconds']:.2f} |",
                flush=True,
            )
            if found["chosen"]:
                print(f"    {found['chosen']}")
            if found["disk"]:
                print("   ", ", ".join(f"{name} {value:,.2f}" for name, value in found["disk"].items()))
            if asked.list:
                for each in found["list"]["arrays"]:
                    print(f"    {each['bytes'] / _MEGA:9.1f} {each['lifetime']:30} {each['name']}")
                print("   ", found["at"])


def in_process(shape: str, model: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Train in a process of its own; the list and the peak."""
    command = [sys.executable, __file__, "--one", "--model", model]
    command += ["--store" if asked.store else "--shape", shape]
    for name in ("layers", "hidden", "epochs", "memory", "scratch"):
        if (value := getattr(asked, name)) is not None:
            command += [f"--{name}", str(value)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """Train here."""
    import torch

    import siafu
    from siafu.graph.partition import make_partition
    from siafu.options import Options
    from siafu.server.memory.listing import RunListing
    from siafu.server.memory.measures import choose
    from siafu.training.trainer import Trainer

    how = SHAPES[asked.shape or "sparse"]
    hidden = asked.hidden or how.hidden
    train(
        asked.model,
        graph_of(how._replace(vertices=2_000, degree=min(how.degree, 200))),
        hidden,
        asked.layers,
    )
    graph = siafu.load(asked.store) if asked.store else graph_of(how)
    options = Options(epochs=asked.epochs)
    torch.manual_seed(0)
    built, memory = model_of(asked.model, graph, hidden, asked.layers), asked.memory
    trainer = Trainer(graph, built, options, make_partition(graph, 1))
    if memory == "least":
        memory = str(choose(RunListing.of(trainer.plan), 0).least * 21 // 20)
    scratch = None if asked.scratch is None else Path(asked.scratch)
    trainer = Trainer(
        graph, built, options, make_partition(graph, 1), trainer.programs, memory=memory, scratch=scratch
    )
    listed = trainer.memory_list
    with Sampler() as sampler:
        said, _ = trainer.prepare()
        prepared, cpu = sampler.peak, time.process_time()
        for _ in trainer.run():
            pass
        cpu = time.process_time() - cpu
    seconds = min(each.seconds for each in trainer.history)
    chosen = said[-1] if trainer.memory_choice.measures or scratch is not None else ""
    return {
        "list": listed.as_json(),
        "peak": sampler.peak,
        "at": {"prepared": prepared / _MEGA},
        "seconds": seconds,
        "chosen": chosen,
        "loss": trainer.history[-1].train_loss,
        "evaluate_seconds": min(each.evaluate_seconds or 0.0 for each in trainer.history),
        "cpu_seconds": cpu,
        "disk": disk_of(trainer.history),
    }


def disk_of(history: Sequence[Any]) -> dict[str, float]:
    """Bytes that went from and to scratch files, with those of the preparation; how busy the epochs kept the disk, and which share of
    that was hidden behind computing. The first epoch has the preparation's seconds: it counts only where it is the only one."""
    if not any(each.bytes_read for each in history):
        return {}
    later = history[1:] or history
    busy = sum(each.disk_busy_seconds for each in later)
    return {
        "read_gb": sum(each.bytes_read for each in history) / 1e9,
        "written_gb": sum(each.bytes_written for each in history) / 1e9,
        "busy": busy / sum(each.seconds + (each.evaluate_seconds or 0.0) for each in later),
        "hidden": 1 - sum(each.disk_wait_seconds for each in later) / max(busy, 1e-9),
    }


def train(name: str, graph: Any, hidden: int, layers: int) -> None:
    """A small training: kernels are loaded by it."""
    import siafu

    siafu.train(graph, model_of(name, graph, hidden, layers), epochs=2)


def model_of(name: str, graph: Any, hidden: int, layers: int) -> Any:
    from siafu.nn import build

    if name == "edges":
        return edge_model(graph, hidden, layers)
    config = {
        "in_channels": graph.num_features,
        "hidden_channels": hidden,
        "num_layers": layers,
        "out_channels": graph.num_classes,
        "dropout": 0.5,
    }
    return build(name, config | ({"heads": 8, "out_heads": 1} if name == "gat" else {}))


def edge_model(graph: Any, hidden: int, layers: int) -> Any:
    """Maxima over edges of a learnt map of both ends, as in EdgeConv."""
    import torch

    import siafu

    class EdgeLayer(siafu.nn.Layer):
        gather = siafu.nn.Max()

        def __init__(self, width: int, out: int) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(2 * width, out)

        def apply_edge(self, source: Any, target: Any) -> Any:
            return torch.relu(self.lin(torch.cat([target, source - target], 1)))

    class EdgeModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = torch.nn.Linear(graph.num_features, hidden)
            self.layers = torch.nn.ModuleList(EdgeLayer(hidden, hidden) for _ in range(layers))
            self.after = torch.nn.Linear(hidden, graph.num_classes)

        def forward(self, graph: Any, x: Any) -> Any:
            x = torch.relu(self.before(x))
            for layer in self.layers:
                x = layer(graph, x)
            return self.after(x)

    return EdgeModel()


def graph_of(shape: Shape) -> Any:
    """A graph of that shape, in memory."""
    import siafu

    draws = np.random.default_rng(0)
    count = shape.vertices * shape.degree // (2 if shape.symmetric else 1)
    src, dst = (draws.integers(0, shape.vertices, count, dtype=np.int32) for _ in range(2))
    if shape.symmetric:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    x = draws.random((shape.vertices, shape.features), dtype=np.float32)
    if shape.density < 1:
        x *= draws.random((shape.vertices, shape.features), dtype=np.float32) < shape.density
    order = draws.permutation(shape.vertices)
    first = round(shape.train * shape.vertices)
    return siafu.Graph.from_edges(
        src,
        dst,
        num_vertices=shape.vertices,
        x=x,
        y=draws.integers(0, 8, shape.vertices),
        train=np.sort(order[:first]),
        val=np.sort(order[first : first + shape.vertices // 20]),
        test=np.sort(order[first + shape.vertices // 20 : first + shape.vertices // 4]),
    )


class Sampler:
    """The most memory that this process held while it was there, besides files."""

    def __init__(self) -> None:
        self.peak, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        status = Path("/proc/self/status")
        while not self._stop.is_set():
            line = next(each for each in status.read_text().splitlines() if each.startswith("RssAnon"))
            self.peak = max(self.peak, int(line.split()[1]) * 1024)
            time.sleep(0.002)


if __name__ == "__main__":
    main()
