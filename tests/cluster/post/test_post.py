"""Letters between servers: each once, in order, and only from those who are who they say."""

import dataclasses
import os
import queue
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zmq

from siafu.cluster.post.letters import Postmark, encode
from siafu.cluster.post.member import Member
from siafu.cluster.post.post import WirePost
from siafu.cluster.post.requests import LogLine
from siafu.pipeline.ids import Address, Incarnation, Life, ServerId
from siafu.pipeline.stamp import Stamp
from siafu.runtime.letter import Letter
from siafu.wire.keys import make_keys
from tests.cluster.proxy import Proxy

LONG = 30.0
ONE, OTHER, THIRD = (Address("graph", ServerId(each)) for each in range(3))


def line(text: str, **tensors: np.ndarray) -> Letter:
    return Letter(LogLine(ONE, text), tensors)


class Office:
    """A post that keeps what it hears."""

    def __init__(self, who: Address, life: int = 1, machine: str = "127.0.0.1") -> None:
        self.who = who
        self.came: queue.Queue[tuple[Address, Letter]] = queue.Queue()
        self.errors: queue.Queue[BaseException] = queue.Queue()
        self.stuck: queue.Queue[tuple[Member, float]] = queue.Queue()
        self.post = WirePost(who, life, machine, self.hear, self.errors.put, self.complain)

    def hear(self, sender: Address, letter: Letter) -> None:
        self.came.put((sender, letter))

    def complain(self, member: Member, seconds: float) -> None:
        self.stuck.put((member, seconds))

    def texts(self, count: int) -> list[str]:
        """What the next letters say."""
        return [self.came.get(timeout=LONG)[1].event.text for _ in range(count)]  # type: ignore[attr-defined]


@contextmanager
def offices(*made: Office) -> Iterator[None]:
    """They know each other, and listen."""
    try:
        for office in made:
            office.post.meet(each.post.member for each in made)
        for office in made:
            office.post.start()
        yield
    finally:
        for office in made:
            office.post.stop()


def wait_for(what: object) -> None:
    """Until it is so."""
    deadline = time.monotonic() + LONG
    while not what():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.01)


MACHINES = {"near": "127.0.0.1", "far": "127.0.0.2"}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_letters_come_once_and_in_order_both_ways(machine: str) -> None:
    one, other = Office(ONE), Office(OTHER, machine=machine)
    with offices(one, other):
        for number in range(400):
            one.post.send(OTHER, line(f"to {number}"))
            other.post.send(ONE, line(f"back {number}"))
        assert other.texts(400) == [f"to {number}" for number in range(400)]
        assert one.texts(400) == [f"back {number}" for number in range(400)]
        assert other.came.empty() and one.came.empty()


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_tensors_arrive_as_they_are(machine: str) -> None:
    one, other = Office(ONE), Office(OTHER, machine=machine)
    rows = np.random.default_rng(0).random((300, 700))
    with offices(one, other):
        one.post.send(OTHER, line("rows", rows=rows, none=rows[:0]))
        _, letter = other.came.get(timeout=LONG)
        np.testing.assert_array_equal(letter.tensors["rows"], rows)
        assert letter.tensors["none"].shape == (0, 700)


def test_threads_may_send_at_the_same_time() -> None:
    one, other = Office(ONE), Office(OTHER)
    with offices(one, other):
        threads = [
            threading.Thread(
                target=lambda name=name: [one.post.send(OTHER, line(f"{name} {n}")) for n in range(100)]
            )
            for name in "abcd"
        ]
        for each in threads:
            each.start()
        texts = other.texts(400)
        for name in "abcd":
            assert [text for text in texts if text[0] == name] == [f"{name} {n}" for n in range(100)]


def test_letters_that_were_sent_before_they_met_arrive_after() -> None:
    one, other = Office(ONE), Office(OTHER, machine="127.0.0.2")
    with offices(one), offices(other):
        one.post.send(OTHER, line("early"))
        one.post.meet([other.post.member])
        wait_for(lambda: other.post.refusals.counts["key"])  # it is a stranger there, and is turned away
        other.post.meet([one.post.member])
        assert other.texts(1) == ["early"]


