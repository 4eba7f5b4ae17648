"""One name, one home: a public class, and whatever else is spelt like one, is defined in one module."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import siafu

_SOURCE = Path(siafu.__file__).parent


def bound_names(module: ast.Module) -> Iterator[tuple[str, bool]]:
    """Names that a module binds at its top level, and whether each is a class."""
    for each in module.body:
        if isinstance(each, ast.ClassDef):
            yield each.name, True
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            yield from ((target.id, False) for target in targets if isinstance(target, ast.Name))


def shared_class_names(source: Path) -> list[str]:
    """Lines "NAME: FILE, FILE": public class names that more than one module below `source` defines."""
    homes: dict[str, set[str]] = defaultdict(set)
    classes: set[str] = set()
    for path in sorted(source.rglob("*.py")):
        for name, is_class in bound_names(ast.parse(path.read_text())):
            if not name.startswith("_"):
                homes[name].add(path.relative_to(source).as_posix())
                classes |= {name} if is_class else set()
    return [f"{name}: {', '.join(sorted(homes[name]))}" for name in sorted(classes) if len(homes[name]) > 1]


def test_no_public_class_shares_its_name() -> None:
    shared = shared_class_names(_SOURCE)
    assert not shared, "name one of each after what it is of:\n" + "\n".join(shared)


def test_a_class_defined_twice_is_told_with_its_files(tmp_path: Path) -> None:
    for name, content in {
        "a": "class Plan: ...\nclass _Own: ...",
        "b": "class Plan: ...",
        "c": "class _Own: ...",
    }.items():
        (tmp_path / f"{name}.py").write_text(content)
    assert shared_class_names(tmp_path) == ["Plan: a.py, b.py"]


def test_an_alias_may_not_be_spelt_like_a_class_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class Lane: ...")
    (tmp_path / "b.py").write_text('Lane = Literal["train", "evaluate"]')
    assert shared_class_names(tmp_path) == ["Lane: a.py, b.py"]


def test_two_modules_may_have_an_alias_of_the_same_name(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.py").write_text("Ids = list[int]")
    assert shared_class_names(tmp_path) == []
