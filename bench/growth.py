"""How an epoch's time grows with the edges: GCN with one hidden layer of 128 on generated graphs of four sizes.

    python bench/growth.py DIRECTORY

DIRECTORY takes about 2 GB of stores. Prints a table: edges, the best epoch of five, edges a second.
"""

import json
import subprocess
import sys
from pathlib import Path

from siafu.graph import is_store, read_store

_SCALES = (0.125, 0.25, 0.5, 1.0)


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    print(f"{'scale':>6} {'vertices':>9} {'edges':>12} {'seconds':>8} {'M edges/s':>10}")
    for scale in _SCALES:
        store = directory / f"reddit-small-{scale}"
        if not is_store(store):
            generate = ["generate", "reddit-small", "--scale", str(scale), "-o", str(store)]
            subprocess.run(
                [sys.executable, "-c", "from siafu.cli import main; main()", *generate], check=True
            )
        graph = read_store(store, verify=False)
        epoch = [sys.executable, "-m", "siafu.bench.own_epoch", str(store), "gcn", "128", "fp32", "auto", "5"]
        answer = subprocess.run(epoch, check=True, stdout=subprocess.PIPE, text=True)
        best = min(json.loads(answer.stdout.splitlines()[-1])["seconds"])
        rate = graph.num_edges / best / 1e6
        print(f"{scale:6} {graph.num_vertices:9,} {graph.num_edges:12,} {best:8.3f} {rate:10.1f}", flush=True)


if __name__ == "__main__":
    main()
