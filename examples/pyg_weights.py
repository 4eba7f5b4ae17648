"""Weights from PyG and back: train here, and go on there. Needs torch_geometric.

python examples/pyg_weights.py
"""

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import siafu


def data(vertices: int = 300, classes: int = 3) -> Data:
    """A small graph as PyG has it; yours comes from one of its datasets."""
    torch.manual_seed(0)
    y = torch.arange(vertices) % classes
    src = torch.randint(0, vertices, (10 * vertices,))
    near = (src + classes * torch.randint(0, vertices // classes, src.shape)) % vertices
    dst = torch.where(torch.rand(len(src)) < 0.8, near, torch.randint(0, vertices, src.shape))
    part = torch.randint(0, 3, (vertices,))
    return Data(
        x=torch.nn.functional.one_hot(y, classes) + torch.randn(vertices, classes),
        edge_index=torch.stack([src, dst]),
        y=y,
        train_mask=part == 0,
        val_mask=part == 1,
        test_mask=part == 2,
    )


def main() -> None:
    theirs_data = data()
    graph = siafu.Graph.from_pyg(theirs_data)
    theirs = GraphSAGE(3, 16, 2, 3).eval()
    ours = siafu.nn.GraphSAGE(3, 16, 2, 3).eval()

    ours.load_state_dict(theirs.state_dict())  # in
    with torch.no_grad():
        far = (ours(graph) - theirs(theirs_data.x, theirs_data.edge_index)).abs().max()
    print(f"before training, the two differ by {far:.1e}")

    run = siafu.train(graph, ours, epochs=30)

    theirs.load_state_dict(run.model.state_dict())  # and out
    with torch.no_grad():
        said = theirs(theirs_data.x, theirs_data.edge_index).argmax(1)
    right = (said == theirs_data.y)[theirs_data.test_mask].float().mean()
    print(f"PyG, with the trained weights: test accuracy {right:.3f}")
    print(f"Siafu:                         test accuracy {run.summary()['test_accuracy']:.3f}")


if __name__ == "__main__":
    main()
