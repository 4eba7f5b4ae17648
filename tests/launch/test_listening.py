"""Where processes listen is read from Linux."""

import os
import socket

import pytest

from siafu.launch.listening import Listening, in_words, listening
from siafu.launch.sessions import identity


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1")])
def test_a_socket_of_this_session_is_found_with_its_address(family: int, host: str) -> None:
    with socket.socket(family) as door:  # type: ignore[arg-type]
        door.bind((host, 0))
        unheard = listening([identity(os.getpid()) | {"pid": os.getsid(0)}])
        door.listen()
        heard = listening([{"pid": os.getsid(0), "started": 0}])
        port = door.getsockname()[1]
    assert [each.host for each in heard if each.port == port] == [host]
    assert port not in [each.port for each in unheard]


def test_what_others_reach_is_named() -> None:
    inside, outside = Listening("127.0.0.1", 1, "raylet"), Listening("0.0.0.0", 2, "gcs_server")
    assert in_words([inside]) == "listens to this machine only: 127.0.0.1, ports 1"
    assert "to other machines too, at 0.0.0.0:2 (gcs_server)" in in_words([inside, outside])
