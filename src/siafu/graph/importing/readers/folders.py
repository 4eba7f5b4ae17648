"""Files of a folder that is read as one input: none of them lies elsewhere."""

from pathlib import Path

from siafu.base.errors import BadInput


def file_inside(folder: Path, name: str, said_by: Path | None = None) -> Path:
    """The path of the folder's file `name`, if neither its name nor a link leads out of the folder.

    said_by: the file that names it; None: the folder's layout does
    """
    said = "" if said_by is None else f": {said_by} names it"
    if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
        raise BadInput(
            f"{name!r} is not in {folder}{said}; name files by their path within the folder, and put them there"
        )
    path = folder / name
    try:
        real = path.resolve(strict=True)
        if not real.is_file():
            raise FileNotFoundError
    except (OSError, RuntimeError) as error:  # RuntimeError: links that go round in a circle
        raise BadInput(f"no file {path}{said}") from error
    if not real.is_relative_to(folder.resolve()):
        raise BadInput(f"{path} is a link to {real}, outside of the folder{said}; copy it there")
    return path
