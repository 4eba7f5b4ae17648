"""WeightInbox: a weight server's side of its sessions with Lambdas."""

from collections.abc import Callable

from siafu.wire import messages as say
from siafu.wire.link import Peer
from siafu.wire.refusal import Refusal
from siafu.wire.tensors import Tensors


class WeightInbox:
    """Sends weights to peers that the transport let in.

    send: sends to a peer, without waiting
    held: the weights of a version, by name; None: the version is not held. Versions never change.

    answered, bytes_sent: number of answers, and bytes of weights in them
    """

    hears = (say.AskWeights,)

    def __init__(
        self, send: Callable[[Peer, say.Message], bool], held: Callable[[int], Tensors | None]
    ) -> None:
        self._send, self._held = send, held
        self.answered = self.bytes_sent = 0

    def receive(self, peer: Peer, message: say.Message) -> None:
        if not isinstance(message, say.AskWeights):
            raise Refusal("unexpected", f"{type(message).__name__} at a weight server")
        weights = self._held(message.version)
        if weights is None:
            self._send(
                peer, say.WeightsMissing(message.version, f"version {message.version} is not held here")
            )
            return
        missing = [name for name in message.names if name not in weights]
        if missing:
            raise Refusal("unexpected", f"a weight {missing[0]!r}, which does not exist")
        given = {name: weights[name] for name in message.names}
        if self._send(peer, say.WeightsReply(message.version, given)):
            self.answered += 1
            self.bytes_sent += sum(each.nbytes for each in given.values())
