"""Overhead of tasks: trainings of the smallest rows, on threads and on Lambdas of this machine."""

import json
import os
import queue
import resource
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import numpy as np
import torch
import zmq

from siafu.base.errors import SiafuError
from siafu.base.threads import thread_count
from siafu.cost.lambda_prices import VCPU_MB
from siafu.graph import Graph
from siafu.nn import GCN
from siafu.options import Options
from siafu.report.files.metrics import EpochMetrics
from siafu.runtime.lambdas import Lambdas
from siafu.serverless.control.ids import InvocationId
from siafu.serverless.function.handler_variables import handler_variables
from siafu.serverless.function.probe import probe
from siafu.serverless.platforms.invoker import Invocation, InvocationAnswered, InvocationOutcome
from siafu.serverless.platforms.local_invoker import LocalInvoker
from siafu.serverless.platforms.platform import HANDLER, LocalPlatform
from siafu.training.placement import choose_partition
from siafu.training.trainer import Trainer
from siafu.virtual.costs import CoreSpeed, Curve, LambdaKind

_INTERVALS = 64
_VERTICES = 8  # of an interval: their work is nothing beside the task
_EPOCHS = 24
_WIDE, _MANY = 128, 2048  # rows that a Lambda's answers are full of
_COLD, _WARM = 2, 5
_STARTS = 2
_NUMPY_SECONDS = 0.15
_MESSAGE = 4 << 20
_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ProbeMeasurement:
    """A training of a ring of vertices.

    seconds:     of the best epoch
    server_seconds: of this process's cores, an epoch
    tensor_tasks, graph_tasks: of an epoch
    operations:  of all tensor tasks of an epoch
    lambda_bytes: to and from Lambdas in an epoch
    """

    seconds: float
    server_seconds: float
    tensor_tasks: int
    graph_tasks: int
    operations: int
    lambda_bytes: float


def task_seconds(call_seconds: float) -> float:
    """Seconds of a core for each task, besides its operations.

    Of so short tasks one thread runs nearly all: the seconds are the cores' own, not those that a core was idle.
    """
    found = _train(_VERTICES, 8, None)
    busy = found.server_seconds - found.operations * call_seconds
    return max(0.0, busy / (found.tensor_tasks + found.graph_tasks))


def local_lambda(server_task_seconds: float, memory_mb: int = VCPU_MB) -> LambdaKind:
    """A Lambda as `--lambdas local` starts it, on a core of its own.

    server_task_seconds: what a task on threads takes the server
    """
    thread = numpy_rates()
    cold, warm = _invocations()
    small = _train(_VERTICES, 8, 1)
    graph_seconds = small.graph_tasks * server_task_seconds
    handing = max(0.0, (small.server_seconds - graph_seconds) / small.tensor_tasks)
    waiting = (small.seconds - graph_seconds) / small.tensor_tasks - handing
    large = _train(_MANY, _WIDE, 1)
    more = large.server_seconds - large.graph_tasks * server_task_seconds - large.tensor_tasks * handing
    latency, bytes_s = loopback()
    return LambdaKind(
        memory_mb=memory_mb,
        thread=thread,
        bytes_s=bytes_s,
        latency_s=latency,
        invoke_s=warm,
        cold_start_s=cold,
        task_seconds=max(0.0, waiting - 2 * latency),
        server_task_seconds=handing,
        server_bytes_s=large.lambda_bytes / max(more, 1e-6),
    )


def start_seconds() -> float:
    """Seconds to start a process with its libraries and a compiled model."""
    code = (
        "from siafu.virtual.graph_shape import GraphShape\n"
        "from siafu.virtual.workload import ModelShape, workload_of\n"
        "workload_of(ModelShape(), GraphShape(16, 16, 16, 4))"
    )
    found = []
    for _ in range(_STARTS):
        before = _children_seconds()
        if subprocess.run([sys.executable, "-c", code], check=False).returncode:
            raise SiafuError("a process that measures how long one takes to start has failed: see above")
        found.append(_children_seconds() - before)
    return min(found)