def test_no_letter_is_lost_or_doubled_however_often_the_connection_breaks() -> None:
    one, other = Office(ONE), Office(OTHER, machine="127.0.0.2")
    with offices(one), offices(other), Proxy(other.post.member.far) as proxy:
        other.post.meet([one.post.member])
        one.post.meet([dataclasses.replace(other.post.member, far=proxy.address)])
        texts = []
        for burst in range(4):
            for number in range(50):
                rows = np.full(20_000, number, np.uint8)
                one.post.send(OTHER, line(f"{burst} {number}", rows=rows))
            texts += other.texts(10)
            proxy.cut()
            proxy.mend()
        texts += other.texts(200 - len(texts))
        assert texts == [f"{burst} {number}" for burst in range(4) for number in range(50)]
        one.post.send(OTHER, line("last"))
        assert other.texts(1) == ["last"]


def test_what_was_swallowed_on_the_way_is_sent_again() -> None:
    one, other = Office(ONE), Office(OTHER, machine="127.0.0.2")
    with offices(one), offices(other), Proxy(other.post.member.far) as proxy:
        other.post.meet([one.post.member])
        one.post.meet([dataclasses.replace(other.post.member, far=proxy.address)])
        one.post.send(OTHER, line("first"))
        assert other.texts(1) == ["first"]
        proxy.swallow()
        before = one.post.bytes_out
        for number in range(20):
            one.post.send(OTHER, line(f"{number}"))
        wait_for(lambda: one.post.bytes_out > before)
        proxy.cut()
        proxy.mend()
        assert other.texts(20) == [f"{number}" for number in range(20)]


def test_a_slow_link_is_not_made_slower_by_letters_that_go_twice() -> None:
    one, other = Office(ONE), Office(OTHER, machine="127.0.0.2")
    rows = np.zeros(1_500_000, np.uint8)
    with offices(one), offices(other), Proxy(other.post.member.far, bytes_a_second=1e6) as proxy:
        other.post.meet([one.post.member])
        one.post.meet([dataclasses.replace(other.post.member, far=proxy.address)])
        for number in range(2):
            one.post.send(OTHER, line(f"{number}", rows=rows))
        assert other.texts(2) == ["0", "1"]
        assert one.post.bytes_out < 2.1 * len(rows)


def test_a_letter_is_let_go_of_when_it_is_acknowledged() -> None:
    one, other = Office(ONE), Office(OTHER, machine="127.0.0.2")
    with offices(one, other):
        held = []
        for number in range(50):
            rows = np.zeros(10_000)
            held.append(weakref.ref(rows))
            one.post.send(OTHER, line(f"{number}", rows=rows))
            del rows
        other.texts(50)
        wait_for(lambda: not any(each() is not None for each in held))


def test_a_replacement_gets_the_letters_that_its_predecessor_did_not_take() -> None:
    one, old, new = Office(ONE), Office(OTHER), Office(OTHER, life=2)
    with offices(one), offices(old), offices(new):
        one.post.meet([old.post.member])
        old.post.meet([one.post.member])
        for number in range(3):
            one.post.send(OTHER, line(f"old {number}"))
        assert old.texts(3) == ["old 0", "old 1", "old 2"]
        wait_for(lambda: one.post.silence(OTHER) < 1)
        old.post.stop()
        for number in range(3):
            one.post.send(OTHER, line(f"new {number}"))
        new.post.meet([one.post.member])
        one.post.meet([new.post.member])
        texts = new.texts(3)
        while texts[-1] != "new 2":  # the old one may have ended before it said what it had
            texts += new.texts(1)
        assert texts[-3:] == ["new 0", "new 1", "new 2"]
        new.post.send(ONE, line("hello"))
        assert one.texts(1) == ["hello"]


def test_letters_for_an_earlier_life_do_not_go_to_its_replacement() -> None:
    one, new = Office(ONE), Office(OTHER, life=2)
    with offices(one), offices(new):
        for life in (1, 2):
            stamp = Stamp(Incarnation(0), ONE, Life(1), Life(life))
            one.post.send(OTHER, replace(line(f"for life {life}"), stamp=stamp))
        new.post.meet([one.post.member])
        one.post.meet([new.post.member])
        one.post.send(OTHER, line("for any"))
        assert new.texts(2) == ["for life 2", "for any"]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_what_an_earlier_life_says_is_refused(machine: str) -> None:
    one, old, new = Office(ONE), Office(OTHER, machine=machine), Office(OTHER, life=2, machine=machine)
    with offices(one), offices(old), offices(new):
        old.post.meet([one.post.member])
        new.post.meet([one.post.member])
        one.post.meet([old.post.member])
        old.post.send(ONE, line("I am"))
        assert one.texts(1) == ["I am"]
        one.post.meet([new.post.member])
        old.post.send(ONE, line("still me"))
        wait_for(lambda: one.post.refusals.counts["unexpected"])
        new.post.send(ONE, line("no, I"))
        assert one.texts(1) == ["no, I"]
        assert one.came.empty()


