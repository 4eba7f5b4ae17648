"""`--help` of commands with many options."""

import pytest

from tests.cli.command import Siafu

_HEIGHT = 75
"""Lines that a newcomer reads, on a terminal of 80 columns."""


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_help_shows_the_everyday_options_and_says_how_to_see_the_others(siafu: Siafu, command: str) -> None:
    shown = siafu(command, help=True).out
    assert len(shown.splitlines()) <= _HEIGHT
    for everyday in ("--model", "--epochs", "--lr", "--split", "--out", "--json"):
        assert everyday in shown
    assert "--update-every" not in shown
    assert f"siafu {command} --help-all" in " ".join(shown.split())
    assert "How the work is laid out" in " ".join(shown.split())


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_help_all_shows_every_option_also_after_help(siafu: Siafu, command: str) -> None:
    siafu(command, help=True)
    ended = siafu(command, help_all=True)
    assert ended.code == 0
    for option in ("--model", "--update-every", "--lambdas", "--instance", "--scratch", "--precision"):
        assert option in ended.out


def test_help_says_what_an_option_that_is_not_given_means(siafu: Siafu) -> None:
    assert "[default: (runs/DATASET-MODEL-DATE)]" in siafu("train", help=True).out
