"""`siafu sweep`: a table of settings over one loaded graph."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from siafu.base.choices import refuse_other_model
from siafu.base.errors import BadInput
from siafu.base.loading import loading
from siafu.base.nearest import nearest
from siafu.base.option import Option, argument, option, options_of
from siafu.base.words import counted
from siafu.cli.common import NUMBER, WORD, refuse_unknown_dataset, say, show_table
from siafu.cli.early import refuse_early
from siafu.options import Options, Session
from siafu.report.files.sweep_directory import refuse_no_place_for_sweep
from siafu.training.recipe import Recipe, describe_graph

if TYPE_CHECKING:
    from siafu.training.sweep import Sweep, SweepRow

_OF_A_RUN = ("out", "resume", "overwrite", "lambdas")


@dataclass(frozen=True, kw_only=True)
class SweepOptions(Session, Options, Recipe):
    """Options of `siafu sweep`: what varies, and what all runs share, as `siafu train` takes it."""

    dataset: str = argument("NAME|PATH", "A dataset's name, or a store's path.")
    vary: list[str] | None = option(
        None,
        "Values of an option of `siafu train`; given several times, all combinations are run.",
        metavar="OPTION=A,B,…",
    )
    settings: Path | None = option(
        None, "A JSON file with a list of settings instead, one object each.", metavar="FILE"
    )
    out: Path | None = option(
        None, "The directory of the runs and of their table.", unset="runs/sweep-DATASET"
    )
    quiet: bool = option(False, "Say nothing but what is wrong.")
    json: bool = option(False, "Print one JSON object as the last line of stdout.")


def sweep(asked: SweepOptions) -> None:
    """Train with every combination of some options, on one loaded graph, and print a table of what came of it.

    Settings that have finished in --out are not run again; one that fails does not end the others.
    """
    listed = _settings(asked)
    for setting in listed:
        refuse_other_model(setting.get("model", asked.model))
    refuse_early(asked)
    if asked.out is not None:
        refuse_no_place_for_sweep(asked.out)
    refuse_unknown_dataset(asked.dataset)
    with loading():
        import siafu
        from siafu.graph.stores.store import is_store

    graph = siafu.load(asked.dataset)
    directory = asked.out or Path("runs") / f"sweep-{graph.name}"

    def told(row: "SweepRow") -> None:
        if not asked.quiet:
            say(f"{_words(row.setting)}: {_outcome(row)}")

    if not asked.quiet:
        say(f"{describe_graph(graph)}; {counted(len(listed), 'setting')}, in {directory}")
    path = str(Path(asked.dataset).resolve()) if is_store(Path(asked.dataset)) else asked.dataset
    done = siafu.sweep(graph, listed, out=directory, told=told, dataset=path, **_common(asked, listed))
    table = done.table()
    if asked.json:
        print(json.dumps({"path": str(directory), "rows": table}), flush=True)
    else:
        _show(done, table, listed)
    failed = sum(row.summary is None for row in done.rows)
    if failed:
        say(
            f"{failed} of {len(done.rows)} settings failed: mend them and run the same command again, which does the rest"
        )
        raise typer.Exit(1)


def _show(done: "Sweep", table: list[dict[str, Any]], listed: list[dict[str, Any]]) -> None:
    varied = list(dict.fromkeys(name for row in listed for name in row))
    columns = [*varied, "val_accuracy", "test_accuracy", "best_epoch", "seconds_total", "error"]
    show_table(
        {name: WORD if name in (*varied, "error") else NUMBER for name in columns},
        [[_cell(row[name]) for name in columns] for row in table],
    )
    if any(row.summary is not None for row in done.rows):
        best = done.best
        print(f"best: {_words(best.setting)}, in {best.path}")


def _settings(asked: SweepOptions) -> list[dict[str, Any]]:
    if (asked.settings is None) == (not asked.vary):
        raise BadInput("say what varies: --vary hidden=16,32 (one or more), or --settings FILE")
    known = options_of(Recipe) | {
        name: each
        for owner in (Options, Session)
        for name, each in options_of(owner).items()
        if name not in _OF_A_RUN
    }
    if asked.settings is not None:
        return _from_file(asked.settings, known)
    from itertools import product

    values = dict(_varied(text, known) for text in asked.vary or ())
    if len(values) < len(asked.vary or ()):
        raise BadInput("--vary names an option twice: list its values in one")
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


def _varied(text: str, known: dict[str, Option]) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    if not equals or not values.strip():
        raise BadInput(f"--vary {text}: give an option and its values, such as hidden=16,32")
    return name, [_read(_option(name, known), each.strip()) for each in values.split(",")]


def _option(name: str, known: dict[str, Option]) -> Option:
    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean {near}?" if near else "see siafu train --help"
        raise BadInput(f"there is no option {name} to vary: {hint}")
    return known[name]


def _read(declared: Option, text: str) -> Any:
    """A value of the option's kind, checked as `siafu train` does."""
    value: Any = text
    if declared.kinds == (bool,):
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        value = words.get(text.lower(), text)
    else:
        for kind in (int, float):
            if kind in declared.kinds:
                try:
                    value = kind(text)
                    break
                except ValueError:
                    continue
    if text.lower() in ("none", "null") and declared.default is None:
        value = None
    declared.check_kind(value)
    declared.check(value)
    return value


def _from_file(path: Path, known: dict[str, Option]) -> list[dict[str, Any]]:
    from siafu.base.storage.documents import one_line, parse_json

    try:
        found: Any = parse_json(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not readable JSON ({one_line(error)}): give a list of settings") from None
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        raise BadInput(f'{path} holds no list of settings: write [{{"hidden": 16}}, {{"hidden": 32}}]')
    for setting in found:
        for name, value in setting.items():
            declared = _option(name, known)
            declared.check_kind(value)
            declared.check(value)
    return found


def _common(asked: SweepOptions, listed: list[dict[str, Any]]) -> dict[str, Any]:
    """Options that the command line gives, but for those that vary."""
    varied = {name for setting in listed for name in setting}
    names = [name for owner in (Recipe, Options, Session) for name in options_of(owner)]
    given = {
        name: getattr(asked, name) for name in names if name not in (*varied, "out", "resume", "overwrite")
    }
    return {name: value for name, value in given.items() if value is not None}


def _words(setting: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def _outcome(row: "SweepRow") -> str:
    if row.summary is None:
        return f"failed: {row.error}"
    found = {name: row.summary.get(f"{name}_accuracy") for name in ("val", "test")}
    told = ", ".join(f"{name} {value:.4f}" for name, value in found.items() if value is not None)
    return f"{told or 'done'}{' (was there)' if row.reused else ''}"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return (
        f"{value:.4f}"
        if isinstance(value, float) and not float(value).is_integer() and abs(value) < 1000
        else str(value)
    )
