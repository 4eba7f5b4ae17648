"""Ray on this machine alone: on the loopback address, behind a token that the user alone can read.

Ray takes 127.0.0.1 for a mistake and puts the address of the network in its place, which makes it listen on all interfaces.

    python -m siafu.launch.loopback start --head --node-ip-address=127.0.0.1 …    what `ray start …` would be
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
_MODE, _TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"


@contextmanager
def patched(module: Any, name: str, stand_in: Callable[..., Any]) -> Iterator[None]:
    """Replace a function of `module` for a while. If this version of Ray lacks the function, nothing is done."""
    real = getattr(module, name, None)
    if real is None:
        yield
        return
    setattr(module, name, stand_in)
    try:
        yield
    finally:
        setattr(module, name, real)


def loopback_is_meant() -> AbstractContextManager[None]:
    """Make Ray take a loopback address as it is. Its real addresses are checked afterwards."""
    from ray._private import services

    return patched(services, "resolve_ip_for_localhost", lambda host: host)


def make_token(path: Path) -> None:
    """Write a secret that Ray's processes ask each other for, in a file that its owner alone can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))


def token_variables(path: Path) -> dict[str, str]:
    """Environment variables that make Ray require and send the token in a file."""
    return {_MODE: "token", _TOKEN_FILE: str(path)}


def show_token(path: Path | None) -> None:
    """Use the token in a file for the next connection; None: the cluster needs none that we know of."""
    ours = os.environ.get(_TOKEN_FILE, "") in _shown
    if path is not None:
        _shown.add(str(path))
        os.environ.update(token_variables(path))
    elif ours:
        for name in (_MODE, _TOKEN_FILE):
            os.environ.pop(name, None)
    if path is not None or ours:
        read_variables_again()


_shown: set[str] = set()


def read_variables_again() -> None:
    """Make Ray read its environment variables again. By itself it reads them once, when it is imported."""
    with suppress(ImportError, AttributeError):  # a Ray that knows no tokens
        core: Any = import_module("ray._raylet")
        core.Config.initialize("")
        core.AuthenticationTokenLoader.instance().reset_cache()


def main() -> None:
    from ray.scripts.scripts import main as ray

    with loopback_is_meant():
        ray()


if __name__ == "__main__":
    main()
