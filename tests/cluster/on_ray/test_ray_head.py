"""Whether Ray's head is there is asked at its door."""

import socket
import time

import pytest

from siafu.base.errors import SiafuError
from siafu.cluster.on_ray.ray_head import GONE_SECONDS, RayHead


def check_until_it_is_gone(head: RayHead) -> None:
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        head.check()
        time.sleep(0.01)


def test_a_head_that_is_there_is_no_trouble() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        head = RayHead("{}:{}".format(*door.getsockname()), gone_after=0.01)
        for _ in range(3):
            time.sleep(0.02)
            head.check()
    assert not head.is_gone


def test_one_that_is_gone_is_told_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = "{}:{}".format(*door.getsockname())
    head = RayHead(address, gone_after=0.05)
    with pytest.raises(SiafuError, match=f"the head of the Ray cluster at {address} cannot be reached"):
        check_until_it_is_gone(head)
    assert head.is_gone
    assert GONE_SECONDS < 30
