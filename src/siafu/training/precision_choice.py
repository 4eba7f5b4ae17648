"""PrecisionChoice: in which precision a training computes, and why."""

import copy
import math
import time
from dataclasses import dataclass

import torch
from torch import nn

from siafu.base.errors import BadInput
from siafu.base.hardware.machine import simd_features
from siafu.graph import Graph
from siafu.nn.precision import set_precision
from siafu.nn.tensors import PRECISIONS, Precision
from siafu.options import Options
from siafu.training.step import compile

_TRIAL = 4  # epochs of each precision; the first warms up
_LEAST_EPOCHS = 20 * _TRIAL  # of a run that a trial is worth: it saves a third of an epoch's time at the most
_APART = 0.01  # of the loss: more, and the two learn differently
_FASTER = 1.05  # times as fast, to be worth other bits


@dataclass(frozen=True, slots=True)
class PrecisionChoice:
    """reason: in one sentence; None: nothing had to be found"""

    precision: Precision
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PrecisionTrial:
    """The first epochs of a training: their losses, and the least seconds of one."""

    losses: tuple[float, ...]
    seconds: float


def choose_precision(
    graph: Graph, model: nn.Module, asked: str, options: Options, *, on_cluster: bool, memory: str | None
) -> PrecisionChoice:
    """The precision `asked` for; auto: mixed where the first epochs, computed in both, agree and are faster in it."""
    for known in PRECISIONS:
        if asked == known:
            return PrecisionChoice(known)
    if asked != "auto":
        raise BadInput(f"precision is {asked!r}: choose {', '.join(PRECISIONS)} or auto")
    if (untried := _why_untried(options, on_cluster=on_cluster)) is not None:
        return PrecisionChoice("fp32", f"precision fp32, untried: {untried}")
    try:
        plain, mixed = (tried(graph, model, each, options, memory) for each in ("fp32", "mixed"))
    except BadInput as refused:
        return PrecisionChoice("fp32", f"precision fp32: no trial could be made ({refused})")
    return decided(plain, mixed)


def decided(plain: PrecisionTrial, mixed: PrecisionTrial) -> PrecisionChoice:
    """The better of the two, and why."""
    apart = max(_apart(a, b) for a, b in zip(plain.losses, mixed.losses, strict=True))
    ratio = plain.seconds / mixed.seconds
    told = (
        f"losses of {_TRIAL} epochs are {100 * apart:.2g} % apart at most, epochs {ratio:.2f} times as fast"
    )
    if apart > _APART:
        return PrecisionChoice("fp32", f"precision fp32: with mixed, {told}; {100 * _APART:g} % is too much")
    if ratio < _FASTER:
        return PrecisionChoice("fp32", f"precision fp32: with mixed, {told}, which is not worth it")
    return PrecisionChoice("mixed", f"precision mixed: {told}")


def _apart(plain: float, mixed: float) -> float:
    found = abs(mixed - plain) / max(abs(plain), 1e-6)
    return math.inf if math.isnan(found) else found


def tried(
    graph: Graph, model: nn.Module, precision: Precision, options: Options, memory: str | None
) -> PrecisionTrial:
    """Train a copy of `model` for a few epochs."""
    learner = copy.deepcopy(model)
    set_precision(learner, precision)
    step = compile(
        learner,
        graph,
        memory=memory,
        objective=options.objective,
        class_weights=options.class_weights,
        label_smoothing=options.label_smoothing,
        normalize_features=options.normalize_features,
        seed=options.seed,
    )
    optimizer = torch.optim.Adam(learner.parameters(), options.lr)
    losses, seconds = [], []
    try:
        for _ in range(_TRIAL):
            began = time.perf_counter()
            optimizer.zero_grad()
            losses.append(step().item())
            optimizer.step()
            seconds.append(time.perf_counter() - began)
    finally:
        step.close()
    return PrecisionTrial(tuple(losses), min(seconds[1:]))


def _why_untried(options: Options, *, on_cluster: bool) -> str | None:
    if on_cluster or options.lambdas != "off":
        return "a trial is of one process, without Lambdas; choose mixed yourself"
    if options.mode == "sampled":
        return "a trial is of the whole graph; choose mixed yourself"
    if options.epochs < _LEAST_EPOCHS:
        return f"a trial pays from {_LEAST_EPOCHS} epochs on"
    if not {"avx512bf16", "amx-bf16", "bf16"} & set(simd_features()):
        return "this processor has no instructions for products of bfloat16"
    return None