def test_an_earlier_life_is_not_met_again() -> None:
    one, old, new = Office(ONE), Office(OTHER), Office(OTHER, life=2)
    with offices(one), offices(old), offices(new):
        for each in (old, new):
            each.post.meet([one.post.member])
        one.post.meet([new.post.member])
        one.post.meet([old.post.member])  # the news of it came late
        one.post.send(OTHER, line("to the living"))
        assert new.texts(1) == ["to the living"]
        assert old.came.empty()


@contextmanager
def stranger(at: Member, public: str, secret: str) -> Iterator["zmq.Socket[bytes]"]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.curve_publickey, socket.curve_secretkey = public.encode(), secret.encode()
        socket.curve_serverkey = at.key.encode()
        socket.connect(at.far)
        yield socket


def test_a_stranger_is_not_heard() -> None:
    one, other = Office(ONE), Office(OTHER, machine="127.0.0.2")
    keys = make_keys()
    with offices(one, other), stranger(one.post.member, keys.public, keys.secret) as socket:
        socket.send_multipart(encode(Postmark(OTHER, 1, 0), line("I am the other")))
        wait_for(lambda: one.post.refusals.counts["key"])
        other.post.send(ONE, line("no"))
        assert one.texts(1) == ["no"]


def test_a_stranger_on_the_same_machine_is_not_heard() -> None:
    one, other = Office(ONE), Office(OTHER)
    with offices(one, other), zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.plain_username, socket.plain_password = other.post.member.key.encode(), b"a guess"
        socket.connect(one.post.member.near)
        socket.send_multipart(encode(Postmark(OTHER, 1, 0), line("I am the other")))
        wait_for(lambda: one.post.refusals.counts["key"])
        other.post.send(ONE, line("no"))
        assert one.texts(1) == ["no"]


def test_nobody_speaks_for_another_on_the_same_machine() -> None:
    one, other, third = Office(ONE), Office(OTHER), Office(THIRD)
    with offices(one, other, third), zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        member = third.post.member
        socket.plain_username, socket.plain_password = member.key.encode(), member.word.encode()
        socket.connect(one.post.member.near)
        socket.send_multipart(encode(Postmark(OTHER, 1, 0), line("from the other")))
        wait_for(lambda: one.post.refusals.counts["key"])
        assert one.came.empty()


def test_who_sends_faster_than_letters_are_read_has_to_wait() -> None:
    one, other = Paused(ONE), Office(OTHER, machine="127.0.0.2")
    keys, member = other.post._keys, other.post.member
    other.post.stop()  # its key is all that is wanted
    with offices(one), stranger(one.post.member, keys.public, keys.secret) as socket:
        one.post.meet([member])
        socket.sndhwm, socket.sndtimeo = 1, 1000
        letter = encode(Postmark(OTHER, 1, 0), line("rows", rows=np.zeros(1 << 18, np.uint8)))
        with pytest.raises(zmq.Again):
            for _ in range(1000):
                socket.send_multipart(letter)
        one.go_on.set()
        assert one.texts(1) == ["rows"]


@pytest.mark.slow
def test_nobody_speaks_for_another() -> None:
    one, other, third = Office(ONE), Office(OTHER, machine="127.0.0.2"), Office(THIRD, machine="127.0.0.3")
    with offices(one, other, third):
        keys = third.post._keys
        with stranger(one.post.member, keys.public, keys.secret) as socket:
            letter = encode(Postmark(OTHER, 1, 0), line("from the other"))
            # More than once: a busy machine may break a connection off before its handshake is done.
            wait_for(lambda: socket.send_multipart(letter) or one.post.refusals.counts["key"])
        assert one.came.empty()


def test_bytes_that_are_no_letter_do_no_harm() -> None:
    one, other = Office(ONE), Office(OTHER, machine="127.0.0.2")
    with offices(one, other):
        with stranger(one.post.member, other.post._keys.public, other.post._keys.secret) as socket:
            for frames in ([b""], [b"nothing"], [b"x"] * 2000):
                socket.send_multipart(frames)
            wait_for(lambda: one.post.refusals.total() == 3)
        other.post.send(ONE, line("well"))
        assert one.texts(1) == ["well"]


