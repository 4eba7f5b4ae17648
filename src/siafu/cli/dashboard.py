"""`siafu dashboard`: a web page of all runs, live."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from siafu.base.errors import BadInput


def dashboard(
    runs: Annotated[
        Path, typer.Argument(metavar="[RUNS_DIR]", help="The directory that holds the runs.")
    ] = Path("runs"),
    host: Annotated[
        str, typer.Option(help="Address to listen at; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any that is free.")] = 8642,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="SIAFU_DASHBOARD_TOKEN",
            metavar="TOKEN|auto",
            help="What one must know to see the runs; auto: have one made.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another host name to answer to, e.g. a proxy's. May be repeated."),
    ] = None,
) -> None:
    """Show all runs in a directory on a web page, live: watch them, compare them, stop them.

    Ctrl-C ends the dashboard, not the runs.
    """
    try:
        from siafu.dashboard.server import serve
    except ModuleNotFoundError as error:
        raise BadInput(
            f"the dashboard needs {error.name}, which is not there: pip install 'siafu[dashboard]'"
        ) from error

    def ready(address: str) -> None:
        waiting = "" if runs.is_dir() else ", which is not there yet"
        print(f"runs in {runs}{waiting}: {address}  (Ctrl-C ends the dashboard, not the runs)", flush=True)

    with suppress(KeyboardInterrupt):
        serve(runs, host=host, port=port, token=token, names=allow_host or [], ready=ready)
