"""A model and its graph."""

import siafu

graph = siafu.load("demo")
model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes)
