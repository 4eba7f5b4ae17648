"""The files around the code agree with each other: versions, supported Pythons, CI, citation, changelog."""

import re
import tomllib
from pathlib import Path

import yaml

from siafu.base.version import __version__

_REPOSITORY = Path(__file__).resolve().parents[1]
_PROJECT = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text())["project"]
_WORKFLOW = yaml.safe_load((_REPOSITORY / ".github" / "workflows" / "ci.yml").read_text())


def test_ci_runs_the_one_command_on_every_supported_python() -> None:
    (job,) = _WORKFLOW["jobs"].values()
    assert ".ci/run" in [step.get("run") for step in job["steps"]]
    classified = re.findall(r"Python :: (3\.\d+)'", str(_PROJECT["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == classified
    assert _PROJECT["requires-python"] == f">={classified[0]}"


def test_the_changelog_begins_with_this_version() -> None:
    headings = re.findall(r"(?m)^## (\S+)", (_REPOSITORY / "CHANGELOG.md").read_text())
    assert headings[0] == __version__


def test_the_version_is_written_in_one_place() -> None:
    citation = yaml.safe_load((_REPOSITORY / "CITATION.cff").read_text())
    assert "version" not in citation
    assert "version" in _PROJECT["dynamic"]


def test_the_citation_has_what_its_format_asks_for() -> None:
    citation = yaml.safe_load((_REPOSITORY / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["license"] == _PROJECT["license"]
