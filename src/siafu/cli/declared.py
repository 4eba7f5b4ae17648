"""Commands whose options are declared as fields of a dataclass."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from siafu.base.errors import BadInput
from siafu.base.option import Option, options_of

Asked = TypeVar("Asked")
Reader = Callable[[Path, type], dict[str, Any]]


def command(
    declaration: type[Asked], run: Callable[[Asked], None], read: Reader | None = None
) -> Callable[..., None]:
    """The command as typer takes it: a function of the dataclass's fields, which does what `run` does with the dataclass.

    read: reads the file that --config names, whose options hold where the command line says nothing; None: no --config
    """
    options = options_of(declaration)

    def called(config: Path | None = None, **given: Any) -> None:
        try:
            run(declaration(**{name: _value(each, given[name]) for name, each in options.items()}))
        except BadInput as error:
            if config is None:
                raise
            raise BadInput(f"{error} (options are from {config})") from error

    parameters = [_parameter(each) for each in options.values()]
    if read is not None:
        parameters.append(_config(declaration, read))
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__doc__ = run.__doc__
    return called


def flag(declaration: type, name: str) -> Any:
    """An option of the dataclass, for a command with a signature of its own."""
    return _flag(options_of(declaration)[name])


def _parameter(option: Option) -> inspect.Parameter:
    # A number or a word comes as text, and a path as a path.
    kind = next(each for each in (bool, Path, str, float, int) if each in option.kinds)
    annotation = kind if option.default is not None else kind | None
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if option.argument else option.default,
        annotation=Annotated[annotation, _flag(option)],
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
    names = [f"--{option.name.replace('_', '-')}"] if option.kinds == (bool,) else []  # or there is a --no-
    return typer.Option(
        *names,
        help=f"{option.help} [default: {option.unset}]" if option.unset else option.help,
        min=None if str in option.kinds else option.least,
        max=option.most,
        metavar=option.metavar,
        rich_help_panel=option.panel,
    )


def _value(option: Option, given: Any) -> Any:
    is_number = int in option.kinds and isinstance(given, str) and given.isdecimal()
    return int(given) if is_number else given
