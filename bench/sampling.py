"""Samples beside DGL's: edges drawn a second, and epochs of GraphSAGE on mini-batches, in one run.

    python bench/sampling.py STORE PEERS_PYTHON [REPEATS [FANOUT]]

STORE is a graph with features and a training split, such as `siafu generate products --scale 0.05` makes; PEERS_PYTHON an environment
with DGL (docs/performance.md). Both draw 15 and 10 in-edges of a vertex (FANOUT: 15,10,5 … for as many layers), 1,024 vertices a batch. DGL draws with `sample_neighbors` and
`to_block`, layer by layer, so that a vertex of several layers is drawn anew for each; Siafu draws it once, with all vertices numbered as
`to_block` does, and with those of the last hop left without numbers, as it draws to train ("as trained"). Turns are taken; the best
counts. CPU seconds are of all threads of the process; on a busy machine give both one thread (OMP_NUM_THREADS=1), since DGL's spin.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BATCH, WIDTH, EPOCHS = 1024, 128, 3

PEER = """
import json, sys, time, types
sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")
import numpy as np, torch, dgl, dgl.nn as dn
path, fanouts, batch, width, epochs = sys.argv[1], json.loads(sys.argv[2]), *map(int, sys.argv[3:6])
z = np.load(path)
ptr, col, x, y, train = (torch.from_numpy(z[name]) for name in ("ptr", "col", "x", "y", "train"))
n, classes = len(ptr) - 1, int(y.max()) + 1
g = dgl.graph(("csc", (ptr, col.long(), torch.arange(0))), num_nodes=n)
def draw(seeds):
    blocks, edges = [], 0
    for fanout in fanouts:
        found = dgl.sampling.sample_neighbors(g, seeds, fanout)
        block = dgl.to_block(found, seeds)
        edges += block.num_edges()
        seeds = block.srcdata[dgl.NID]
        blocks.insert(0, block)
    return blocks, seeds, edges
def batches():
    return torch.split(train[torch.randperm(len(train))], batch)
def timed(work):
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - cpu
def sampling():
    return sum(draw(each)[2] for each in batches())
widths = [x.shape[1], *[width] * (len(fanouts) - 1), classes]
net = torch.nn.ModuleList([dn.SAGEConv(*ends, "mean") for ends in zip(widths, widths[1:])])
optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
def epoch():
    for seeds in batches():
        blocks, inputs, _ = draw(seeds)
        h = x[inputs]
        for layer, block in zip(net[:-1], blocks):
            h = torch.nn.functional.dropout(layer(block, h).relu(), 0.5)
        loss = torch.nn.functional.cross_entropy(net[-1](blocks[-1], h), y[seeds])
        optimizer.zero_grad(); loss.backward(); optimizer.step()
timed(sampling)
edges, wall, cpu = timed(sampling)
times = [timed(epoch)[1:] for _ in range(epochs)]
print(json.dumps({"edges": edges, "wall": wall, "cpu": cpu, "epoch": min(t[0] for t in times), "epoch_cpu": min(t[1] for t in times)}))
"""


def own(store: str, fanouts: list[int]) -> dict[str, float]:
    """Siafu's numbers, in this process."""
    import numpy as np
    import torch

    import siafu
    from siafu.base.threads import thread_count
    from siafu.report.files.metrics import EpochMetrics
    from siafu.report.progress import Progress
    from siafu.sampling.batches import epoch_batches
    from siafu.sampling.sampler import Sampler

    graph = siafu.load(store)
    batches = epoch_batches(graph.train, BATCH, 0, 0)

    def timed(sampler: Sampler) -> tuple[int, float, float]:
        """Edges of an epoch's samples, and wall and CPU seconds of the second time that they are drawn."""

        def drawn(given: tuple[int, "np.ndarray"]) -> int:
            return sampler.sample(given[1], 0, given[0]).num_edges

        with ThreadPoolExecutor(thread_count()) as pool:
            for _ in range(2):
                wall, cpu = time.perf_counter(), time.process_time()
                edges = sum(pool.map(drawn, enumerate(batches)))
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return edges, wall, cpu

    edges, wall, cpu = timed(Sampler(graph, fanouts))
    *_, trained = timed(Sampler(graph, fanouts, leaves=True))
    torch.manual_seed(0)
    model = siafu.nn.GraphSAGE(graph.num_features, WIDTH, len(fanouts), graph.num_classes, dropout=0.5)
    spent: list[float] = []

    class Watch(Progress):
        def epoch_ended(self, metrics: EpochMetrics) -> None:
            spent.append(time.process_time())

    options = {"mode": "sampled", "fanout": fanouts, "batch": BATCH, "lr": 0.003, "weight_decay": 0.0}
    run = siafu.train(graph, model, epochs=EPOCHS + 1, evaluate_every=99, progress=Watch(), **options)
    seconds = [each.seconds for each in run.history[:-1]]
    cpus = [after - before for before, after in itertools.pairwise(spent)]
    return {
        "edges": edges, "wall": wall, "cpu": cpu, "cpu_as_trained": trained,
        "epoch": min(seconds), "epoch_cpu": min(cpus),
    }  # fmt: skip


def arrays(store: str, path: Path) -> None:
    import numpy as np

    import siafu

    graph = siafu.load(store)
    np.savez(
        path,
        ptr=graph.indptr,
        col=graph.indices,
        x=siafu.nn.features(graph).numpy(),
        y=graph.y,
        train=graph.train,
    )


def main() -> None:
    if sys.argv[1] == "--own":
        print(json.dumps(own(sys.argv[2], json.loads(sys.argv[3]))))
        return
    store, python, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 2
    fanouts = json.dumps([int(each) for each in (sys.argv[4] if len(sys.argv) > 4 else "15,10").split(",")])
    found: dict[str, list[dict[str, float]]] = {"siafu": [], "dgl": []}
    with tempfile.TemporaryDirectory() as scratch:
        file, script = Path(scratch) / "graph.npz", Path(scratch) / "peer.py"
        arrays(store, file)
        script.write_text(PEER)
        settings = [fanouts, *map(str, (BATCH, WIDTH, EPOCHS))]
        commands = {
            "siafu": [sys.executable, __file__, "--own", store, fanouts],
            "dgl": [python, str(script), str(file), *settings],
        }
        for _ in range(repeats):
            for who, command in commands.items():
                environment = {**os.environ, "DGLBACKEND": "pytorch"}
                told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
                found[who].append(json.loads(told.stdout.strip().splitlines()[-1]))
                print(who, found[who][-1], flush=True)
    print(
        f"{'':6} {'M edges/s':>10} {'M edges/CPU s':>14} {'as trained':>11} {'epoch, s':>9} {'epoch, CPU s':>13}"
    )
    for who, trials in found.items():
        rate = max(each["edges"] / each["wall"] for each in trials) / 1e6
        by_cpu, trained = (
            max(each["edges"] / each.get(name, each["cpu"]) for each in trials) / 1e6
            for name in ("cpu", "cpu_as_trained")
        )
        epoch, cpu = (min(each[name] for each in trials) for name in ("epoch", "epoch_cpu"))
        print(f"{who:6} {rate:10.2f} {by_cpu:14.2f} {trained:11.2f} {epoch:9.2f} {cpu:13.2f}")


if __name__ == "__main__":
    main()
