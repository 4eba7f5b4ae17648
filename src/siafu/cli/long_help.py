"""Help of a command with many options: `--help` shows the everyday ones, `--help-all` every one."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

_EVERYTHING = "siafu.help_all"


class LongHelp(TyperCommand):
    """A command whose everyday options stand under no heading of their own."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if ctx.meta.get(_EVERYTHING):
            super().format_help(ctx, formatter)
            return
        with self._everyday(ctx):
            super().format_help(ctx, formatter)

    @contextmanager
    def _everyday(self, ctx: Any) -> Iterator[None]:
        """Hide the options under headings, and name the headings at the end."""
        others = [each for each in self.params if _heading(each) and not getattr(each, "hidden", False)]
        headings = "; ".join(dict.fromkeys(_heading(each) for each in others))
        said = self.epilog
        self.epilog = f"{len(others)} more options, with {ctx.command_path} --help-all: {headings}."
        for each in others:
            each.hidden = True  # type: ignore[attr-defined]
        try:
            yield
        finally:
            self.epilog = said
            for each in others:
                each.hidden = False  # type: ignore[attr-defined]


def help_all() -> inspect.Parameter:
    """The option --help-all."""
    told = typer.Option("--help-all", callback=_show, is_eager=True, help="Show every option and exit.")
    return inspect.Parameter(
        "help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, told]
    )


def _show(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.meta[_EVERYTHING] = True
        typer.echo(context.get_help(), nl=False)
        raise typer.Exit


def _heading(parameter: Any) -> str:
    return getattr(parameter, "rich_help_panel", None) or ""
