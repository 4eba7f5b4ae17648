"""Trains on DGL's samples. Runs under the peers' own interpreter: needs NumPy, PyTorch and DGL only.

    python sampled_peer.py ARRAYS SETTING SEED RATE

ARRAYS is an .npz of a graph's in-edges (ptr, col), x, y, train, val and test; SETTING a JSON object of `AccuracySetting`. Neighbours are drawn with
`sample_neighbors` and `to_block`, layer by layer. Each epoch is evaluated on the whole graph. Prints one JSON object: the validation
accuracy after each epoch, seconds of training so far, the test accuracy at the best, and CPU seconds of an epoch, their median.
"""

import itertools
import json
import statistics
import sys
import time
import types

import numpy as np
import torch
from torch.nn import functional as F

# This module's binary is tied to an older PyTorch; neither sampling nor message passing uses it.
sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")
import dgl  # noqa: E402
import dgl.nn as dgl_nn  # noqa: E402


def main() -> None:
    path, setting, seed, rate = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    torch.manual_seed(seed)
    dgl.seed(seed)
    with np.load(path) as found:
        arrays = {name: torch.from_numpy(found[name]) for name in found.files}
    training = Training(arrays, setting, rate)
    val, seconds, cpus, best, test, spent, last = [], [], [], -1.0, 0.0, 0.0, 0
    for _ in range(setting["epochs"]):
        wall, cpu = time.perf_counter(), time.process_time()
        training.epoch()
        cpus.append(time.process_time() - cpu)
        spent += time.perf_counter() - wall
        here, there = training.accuracies()
        val.append(here)
        seconds.append(spent)
        if here > best:
            best, test, last = here, there, len(val)
        if len(val) - last >= setting["patience"]:
            break
    # The first epoch is left out where there are others: it warms up.
    print(
        json.dumps({"val": val, "seconds": seconds, "test": test, "cpu": statistics.median(cpus[1:] or cpus)})
    )


class Training:
    """Layers between which stand relu and dropout, and their optimizer."""

    def __init__(self, arrays, setting, rate):  # type: ignore[no-untyped-def]
        self.x, self.y = arrays["x"], arrays["y"].long()
        self.splits = {name: arrays[name].long() for name in ("train", "val", "test")}
        self.setting, self.gcn = setting, setting["model"] == "gcn"
        self.g = dgl.graph(
            ("csc", (arrays["ptr"], arrays["col"].long(), torch.arange(0))), num_nodes=len(self.x)
        )
        if self.gcn:
            self.g = dgl.add_self_loop(dgl.remove_self_loop(self.g))
        between = [setting["hidden"]] * (setting["layers"] - 1)
        widths = [self.x.shape[1], *between, int(self.y.max()) + 1]
        self.net = torch.nn.ModuleList(self.layer(*ends) for ends in itertools.pairwise(widths))
        self.optimizer = torch.optim.Adam(
            self.net.parameters(), lr=rate, weight_decay=setting["weight_decay"]
        )

    def layer(self, wide, next_wide):  # type: ignore[no-untyped-def]
        if self.gcn:
            return dgl_nn.GraphConv(wide, next_wide, norm="both")
        return dgl_nn.SAGEConv(wide, next_wide, "mean")

    def rows(self, graphs, x, dropout):  # type: ignore[no-untyped-def]
        for layer, graph in zip(self.net[:-1], graphs[:-1], strict=True):
            x = F.dropout(layer(graph, x).relu(), dropout, training=self.net.training)
        return self.net[-1](graphs[-1], x)

    def epoch(self):  # type: ignore[no-untyped-def]
        self.net.train()
        train = self.splits["train"]
        for seeds in torch.split(train[torch.randperm(len(train))], self.setting["batch"]):
            blocks, inputs = self.drawn(seeds)
            out = self.rows(blocks, self.x[inputs], self.setting["dropout"])
            loss = F.cross_entropy(out, self.y[seeds])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def drawn(self, seeds):  # type: ignore[no-untyped-def]
        blocks = []
        for fanout in self.setting["fanouts"]:
            found = dgl.sampling.sample_neighbors(self.g, seeds, fanout)
            blocks.insert(0, dgl.to_block(found, seeds))
            seeds = blocks[0].srcdata[dgl.NID]
        return blocks, seeds

    @torch.no_grad()
    def accuracies(self):  # type: ignore[no-untyped-def]
        self.net.eval()
        right = self.rows([self.g] * len(self.net), self.x, 0.0).argmax(1) == self.y
        return [right[self.splits[name]].float().mean().item() for name in ("val", "test")]


if __name__ == "__main__":
    main()
