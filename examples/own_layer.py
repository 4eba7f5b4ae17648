"""A layer of your own, in a model of your own, trained in parts: gated sums of neighbours.

python examples/own_layer.py
"""

import torch

import siafu


class GatedConv(siafu.nn.Layer):
    """What neighbours send, let through by a gate that the vertex itself computes."""

    gather = siafu.nn.Mean()

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(in_channels, out_channels, bias=False)
        self.root = torch.nn.Linear(in_channels, out_channels)
        self.gate = torch.nn.Linear(in_channels, out_channels)

    def transform(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x)  # per vertex: what is sent along its out-edges

    def apply_vertex(self, gathered: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.root(x) + torch.sigmoid(self.gate(x)) * gathered


class Net(torch.nn.Module):
    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.first = GatedConv(in_channels, hidden)
        self.second = GatedConv(hidden, out_channels)

    def forward(self, graph: siafu.Graph, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.dropout(torch.relu(self.first(graph, x)), 0.5, self.training)
        return self.second(graph, hidden)


def main() -> None:
    graph = siafu.load("demo")  # generated: 4,000 vertices, 8 classes
    model = Net(graph.num_features, 32, graph.num_classes)
    out = model(graph, siafu.nn.features(graph))  # plain PyTorch over the whole graph
    print(f"the model gives rows of shape {list(out.shape)}")

    run = siafu.train(graph, model, epochs=30, mode="pipe", intervals=4)
    summary = run.summary()
    print(f"test accuracy {summary['test_accuracy']:.3f}, {summary['gradients_applied']} gradients")


if __name__ == "__main__":
    main()
