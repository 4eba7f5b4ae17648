"""Nodes that Ray lists, and that no server should start on."""

import socket
from typing import Any

from siafu.cluster.on_ray.reachable import reachable


def _node(name: str, port: int, *, alive: bool = True) -> dict[str, Any]:
    return {"NodeID": name, "Alive": alive, "NodeManagerAddress": "127.0.0.1", "NodeManagerPort": port}


def test_a_node_whose_process_is_gone_is_left_out_though_ray_lists_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there, socket.create_server(("127.0.0.1", 0)) as gone:
        open_port, closed_port = there.getsockname()[1], gone.getsockname()[1]
        gone.close()
        nodes = [
            _node("gone", closed_port),
            _node("there", open_port),
            _node("dead", open_port, alive=False),
        ]
        assert reachable(nodes) == ["there"]
        assert reachable(nodes[:1]) == []
        assert reachable([]) == []
