"""`siafu embed`: vectors of entities and relations, learnt from triples; and questions to them."""

import difflib
import json
import shlex
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from siafu.base.dataset_names import refuse_unknown_name
from siafu.base.errors import BadInput, Interrupted
from siafu.base.loading import loading
from siafu.base.option import REQUIRED, argument, option, options_of
from siafu.base.storage.absent import refuse_absent_dataset, refuse_absent_directory
from siafu.base.words import counted
from siafu.cli.common import say, show
from siafu.cli.declared import add_commands, command, json_flag, out_file
from siafu.cli.early import refuse_tiny_budget
from siafu.cli.embed_plan import plan
from siafu.cli.train import command_to_resume, new_directory
from siafu.embedding.embed_options import EmbedOptions, EmbedSession

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from siafu.embedding.embedding_run import EmbeddingRun
    from siafu.report.progress import Progress

_TRAIN = "train"


class _TrainUnlessNamed(TyperGroup):
    """`siafu embed STORE` is `siafu embed train STORE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            _refuse_mistyped(args[0], list(self.commands))
            args = [_TRAIN, *args]
        return super().parse_args(ctx, args)


def _refuse_mistyped(word: str, commands: list[str]) -> None:
    """Refuse a word that is nearly a command's name, if there is no store of that name."""
    near = difflib.get_close_matches(word, commands, n=1, cutoff=0.75)
    if near:
        try:
            refuse_unknown_name(word)
        except BadInput:
            raise BadInput(f"no command or store {word!r}: did you mean 'siafu embed {near[0]}'?") from None


app = typer.Typer(
    cls=_TrainUnlessNamed,
    help="Learn embeddings of a store of triples (siafu embed STORE; its options: siafu embed train --help), and ask them.",
    no_args_is_help=True,
)


@dataclass(frozen=True, kw_only=True)
class Embed(EmbedSession, EmbedOptions):
    """Options of `siafu embed`."""

    store: Path = argument(
        "STORE", "A store of triples, as siafu import writes it; or a graph's store, or its name."
    )
    out: Path | None = option(None, "The run's directory.", unset="runs/STORE-SCORE-DATE")
    quiet: bool = option(False, "Say nothing but what is wrong.")
    json: bool = option(False, "Print one JSON object as the last line of stdout.")

    def say(self, text: str) -> None:
        """Print a line on stderr, unless the command is quiet."""
        if not self.quiet:
            say(text)

    def progress(self) -> "AbstractContextManager[Progress]":
        """Shows the run on stderr while it lasts."""
        from siafu.embedding.evaluation import MRR
        from siafu.report.progress import Progress, ProgressLine

        return nullcontext(Progress()) if self.quiet else ProgressLine(self.epochs, metric=MRR)

    def keywords(self) -> dict[str, Any]:
        """Keywords that `siafu.embed` is called with, but for the directory."""
        shared = {
            name: getattr(self, name) for each in (EmbedOptions, EmbedSession) for name in options_of(each)
        }
        del shared["out"]
        return shared


def train(asked: Embed) -> None:
    """Learn a vector for every entity and every relation of a store of triples, and save the run.

    Ctrl-C saves a checkpoint and says how to go on.
    """
    if asked.resume and asked.out is None:
        raise BadInput("--resume needs --out: name the directory of the run to go on with")
    if asked.resume and asked.overwrite:
        raise BadInput("--resume goes on with a run and --overwrite replaces it: choose one")
    refuse_tiny_budget(asked.memory)
    refuse_absent_directory(asked.scratch)
    refuse_absent_dataset(str(asked.store))
    refuse_unknown_name(str(asked.store))
    if asked.out is not None and not asked.resume:
        from siafu.report.files.run_directory import RunDirectory

        RunDirectory(asked.out).refuse_to_replace(overwrite=asked.overwrite)
    with loading():
        import siafu.embedding.embed
        from siafu.graph.triples import triples_at

    triples = triples_at(asked.store)
    counts = (len(triples.train), len(triples.valid), len(triples.test))
    asked.say(
        f"{triples.name}: {triples.num_entities:,} entities, {counted(triples.num_relations, 'relation')}, "
        f"{counts[0]:,} triples to train on, {counts[1]:,} to validate, {counts[2]:,} to test"
    )
    directory = asked.out or new_directory(Path("runs"), f"{triples.name}-{asked.score}")
    try:
        with asked.progress() as progress:
            run = siafu.embed(triples, out=directory, progress=progress, **asked.keywords())
    except Interrupted as stopped:
        raise Interrupted(f"{stopped}: {command_to_resume(directory)}", stopped.signal) from None
    summary = run.summary()
    for line in _told(summary):
        asked.say(line)
    if asked.json:
        print(json.dumps(summary), flush=True)


