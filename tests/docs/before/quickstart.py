"""The run that the page goes on with, and a second store."""

import siafu

graph = siafu.load("demo")
graph.save("other-store")
model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes)
siafu.train(graph, model, epochs=2, out="runs/mine")
