"""`siafu train`: train a model on a dataset, and save the run."""

import json
import shlex
import statistics
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Any

from siafu.base.errors import BadInput, Interrupted
from siafu.base.loading import loading
from siafu.base.option import argument, option, options_of
from siafu.base.storage.absent import refuse_absent_start
from siafu.base.words import counted
from siafu.cli.common import refuse_unknown_dataset, say
from siafu.cli.early import refuse_early, refuse_unlabelled
from siafu.cli.outcome import refuse_other_summary, report_many, report_one, risen_loss, scores
from siafu.options import FILES, LAMBDAS, LEARNING, Named, Options, Session
from siafu.training.recipe import Recipe, describe_graph

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from siafu.graph import Graph
    from siafu.objective.metric import Metric
    from siafu.report.progress import Progress
    from siafu.training.run import Run


_NOTHING_TRAINED = "interrupted before the first epoch: nothing was trained"


@dataclass(frozen=True, kw_only=True)
class Train(Session, Options, Recipe):
    """Options of `siafu train`: the model, the options of `siafu.train`, and what only the command has."""

    dataset: str = argument("NAME|PATH", "A dataset's name, or a store's path.")
    out: Path | None = option(None, "The run's directory.", unset="runs/DATASET-MODEL-DATE")
    start: Path | None = option(None, "Begin with the weights of the run in this directory.", panel=LEARNING)
    runs: int = option(1, "Train with so many seeds; mean and deviation.", least=1)
    lambda_function: str = option("siafu", "The function's name or ARN (aws).", panel=LAMBDAS)
    lambda_qualifier: str | None = option(None, "Its version or alias (aws).", panel=LAMBDAS)
    lambda_host: str | None = option(
        None,
        "This machine's address as the function reaches it (aws).",
        unset="the one in its own network",
        panel=LAMBDAS,
    )
    region: str | None = option(None, "AWS's region.", unset="as AWS's tools", panel=LAMBDAS)
    profile: str | None = option(None, "A profile of AWS's own tools.", panel=LAMBDAS)
    endpoint: str | None = option(
        None, "What speaks AWS's protocol in its place.", metavar="URL", panel=LAMBDAS
    )
    verbose: bool = option(False, "Say also why the model is run as it is.", panel=FILES)
    quiet: bool = option(False, "Say nothing but what is wrong.", panel=FILES)
    json: bool = option(False, "Print one JSON object as the last line of stdout.")

    def say(self, text: str) -> None:
        """Print a line on stderr, unless the command is quiet."""
        if not self.quiet:
            say(text)

    def progress(self, metric: "Metric") -> "AbstractContextManager[Progress]":
        """Shows the run on stderr while it lasts."""
        from siafu.report.progress import Progress, ProgressLine

        if self.quiet:
            return nullcontext(Progress())
        return ProgressLine(self.epochs, metric=metric, verbose=self.verbose)

    def keywords(self) -> dict[str, Any]:
        """Keywords that `siafu.train` is called with, whatever the seed and the directory."""
        from siafu.graph.stores.store import is_store

        is_path = is_store(Path(self.dataset))
        shared = {name: getattr(self, name) for each in (Options, Session) for name in options_of(each)}
        del shared["seed"], shared["out"], shared["resume"]
        return shared | {
            "precision": self.precision if self.precision == "auto" else None,
            "lambdas": self._platform(),
            "start": self.start,
            "dataset": str(Path(self.dataset).resolve()) if is_path else self.dataset,
        }

    def _platform(self) -> str | Named:
        if self.lambdas != "aws":
            return self.lambdas
        from siafu.serverless.deployment.aws import Place
        from siafu.serverless.platforms.platform import AwsPlatform

        place = Place(self.region, self.profile, self.endpoint)
        return AwsPlatform.of(
            self.lambda_function, place, qualifier=self.lambda_qualifier, host=self.lambda_host
        )


def train(asked: Train) -> None:
    """Train a model on a whole graph, and save the run.

    Ctrl-C saves a checkpoint and says how to go on.
    """
    if asked.resume and asked.out is None:
        raise BadInput("--resume needs --out: name the directory of the run to go on with")
    if asked.resume and asked.overwrite:
        raise BadInput("--resume goes on with a run and --overwrite replaces it: choose one")
    refuse_early(asked)
    if asked.start is not None:
        refuse_absent_start(asked.start)
    if asked.out is not None and not asked.resume and asked.runs == 1:
        from siafu.report.files.run_directory import RunDirectory

        RunDirectory(asked.out).refuse_to_replace(overwrite=asked.overwrite)
    if asked.objective is None:
        refuse_unlabelled(asked.dataset)
    refuse_unknown_dataset(asked.dataset)
    try:
        graph = _opened(asked)
    except KeyboardInterrupt:
        raise Interrupted(_NOTHING_TRAINED, SIGINT) from None
    directory = asked.out or new_directory(Path("runs"), f"{graph.name}-{asked.model}")
    try:
        if asked.runs == 1:
            run = _train_once(graph, asked, directory, asked.seed, resume=asked.resume)
            summary = run.summary()
            report_one(summary, asked.say)
            if rose := risen_loss(run.history):
                asked.say(rose)
        else:
            summary = _train_often(graph, asked, directory)
            report_many(summary, directory, asked.say)
    except Interrupted as stopped:
        raise Interrupted(f"{stopped}: {command_to_resume(directory)}", stopped.signal) from None
    except KeyboardInterrupt:
        raise _interrupted(directory) from None
    if asked.json:
        print(json.dumps(summary), flush=True)


