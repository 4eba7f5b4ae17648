"""Train on arrays of your own: edges, features, labels and splits in NumPy.

python examples/own_arrays.py
"""

import numpy as np

import siafu


def arrays(vertices: int = 600, classes: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    """Vertices of three classes, most of whose edges stay within their class."""
    draw = np.random.default_rng(seed)
    y = np.arange(vertices) % classes
    src = draw.integers(0, vertices, 10 * vertices)
    near = (src + classes * draw.integers(0, vertices // classes, len(src))) % vertices  # of the same class
    dst = np.where(draw.random(len(src)) < 0.8, near, draw.integers(0, vertices, len(src)))
    x = np.eye(classes, dtype=np.float32)[y] + draw.normal(0, 2, (vertices, classes))
    return {"src": src, "dst": dst, "x": x.astype(np.float32), "y": y, "part": draw.integers(0, 3, vertices)}


def main() -> None:
    mine = arrays()
    graph = siafu.Graph.from_edges(
        mine["src"],
        mine["dst"],
        num_vertices=len(mine["y"]),
        undirected=True,
        x=mine["x"],
        y=mine["y"],
        train=mine["part"] == 0,
        val=mine["part"] == 1,
        test=mine["part"] == 2,
    )
    print(graph)
    model = siafu.nn.GCN(graph.num_features, 16, 2, graph.num_classes, dropout=0.5)
    run = siafu.train(graph, model, epochs=30, out="runs/own-arrays", overwrite=True)
    print(f"test accuracy {run.summary()['test_accuracy']:.3f} after epoch {run.summary()['best_epoch']}")

    again = siafu.Run.load("runs/own-arrays")
    wrong = int((again.predict(graph).numpy() != mine["y"]).sum())
    print(f"{wrong} of {graph.num_vertices} vertices are predicted wrongly")


if __name__ == "__main__":
    main()
