"""A hundred thousand messages that nobody should send, at the sockets of a working server."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

from siafu.serverless.control.ids import InvocationId
from siafu.serverless.function.handler import handle
from siafu.serverless.function.receipt import Receipt
from siafu.serverless.function.warm import Warm, over_tcp
from siafu.serverless.inbox.task_inbox import LambdaAsked
from siafu.wire import messages as say
from siafu.wire.codec import encode
from siafu.wire.keys import make_keys
from tests.serverless.office import (
    RUN,
    SERVER_KEYS,
    Clock,
    Office,
    expected,
    over_zeromq,
    payload,
    task_step,
)

COUNT = 100_000
THIEF = make_keys()
"""A key that the run did hand out, in the wrong hands."""

Frames = list[bytes]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def well_formed(dice: random.Random) -> Frames:
    """A message as it should be written, that the sender has no business sending."""
    rows = {"grad/rows/0": np.zeros((dice.randrange(4), 16))}
    lease = dice.choice([0, 1, 2, 3, 2**62])
    message: say.Message = dice.choice(
        [
            say.Hello(dice.choice([RUN, "x"]), dice.randrange(4), 0, ()),
            say.Hello(RUN, 1, 0, ()),
            say.AskTask(dice.choice([0, 1, 64, 65])),
            say.Credit(lease, dice.choice([0, 1, 64, 2**60])),
            say.TaskOutputPart(lease, dice.randrange(3), rows),
            say.TaskEnd(lease, 1, 1, {"loss": np.zeros(())}),
            say.TaskReturn(lease, "why not"),
            say.Leave(dice.randrange(3)),
            say.AskWeights(dice.randrange(3), dice.choice([("w",), ("w", "b"), ("q",), ()])),
            say.TaskOffer(lease, "0", "float64", 2**62, 2**62, 0, 0, 0, (), (), 0, (), (), {}),
            say.Refused("no, I refuse"),
            say.Welcome(1),
        ]
    )
    return [bytes(each) for each in encode(message)]


def mangled(dice: random.Random) -> Frames:
    """The same with frames lost, cut, swapped or changed, or nothing but noise."""
    frames = well_formed(dice)
    match dice.randrange(6):
        case 0:
            return [dice.randbytes(dice.randrange(60)) for _ in range(dice.randrange(1, 5))]
        case 1:
            return frames[: dice.randrange(1, len(frames) + 1)] + [b""] * dice.randrange(3)
        case 2:
            return [each[: dice.randrange(len(each) + 1)] for each in frames]
        case 3:
            return [*frames, *([b"x"] * dice.choice([1] * 50 + [2000]))]
        case 4:
            return [
                frames[0].replace(b"[", dice.choice([b"[281474976710655,", b"[-1,", b"[[", b"{"])),
                *frames[1:],
            ]
    changed = bytearray(frames[0])
    for _ in range(dice.randrange(1, 4)):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    return [bytes(changed), *frames[1:]]


def messages(seed: int) -> Iterator[Frames]:
    """Most drawn from a store, to be quick; each time in another order."""
    dice = random.Random(seed)
    store = [mangled(dice) if dice.random() < 0.6 else well_formed(dice) for _ in range(5000)]
    while True:
        yield dice.choice(store)


def flood(office: Office, count: int, seed: int) -> None:
    """That many, under a key of the run; answers are not read before the end."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as thief:
        thief.linger = 0
        thief.sndtimeo = thief.rcvtimeo = 30_000
        thief.curve_serverkey = SERVER_KEYS.public.encode()
        thief.curve_publickey, thief.curve_secretkey = THIEF.public.encode(), THIEF.secret.encode()
        thief.connect(office.listener.address)
        for _, frames in zip(range(count), messages(seed), strict=False):
            thief.send_multipart(frames)
        end = [bytes(each) for each in encode(say.AskWeights(77, ()))]
        while b"77" not in b"".join(thief.recv_multipart()):
            if not thief.poll(100):  # its answer may have been one too many
                thief.send_multipart(end)


def work(office: Office, warm: Warm, invocation: int) -> None:
    """An honest Lambda gets its task and gives the right answer."""
    office.tasks.append(task_step(invocation))
    receipt = Receipt.of(handle(payload(office, invocation), Clock(), warm))
    assert (receipt.ended, receipt.tasks) == ("dismissed", 1)
    for name, each in expected(task_step(invocation)).items():
        np.testing.assert_allclose(office.results()[invocation][name], each, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
def test_a_hundred_thousand_messages_under_a_stolen_key_change_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warm = Warm(over_tcp())
    with over_zeromq() as office:
        office.listener.admit(THIEF.public)
        office.loop.call(lambda: office.inbox.expect(InvocationId(1), THIEF.public))
        flood(office, COUNT // 10, seed=1)
        work(office, warm, 2)
        before, events = resident_bytes(), len(office.events)
        flood(office, COUNT, seed=2)
        work(office, warm, 3)
        assert office.listener.traffic.messages_in > 1.1 * COUNT
        assert resident_bytes() - before < 24 << 20
        assert set(office.results()) == {2, 3}
        assert all(isinstance(each, LambdaAsked) for each in office.events[events:-2])
        warm.close()
    assert office.listener.refusals.total() + office.loop.refusals.total() > COUNT // 2
    assert 1 <= sum(each.name.startswith("siafu") for each in caplog.records) <= 12
