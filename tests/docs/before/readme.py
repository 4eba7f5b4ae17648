"""A run, and files to import."""

import gzip
from pathlib import Path

import siafu

graph = siafu.load("demo")
siafu.train(graph, siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes), epochs=2, out="RUN")
with gzip.open("edges.csv.gz", "wt") as file:
    file.write("src,dst\n0,1\n1,2\n2,0\n")
Path("people.csv").write_text("id,label\n0,0\n1,1\n2,0\n")
