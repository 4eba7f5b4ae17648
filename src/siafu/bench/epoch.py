"""One epoch of a two-layer model over the whole graph, against DGL and PyG: forward, loss, backward, Adam step."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from siafu.base.errors import SiafuError
from siafu.base.threads import thread_count
from siafu.bench.limits import near_bandwidth, product_peak
from siafu.bench.network import network
from siafu.bench.timing import Timing, measure, measure_peer, told
from siafu.graph import Graph
from siafu.nn import Precision
from siafu.training.explanation import StageCost, explain


@dataclass(frozen=True)
class TaskKind:
    """Where an epoch's time goes.

    name:    the stage that these tasks are of
    seconds: of the epoch, with every thread at it
    limit:   what it would take at the machine's best; None: that is not known
    """

    name: str
    seconds: float
    limit: float | None


@dataclass(frozen=True)
class EpochBench:
    """What was measured.

    timings:    of every contender, Siafu in fp32 first
    kinds:      where its time goes
    busy_share: of its threads, all together
    """

    timings: list[Timing]
    kinds: list[TaskKind]
    busy_share: float


def bench_epoch(
    graph: Graph, store: Path, model: str, hidden: int, repeats: int, peers: Path | None
) -> EpochBench:
    """Times of every contender; PyG has no GAT here, since it makes a tensor for every edge."""
    made = network(graph, model, hidden)
    first = _own(store, model, hidden, "fp32", "auto", repeats)
    alike = _own(store, model, hidden, "fp32", str(thread_count()), repeats)
    half = _own(store, model, hidden, "bf16", "auto", repeats)
    timings = [
        _timing("siafu fp32", first),
        _timing("siafu bf16", half),
        _timing("siafu fp32, an interval a thread", alike),
        measure("siafu fp32, model(graph)", _step(graph, made), repeats),
    ]
    if peers is not None:
        for peer in ("dgl", "pyg") if model == "gcn" else ("dgl",):
            arguments = [peer, "epoch", str(store), str(hidden), model]
            timings.append(measure_peer(peers, {"dgl": "DGL", "pyg": "PyG"}[peer], arguments, repeats))
    return EpochBench(timings, _kinds(graph, made, first), _busy_share(first))


def _own(
    store: Path, model: str, hidden: int, precision: Precision, intervals: str, repeats: int
) -> dict[str, Any]:
    """What `own_epoch` measures in a process of its own."""
    arguments = [str(store), model, str(hidden), precision, intervals, str(repeats)]
    asked = [sys.executable, "-m", "siafu.bench.own_epoch", *arguments]
    answer = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode:
        raise SiafuError(f"siafu's own epoch failed with exit code {answer.returncode}")
    found: dict[str, Any] = json.loads(answer.stdout.strip().splitlines()[-1])
    return found


def _timing(who: str, found: dict[str, Any]) -> Timing:
    return told(Timing(who, found["seconds"], found["peak_rss_bytes"]))


def _busy_share(found: dict[str, Any]) -> float:
    busy: float = sum(found["busy_seconds"].values()) / (found["threads"] * sum(found["seconds"]))
    return busy


def _kinds(graph: Graph, network: nn.Module, found: dict[str, Any]) -> list[TaskKind]:
    peak = product_peak()
    stages = explain(graph, network).training
    each = found["threads"] * len(found["seconds"])
    spent = {kind: seconds / each for kind, seconds in found["busy_seconds"].items()}
    return [
        TaskKind(stage.name, spent.get(f"train {_plain(stage.name)}", 0.0), _limit(stage, peak))
        for stage in stages
    ]


def _plain(name: str) -> str:
    """A stage as the runtime names it: the loss and its gradient come in one."""
    return f"∇{name.removesuffix('(loss)')}" if name.endswith("(loss)") else name


def _limit(stage: StageCost, peak: float) -> float | None:
    if stage.over == "rows":
        return stage.flops / peak
    if any("Softmax" in operation for operation in stage.operations):
        return None
    return stage.bytes / near_bandwidth(max(stage.widths_in), np.float32)


def _step(graph: Graph, network: nn.Module) -> Callable[[], None]:
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    rows = torch.from_numpy(graph.train)
    labels = torch.from_numpy(graph.y)[rows]

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(graph)[rows], labels).backward()
        optimizer.step()

    return step
