"""A store, a partition of it, and a training on two graph servers; what it cost, and what it would cost elsewhere.

python examples/two_servers.py
"""

import torch

import siafu
from siafu.graph.partition import make_partition, measure


def trained(graph: siafu.Graph, servers: int) -> siafu.Run:
    torch.manual_seed(0)  # of the first weights
    model = siafu.nn.GCN(graph.num_features, 16, 2, graph.num_classes, dropout=0.5)
    return siafu.train(
        graph, model, epochs=10, servers=servers, intervals=2, partition="stream", instance="c5.2xlarge"
    )


def main() -> None:
    siafu.load("demo").save("demo.store", overwrite=True)
    graph = siafu.load("demo.store")  # memory-mapped

    for method in ("stream", "contiguous", "hash"):
        quality = measure(graph, make_partition(graph, 2, method=method))
        print(f"{method:>10}: {quality.cut_share:.1%} of the edges are cut")

    alone, together = trained(graph, servers=1), trained(graph, servers=2)
    for name, run in (("one server", alone), ("two servers", together)):
        summary = run.summary()
        print(
            f"{name}: loss {summary['train_loss']:.6f}, {summary['bytes_scattered']:,} bytes between servers"
        )

    cost = together.summary()["cost"]
    print(f"${cost['usd']:.4f} on {cost['instance']}; elsewhere:")
    for other in filter(lambda each: each["instance"], cost["alternatives"]):
        print(f"  ${other['usd']:.4f} on {other['instance']}{', spot' if other['spot'] else ''}")


if __name__ == "__main__":
    main()
