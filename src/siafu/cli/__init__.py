"""The `siafu` command: one file a subcommand; their shared helpers are in `common` and `declared`."""

import errno
import signal
import sys
from typing import Annotated

import typer

from siafu.base.errors import SiafuError
from siafu.base.extras import missing
from siafu.base.version import __version__
from siafu.cli import (
    bench,
    calibrate,
    cluster,
    compare,
    dashboard,
    datasets,
    doctor,
    embed,
    evaluate,
    explain,
    generate,
    import_,
    info,
    lambda_,
    partition,
    plan,
    predict,
    reorder,
    report,
    story,
    sweep,
    train,
)
from siafu.cli.config_file import read_config
from siafu.cli.declared import add_commands, command
from siafu.cli.long_help import LongHelp, help_all

app = typer.Typer(
    name="siafu",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("train", cls=LongHelp)(command(train.train, read_config, [help_all()]))
app.command("sweep", cls=LongHelp)(command(sweep.sweep, more=[help_all()]))
add_commands(app, explain.explain, evaluate.evaluate, predict.predict, report.report, story.story)
add_commands(app, compare.compare, import_.import_, generate.generate, partition.partition, reorder.reorder)
add_commands(app, dashboard.dashboard, datasets.datasets, doctor.doctor, plan.plan, calibrate.calibrate)
add_commands(app, info.info)
app.add_typer(embed.app, name="embed")
app.add_typer(bench.app, name="bench")
app.add_typer(lambda_.app, name="lambda")
app.add_typer(cluster.app, name="cluster")

# Typer has brought its own copy of click along in newer versions: this is the error of either copy.
_WRONG_COMMAND_LINE: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

# What is wrong with a place that the user named; any other error of the system is not the command line's fault.
_OF_THE_USER = {errno.ENOSPC, errno.EACCES, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG}


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"siafu {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Train graph neural networks on whole graphs, on CPUs."""


_INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Run the command; an error that we know the cause of is one line on stderr and an exit code."""
    try:
        code = app(standalone_mode=False)
    except SiafuError as error:
        _fail(str(error), error.exit_code)
    except ImportError as error:
        wanted = missing(error)
        if wanted is None:
            raise
        _fail(str(wanted), wanted.exit_code)
    except _WRONG_COMMAND_LINE as error:
        _fail(_worded(error.format_message()), 2)  # type: ignore[attr-defined]
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        _fail(_told(error), 2 if error.errno in _OF_THE_USER else 1)
    except MemoryError as error:
        _fail(f"not enough memory ({str(error) or 'an allocation failed'}): use a machine with more", 1)
    if code == _INTERRUPTED:  # Ctrl-C before the command itself ran: typer says nothing
        _fail("interrupted", _INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


# Words of the library that reads the command line, and ours.
_WORDS = {
    "Missing argument 'NAME|PATH'.": "name a dataset, such as demo, or give a store's path: 'siafu datasets' lists the names",
    "Input should be a valid integer, unable to parse string as an integer": "give a whole number",
    "Input should be a valid number, unable to parse string as a number": "give a number",
    "Got unexpected extra argument(s)": "the command line has too many words, or an option that takes no value was given one:",
}


_NO_GPU = ("--device", "--gpu", "--gpus", "--cuda")


def _worded(message: str) -> str:
    flag = message.removeprefix("No such option: ").split()[0] if message else ""
    if flag in _NO_GPU:
        return f"there is no {flag}: siafu trains on the CPU, with all of its cores; leave it out"
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    return message


def _told(error: OSError) -> str:
    cause = error.strerror or str(error) or type(error).__name__
    return cause if error.filename is None else f"{error.filename}: {cause}"


def _fail(message: str, code: int) -> None:
    if message:  # a command line without a command has shown the help already
        print("siafu: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)
