"""The pages that are made out of the code."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import typer

import siafu
from siafu.cli import app


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "reference", Path(__file__).resolve().parents[2] / "docs" / "reference.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_and_every_option_of_it_is_on_the_page(reference: ModuleType) -> None:
    page = reference.cli_page()
    todo = [("siafu", typer.main.get_command(app))]
    while todo:
        path, command = todo.pop()
        inner = getattr(command, "commands", {})
        todo += [(f"{path} {name}", each) for name, each in inner.items()]
        if inner:
            continue
        section = re.search(rf"(?ms)^## {re.escape(path)}$(.*?)(?=^## |\Z)", page)
        assert section is not None, path
        for parameter in command.params:
            assert parameter.param_type_name == "argument" or f"`{parameter.opts[0]}`" in section[1], (
                parameter.name
            )


def test_everything_that_siafu_gives_is_on_the_page(reference: ModuleType) -> None:
    page = reference.api_page()
    for name in siafu.__all__:
        assert f"siafu.{name}" in page


def test_everything_on_the_page_says_what_it_is_for(reference: ModuleType) -> None:
    page = reference.api_page()
    for names in reference.API.values():
        for name in names:
            entry = page.split(f"### `{name}`\n")[1].split("\n### ")[0]
            told = re.sub(r"```text\n.*?```", "", entry, flags=re.DOTALL)
            assert re.search(r"\w{3,}", told), name


def test_fields_of_a_docstring_become_a_list_and_code_stays_code(reference: ModuleType) -> None:
    def example() -> None:
        """What it does.

        rows:  [V, F] of `x[0]`, and
               more of it
        a, b:  two

        The end.
        """

    assert reference._docstring(example) == [
        "What it does.",
        "",
        "- `rows`: \\[V, F] of `x[0]`, and more of it",
        "- `a`, `b`: two",
        "",
        "The end.",
    ]
