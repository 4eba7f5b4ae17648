"""siafu.sweep: one graph, a table of settings, a run for each, and a table of what came of them."""

import csv
import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from siafu.base.errors import BadInput, Interrupted
from siafu.base.option import options_of
from siafu.base.storage.documents import parse_json
from siafu.base.storage.files import replacing
from siafu.graph import Graph
from siafu.graph.foreign import graph_of
from siafu.graph.stores.fingerprint import fingerprint
from siafu.objective.metric import metric_of
from siafu.objective.registry import objective_asked
from siafu.options import Session
from siafu.report.files.run_directory import RunDirectory, write_json
from siafu.report.files.sweep_directory import only_sweep_in
from siafu.report.progress import Progress
from siafu.server.rows.shared_constants import sharing_constants
from siafu.training.keywords import Keywords
from siafu.training.recipe import Recipe
from siafu.training.train import train

Setting = dict[str, Any]

MEASURES = ("val_accuracy", "test_accuracy", "train_loss", "best_epoch", "seconds_total", "peak_rss_bytes")
"""Fields of a run's summary that a table of results has."""
_LAST = (*MEASURES, "error", "path")
_TABLE = "sweep.json"
_LONGEST_NAME = 80
_OF_A_RUN = ("out", "resume", "overwrite", "progress", "callbacks", "start")


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One setting and what came of it.

    setting: what differs from the other rows
    summary: of its run; None: it failed
    error:   why it failed, in a line; None: it did not
    path:    its run's directory
    reused:  whether it had been run before
    """

    setting: Setting
    summary: dict[str, Any] | None
    error: str | None
    path: Path
    reused: bool = False

    def flat(self) -> dict[str, Any]:
        """The setting's values, measures, error and directory, as a table has them."""
        found = self.summary or {}
        measures = {name: found.get(name) for name in MEASURES}
        return {**self.setting, **measures, "error": self.error, "path": str(self.path)}


@dataclass(frozen=True, slots=True)
class Sweep:
    """The runs of a sweep, in the order of its settings."""

    rows: list[SweepRow] = field(default_factory=list)

    @property
    def best(self) -> SweepRow:
        """The row that did best on validation vertices; without these, by the last training loss. Of equals the first."""
        done = [row for row in self.rows if row.summary is not None]
        if not done:
            raise BadInput("no setting of the sweep was trained to its end: see the errors in its rows")
        return max(done, key=_merit)

    def table(self) -> list[dict[str, Any]]:
        """A flat object for each row, with the same keys in all: `pandas.DataFrame(sweep.table())` takes it."""
        flat = [row.flat() for row in self.rows]
        keys = dict.fromkeys(key for row in self.rows for key in row.setting)
        keys |= dict.fromkeys(_LAST)
        return [{key: each.get(key) for key in keys} for each in flat]

    def csv(self) -> str:
        """The table as CSV."""
        return _csv(self.table())


def sweep(
    graph: Graph,
    settings: "Mapping[str, Sequence[Any]] | Iterable[Setting]",
    *,
    out: str | Path,
    model: Callable[..., nn.Module] | str | None = None,
    told: Callable[[SweepRow], Any] = lambda row: None,
    progress: Progress | None = None,
    **common: Any,
) -> Sweep:
    """Train with each of the settings on one loaded graph; one that fails does not end the others.

    Every setting has a run's directory of its own in `out`, as `siafu.train(out=…)` writes it. Settings that have finished there are not
    run again, one that was stopped goes on. `out` also has the table: sweep.json and sweep.csv, written after each run; rows of other settings that an
    earlier sweep left there stay in it.

    settings: values for each name, of which all combinations are run; or a list of settings, one {name: value} each. Names are those of
              `siafu.train`'s keywords, and of the model: model, hidden, layers, dropout, heads, … as on the command line
    model:    makes a model of a setting: called with the graph and those names that are not keywords of `siafu.train`; or the name of one
              that the command line has; None: by model, hidden, …
    told:     called with every row as it ends
    common:   what all settings share
    """
    graph = graph_of(graph, "sweep")
    if isinstance(model, str):
        model, common = None, {**common, "model": model}
    listed = _listed(settings)
    directory = Path(out)
    known = options_of(Keywords)
    for setting in listed:
        _check_names({**common, **setting}, known, own=model is not None)
    # A budget is a run's own: rows that wait for later runs are in none.
    budgeted = any("memory" in {**common, **setting} for setting in listed)
    with only_sweep_in(directory), nullcontext() if budgeted else sharing_constants():
        done, before = Sweep(), _earlier(directory)
        for setting in listed:
            row = _Setting(graph, setting, {**common, **setting}, directory, model, progress).run()
            done.rows.append(row)
            _write(directory, done, before)
            told(row)
    return done


