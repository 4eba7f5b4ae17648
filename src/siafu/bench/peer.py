"""Times a peer's gather or epoch. Runs under the peers' own interpreter: needs NumPy, PyTorch and the peer only.

    python peer.py dgl gather STORE WIDTH REPEATS
    python peer.py dgl|pyg epoch STORE HIDDEN REPEATS [gcn|gat]

STORE is a siafu store of a symmetric graph; its arrays are plain .npy files. Prints one JSON object: seconds of each
repetition and the peak memory. An epoch is forward, loss on the training rows, backward and an Adam step of two
layers (GCN: features-HIDDEN-classes; GAT: 8 heads of HIDDEN/8, then one), as each library's users write it.
"""

import json
import resource
import sys
import time
import types
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F


def main() -> None:
    peer, what, store, width, repeats, *model = sys.argv[1:]
    graph = PeerGraph(Path(store))
    make = gather if what == "gather" else epoch
    step = make(peer, graph, int(width), *model)
    seconds = []
    for _ in range(int(repeats)):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
        print(f"{peer} {what}: {seconds[-1]:.2f} s", file=sys.stderr, flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peer": peer, "seconds": seconds, "peak_rss_bytes": peak}))


class PeerGraph:
    def __init__(self, store: Path) -> None:
        self.indptr = torch.from_numpy(np.load(store / "indptr.npy"))
        self.indices = torch.from_numpy(np.load(store / "indices.npy"))
        self.vertices = len(self.indptr) - 1
        self.x = torch.from_numpy(np.load(store / "x.npy"))
        if self.x.dtype == torch.uint16:
            self.x = self.x.view(torch.bfloat16).float()
        self.y = torch.from_numpy(np.load(store / "y.npy"))
        self.train = torch.from_numpy(np.load(store / "train.npy"))
        self.classes = int(self.y.max()) + 1

    def normalised(self) -> torch.Tensor:
        degree = (self.indptr[1:] - self.indptr[:-1]).float().clamp(min=1)
        factor = degree.pow(-0.5)
        rows = torch.repeat_interleave(torch.arange(self.vertices), self.indptr[1:] - self.indptr[:-1])
        columns, shape = self.indices.long(), (self.vertices, self.vertices)
        return torch.sparse_csr_tensor(self.indptr, columns, factor[rows] * factor[columns], shape)

    def dgl(self, *, numbered=False):  # type: ignore[no-untyped-def]
        # This module's binary is tied to an older PyTorch; message passing does not use it.
        sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")
        import dgl

        # Attention needs edges by number; without numbers, sums of rows are faster.
        numbers = torch.arange(len(self.indices) if numbered else 0, dtype=torch.int32)
        edges = ("csc", (self.indptr.int(), self.indices.int(), numbers))
        return dgl.graph(edges, num_nodes=self.vertices, idtype=torch.int32)


def gather(peer, graph, width):  # type: ignore[no-untyped-def]
    rows, g = torch.randn(graph.vertices, width), graph.dgl()
    import dgl

    return lambda: dgl.ops.copy_u_sum(g, rows)


def epoch(peer, graph, hidden, model="gcn"):  # type: ignore[no-untyped-def]
    layers, forward = (dgl_model if peer == "dgl" else pyg_model)(graph, hidden, model)
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(graph.x)[graph.train], graph.y[graph.train])
        loss.backward()
        optimizer.step()

    return step


def dgl_model(graph, hidden, model):  # type: ignore[no-untyped-def]
    g = graph.dgl(numbered=model == "gat")
    from dgl.nn import GATConv, GraphConv

    width = graph.x.shape[1]
    if model == "gat":
        first = GATConv(width, hidden // 8, 8, allow_zero_in_degree=True)
        layers = torch.nn.ModuleList([first, GATConv(hidden, graph.classes, 1, allow_zero_in_degree=True)])
        return layers, lambda x: layers[1](g, F.elu(layers[0](g, x).flatten(1))).mean(1)
    widths = ((width, hidden), (hidden, graph.classes))
    layers = torch.nn.ModuleList([GraphConv(*each, allow_zero_in_degree=True) for each in widths])
    return layers, lambda x: layers[1](g, layers[0](g, x).relu())


def pyg_model(graph, hidden, model):  # type: ignore[no-untyped-def]
    if model != "gcn":
        raise SystemExit("peer.py: PyG's GAT makes a tensor for every edge: only gcn is measured")
    from torch_geometric.nn import GCNConv

    adjacency = graph.normalised()
    widths = ((graph.x.shape[1], hidden), (hidden, graph.classes))
    layers = torch.nn.ModuleList([GCNConv(*each, normalize=False) for each in widths])
    return layers, lambda x: layers[1](layers[0](x, adjacency).relu(), adjacency)


if __name__ == "__main__":
    main()
