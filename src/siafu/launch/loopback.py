"""Ray on this machine alone: on the loopback address, behind a token that the user alone can read.

Ray takes 127.0.0.1 for a mistake and puts the address of the network in its place, which makes it listen on all interfaces.

    python -m siafu.launch.loopback start --head --node-ip-address=127.0.0.1 …    what `ray start …` would be
"""

import ipaddress
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
_MODE, _TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def loopback_is_meant() -> Iterator[None]:
    """Have Ray take a loopback address as it is."""
    from ray._private import services

    resolve = getattr(services, "resolve_ip_for_localhost", None)
    if resolve is None:  # another Ray: where it listens is looked at afterwards
        yield
        return
    services.resolve_ip_for_localhost = lambda host: host
    try:
        yield
    finally:
        services.resolve_ip_for_localhost = resolve


def make_token(path: Path) -> None:
    """Write a secret that Ray's processes ask each other for, in a file that its owner alone can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))


def token_variables(path: Path) -> dict[str, str]:
    """The environment in which Ray asks for the token in a file, and shows it."""
    return {_MODE: "token", _TOKEN_FILE: str(path)}


def show_token(path: Path | None) -> None:
    """Show the token in a file to the cluster that is connected to next; None: it asks for none that we know of."""
    ours = os.environ.get(_TOKEN_FILE, "") in _shown
    if path is not None:
        _shown.add(str(path))
        os.environ.update(token_variables(path))
    elif ours:
        for name in (_MODE, _TOKEN_FILE):
            os.environ.pop(name, None)
    if path is not None or ours:
        _read_again()


_shown: set[str] = set()


def _read_again() -> None:
    """Ray reads these variables once, when it is imported."""
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