@dataclass(frozen=True, slots=True)
class _Setting:
    graph: Graph
    setting: Setting
    asked: Setting
    directory: Path
    make: Callable[..., nn.Module] | None
    progress: Progress | None

    def run(self) -> SweepRow:
        path = self.directory / setting_name(self.setting, self.asked)
        run = RunDirectory(path)
        if run.finished:
            if run.config()["graph"].get("fingerprint") != fingerprint(self.graph):
                raise BadInput(f"{path} is a run on another graph: choose another out for this one")
            return SweepRow(self.setting, run.summary(), None, path, reused=True)
        try:
            return SweepRow(self.setting, self._train(path, resume=run.exists), None, path)
        except Interrupted:
            raise
        except (
            Exception
        ) as error:  # a user's model may raise anything, and the other settings are not to blame
            return SweepRow(
                self.setting, None, f"{type(error).__name__}: {' '.join(str(error).split())}", path
            )

    def _train(self, path: Path, *, resume: bool) -> dict[str, Any]:
        known = options_of(Keywords)
        keywords = {name: value for name, value in self.asked.items() if name in known}
        of_model = {name: value for name, value in self.asked.items() if name not in known}
        if self.progress is not None:
            keywords["progress"] = self.progress
        seed = keywords.get("seed", known["seed"].default)
        if self.make is not None:
            model = self.make(self.graph, **of_model)
        else:
            recipe = Recipe(**of_model)
            recipe.check()
            model = recipe.build(self.graph, objective_asked(self.graph, Keywords(**keywords)), seed=seed)
        return train(self.graph, model, out=path, resume=resume, **keywords).summary()


def setting_name(setting: Setting, asked: Setting) -> str:
    """The name of a setting's directory: what differs, and a hash of everything that was asked for."""
    words = ",".join(f"{name}={value}" for name, value in setting.items())
    safe = "".join(letter if letter.isalnum() or letter in "-_.,=" else "-" for letter in words)
    # Where a run is carried out changes nothing of what it learns.
    deciding = {name: value for name, value in asked.items() if name not in (*options_of(Session), "dataset")}
    digest = hashlib.sha256(json.dumps(deciding, sort_keys=True, default=repr).encode()).hexdigest()[:8]
    return f"{safe[:_LONGEST_NAME]}-{digest}" if safe else digest


def _listed(settings: "Mapping[str, Sequence[Any]] | Iterable[Setting]") -> list[Setting]:
    """All combinations of a mapping's values, the last name's fastest; or the list as it is."""
    if isinstance(settings, Mapping):
        wrong = next(
            (
                name
                for name, values in settings.items()
                if isinstance(values, str) or not isinstance(values, Iterable)
            ),
            None,
        )
        if wrong is not None:
            raise BadInput(f"the values of {wrong} are {settings[wrong]!r}: give a list of them")
        return [dict(zip(settings, values, strict=True)) for values in itertools.product(*settings.values())]
    listed = [dict(setting) for setting in settings]
    if not listed:
        raise BadInput("there are no settings to sweep over: give at least one")
    return listed


def _check_names(asked: Setting, known: Mapping[str, Any], *, own: bool) -> None:
    """Refuse a name that means nothing, before any setting is run."""
    for name in asked:
        if name in _OF_A_RUN:
            raise BadInput(f"{name} is of one run, and a sweep gives each its own: leave it out")
        if not own and name not in known and name not in options_of(Recipe):
            raise BadInput(
                f"there is no setting {name}: settings are keywords of siafu.train, and {', '.join(options_of(Recipe))}"
            )


def _merit(row: SweepRow) -> float:
    summary = row.summary or {}
    value = summary.get("val_accuracy")
    if value is None:
        return -float(summary["train_loss"])
    return metric_of(summary["objective"], summary["metric"]).merit(value)


def _earlier(directory: Path) -> list[dict[str, Any]]:
    """Rows of the table that another sweep left in this directory; none if there is no such table."""
    try:
        found = parse_json((directory / _TABLE).read_bytes())
        rows = found["rows"]
        return [row for row in rows if isinstance(row, dict) and "path" in row]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return []


def _write(directory: Path, done: Sweep, before: list[dict[str, Any]]) -> None:
    """Write the table: this sweep's rows, then those of other settings that an earlier sweep left here."""
    ours = done.table()
    paths = {row["path"] for row in ours}
    rows = [*ours, *(row for row in before if row["path"] not in paths)]
    write_json(directory / _TABLE, {"rows": rows})
    with replacing(directory / "sweep.csv") as file:
        file.write(_csv(rows).encode())


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _LAST]
    writer = csv.DictWriter(text, [*columns, *_LAST] if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
