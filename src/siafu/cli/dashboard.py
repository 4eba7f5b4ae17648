"""`siafu dashboard`: a web page of all runs, live."""

from contextlib import suppress
from pathlib import Path

from siafu.base.errors import BadInput
from siafu.base.option import argument, option


def dashboard(
    runs: Path | None = argument("[RUNS_DIR]", "The directory that holds the runs; without it: runs.", None),
    host: str = option("127.0.0.1", "Address to listen at; any but this machine's own needs a token."),
    port: int = option(8642, "Port; 0: any that is free.", least=0, most=65535),
    token: str | None = option(
        None,
        "What one must know to see the runs; auto: have one made.",
        metavar="TOKEN|auto",
        envvar="SIAFU_DASHBOARD_TOKEN",
    ),
    allow_host: list[str] | None = option(
        None, "Another host name to answer to, e.g. a proxy's. May be repeated.", metavar="NAME"
    ),
) -> None:
    """Show all runs in a directory on a web page, live: watch them, compare them, stop them.

    Ctrl-C ends the dashboard, not the runs.
    """
    if runs is not None and not runs.exists():
        raise BadInput(
            f"there is no directory {runs}: name the one that holds your runs; "
            "without a name it is runs, where siafu train saves them"
        )
    from siafu.dashboard.server import serve

    directory = runs or Path("runs")

    def ready(address: str) -> None:
        waiting = "" if directory.is_dir() else ", which the first training here makes"
        print(
            f"runs in {directory}{waiting}: {address}  (Ctrl-C ends the dashboard, not the runs)", flush=True
        )

    with suppress(KeyboardInterrupt):
        serve(directory, host=host, port=port, token=token, names=allow_host or [], ready=ready)
