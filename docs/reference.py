"""What MkDocs cannot do by itself: pages made out of the code (command line, Python), and no page without a place.

A hook of MkDocs; `python docs/reference.py cli|api` prints a page.
"""

import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

# Everything that users may build upon, by page section.
API = {
    "Graphs": ["siafu.load", "siafu.Graph", "siafu.graph.importing.import_graph"],
    "Models": ["siafu.nn.GCN", "siafu.nn.GAT", "siafu.nn.GraphSAGE", "siafu.nn.GIN"],
    "Layers": [
        "siafu.nn.GCNConv",
        "siafu.nn.GATConv",
        "siafu.nn.GATv2Conv",
        "siafu.nn.SAGEConv",
        "siafu.nn.GINConv",
        "siafu.nn.Layer",
        "siafu.nn.features",
    ],
    "Gathers": [
        "siafu.nn.Sum",
        "siafu.nn.Mean",
        "siafu.nn.Max",
        "siafu.nn.GcnSum",
        "siafu.nn.Softmax",
        "siafu.nn.PairSoftmax",
    ],
    "Objectives": [
        "siafu.objective.objective.Objective",
        "siafu.objective.metric.Metric",
        "siafu.objective.vertex_classes.VertexClasses",
        "siafu.objective.vertex_labels.VertexLabels",
    ],
    "Planning": ["siafu.plan"],
    "Training": [
        "siafu.train",
        "siafu.compile",
        "siafu.training.step.TrainingStep",
        "siafu.sweep",
        "siafu.training.sweep.Sweep",
        "siafu.training.sweep.SweepRow",
        "siafu.Run",
        "siafu.read_metrics",
        "siafu.report.files.metrics.EpochMetrics",
        "siafu.report.progress.Progress",
    ],
    "Several types of vertices": ["siafu.VertexTypes", "siafu.nn.TypedLinear", "siafu.nn.RGCNConv"],
    "Links": ["siafu.train_links", "siafu.LinkRun"],
    "Ranks": ["siafu.train_ranks", "siafu.RankRun", "siafu.Interactions"],
    "Triples": ["siafu.train_triples"],
    "After training": ["siafu.correct_and_smooth", "siafu.label_propagation"],
    "Embeddings": ["siafu.embed", "siafu.EmbeddingRun", "siafu.Triples"],
    "Partitions": [
        "siafu.graph.partition.make_partition",
        "siafu.graph.partition.measure",
        "siafu.graph.partition.local_graph",
        "siafu.graph.partition.intervals",
    ],
    "Errors": [
        "siafu.SiafuError",
        "siafu.errors.BadInput",
        "siafu.errors.Interrupted",
        "siafu.errors.Diverged",
    ],
}

_FIELD = re.compile(r"([a-z_]\w*(?:, [a-z_]\w*)*):\s+(.+)")
_OUTWARD = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")
_CODE = re.compile(r"(`[^`]*`)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A page that mkdocs.yml does not place still gets a place: the last."""
    placed = set(re.findall(r"[\w-]+\.md", repr(config.nav)))
    other = sorted({path.name for path in Path(config.docs_dir).glob("*.md")} - placed)
    if other and config.nav is not None:
        config.nav.append({"More": other})
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to the repository's other files lead nowhere from the site: their text remains."""
    return _OUTWARD.sub(r"\1", markdown)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """MkDocs asks for more files."""
    for name, text in {"cli.md": cli_page(), "api.md": api_page()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def cli_page() -> str:
    """Every command with its arguments and options."""
    from siafu.cli import app

    command = typer.main.get_command(app)
    intro = "# Command line\n\nMade from the commands themselves; `siafu COMMAND --help` says the same.\n"
    return "\n".join([intro, *_command_sections(command, ["siafu"])])


def api_page() -> str:
    """Everything in API, as its docstring says."""
    lines = ["# Python", "", "Made from the docstrings. What is not here is Siafu's own and may change.", ""]
    for title, names in API.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += _entry(name)
    return "\n".join(lines)


def _command_sections(command: Any, path: list[str]) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _command_sections(inner, [*path, name])
        return
    usage = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    words = " ".join(_argument(parameter) for parameter in usage)
    yield f"## {' '.join(path)}\n\n    {' '.join(path)} {words} [options]\n"
    yield _unwrapped(command.help or "") + "\n"
    rows = [
        _parameter_row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)
    ]
    if rows:
        yield "| | | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _argument(parameter: Any) -> str:
    name: str = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _parameter_row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        written, told = _argument(parameter), getattr(parameter, "help", None) or ""
    else:
        flags = ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])
        kind = "" if parameter.is_flag else f" {parameter.metavar or _kind(parameter)}"
        written, told = flags + kind, parameter.help or ""
    default = parameter.default
    said = getattr(parameter, "show_default", None)  # text: what a value means that is not given
    is_plain = default is not None and default is not False and not callable(default)
    shown = said if isinstance(said, str) else f"{default}" if is_plain else ""
    return f"| {_cell(written)} | {_cell(told)} | {_cell(shown)} |"