def _children_seconds() -> float:
    """A process's own time: one that starts is busy throughout, and what others take meanwhile is not its own."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def numpy_rates() -> CoreSpeed:
    """Rates of a Lambda's thread while there is one on every core: the mean of them."""
    command = [sys.executable, "-m", "siafu.planning.numpy_probe", str(_NUMPY_SECONDS)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | handler_variables(VCPU_MB))
        for _ in range(thread_count())
    ]
    answers = [process.communicate(timeout=_WAIT_SECONDS)[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SiafuError("a process that measures what a Lambda's thread does has failed: see above")
    found = [json.loads(answer) for answer in answers]
    products = np.mean([each.pop("products") for each in found], axis=0)  # [widths, (width, rate)]
    rates = {name: statistics.fmean(each[name] for each in found) for name in found[0]}
    return CoreSpeed(Curve(tuple((width, rate) for width, rate in products.tolist())), **rates)


def loopback() -> tuple[float, float]:
    """Seconds one way, and bytes a second, between two ends on this machine, as ZeroMQ carries them."""
    context = zmq.Context()
    try:
        server = context.socket(zmq.REP)
        server.setsockopt(zmq.LINGER, 0)
        port = server.bind_to_random_port("tcp://127.0.0.1")
        echo = threading.Thread(target=_echo, args=(server,), daemon=True)
        echo.start()
        client = context.socket(zmq.REQ)
        client.setsockopt(zmq.LINGER, 0)
        client.connect(f"tcp://127.0.0.1:{port}")
        there_and_back = min(_exchange(client, b"x") for _ in range(200))
        large = min(_exchange(client, bytes(_MESSAGE)) for _ in range(10))
        _exchange(client, b"")
        echo.join(_WAIT_SECONDS)
        client.close()
        server.close()
    finally:
        context.term()
    return there_and_back / 2, _MESSAGE / max(large - there_and_back, 1e-9)


def _echo(server: "zmq.Socket[bytes]") -> None:
    """Answer every message with a short one, until an empty one comes."""
    while server.recv():
        server.send(b"x")
    server.send(b"x")


def _exchange(client: "zmq.Socket[bytes]", message: bytes) -> float:
    began = time.perf_counter()
    client.send(message)
    client.recv()
    return time.perf_counter() - began


def _invocations() -> tuple[float, float]:
    """Seconds from an invocation to its end, without a task in between: of a new process, and of a warm one."""
    cold, warm = [], []
    for _ in range(_COLD):
        invoker = LocalInvoker(HANDLER, 1)
        invoker.start()
        try:
            cold.append(_invoke(invoker))
            warm += [_invoke(invoker) for _ in range(_WARM)]
        finally:
            invoker.stop()
    return statistics.median(cold), statistics.median(warm)


def _invoke(invoker: LocalInvoker) -> float:
    ended: queue.Queue[InvocationOutcome] = queue.Queue()
    began = time.perf_counter()
    invoker.invoke(Invocation(InvocationId(0), probe().payload), ended.put)
    outcome = ended.get(timeout=_WAIT_SECONDS)
    if not isinstance(outcome, InvocationAnswered):
        raise SiafuError(f"a local Lambda could not be invoked to be measured ({outcome})")
    return time.perf_counter() - began


def _train(vertices: int, width: int, lambdas: int | None) -> ProbeMeasurement:
    """A few epochs of a GCN on a ring: every vertex has one in-edge, so that gathers are next to nothing.

    vertices: of each interval
    """
    intervals = _INTERVALS if lambdas is None or vertices == _VERTICES else 8
    graph = _ring(vertices * intervals, width)
    torch.manual_seed(0)
    model = GCN(width, width, 2, 2, dropout=0.0)
    trainer = Trainer(
        graph,
        model,
        Options.to_measure(_EPOCHS, intervals),
        choose_partition(graph, 1, "auto"),
        lambdas=None if lambdas is None else Lambdas(lambdas, LocalPlatform()),
    )
    trainer.prepare()
    epochs = (each for each in trainer.run() if isinstance(each, EpochMetrics))
    seconds, ended = zip(*((each.seconds, time.process_time()) for each in epochs), strict=True)
    used = np.diff(ended)[:-1]  # of the epochs between the first and the last
    stages = trainer.plan.training.stages
    kinds = trainer.counters().get("lambda", {}).get("kinds", {})
    moved = sum(each["bytes_sent"] + each["bytes_received"] for each in kinds.values())
    phases = trainer.programs["train"].phases
    operations = [
        len(program.ops)
        for phase in phases
        for program in (phase.programs.forward_keeping, phase.programs.last or phase.programs.backward_kept)
        if program is not None
    ]
    return ProbeMeasurement(
        min(seconds[1:-1]),
        float(min(used)),
        intervals * sum(stage.kind.remote for stage in stages),
        intervals * sum(not stage.kind.remote for stage in stages),
        intervals * sum(operations),
        moved / len(seconds),
    )


def _ring(vertices: int, width: int) -> Graph:
    rng = np.random.default_rng(0)
    return Graph.from_csr(
        np.arange(vertices + 1, dtype=np.int64),
        np.roll(np.arange(vertices, dtype=np.int32), 1),
        x=rng.standard_normal((vertices, width), dtype=np.float32),
        y=rng.integers(0, 2, vertices),
        train=np.arange(vertices),
        name="ring",
    )
