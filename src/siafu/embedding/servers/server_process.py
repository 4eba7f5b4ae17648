"""A server of embeddings as a process of this machine: python -m siafu.embedding.servers.server_process

Lines of JSON: the plan comes on stdin, the member goes to stdout, the members of all come on stdin. It ends when stdin does.
"""

import json
import os
import sys
import threading
from dataclasses import asdict
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.typed import typed
from siafu.cluster.post.member import Member


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    said = sys.stdout
    sys.stdout = sys.stderr  # whatever prints: stdout is for the driver
    try:
        from siafu.cluster.driven_cluster import server_address
        from siafu.embedding.servers.embed_station import EmbedStation
        from siafu.embedding.servers.server_plan import EmbedPlan

        plan = EmbedPlan.read(asked["plan"])
        station = EmbedStation(server_address(asked["server"]), asked["life"], asked["machine"], plan)
        _say(said, {"member": asdict(station.post.member)})
        line = sys.stdin.readline()
        if not line:
            return
        station.join(None, [typed(Member, each) for each in json.loads(line)["members"]])
        _say(said, {"joined": True})
        threading.Thread(target=_end_with_driver, args=(station,), daemon=True).start()
        station.wait()
    except BaseException as error:
        _say(said, {"failed": f"{error}" or type(error).__name__, "given": isinstance(error, BadInput)})
    os._exit(0)  # threads that train have no one to train for


def _end_with_driver(station: Any) -> None:
    sys.stdin.readline()
    station.stop()


def _say(said: Any, what: dict[str, Any]) -> None:
    said.write(json.dumps(what) + "\n")
    said.flush()


if __name__ == "__main__":
    main()
