"""The errors that cross Siafu's public boundary."""


class SiafuError(Exception):
    """An error with a known cause. The message says what happened and what to do."""

    exit_code = 1


class BadInput(SiafuError):
    """Input that cannot be used. The message is one line that says what is wrong, where, and what to do."""

    exit_code = 2


class StoreError(BadInput):
    """A store is truncated, corrupted, incomplete or of a version that this Siafu does not read."""


class NoSpace(BadInput):
    """The disk is full; nothing was left behind."""


class Diverged(SiafuError):
    """The loss is no longer a number: the learning rate is too high for this model and data."""


class Interrupted(SiafuError):
    """A signal asked the run to stop; what was done is saved, and the message says how to go on."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal
        self.exit_code = 128 + signal
