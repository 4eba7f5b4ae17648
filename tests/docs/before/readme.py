"""A run, and files to import."""

import gzip
from pathlib import Path

import siafu

graph = siafu.load("demo")
siafu.train(graph, siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes), epochs=2, out="RUN")
with gzip.open("edges.csv.gz", "wt") as file:
    file.write("src,dst\n" + "".join(f"{each},{(each + 1) % 20}\n" for each in range(20)))
Path("people.csv").write_text(
    "id,age,team\n" + "".join(f"{each},{20 + each},{('red', 'blue')[each % 2]}\n" for each in range(20))
)
