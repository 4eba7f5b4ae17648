"""Tensor tasks on Lambdas of this machine: processes under AWS's own runtime client.

The same numbers as on threads, and what AWS would ask for them: python examples/local_lambdas.py
"""

import torch

import siafu


def trained(graph: siafu.Graph, lambdas: str) -> siafu.Run:
    torch.manual_seed(0)  # of the first weights
    model = siafu.nn.GCN(graph.num_features, 16, 2, graph.num_classes)
    count = None if lambdas == "off" else 2
    return siafu.train(graph, model, epochs=3, intervals=4, lambdas=lambdas, lambda_count=count)


def main() -> None:
    graph = siafu.load("demo")  # generated: 4,000 vertices, 8 classes
    on_threads, on_lambdas = trained(graph, "off"), trained(graph, "local")

    losses = [
        (a.train_loss, b.train_loss) for a, b in zip(on_threads.history, on_lambdas.history, strict=True)
    ]
    for epoch, (threads, lambdas) in enumerate(losses, start=1):
        print(f"epoch {epoch}: loss {threads:.6f} on threads, {lambdas:.6f} on Lambdas")
    furthest = max(abs(a - b) for a, b in losses)
    print(f"they differ by {furthest:.0e} at most")

    used = on_lambdas.summary()["lambda"]
    print(f"{used['invocations']} invocations, {used['billed_gb_seconds']:.2f} GB-seconds")


if __name__ == "__main__":
    main()
