"""A graph in every form that the page imports."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import scipy.sparse
import torch
from torch_geometric.data import Data

rng = np.random.default_rng(0)
n = 300
src, dst = rng.integers(0, n, 1500), rng.integers(0, n, 1500)
x = rng.normal(size=(n, 8)).astype(np.float32)
y = np.arange(n) % 3
train_ids, val_ids, test_ids = np.arange(100), np.arange(100, 200), np.arange(200, n)
split = np.repeat(["train", "val", "test"], 100)
matrix = scipy.sparse.coo_matrix((np.ones(len(src)), (src, dst)), (n, n)).tocsr()
indptr, indices = matrix.T.tocsr().indptr, matrix.T.tocsr().indices
data = Data(torch.from_numpy(x), torch.from_numpy(np.stack([src, dst])), y=torch.from_numpy(y))

np.savetxt("edges.tsv", np.stack([src, dst], 1), fmt="%d", delimiter="\t")
Path("edges.csv").write_text(
    "src,dst,times\n" + "".join(f"{a},{b},1\n" for a, b in zip(src, dst, strict=True))
)
np.save("x.npy", x)
np.save("y.npy", y)
np.savetxt("split.csv", split, fmt="%s")
amounts = pyarrow.table({"src": src, "dst": dst, "amount": rng.random(len(src))})
pyarrow.parquet.write_table(amounts, "edges.parquet")
scipy.sparse.save_npz("amazon_electronics_computers.npz", matrix)
# DGL is not among the packages that tests have: this is what `from_dgl` reads of a DGLGraph.
dgl_graph = SimpleNamespace(
    edges=lambda order: (src, dst), num_nodes=lambda: n, ndata={"feat": x, "label": y}, edata={}
)
