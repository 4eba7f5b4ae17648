"""Damaged run directories: each of some 450 seeded cases ends in one clear line, or in the very answers of the whole run."""

import json
import resource
import shutil
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest
import torch
from torch import Tensor

import siafu
from siafu.base.errors import BadInput
from siafu.report.files.checkpoint import load_tensors, save_tensors
from siafu.report.files.metrics import EpochMetrics
from siafu.server import plan
from siafu.training.run import Run
from tests.mutations.damage import Damage, byte_damage, json_damage
from tests.sessions import gcn, timeless
from tests.toys import toy_graph

pytestmark = pytest.mark.slow

EPOCHS = 2
GRAPH = toy_graph(30)
HANG_SECONDS = 60
ROOM = (
    1 << 30
)  # of address space beyond what the whole run takes: threads' arenas take some, huge lengths take more
PYTHON_ROOM = 4 << 20  # beyond twice the files, for what the interpreter holds

Answers = tuple[Tensor, object, object]


@dataclass(frozen=True)
class Whole:
    """A run that is not damaged, and its answers."""

    path: Path
    loaded: Answers
    resumed: Answers
    size: int


def load(run: Path) -> Answers:
    """What predict, evaluate and the summary say."""
    found = Run.load(run)
    return found.logits(GRAPH), found.evaluate(GRAPH), {**found.summary(), "path": None}


def resume(run: Path, epochs: int = EPOCHS + 1) -> Answers:
    """What one epoch more comes to."""
    found = siafu.train(GRAPH, gcn(GRAPH), epochs=epochs, out=run, resume=True, trace="off")
    history: list[EpochMetrics] = timeless(found.history)
    return found.logits(GRAPH), history, sorted(found.model.state_dict())


def end_again(run: Path) -> Answers:
    """What resuming a run says that has nothing left to do."""
    return resume(run, EPOCHS)