def _kind(parameter: Any) -> str:
    # By the default, since what else tells the type is another in each version of typer.
    kinds: dict[type, str] = {int: "N", float: "X"}
    return kinds.get(type(parameter.default), "VALUE")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _entry(name: str) -> list[str]:
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    lines = [
        f"### `{name}`",
        "",
        "```text",
        *_wrapped(_signature(attribute, found)),
        "```",
        "",
        *_docstring(found),
        "",
    ]
    if inspect.isclass(found):
        for method, function in _methods(found):
            lines += [f"`.{_signature(method, function)}`", "", *_indented(_docstring(function)), ""]
    return lines


def _methods(found: type) -> Iterator[tuple[str, Any]]:
    """Public methods of the class itself, which say what they are for."""
    for name, member in vars(found).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
            yield name, function


def _signature(name: str, found: Any) -> str:
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return name
    kept = [
        parameter.replace(annotation=parameter.empty)
        for key, parameter in signature.parameters.items()
        if key not in ("self", "cls")
    ]
    short = signature.replace(parameters=kept, return_annotation=signature.empty)
    return name if inspect.isclass(found) and issubclass(found, Exception) else f"{name}{short}"


def _wrapped(signature: str) -> list[str]:
    indent = " " * (signature.index("(") + 1 if "(" in signature else 0)
    return textwrap.wrap(signature, 96, subsequent_indent=indent, break_long_words=False)


def _docstring(found: Any) -> list[str]:
    """A docstring as Markdown: our lines of `name:  meaning` become a list, everything else stays as it is."""
    text = inspect.getdoc(found) or ""
    if dataclasses.is_dataclass(found) and text.startswith(f"{getattr(found, '__name__', '')}("):
        return []
    lines: list[str] = []
    in_fields = False
    for number, line in enumerate(text.splitlines()):
        match = _FIELD.fullmatch(line)
        if match and number > 0:
            if not in_fields and lines[-1]:
                lines.append("")
            in_fields = True
            names = ", ".join(f"`{word.strip()}`" for word in match[1].split(","))
            lines.append(f"- {names}: {_escaped(match[2])}")
        elif in_fields and line.startswith(" "):
            lines[-1] += f" {_escaped(line.strip())}"
        else:
            in_fields = in_fields and not line
            lines.append(_escaped(line) if not line.startswith("    ") else line)
    return lines


def _escaped(text: str) -> str:
    """Text as Markdown, its code spans as they are."""
    pieces = _CODE.split(text)
    return "".join(
        piece if piece.startswith("`") else piece.replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*")
        for piece in pieces
    )


def _indented(lines: list[str]) -> list[str]:
    return [f":   {line}" if place == 0 else f"    {line}" for place, line in enumerate(lines)]


def _unwrapped(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


if __name__ == "__main__":
    print({"cli": cli_page, "api": api_page}[sys.argv[1]]())
