"""Redundancy: how many warm copies a training may ask for, known before the graph is read."""

from typing import Literal

from siafu.base.errors import BadInput
from siafu.options import Options, Session


def checked_redundancy(options: Options, session: Session) -> int | Literal["eager"]:
    """Refuse warm copies that no machine could hold, and eager ones where epochs have no end of their own."""
    if not session.redundancy:
        return 0
    if session.cluster is None:
        raise BadInput(
            f"redundancy is {session.redundancy}, and warm copies are for servers on a cluster: name one with cluster, or leave it out"
        )
    if options.mode == "sampled":
        raise BadInput(
            f"redundancy is {session.redundancy}, and servers of mode sampled have no warm copies: leave it out, or choose another mode"
        )
    if session.redundancy == "eager" and options.mode == "async":
        raise BadInput(
            "redundancy is eager, and epochs of mode async overlap: copies cannot run forward tasks beforehand; give 1, or choose sync or pipe"
        )
    copies = 1 if isinstance(session.redundancy, str) else session.redundancy
    if copies >= options.servers:
        raise BadInput(
            f"redundancy is {session.redundancy}, and of {options.servers} servers there are at most {options.servers - 1} warm copies "
            "each: ask for fewer, or for more servers"
        )
    return "eager" if isinstance(session.redundancy, str) else copies
