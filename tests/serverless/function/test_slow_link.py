"""A connection that is as slow as told, and otherwise like any other."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from siafu.base.errors import BadInput
from siafu.serverless.function.slow_link import Line, SlowLink, lines
from siafu.wire.link import LinkLost
from siafu.wire.messages import AskTask, TaskOutputPart, Welcome
from siafu.wire.refusal import Refusal
from siafu.wire.zeromq import ZmqLink, ZmqListener
from tests.wire.links import heard, linked, listening, meet


@contextmanager
def slow(latency: float, speed: float | None) -> Iterator[tuple[ZmqListener, SlowLink]]:
    with listening() as listener, linked(listener) as fast:
        meet(listener, fast)
        link = SlowLink(fast, Line(latency, speed), Line(latency, speed))
        yield listener, link
        link.close()


def test_a_message_takes_its_latency_and_its_length() -> None:
    line = Line(latency=0.05, speed=1000)
    assert line.arrival(10.0, 500) == pytest.approx(10.55)


def test_messages_wait_for_those_before_them_but_travel_together() -> None:
    line = Line(latency=0.05, speed=1000)
    assert [line.arrival(10.0, 100) for _ in range(3)] == pytest.approx([10.15, 10.25, 10.35])
    assert line.arrival(20.0, 100) == pytest.approx(20.15)


def test_without_a_limit_only_the_latency_counts() -> None:
    assert Line(latency=0.05, speed=None).arrival(10.0, 10**9) == pytest.approx(10.05)


def test_the_environment_says_how_slow() -> None:
    assert lines({}) is None
    there = lines({"SIAFU_WIRE_LATENCY_MS": "50", "SIAFU_WIRE_MBPS": "200"})
    assert there is not None
    assert [(each.latency, each.speed) for each in there] == [(0.05, 25e6)] * 2
    with pytest.raises(BadInput, match="must be numbers"):
        lines({"SIAFU_WIRE_MBPS": "fast"})


def test_a_round_trip_takes_two_latencies() -> None:
    with slow(0.03, None) as (listener, link):
        began = time.monotonic()
        link.send(AskTask(1), 1)
        peer, message = heard(listener)
        assert message == AskTask(1)
        listener.send(peer, Welcome(1))
        assert link.receive(0) is None
        assert link.receive(5) == Welcome(1)
        assert time.monotonic() - began >= 0.06


def test_a_sender_is_held_back_while_what_it_sent_is_under_way() -> None:
    rows = {"output/0": np.zeros(1000)}
    with slow(0.0, 1000.0) as (_, link), pytest.raises(LinkLost, match="has not set out"):
        for part in range(100):
            link.send(TaskOutputPart(0, part, rows), 0.01)


def test_what_is_no_message_is_refused_when_it_arrives() -> None:
    with slow(0.001, None) as (listener, link):
        link.send(AskTask(1), 1)
        peer, _ = heard(listener)
        listener._socket.send_multipart([peer.address, b"junk"])
        with pytest.raises(Refusal):
            link.receive(5)


def test_a_lost_connection_is_lost_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(self: ZmqLink, message: object, seconds: float) -> None:
        raise LinkLost("gone")

    with slow(0.0, None) as (_, link), monkeypatch.context() as patch:
        patch.setattr(ZmqLink, "send", lose)
        link.send(AskTask(1), 1)
        assert link.receive(5) is None
        with pytest.raises(LinkLost, match="gone"):
            link.send(AskTask(1), 1)


def test_traffic_is_that_of_the_connection() -> None:
    with slow(0.0, None) as (listener, link):
        link.send(AskTask(1), 1)
        peer, _ = heard(listener)
        listener.send(peer, Welcome(1))
        assert link.receive(5) == Welcome(1)  # read after the count: by the thread that sent
        assert link.traffic.bytes_out == listener.traffic.bytes_in > 0
