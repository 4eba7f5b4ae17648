"""Commands whose options are declared once: as parameters, or as fields of a dataclass."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import SIGINT
from typing import Annotated, Any

import typer

from siafu.base.errors import BadInput, Interrupted
from siafu.base.option import REQUIRED, Option, is_option, option, option_of, options_of, same_option

Command = Callable[..., None]
Reader = Callable[[Path, type], dict[str, Any]]

# What a value is called where its option gives no name; none for a flag, which has no value.
_CALLED: dict[type, str] = {Path: "PATH", str: "TEXT", float: "X", int: "N"}


def command(run: Command, read: Reader | None = None, more: Sequence[inspect.Parameter] = ()) -> Command:
    """The command as typer takes it, made of a function.

    Each parameter of the function has an option as its default, or is a dataclass of options.

    read: reads the file that --config names, for the dataclass: its options hold where the command line says nothing
    more: parameters of the command line alone
    """
    taken = inspect.signature(run).parameters.values()
    options = {
        each.name: option_of(each.name, each.annotation, each.default)
        for each in taken
        if is_option(each.default)
    }
    whole: dict[str, type] = {each.name: each.annotation for each in taken if each.name not in options}
    parts = {name: options_of(declaration) for name, declaration in whole.items()}

    def called(config: Path | None = None, **given: Any) -> None:
        try:
            asked = {
                name: whole[name](**{field: _value(each, given[field]) for field, each in part.items()})
                for name, part in parts.items()
            }
            for name, each in options.items():
                dataclasses.replace(each, name=f"--{name.replace('_', '-')}").check(given[name])
            run(**asked, **{name: given[name] for name in options})
        except KeyboardInterrupt:  # typer would end without a word
            raise Interrupted("interrupted", SIGINT) from None
        except BadInput as error:
            if config is None:
                raise
            raise BadInput(f"{error} (options are from {config})") from error

    every = [each for part in (*parts.values(), options) for each in part.values()]
    parameters = [_parameter(each) for each in every]
    if read is not None:
        parameters += [_config(declaration, read) for declaration in whole.values()]
    parameters += more
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__doc__ = run.__doc__
    return called


def add_commands(app: typer.Typer, *commands: Command) -> None:
    """Give `app` functions as commands, each by its name."""
    for run in commands:
        app.command(run.__name__.strip("_"))(command(run))


def memory_option(*more_flags: str) -> Any:
    """The option --memory of `siafu train`, for other commands; more_flags: other spellings of it."""
    return _session_option("memory", "--memory", *more_flags)


def scratch_option() -> Any:
    """The option --scratch of `siafu train`, for other commands."""
    return _session_option("scratch", "--scratch")


def _session_option(name: str, *flags: str) -> Any:
    from siafu.options import Session

    declared = same_option(Session, name).metadata["option"]
    told = dataclasses.replace(declared, panel=None, flags=flags)
    return dataclasses.field(default=None, metadata={"option": told})


def json_flag(help: str = "Print one JSON object as the last line of stdout.") -> Any:
    """The option --json."""
    return option(False, help, flags=("--json",))


def out_file(help: str, flag: str = "--output", **more: Any) -> Any:
    """The option --output, or -o."""
    return option(None, f"{help} Directories on the way to it are made.", flags=(flag, "-o"), **more)


def _parameter(option: Option) -> inspect.Parameter:
    # A number or a word comes as text, and a path as a path.
    kind: Any = next(each for each in (bool, Path, str, float, int) if each in option.kinds)
    kind = list[kind] if option.many else kind
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if option.default is REQUIRED else option.default,
        annotation=Annotated[kind if option.default is not None else kind | None, _flag(option)],
    )


def _config(declaration: type, read: Reader) -> inspect.Parameter:
    def found(context: typer.Context, path: Path | None) -> Path | None:
        if path is not None:
            context.default_map = read(path, declaration)
        return path

    told = typer.Option(
        metavar="FILE",
        help="Options from a TOML file, or a run's config.json to train it again; the command line wins.",
        exists=True,
        dir_okay=False,
        callback=found,
        is_eager=True,
    )
    return inspect.Parameter(
        "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, told]
    )


def _flag(option: Option) -> Any:
    if option.argument:
        return typer.Argument(metavar=option.metavar, help=option.help)
    made = [f"--{option.name.replace('_', '-')}"] if option.kinds == (bool,) else []  # or there is a --no-
    listed = f"[{'|'.join(option.choices)}]" if option.choices else None
    called = next((word for kind, word in _CALLED.items() if kind in option.kinds), None)
    return typer.Option(
        *(option.flags or made),
        help=option.help,
        show_default=option.unset or True,
        min=None if str in option.kinds else option.least,
        max=option.most,
        metavar=option.metavar or listed or called,
        envvar=option.envvar,
        rich_help_panel=option.panel,
    )


def _value(option: Option, given: Any) -> Any:
    is_number = int in option.kinds and isinstance(given, str) and given.isdecimal()
    return int(given) if is_number else given
