"""How accurate a sample of servers and intervals is in virtual time: the table of docs/simulation.md, in Markdown.

    python bench/virtual_samples.py

Simulates 16 servers with 64 intervals each, whole and in samples, with the calibration that comes with Siafu; two minutes.
"""

import time
from dataclasses import replace
from pathlib import Path

from siafu.pipeline.ids import Mode
from siafu.planning import calibration
from siafu.planning.calibration import Calibration
from siafu.planning.machines import aws_lambda
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.virtual import simulate
from siafu.virtual.workload import ModelShape

_AMAZON = GraphShape(vertices=9_200_000, edges=313_900_000, features=300, classes=25, locality=0.5)
_REFERENCE = Calibration.read(Path(calibration.__file__).parent / "data" / "reference.json")
_MACHINE = replace(_REFERENCE.machine, cores=8, network_bytes_s=10e9 / 8, latency_s=1e-4)
_SERVERS, _INTERVALS, _LAMBDAS = 16, 64, 64
_RUNS: tuple[tuple[str, Mode, int], ...] = (
    ("gcn", "sync", 0),
    ("gcn", "sync", _LAMBDAS),
    ("gcn", "pipe", 0),
    ("gcn", "pipe", _LAMBDAS),
    ("gcn", "async", 0),
    ("gcn", "async", _LAMBDAS),
    ("gat", "sync", 0),
    ("gat", "pipe", 0),
    ("gat", "pipe", _LAMBDAS),
    ("gat", "async", 0),
)
_SAMPLES = (64, 32, 16)


def main() -> None:
    print(
        f"| run | {' | '.join(f'4 servers, {count} intervals' for count in _SAMPLES)} | whole, CPU s | samples, CPU s |"
    )
    print("|---|---|---|---|---|---|")
    for model, mode, lambdas in _RUNS:
        whole, whole_cpu = _epoch(model, mode, lambdas, _SERVERS, _INTERVALS)
        found = [_epoch(model, mode, lambdas, 4, count) for count in _SAMPLES]
        where = "Lambdas" if lambdas else "threads"
        ratios = " | ".join(f"{seconds / whole:.3f}" for seconds, _ in found)
        cpu = ", ".join(f"{used:.1f}" for _, used in found)
        print(f"| {model}, {mode}, {where} | {ratios} | {whole_cpu:.1f} | {cpu} |", flush=True)


def _epoch(model: str, mode: Mode, lambdas: int, servers: int, intervals: int) -> tuple[float, float]:
    """Epoch time where so many servers and intervals are simulated, and the CPU seconds that this takes."""
    began = time.process_time()
    found = simulate(
        _AMAZON,
        ModelShape(model, hidden=64),
        _MACHINE,
        servers=_SERVERS,
        intervals=_INTERVALS,
        mode=mode,
        lambdas=aws_lambda(_REFERENCE, lambdas) if lambdas else None,
        lambda_count=lambdas,
        epochs=3,
        most_servers=servers,
        most_intervals=intervals,
    )
    return found.seconds_per_epoch, time.process_time() - began


if __name__ == "__main__":
    main()
