"""GarbledLink: a connection that damages some messages on purpose."""

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import zmq

from siafu.serverless.function.faults import FaultKind, FaultPlan
from siafu.wire import messages as say
from siafu.wire.codec import encode
from siafu.wire.keys import Keys
from siafu.wire.tensors import Array, Buffer
from siafu.wire.zeromq import ZmqLink

FAULTS_VARIABLE = "SIAFU_WIRE_FAULTS"

Answer = say.TaskOutputPart | say.TaskEnd
Garbled = list[list[Buffer]]
"""What leaves in the place of a message: any number of them, as frames."""
Garbler = Callable[[Answer, random.Random], Garbled | None]
"""None: this message cannot be garbled so, another may."""


def plan_in(variables: Mapping[str, str] = os.environ) -> FaultPlan | None:
    """The fault plan in the environment; None: there is none."""
    text = variables.get(FAULTS_VARIABLE, "")
    return FaultPlan.of(text) if text else None


class GarbledLink(ZmqLink):
    """A ZmqLink that garbles one answer of every invocation that the plan strikes so, and is honest otherwise."""

    def __init__(
        self,
        plan: FaultPlan,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        server: str | None,
        keys: Keys | None,
    ) -> None:
        super().__init__(context, address, server, keys)
        self._plan = plan
        self._due: Callable[[Answer], Garbled | None] | None = None

    def send(self, message: say.Message, seconds: float) -> None:
        if isinstance(message, say.Hello):
            self._due = _due(self._plan, message.invocation)
        garbled = self._due(message) if self._due and isinstance(message, Answer) else None
        if garbled is None:
            super().send(message, seconds)
            return
        self._due = None
        for frames in garbled:
            self.send_frames(frames, seconds)


def _due(plan: FaultPlan, invocation: int) -> Callable[[Answer], Garbled | None] | None:
    """How an answer of this invocation is to be garbled; None: not at all."""
    fault = plan.fault(invocation)
    if fault is None or fault.kind is not FaultKind.GARBLE:
        return None
    dice = random.Random(f"siafu garbled {plan.seed} {invocation}")
    garbler = GARBLERS[dice.choice(sorted(GARBLERS))]
    return lambda message: garbler(message, dice)


def _shape(message: Answer, dice: random.Random) -> Garbled | None:
    return _changed(message, dice, lambda each: each[np.newaxis] if each.ndim == 0 else np.repeat(each, 2, 0))


def _dimension(message: Answer, dice: random.Random) -> Garbled | None:
    return _changed(message, dice, lambda each: each[np.newaxis])


def _type(message: Answer, dice: random.Random) -> Garbled | None:
    return _changed(
        message, dice, lambda each: each.astype("float32" if each.dtype == "float64" else "float64")
    )


def _changed(message: Answer, dice: random.Random, change: Callable[[Array], Array]) -> Garbled | None:
    there = sorted(name for name, each in message.tensors.items() if each.ndim == 0 or each.shape[0])
    if not there:
        return None
    name = dice.choice(there)
    return _instead(message, tensors={**message.tensors, name: change(message.tensors[name])})


def _name(message: Answer, dice: random.Random) -> Garbled | None:
    renamed = {f"{name} {dice.randrange(10)}": each for name, each in message.tensors.items()}
    return _instead(message, tensors=renamed) if renamed else None


def _stranger(message: Answer, dice: random.Random) -> Garbled | None:
    return _instead(message, tensors={**message.tensors, "what is this": np.zeros(dice.randrange(9))})


def _lease(message: Answer, dice: random.Random) -> Garbled | None:
    return _instead(message, lease=message.lease + dice.randrange(1, 1000))


def _part(message: Answer, dice: random.Random) -> Garbled | None:
    return _instead(message, part=message.part + 1) if isinstance(message, say.TaskOutputPart) else None


def _again(message: Answer, dice: random.Random) -> Garbled | None:
    return 2 * _instead(message)


def _noise(message: Answer, dice: random.Random) -> Garbled | None:
    return [[dice.randbytes(len(each)) for each in encode(message)]]


def _cut(message: Answer, dice: random.Random) -> Garbled | None:
    *frames, last = encode(message)
    return [[*frames, last[: dice.randrange(len(last))]]] if last else None


def _lost(message: Answer, dice: random.Random) -> Garbled | None:
    frames = encode(message)
    return [frames[:-1]] if len(frames) > 1 else None


def _instead(message: Answer, **changes: Any) -> Garbled:
    return [encode(replace(message, **changes))]


GARBLERS: Mapping[str, Garbler] = {
    "another shape": _shape,
    "one dimension more": _dimension,
    "another type": _type,
    "another name": _name,
    "one tensor more": _stranger,
    "another's lease": _lease,
    "another part": _part,
    "the same again": _again,
    "random bytes": _noise,
    "cut short": _cut,
    "a frame lost": _lost,
}