@pytest.fixture(scope="module")
def compiled_once() -> Iterator[None]:
    """All models here are of one shape: compiling one again takes ten times as long as the rest of a case."""
    programs = plan.compile_programs(GRAPH, gcn(GRAPH), plan.rows_of(GRAPH)["train"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "compile_programs", lambda *given, **options: programs)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    siafu.train(GRAPH, gcn(GRAPH), epochs=EPOCHS, out=folder / "run", checkpoint_every=0)
    size = sum(file.stat().st_size for file in (folder / "run").iterdir())
    copy = shutil.copytree(folder / "run", folder / "copy")
    return Whole(folder / "run", load(folder / "run"), resume(copy), size)


@pytest.fixture(autouse=True)
def limits(whole: Whole) -> Iterator[None]:
    """A hang, or memory of a size that only a damaged file asks for, is an error."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, hard))
    before = signal.signal(signal.SIGALRM, _hangs)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _hangs(number: int, frame: FrameType | None) -> None:
    raise AssertionError("it hangs")


def refused_or_the_same(what: Callable[[Path], Answers], run: Path, expected: Answers) -> str | None:
    """None: as it should be; else what is wrong."""
    signal.alarm(HANG_SECONDS)
    try:
        found = what(run)
    except BadInput as refusal:
        return "several lines" if "\n" in str(refusal) else None
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    same = torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
    return None if same else "another answer"


def measured(what: Callable[[Path], Answers], most: int) -> Callable[[Path], Answers]:
    """The same, and an error if it holds more at once than it may."""

    def run_measured(run: Path) -> Answers:
        tracemalloc.start()
        try:
            return what(run)
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak <= most, f"it held {peak} bytes"

    return run_measured


def check(
    whole: Whole, folder: Path, case: str, damage: Callable[[Path], None], *, resumes: bool
) -> list[str]:
    """What is wrong with a damaged copy of the run, operation by operation."""
    most = 2 * whole.size + PYTHON_ROOM
    operations: list[tuple[Callable[[Path], Answers], Answers]] = [(measured(load, most), whole.loaded)]
    if resumes:
        operations.append((resume, whole.resumed))
    wrong = []
    for number, (what, expected) in enumerate(operations):
        run = folder / f"{number}"
        shutil.copytree(whole.path, run)
        damage(run)
        said = refused_or_the_same(what, run, expected)
        shutil.rmtree(run)
        if said is not None:
            wrong.append(f"{case}, {('load', 'resume')[number]}: {said}")
    return wrong


def check_all(
    whole: Whole,
    folder: Path,
    seeds: range,
    damage_of: Callable[[int], Damage],
    apply: Callable[[Damage, Path], None],
    *,
    resumes: bool = True,
) -> None:
    wrong: list[str] = []
    for seed in seeds:
        damage = damage_of(seed)
        case = f"seed {seed}, {damage.name}"
        wrong += check(whole, folder, case, lambda run, each=damage: apply(each, run), resumes=resumes)
    assert not wrong, "\n".join(wrong)


def in_file(name: str) -> Callable[[Damage, Path], None]:
    def apply(damage: Damage, run: Path) -> None:
        (run / name).write_bytes(damage((run / name).read_bytes()))

    return apply


@pytest.mark.parametrize("name", ["model.safetensors", "summary.json"])
def test_damaged_bytes_of_what_an_answer_is_made_of(whole: Whole, tmp_path: Path, name: str) -> None:
    check_all(whole, tmp_path, range(57), byte_damage, in_file(name), resumes=False)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "checkpoint.safetensors"])
def test_damaged_bytes_of_what_a_run_resumes_from(whole: Whole, tmp_path: Path, name: str) -> None:
    check_all(whole, tmp_path, range(38), byte_damage, in_file(name))


@pytest.mark.parametrize("name", ["facts.json", "trace.json"])
def test_damaged_bytes_of_what_is_only_shown(whole: Whole, tmp_path: Path, name: str) -> None:
    check_all(whole, tmp_path, range(6), byte_damage, in_file(name))


def test_a_damaged_summary(whole: Whole, tmp_path: Path) -> None:
    check_all(whole, tmp_path, range(33), json_damage, in_file("summary.json"), resumes=False)


def test_a_damaged_config(whole: Whole, tmp_path: Path) -> None:
    check_all(whole, tmp_path, range(33), json_damage, in_file("config.json"))


def test_a_damaged_line_of_metrics(whole: Whole, tmp_path: Path) -> None:
    def apply(damage: Damage, run: Path) -> None:
        first, *rest = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        (run / "metrics.jsonl").write_bytes(damage(first) + b"\n" + b"".join(rest))

    check_all(whole, tmp_path, range(33), json_damage, apply)


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoint.safetensors"])
def test_a_damaged_header_of_tensors(whole: Whole, tmp_path: Path, name: str) -> None:
    def apply(damage: Damage, run: Path) -> None:
        content = (run / name).read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header = damage(content[8:end])
        (run / name).write_bytes(len(header).to_bytes(8, "little") + header + content[end:])

    check_all(whole, tmp_path, range(22), json_damage, apply, resumes=name.startswith("checkpoint"))


def test_a_state_that_was_written_wrong(whole: Whole, tmp_path: Path) -> None:
    """The checksum is right: the state itself is not what a run writes."""

    def apply(damage: Damage, run: Path) -> None:
        tensors, state = load_tensors(run / "checkpoint.safetensors")
        text = damage(json.dumps({**state, "seconds": 1.0}).encode())
        try:
            damaged = json.loads(text)
            save_tensors(run / "checkpoint.safetensors", tensors, damaged)
        except (ValueError, RecursionError):  # such a state cannot be written at all
            (run / "checkpoint.safetensors").write_bytes(b"")

    check_all(whole, tmp_path, range(44), json_damage, apply)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "summary.json", "checkpoint.safetensors", "metrics.jsonl"]
)
def test_a_missing_file(whole: Whole, tmp_path: Path, name: str) -> None:
    wrong = check(
        whole, tmp_path, name, lambda run: (run / name).unlink(), resumes=name != "checkpoint.safetensors"
    )
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_weights_of_a_run_that_has_nothing_left_to_do(
    whole: Whole, tmp_path: Path, seed: int
) -> None:
    run = Path(shutil.copytree(whole.path, tmp_path / "run"))
    expected = end_again(run)
    in_file("model.safetensors")(byte_damage(seed), run)
    assert refused_or_the_same(end_again, run, expected) is None
    assert (
        refused_or_the_same(lambda path: load(path)[:1] + expected[1:], run, whole.loaded[:1] + expected[1:])
        is None
    )
