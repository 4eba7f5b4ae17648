"""Vertices or columns: ten cases in virtual time, and whether the choice that Siafu makes is near the better one.

    python bench/layouts.py [--attention]

Graphs by their shapes, machines as measured on the reference machine with more cores and other networks. An epoch is simulated
with every gather by vertices, every gather by columns, and as `siafu.server.layout.layout_choice` chooses. --attention: six cases of GAT instead.
"""

import json
import sys
from dataclasses import replace
from typing import NamedTuple

from siafu.planning.calibration import calibration
from siafu.planning.shapes import shape_of
from siafu.server.layout.layout_choice import ServerPace, chosen_layout
from siafu.virtual.costs import Machine
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.virtual import simulate
from siafu.virtual.workload import ModelShape, traffic_of, workload_of


class Case(NamedTuple):
    """graph × locality × servers × width × gigabits a second"""

    graph: str
    locality: float | None
    servers: int
    hidden: int
    gbps: float
    model: str = "gcn"


CASES = (
    Case("reddit-small", 0.0, 4, 128, 1),
    Case("reddit-small", 0.0, 4, 16, 10),
    Case("reddit-small", None, 8, 64, 10),
    Case("products", 0.0, 8, 128, 10),
    Case("products", 0.9, 8, 128, 10),
    Case("products", 0.9, 4, 256, 1, "sage"),
    Case("amazon", 0.0, 16, 16, 10),
    Case("amazon", 0.8, 8, 64, 1),
    Case("friendster", None, 32, 32, 25),
    Case("friendster", 0.0, 16, 256, 25, "sage"),
)
ATTENTION = (
    Case("reddit-small", 0.0, 4, 128, 1, "gat"),
    Case("reddit-small", None, 8, 64, 10, "gat"),
    Case("products", 0.0, 8, 128, 10, "gat"),
    Case("products", 0.9, 4, 64, 1, "gat"),
    Case("amazon", 0.0, 16, 64, 10, "gat"),
    Case("friendster", None, 32, 64, 25, "gat"),
)
CORES = 8


def machine(gbps: float) -> Machine:
    """A server with eight cores of the reference machine."""
    measured, _ = calibration()
    return replace(measured.machine, cores=CORES, network_bytes_s=gbps * 1e9 / 8, latency_s=100e-6)


def seconds(case: Case, shape: GraphShape, layout: str) -> float:
    """Of an epoch."""
    workload = workload_of(model_of(case), shape, layout, servers=case.servers)
    found = simulate(
        shape, workload, machine(case.gbps), servers=case.servers, epochs=3, most_servers=3, most_intervals=8
    )
    return found.seconds_per_epoch


def model_of(case: Case) -> ModelShape:
    return ModelShape(case.model, case.hidden, 3)


def run(case: Case) -> dict[str, object]:
    """Both layouts, and the choice."""
    _, shape = shape_of(case.graph)
    if case.locality is not None:
        shape = replace(shape, locality=case.locality)
    ghosts = shape.ghosts_of_server(case.servers)
    pace = ServerPace(shape.vertices, shape.edges, ghosts, case.servers, CORES, case.gbps)
    traffic = traffic_of(model_of(case), shape, case.servers)
    chosen = chosen_layout([pace.price(each) for each in traffic])
    found = {
        layout: seconds(case, shape, layout) for layout in dict.fromkeys(("vertices", "columns", chosen))
    }
    best = min(found["vertices"], found["columns"])
    return {
        **case._asdict(),
        "vertices_s": found["vertices"],
        "columns_s": found["columns"],
        "chosen": chosen,
        "chosen_s": found[chosen],
        "of_the_better": found[chosen] / best,
        "vertices_mb": sum(each.vertices for each in traffic) / 1e6,
        "columns_mb": sum(each.columns for each in traffic) / 1e6,
    }


def main() -> None:
    near, cases = 0, ATTENTION if "--attention" in sys.argv[1:] else CASES
    for case in cases:
        found = run(case)
        near += float(str(found["of_the_better"])) <= 1.1
        print(json.dumps(found))
        sys.stdout.flush()
    print(f"{near} of {len(cases)} within 10 % of the better one")


if __name__ == "__main__":
    main()
