"""One epoch of a two-layer model over the whole graph, against DGL and PyG: forward, loss, backward, Adam step."""

import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from siafu.base.threads import thread_count
from siafu.bench.network import network
from siafu.bench.run_limits import stage_limit
from siafu.bench.timing import Timing, answer_of, measure, measure_peer, told
from siafu.graph import Graph
from siafu.nn import Precision
from siafu.server.costs.stage_cost import StageCost
from siafu.training.explanation import explain


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
    """Results of the benchmark.

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
    busy = sum(first["busy_seconds"].values()) / (first["threads"] * sum(first["seconds"]))
    return EpochBench(timings, _kinds(graph, made, first), busy)


def _own(
    store: Path, model: str, hidden: int, precision: Precision, intervals: str, repeats: int
) -> dict[str, Any]:
    """Measurements of `own_epoch`, in a process of its own."""
    arguments = [str(store), model, str(hidden), precision, intervals, str(repeats)]
    return answer_of([sys.executable, "-m", "siafu.bench.own_epoch", *arguments], "siafu's own epoch")


def _timing(who: str, found: dict[str, Any]) -> Timing:
    return told(Timing(who, found["seconds"], found["peak_rss_bytes"]))


def _kinds(graph: Graph, network: nn.Module, found: dict[str, Any]) -> list[TaskKind]:
    stages = explain(graph, network).training
    each = found["threads"] * len(found["seconds"])
    spent = {kind: seconds / each for kind, seconds in found["busy_seconds"].items()}
    # The runtime takes the loss and its gradient together.
    names = [re.sub(r"(.*)\(loss\)", r"∇\1", stage.name) for stage in stages]
    return [
        TaskKind(stage.name, spent.get(f"train {name}", 0.0), _limit(stage))
        for stage, name in zip(stages, names, strict=True)
    ]


def _limit(stage: StageCost) -> float | None:
    attention = any("Softmax" in operation for operation in stage.operations)
    return stage_limit({**asdict(stage), "attention": attention})


def _step(graph: Graph, network: nn.Module) -> Callable[[], None]:
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    rows = torch.from_numpy(graph.train)
    labels = torch.from_numpy(graph.y)[rows]

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(graph)[rows], labels).backward()
        optimizer.step()

    return step
