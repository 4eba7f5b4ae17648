"""A file of options for `--config`: TOML, or the config.json of a run that is to be trained again."""

import difflib
import tomllib
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.option import options_of
from siafu.base.storage.documents import one_line, parse_json
from siafu.training.recipe import Recipe

_MOST_BYTES = 1 << 20


def read_config(path: Path, declaration: type) -> dict[str, Any]:
    """The options in a file, by name; one that the dataclass does not declare, or that cannot be, is refused."""
    known = options_of(declaration)
    given = {key: value for key, value in _found(path).items() if value is not None}
    for key, value in given.items():
        if key not in known:
            like = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {like[0]}?" if like else "see siafu train --help, with _ for -"
            raise BadInput(f"{path}: there is no option {one_line(key)}: {hint}")
        try:
            known[key].check_kind(value)
            known[key].check(value)
        except BadInput as error:
            raise BadInput(f"{path}: {one_line(error)}") from None
    return given


def _found(path: Path) -> dict[str, Any]:
    is_toml = path.suffix.lower() == ".toml"
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
        found = tomllib.loads(content.decode()) if is_toml else parse_json(content)
        if not isinstance(found, dict):
            raise ValueError("it is no object with keys")
    except (ValueError, RecursionError) as error:
        kind = "TOML" if is_toml else "JSON"
        raise BadInput(
            f"{path} is not readable {kind} ({one_line(error)}): name a TOML file, or a run's config.json"
        ) from None
    return _of_run(path) if "format" in found else found


def _of_run(path: Path) -> dict[str, Any]:
    """The options that a run was asked for. Where its session ran and was saved is not kept, and is chosen anew."""
    from siafu.report.files.run_directory import read_run_config

    config = read_run_config(path)
    if config.get("kind") in ("links", "ranks"):
        raise BadInput(f"{path} is of siafu.train_{config['kind']}: train it again from Python")
    try:
        model = Recipe.arguments_of(config["model"]["name"], config["model"]["config"])
        return {"dataset": config["dataset"], **model, **config["training"]}
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path} lacks or misnames {one_line(error)}: copy the run again") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
