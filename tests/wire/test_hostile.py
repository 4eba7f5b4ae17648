"""Peers that must not be let in, at a listener over TCP."""

import logging
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import zmq

from siafu.base.errors import BadInput
from siafu.wire.codec import PROTOCOL, decode
from siafu.wire.keys import Keys, make_keys
from siafu.wire.link import LinkLost
from siafu.wire.messages import AskTask, Refused, TaskOutputPart, Welcome
from siafu.wire.near import NearDirectory
from siafu.wire.refusal import Refusal
from siafu.wire.zeromq import ZmqListener
from tests.wire.links import MINE, SERVER, heard, linked, listening, meet


@contextmanager
def dealer(address: str, keys: Keys | None, server: str = SERVER.public) -> Iterator["zmq.Socket[bytes]"]:
    """A socket that may say anything."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        if keys is not None:
            raw.curve_publickey, raw.curve_secretkey = keys.public.encode(), keys.secret.encode()
            raw.curve_serverkey = server.encode()
        raw.connect(address)
        yield raw


def turn_until_refused(listener: ZmqListener, reason: str) -> None:
    for _ in range(200):
        assert listener.receive(0.05) is None
        if listener.refusals.counts[reason]:  # type: ignore[index]
            return
    raise AssertionError(f"nothing was refused for its {reason}")


def still_works(listener: ZmqListener) -> None:
    with linked(listener) as link:
        meet(listener, link)
        link.send(AskTask(7), 5)
        while (came := heard(listener))[1] != AskTask(7):
            pass
        assert listener.send(came[0], Welcome(1))
        assert link.receive(5) == Welcome(1)


def test_a_key_that_was_not_handed_out_does_not_get_in() -> None:
    with listening() as listener:
        with dealer(listener.address, make_keys()) as stranger:
            stranger.send(b"let me in")
            turn_until_refused(listener, "key")
        still_works(listener)
        assert listener.traffic.messages_in == 1


def test_a_peer_without_a_key_does_not_get_in() -> None:
    with listening() as listener:
        with dealer(listener.address, None) as stranger:
            stranger.send(b"let me in")
            turn_until_refused(listener, "handshake")
        still_works(listener)


def test_a_peer_that_takes_us_for_another_server_does_not_get_in() -> None:
    with listening() as listener:
        with dealer(listener.address, MINE, make_keys().public) as stranger:
            stranger.send(b"let me in")
            turn_until_refused(listener, "handshake")
        still_works(listener)


def test_a_server_that_is_not_ours_is_told_nothing() -> None:
    impostor = ZmqListener(make_keys(), "tcp://127.0.0.1:*")
    impostor.admit(MINE.public)
    with linked(impostor) as link, pytest.raises(LinkLost, match="refuses our key"):
        link.send(AskTask(1), 0.2)
    impostor.close()


def test_a_key_that_was_taken_back_says_nothing_more() -> None:
    with listening() as listener, linked(listener) as link:
        meet(listener, link)
        link.send(AskTask(1), 5)
        heard(listener)
        listener.dismiss(MINE.public)
        link.send(AskTask(2), 5)
        turn_until_refused(listener, "key")


@pytest.fixture
def near() -> Iterator[ZmqListener]:
    """A listener in a directory of the user's own: nothing is encrypted there."""
    directory = NearDirectory()
    listener = ZmqListener(None, directory.address("door"))
    listener.admit(MINE.public, MINE.secret)
    yield listener
    listener.close()
    directory.remove()


def test_on_this_machine_a_peer_says_its_secret_and_is_known_by_its_key(near: ZmqListener) -> None:
    with linked(near, None, MINE) as link:
        meet(near, link)
        link.send(AskTask(1), 5)
        peer, message = heard(near)
        assert (peer.key, message) == (MINE.public, AskTask(1))


@pytest.mark.parametrize("keys", [None, make_keys()], ids=["none", "another's"])
def test_on_this_machine_too_a_stranger_does_not_get_in(near: ZmqListener, keys: Keys | None) -> None:
    with linked(near, None, keys) as link:
        with pytest.raises(LinkLost):
            link.send(AskTask(1), 0.2)
        turn_until_refused(near, "handshake" if keys is None else "key")
    assert near.traffic.messages_in == 0


def test_a_public_key_without_its_secret_is_no_proof_on_this_machine(near: ZmqListener) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as thief:
        thief.linger = 0
        thief.plain_username, thief.plain_password = MINE.public.encode(), make_keys().secret.encode()
        thief.connect(near.address)
        thief.send(b"let me in")
        turn_until_refused(near, "key")


def test_a_key_that_is_none_is_not_admitted() -> None:
    with listening() as listener, pytest.raises(BadInput, match="40 characters"):
        listener.admit("*")


def test_bytes_that_are_not_zeromq_s_do_no_harm() -> None:
    dice = np.random.default_rng(0)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(15) + b"\0" + bytes(31)
    huge = greeting + b"\x06" + struct.pack(">Q", 2**62)
    with listening() as listener:
        host, port = listener.address.removeprefix("tcp://").split(":")
        for number in range(200):
            said = [dice.bytes(500), greeting[: number % 64], greeting + dice.bytes(300), huge][number % 4]
            with socket.create_connection((host, int(port))) as raw:
                raw.sendall(said)
            listener.receive(0)
        turn_until_refused(listener, "handshake")
        still_works(listener)


def test_a_frame_over_the_limit_ends_the_connection_before_it_is_there() -> None:
    with listening(largest_frame=1 << 16) as listener:
        with dealer(listener.address, MINE) as raw:
            raw.send_multipart([b"x", b"y" * (1 << 20)])
            for _ in range(10):
                assert listener.receive(0.05) is None
        assert listener.traffic.messages_in == 0
        still_works(listener)


def test_what_is_no_message_is_refused_and_the_sender_is_told() -> None:
    with listening() as listener, dealer(listener.address, MINE) as raw:
        raw.send_multipart([b"siafu\x07{}", b""])
        turn_until_refused(listener, "version")
        assert raw.poll(5000)
        said = decode([bytes(each) for each in raw.recv_multipart()])
        assert isinstance(said, Refused)
        assert "protocol 7" in said.why


def test_a_flood_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with listening() as listener, dealer(listener.address, MINE) as raw, caplog.at_level(logging.WARNING):
        for _ in range(50):
            raw.send(os.urandom(20))
        while listener.refusals.total() < 50:
            assert listener.receive(1) is None
    assert len(caplog.records) == 1
    assert "no message of Siafu's" in caplog.text


def test_a_link_refuses_what_is_no_message_too() -> None:
    with listening() as listener, linked(listener) as link:
        meet(listener, link)
        link.send(TaskOutputPart(0, 0, {}), 5)
        peer, _ = heard(listener)
        listener._socket.send_multipart([peer.address, b"siafu" + bytes([PROTOCOL]) + b"{", b"junk"])
        with pytest.raises(Refusal, match="not JSON"):
            link.receive(5)
