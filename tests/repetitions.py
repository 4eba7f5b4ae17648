"""A process that trains the same again and again, and says what came out: `python -m tests.repetitions TIMES`.

How many threads it has is set where it is started: $SIAFU_THREADS for tasks, $OMP_NUM_THREADS for PyTorch.
"""

import hashlib
import json
import sys
from collections import defaultdict

import torch

from siafu import nn
from tests.toys import toy_graph
from tests.training_runs import compiled, train_in_pipeline

# Products whose last dimension is odd are added up in another order when PyTorch splits them over threads.
HIDDEN = 41
MODELS = {"gcn": nn.GCN, "gat": nn.GAT, "sage": nn.GraphSAGE, "gin": nn.GIN}


def repeat(times: int) -> dict[str, list[str]]:
    """Fingerprints of the weights of trainings that must be the same, by model and number of servers."""
    graph, found = toy_graph(600), defaultdict(list)
    for name, kind in MODELS.items():
        torch.manual_seed(0)
        model = kind(graph.num_features, HIDDEN, 2, graph.num_classes, dropout=0.5)
        programs = compiled(graph, model)
        for servers in (1, 2):
            for mode in ("sync", "pipe"):
                for _ in range(times):
                    trained = train_in_pipeline(
                        graph, model, programs=programs, servers=servers, mode=mode, epochs=3, intervals=2
                    )
                    found[f"{name} on {servers}"].append(fingerprint(trained.weights))
    return dict(found)


def fingerprint(weights: dict[str, torch.Tensor]) -> str:
    """Of all bits of the weights, and of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    print(json.dumps(repeat(int(sys.argv[1]))))