def _opened(asked: Train) -> "Graph":
    """The graph, once all that the command line has is known to be right."""
    with loading():
        asked.check()

        import siafu.training.train
        from siafu.graph.class_counts import lopsided_split
        from siafu.graph.feature_scales import told_scales
        from siafu.sampling.fanouts import fanouts_for
        from siafu.training.scheduler import scheduler_named

    if isinstance(asked.scheduler, str):
        scheduler_named(asked.scheduler)
    if asked.mode == "sampled":
        fanouts_for(asked.fanout, asked.layers)
    graph = siafu.load(asked.dataset)
    drawn = asked.split is not None and asked.cluster is None
    split = graph.split_as(asked.split, asked.split_seed) if drawn else graph
    asked.say(describe_graph(split))
    if lopsided := lopsided_split(split):
        asked.say(lopsided)
    if far_apart := told_scales(graph.x):
        asked.say(far_apart)
    return graph


def _interrupted(directory: Path) -> Interrupted:
    """Ctrl-C while no epoch ran: during them a checkpoint is saved instead."""
    metrics = directory / "metrics.jsonl"
    if metrics.exists() and metrics.stat().st_size > 0:
        return Interrupted(f"interrupted; the run in {directory} is as its last epoch left it", SIGINT)
    return Interrupted(_NOTHING_TRAINED, SIGINT)


def _train_once(graph: "Graph", asked: Train, directory: Path, seed: int, *, resume: bool) -> "Run":
    import siafu
    from siafu.objective.registry import objective_asked

    objective = objective_asked(graph, asked)
    model = asked.build(graph, objective, seed=seed)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    asked.say(
        f"{asked.model}: {asked.layers} layers, {asked.hidden} wide, "
        f"{parameters:,} parameters; up to {counted(asked.epochs, 'epoch')}, lr {asked.lr:g}, seed {seed}"
    )
    with asked.progress(objective.metric) as progress:
        return siafu.train(
            graph, model, seed=seed, out=directory, resume=resume, progress=progress, **asked.keywords()
        )


def _train_often(graph: "Graph", asked: Train, directory: Path) -> dict[str, Any]:
    from siafu.report.files.run_directory import RunDirectory, write_json

    refuse_other_summary(directory / "summary.json")
    seeds = range(asked.seed, asked.seed + asked.runs)
    summaries = []
    for seed in seeds:
        path = directory / f"seed-{seed}"
        begun = asked.resume and RunDirectory(path).exists
        summary = _train_once(graph, asked, path, seed, resume=begun).summary()
        asked.say(f"seed {seed}: {scores(summary)}")
        summaries.append(summary)
    together = {
        **{name: summaries[0][name] for name in ("dataset", "model", "metric", "objective")},
        "seeds": list(seeds),
        **_means_and_deviations(summaries),
        "seconds_total": sum(summary["seconds_total"] for summary in summaries),
        "seconds_per_epoch": statistics.median(summary["seconds_per_epoch"] for summary in summaries),
        "peak_rss_bytes": max(summary["peak_rss_bytes"] for summary in summaries),
        "cost_usd": sum(summary["cost_usd"] or 0.0 for summary in summaries),
        "path": str(directory),
        "runs": summaries,
    }
    write_json(directory / "summary.json", together)
    return together


def _means_and_deviations(summaries: list[dict[str, Any]]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for field in ("train_accuracy", "val_accuracy", "test_accuracy"):
        values = [summary[field] for summary in summaries]
        known = None not in values
        found[field] = statistics.mean(values) if known else None
        found[f"{field}_std"] = statistics.stdev(values) if known else None
    return found


def new_directory(parent: Path, stem: str) -> Path:
    """A name that no run has yet."""
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in stem)
    name = f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path


def command_to_resume(directory: Path) -> str:
    """The command line that was given, to go on with the run."""
    given = [word for word in sys.argv[1:] if word not in ("--overwrite", "--resume")]
    if not any(word == "--out" or word.startswith("--out=") for word in given):
        given += ["--out", str(directory)]
    return shlex.join(["siafu", *given, "--resume"])
