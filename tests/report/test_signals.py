"""Signals as requests."""

import signal
import threading

import pytest

from siafu.report.signals import StopRequest


def test_the_first_signal_is_noted_and_told() -> None:
    told: list[signal.Signals] = []
    with StopRequest(told.append) as request:
        assert request.signal is None
        signal.raise_signal(signal.SIGTERM)
        assert request.signal is signal.SIGTERM
    assert told == [signal.SIGTERM]


def test_a_second_signal_acts_as_ever() -> None:
    with StopRequest() as request:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert request.signal is signal.SIGINT


def test_another_thread_watches_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def watch() -> None:
        with StopRequest():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert seen == [before]