def test_one_that_is_cut_off_is_silent_and_stuck_and_one_that_is_there_is_not() -> None:
    one, other, third = Office(ONE), Office(OTHER, machine="127.0.0.2"), Office(THIRD)
    with offices(one, third), offices(other), Proxy(other.post.member.far) as proxy:
        other.post.meet([one.post.member])
        one.post.meet([dataclasses.replace(other.post.member, far=proxy.address)])
        one.post.send(OTHER, line("first"))
        assert other.texts(1) == ["first"]
        proxy.cut()
        one.post.send(OTHER, line("second"))
        member, seconds = one.stuck.get(timeout=LONG)
        assert (member.address, member.life) == (OTHER, 1)
        assert seconds >= 1.0
        one.post.send(THIRD, line("are you there?"))
        wait_for(lambda: one.post.silence(OTHER) > 1.0 and one.post.silence(THIRD) < 1.0)
        proxy.mend()
        assert other.texts(1) == ["second"]
        wait_for(lambda: one.post.silence(OTHER) < 1.0)


class Paused(Office):
    """One that was busy, or paused, for longer than others may be silent."""

    def __init__(self, who: Address) -> None:
        super().__init__(who)
        self.go_on = threading.Event()

    def hear(self, sender: Address, letter: Letter) -> None:
        self.go_on.wait(LONG)
        super().hear(sender, letter)


def test_who_did_not_listen_does_not_say_that_others_were_silent() -> None:
    one, other, third = Paused(ONE), Office(OTHER), Office(THIRD)
    with offices(one, third), offices(other):
        other.post.meet([one.post.member])
        one.post.meet([other.post.member])
        other.post.send(ONE, line("hold on"))
        one.post.send(THIRD, line("one that is not read before the pause is over"))
        pause = time.monotonic() + 2.5
        wait_for(lambda: time.monotonic() > pause)
        assert one.post.silence(OTHER) < 1.0
        one.go_on.set()
        assert one.texts(1) == ["hold on"]
        assert third.texts(1)
        assert one.post.silence(OTHER) < 1.0 and one.post.silence(THIRD) < 1.0
        assert all(seconds < 1.5 for _, seconds in one.stuck.queue)


class Fragile(Office):
    def hear(self, sender: Address, letter: Letter) -> None:
        raise ZeroDivisionError("too much")


def test_an_error_of_who_hears_is_told() -> None:
    one, other = Office(ONE), Fragile(OTHER)
    with offices(one, other):
        one.post.send(OTHER, line("boo"))
        assert isinstance(other.errors.get(timeout=LONG), ZeroDivisionError)


def test_it_ends_in_time_though_nobody_takes_its_letters() -> None:
    one, other = Office(ONE), Office(OTHER, machine="127.0.0.2")
    one.post.meet([other.post.member])
    one.post.start()
    other.post.stop()
    one.post.send(OTHER, line("anybody?"))
    began = time.monotonic()
    one.post.stop(0.5)
    assert 0.4 < time.monotonic() - began < 5


def test_it_waits_at_its_end_until_its_letters_are_taken() -> None:
    one, other = Office(ONE), Office(OTHER)
    with offices(other):
        other.post.meet([one.post.member])
        one.post.meet([other.post.member])
        one.post.start()
        for number in range(50):
            one.post.send(OTHER, line(f"{number}"))
        one.post.stop(LONG)
        assert other.came.qsize() == 50


def test_it_leaves_nothing_behind() -> None:
    one = Office(ONE)
    directory = Path(one.post.member.near.removeprefix("ipc://")).parent
    assert directory.stat().st_mode & 0o777 == 0o700
    one.post.start()
    one.post.stop()
    assert not directory.exists()


def test_one_that_has_ended_touches_nothing_that_came_after_it(tmp_path: Path) -> None:
    one, other = Office(ONE), Office(OTHER)
    one.post.start()
    one.post.stop()
    # The numbers of its pipe are given to files now.
    files = [os.open(tmp_path / str(each), os.O_CREAT | os.O_WRONLY) for each in range(40)]
    one.post.send(OTHER, line("late"))
    one.post.meet([other.post.member])
    one.post.stop()
    assert all(os.fstat(each).st_size == 0 for each in files)
    for each in files:
        os.close(each)
    other.post.stop()