def _told(summary: dict[str, Any]) -> Iterable[str]:
    from siafu.report.progress import duration

    path = shlex.quote(summary["path"])
    among = "" if summary["candidates"] is None else f" among {summary['candidates']:,} sampled candidates"
    for split, name in (("val", "validation"), ("test", "test")):
        if summary[f"{split}_mrr"] is not None:
            hits = ", ".join(f"Hits@{k} {summary[f'{split}_hits_at_{k}']:.4f}" for k in (1, 3, 10))
            yield f"{name}: filtered MRR{among} {summary[f'{split}_mrr']:.4f}, {hits}"
    yield (
        f"best epoch {summary['best_epoch']} of {summary['epochs']}, {duration(summary['seconds_total'])}, "
        f"{summary['triples_per_second']:,.0f} triples/s; loss {summary['train_loss']:.4f}"
    )
    if summary["swaps"]:
        read, written = summary["bytes_read"] / 1e9, summary["bytes_written"] / 1e9
        hidden = 1 - min(1.0, summary["disk_waited_seconds"] / max(summary["disk_seconds"], 1e-9))
        yield (
            f"{summary['swaps']:,} partitions swapped, {read:,.1f} GB read and {written:,.1f} GB written; "
            f"{100 * hidden:.0f} % of the disk's time was hidden behind training"
        )
    yield f"saved in {path}"
    yield f"next: siafu embed predict {path} --head NAME --relation NAME"
    yield f"      siafu embed neighbours {path} NAME"
    yield f"      siafu embed export {path} vectors.{'parquet' if find_spec('pyarrow') else 'npy'}"


_run = partial(argument, "RUN", "The run's directory.")
_store = partial(option, None, "Where its triples are now.", unset="where they were")
_top = partial(option, 10, "How many answers.", least=1)


def _loaded(run: Path, store: Path | None) -> "EmbeddingRun":
    import siafu

    return siafu.EmbeddingRun.load(run, store)


def predict(
    run: Path = _run(),
    head: str | None = option(None, "The entity whose tails are asked for.", metavar="NAME"),
    relation: str | None = option(None, "The relation.", metavar="NAME"),
    tail: str | None = option(None, "The entity whose heads are asked for.", metavar="NAME"),
    top: int = _top(),
    new: bool = option(False, "Leave out answers that the triples have already."),
    store: Path | None = _store(),
    as_json: bool = json_flag(),
) -> None:
    """Show the likeliest tails of (head, relation, ?), or heads of (?, relation, tail)."""
    found = _loaded(run, store).predict(head, relation, tail, top=top, new=new)
    asked = {"head": head, "relation": relation, "tail": tail}
    _show_answers(asked, found, "score", as_json=as_json)


def neighbours(
    run: Path = _run(),
    entity: str = argument("ENTITY", "Its name."),
    top: int = _top(),
    store: Path | None = _store(),
    as_json: bool = json_flag(),
) -> None:
    """Show the entities with the most similar vectors."""
    found = _loaded(run, store).neighbours(entity, top=top)
    _show_answers({"entity": entity}, found, "cosine", as_json=as_json)


def score(
    run: Path = _run(),
    triples: Path = argument("TRIPLES", "A file of triples, by the names of the training data."),
    output: Path | None = out_file("A .csv file.", unset="CSV to stdout"),
    store: Path | None = _store(),
) -> None:
    """Write the score of each triple of a file: the higher, the likelier."""
    import sys

    from siafu.base.storage.files import replacing
    from siafu.embedding.questions.scored_file import write_scores

    answers = _loaded(run, store).answers
    if output is None:
        write_scores(answers, triples, sys.stdout.buffer)
        return
    with replacing(output) as file:
        count = write_scores(answers, triples, file)
    say(f"wrote {count:,} scores to {output}")


def export(
    run: Path = _run(),
    output: Path = argument("FILE", "Ends in .parquet, .npy, or .txt or .vec (word2vec's text)."),
    relations: bool = option(False, "The relations' vectors in place of the entities'."),
    store: Path | None = _store(),
) -> None:
    """Write the vectors with the names of what they are of."""
    found = _loaded(run, store)
    found.export(output, relations=relations)
    count, width = (found.embeddings.relations if relations else found.embeddings.entities).shape
    say(f"wrote {count:,} vectors, {width} wide, to {output}")


def features(
    run: Path = _run(),
    graph: str = argument("GRAPH", "A graph's store, or a dataset's name."),
    output: Path = option(REQUIRED, "The new store.", flags=("--output", "-o")),
    alone: bool = option(False, "Leave the graph's own features out."),
    overwrite: bool = option(False, "Replace the store if it exists."),
    store: Path | None = _store(),
) -> None:
    """Write a graph's store with the vectors as features of the vertices of the same names, for siafu train."""
    import siafu
    from siafu.embedding.questions.vertex_features import with_vectors

    found, known = with_vectors(siafu.load(graph), _loaded(run, store).answers, alone=alone)
    found.save(output, overwrite=overwrite)
    assert found.x is not None
    without = found.num_vertices - known
    rest = f"; {without:,} are no entities, and have zeros" if without else ""
    say(f"wrote {output}: {found.num_vertices:,} vertices with {found.x.shape[1]} features{rest}")


def _show_answers(asked: dict[str, Any], found: list[tuple[Any, float]], what: str, *, as_json: bool) -> None:
    answers = [{"entity": name, what: score} for name, score in found]
    show({**asked, "answers": answers}, (f"{score:10.4f}  {name}" for name, score in found), as_json=as_json)


add_commands(app, predict, neighbours, score, export, features, plan)
app.command(_TRAIN)(command(train))
