"""Keywords: everything that `siafu.train` can be asked for, and the decorator that makes keywords of it."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from torch import nn

from siafu.base.option import described, option, options_of
from siafu.base.unknown_keyword import refuse_unknown_keyword
from siafu.graph import Graph
from siafu.options import Options, Session
from siafu.report.progress import Progress
from siafu.training.pace import Callback
from siafu.training.run import Run

Given = ParamSpec("Given")
Asked = TypeVar("Asked")


@dataclass(frozen=True, kw_only=True)
class Keywords(Session, Options):
    """The options of a run and of its session, and what only Python has."""

    dataset: str | None = option(
        None,
        "What `siafu.load` takes to get `graph` again, kept for `siafu evaluate` and `predict`.",
        unset="what it was loaded from",
    )
    progress: Progress | bool | None = option(
        None, "Told of every epoch.", more="True: lines on stderr, as the command line shows them."
    )
    callbacks: "Sequence[Callback] | Callback" = option(
        (),
        "Functions called after every epoch with an `EpochEnd`; they may stop the run and change learning rates.",
        more="See docs/loop.md.",
    )
    precision: str | None = option(
        None,
        "fp32; bf16: gathered rows in half the memory; mixed: products in bfloat16, too; auto: mixed if a trial says so.",
        unset="as the model's layers have it",
    )
    start: "str | Path | Run | nn.Module | None" = option(
        None,
        "Begin with the weights of another run or model.",
        more="A run, its directory, or a model.",
        unset="with the model's own",
    )

    def options(self) -> Options:
        """How to train, without the vertices' owners: a `Partition` is as large as the graph."""
        given = {"lambdas": self.lambdas, "objective": self.objective, "scheduler": self.scheduler}
        return Options(**self.as_json() | given)


class TrainFunction(Protocol[Given]):
    """A function that trains a model on a graph, with these keywords."""

    def __call__(
        self, graph: Graph, model: nn.Module, *none: Given.args, **keywords: Given.kwargs
    ) -> Run: ...


def keywords_of(
    declaration: Callable[Given, Asked],
) -> Callable[[Callable[[Graph, nn.Module, Asked], Run]], TrainFunction[Given]]:
    """Turn a function of a dataclass into one of its fields as keywords, and put them in its docstring at {keywords}.

    Type checkers find the keywords in the dataclass's constructor, which `Given` stands for: nothing is written twice, as a
    signature or a TypedDict would be. For `inspect`, and so for notebooks and the reference, they stand in `__signature__`.
    """

    def taking(trained: Callable[[Graph, nn.Module, Asked], Run]) -> TrainFunction[Given]:
        @functools.wraps(trained)
        def train(graph: Graph, model: nn.Module, *none: Given.args, **keywords: Given.kwargs) -> Run:
            refuse_unknown_keyword(keywords, declaration, "siafu.train")
            return trained(graph, model, declaration(*none, **keywords))

        own, more = inspect.signature(trained), inspect.signature(declaration)
        first = [own.parameters[name] for name in ("graph", "model")]
        train.__signature__ = own.replace(parameters=[*first, *more.parameters.values()])  # type: ignore[attr-defined]
        if train.__doc__ and isinstance(declaration, type):
            told = described(options_of(declaration).values()).replace("\n", "\n    ")
            train.__doc__ = train.__doc__.replace("{keywords}", told)
        return train

    return taking
