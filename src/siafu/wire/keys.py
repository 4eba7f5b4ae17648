"""Keys of a run: made when it begins, handed to its machines, and to nobody else."""

from dataclasses import dataclass, field

import zmq

from siafu.base.errors import BadInput


@dataclass(frozen=True, slots=True)
class Keys:
    """A pair for CURVE (Curve25519), each as 40 characters of Z85. The secret is not shown."""

    public: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        check_key(self.public)
        check_key(self.secret)
        if zmq.curve_public(self.secret.encode()).decode() != self.public:
            raise BadInput(
                "a public key that does not belong to its secret: make both with wire.keys.make_keys"
            )


def make_keys() -> Keys:
    public, secret = zmq.curve_keypair()
    return Keys(public.decode(), secret.decode())


def check_key(key: str) -> None:
    """Refuse what is no key, without showing it."""
    if len(key) != 40 or not set(key) <= _Z85:
        raise BadInput("a key that is not 40 characters of Z85: make one with wire.keys.make_keys")


_Z85 = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")
