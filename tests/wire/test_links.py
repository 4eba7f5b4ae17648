"""What a Link and a Listener promise, in one process and over TCP."""

import threading

import numpy as np
import pytest
import zmq

from siafu.wire.link import LinkLost
from siafu.wire.messages import AskTask, TaskInputPart, TaskOutputPart, Welcome
from tests.wire.links import MINE, heard, linked, listening, meet, pair

both = pytest.mark.parametrize("kind", ["in-process", "zeromq"])


@both
def test_messages_go_both_ways_in_order(kind: str) -> None:
    with pair(kind) as (listener, link):
        for number in range(5):
            link.send(AskTask(number), 1)
        came = [heard(listener) for _ in range(5)]
        assert [message for _, message in came] == [AskTask(number) for number in range(5)]
        for number in range(5):
            assert listener.send(came[0][0], Welcome(number))
        assert [link.receive(5) for _ in range(5)] == [Welcome(number) for number in range(5)]


@both
def test_a_peer_is_known_by_the_key_that_it_proved(kind: str) -> None:
    with pair(kind) as (listener, link):
        link.send(AskTask(1), 1)
        assert heard(listener)[0].key == MINE.public


@both
def test_tensors_come_as_they_went(kind: str) -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 100))
    with pair(kind) as (listener, link):
        link.send(TaskOutputPart(1, 0, {"output/0": rows}), 1)
        peer, message = heard(listener)
        assert isinstance(message, TaskOutputPart)
        np.testing.assert_array_equal(message.tensors["output/0"], rows)
        listener.send(peer, TaskInputPart(1, 0, {"rows/0": rows}))
        back = link.receive(5)
        assert isinstance(back, TaskInputPart)
        np.testing.assert_array_equal(back.tensors["rows/0"], rows)


@both
def test_traffic_is_counted_at_both_ends(kind: str) -> None:
    with pair(kind) as (listener, link):
        link.send(TaskOutputPart(1, 0, {"output/0": np.zeros(1000)}), 1)
        heard(listener)
        assert link.traffic.bytes_out == listener.traffic.bytes_in > 8000
        assert (link.traffic.messages_out, listener.traffic.messages_in) == (1, 1)


@both
def test_nothing_comes_when_nobody_speaks(kind: str) -> None:
    with pair(kind) as (listener, link):
        assert listener.receive(0) is None
        assert link.receive(0) is None


@both
def test_a_listener_can_be_woken_from_another_thread(kind: str) -> None:
    with pair(kind) as (listener, _):
        waker = threading.Thread(target=listener.wake)
        waker.start()
        assert listener.receive(60) is None
        waker.join()


@both
def test_a_sender_is_held_back_by_a_server_that_does_not_read(kind: str) -> None:
    rows = {"output/0": np.zeros(1 << 17)}
    sent = 0
    with pair(kind) as (_, link), pytest.raises(LinkLost):
        while sent < 10_000:
            link.send(TaskOutputPart(1, sent, rows), 0.2)
            sent += 1
    assert sent < 200


@both
def test_a_server_stops_sending_to_a_peer_that_does_not_read(kind: str) -> None:
    rows = {"rows/0": np.zeros(1 << 17)}
    with pair(kind) as (listener, link):
        link.send(AskTask(1), 1)
        peer, _ = heard(listener)
        sent = 0
        while sent < 10_000 and listener.send(peer, TaskInputPart(1, sent, rows)):
            sent += 1
        assert sent < 1000


@both
def test_a_peer_that_is_gone_cannot_be_sent_to(kind: str) -> None:
    with pair(kind) as (listener, link):
        link.send(AskTask(1), 1)
        peer, _ = heard(listener)
        link.close()
        for _ in range(100):
            if not listener.send(peer, Welcome(0)):
                return
            listener.receive(0.05)
        raise AssertionError("it is still thought to be there")


def test_without_keys_there_are_no_names() -> None:
    from siafu.wire.zeromq import ZmqListener

    listener = ZmqListener(None, "tcp://127.0.0.1:*")
    with linked(listener, None, None) as link:
        link.send(AskTask(1), 5)
        assert heard(listener)[0].key == ""
    listener.close()


def test_a_link_finds_its_server_again_after_it_was_away() -> None:
    with zmq.Context() as context:
        with listening() as listener:
            address = listener.address
            from siafu.wire.zeromq import ZmqLink
            from tests.wire.links import SERVER

            link = ZmqLink(context, address, SERVER.public, MINE)
            meet(listener, link)
        from siafu.wire.zeromq import ZmqListener

        again = ZmqListener(SERVER, address)
        again.admit(MINE.public)
        while link.socket.poll(0, zmq.POLLOUT):  # until it has noticed
            link.socket.poll(10)
        meet(again, link)
        link.send(AskTask(7), 5)
        assert heard(again)[1] == AskTask(7)
        link.close()
        again.close()
