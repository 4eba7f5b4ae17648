import gzip
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from siafu.cli import main
from siafu.graph import read_store

_SIAFU = [sys.executable, "-c", "from siafu.cli import main; main()"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.csv").write_text("src,dst,strength\n0,1,2\n1,2,3\n2,0,4\n")
    return tmp_path


def siafu(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["siafu", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_an_import_says_what_it_wrote(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--weight-column", "strength", "--undirected", "--memory-limit", "4GB", "--name", "ring"]
    assert siafu("import", "edges.csv", *options, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out
    assert said.startswith("wrote edges: 3 vertices, 6 edges in ")
    assert re.search(r" s \(\d[\d,]* edges/s\), peak memory ", said)
    graph = read_store(here / "edges")
    assert (graph.name, graph.num_edges, graph.is_symmetric) == ("ring", 6, True)


def test_an_import_names_columns_that_differ_much_in_scale(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "people.csv").write_text("id,age,income\n0,31,17000\n1,45,82000\n2,28,65000\n")
    arguments = ("import", "edges.csv", "--vertices", "people.csv", "-o", "my.store")
    assert siafu(*arguments, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().err
    assert "features differ much in scale: income reaches 82,000, age reaches 45" in said


def test_features_with_too_few_rows_are_named_as_the_cause(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(here / "x.npy", np.zeros((2, 4), np.float32))
    np.save(here / "y.npy", np.zeros(3, np.int64))
    for more in ([], ["--labels", "y.npy"]):
        arguments = ("import", "edges.csv", "--features", "x.npy", *more, "-o", "my.store")
        assert siafu(*arguments, monkeypatch=monkeypatch) == 2
        assert "x.npy have 2 rows, so many vertices are taken" in capsys.readouterr().err


def test_an_import_says_what_it_understood(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "people.csv").write_text("id,label,age,note\n0,cat,1,x\n1,dog,2,y\n2,cat,3,z\n")
    arguments = ("import", "edges.csv", "--vertices", "people.csv", "-o", "my.store")
    assert siafu(*arguments, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().err
    assert "edges: without weights, directed, from column src to column dst" in said
    assert "features: 1 a vertex (age)" in said
    assert "labels: 2 classes (cat, dog)" in said
    assert (
        "split: none, and training needs one: --split random:60/20/20 draws it, here or for 'siafu train'"
        in said
    )
    assert "not taken from edges.csv: strength" in said
    assert "not taken from people.csv: note" in said
    assert read_store(here / "my.store").name == "my"
    again = (*arguments, "--overwrite", "--split", "random:34/33/33", "--seed", "1")
    assert siafu(*again, monkeypatch=monkeypatch) == 0
    assert "split: 1 train, 1 val, 1 test" in capsys.readouterr().err
    assert siafu(*arguments, "--overwrite", "--split", "random:90/20/0", monkeypatch=monkeypatch) == 2
    assert "together at most 100" in capsys.readouterr().err


def test_a_split_without_a_class_in_train_is_told_by_import_and_training(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "people.csv").write_text("id,label,split,age\n0,cat,train,1\n1,cat,train,2\n2,dog,val,3\n")
    told = "check the split: train has no vertex of class dog;"
    arguments = ("import", "edges.csv", "--vertices", "people.csv", "-o", "my.store")
    assert siafu(*arguments, monkeypatch=monkeypatch) == 0
    assert told in capsys.readouterr().err
    trained = ("train", "my.store", "--epochs", "1", "--hidden", "8", "--out", "run")
    assert siafu(*trained, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().err.count(told) == 1


def test_an_index_that_pandas_wrote_is_no_feature_and_no_end_of_an_edge(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "edges.csv").write_text(",who,whom\n0,3,1\n1,1,2\n2,2,0\n")
    (here / "people.csv").write_text(",id,age\n0,3,31\n1,1,45\n2,2,28\n3,0,50\n")
    arguments = ("import", "edges.csv", "--vertices", "people.csv", "-o", "my.store", "--format", "text")
    assert siafu(*arguments, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().err
    assert "from column who to column whom" in said
    assert "features: 1 a vertex (age)" in said
    assert "not taken from edges.csv: '' (" in said
    assert "not taken from people.csv: ''" in said
    graph = read_store(here / "my.store")
    assert graph.x is not None and graph.x[:, 0].tolist() == [50, 45, 28, 31]
    asked = (*arguments, "--overwrite", "--feature-columns", ",age")
    assert siafu(*asked, monkeypatch=monkeypatch) == 0
    assert "features: 2 a vertex ('', age)" in capsys.readouterr().err


def test_classes_that_no_vertex_has_missing_labels_and_parallel_edges_are_counted(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "edges.csv").write_text("src,dst\n0,1\n0,1\n1,2\n0,1\n")
    (here / "people.csv").write_text("id,label\n0,10\n1,NA\n2,20\n3,\n")
    arguments = ("import", "edges.csv", "--vertices", "people.csv", "-o", "my.store")
    assert siafu(*arguments, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().err
    assert "labels: 21 classes, of which 2 occur; 2 vertices have no label" in said
    assert "2 edges more than once between the same vertices: --merge-parallel keeps one of each" in said
    assert siafu("info", "my.store", monkeypatch=monkeypatch) == 0
    assert "21 classes, of which 2 occur; 2 vertices have no label" in capsys.readouterr().out
    assert siafu(*arguments, "--overwrite", "--merge-parallel", monkeypatch=monkeypatch) == 0
    assert "more than once" not in capsys.readouterr().err


def test_decimal_commas_of_an_excel_export_are_read_and_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "people.csv").write_text("id;age;pay;note\n0;31,5;1.015;a,b\n1;45;-2.000,25;c\n2;28,25;900;d\n")
    arguments = ("import", "edges.csv", "--vertices", "people.csv", "-o", "my.store")
    assert siafu(*arguments, monkeypatch=monkeypatch) == 0
    assert "people.csv has decimal commas: 1,5 is read as 1.5, and 1.500 as 1500\n" in capsys.readouterr().err
    x = read_store(Path("my.store")).x
    assert np.array_equal(x, [[31.5, 1015], [45, -2000.25], [28.25, 900]])


def test_a_table_with_decimal_points_and_commas_is_not_guessed_at(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "people.csv").write_text("id;age;pay\n0;31,5;7.5\n1;45;8\n2;28,25;9\n")
    arguments = ("import", "edges.csv", "--vertices", "people.csv", "-o", "my.store")
    assert siafu(*arguments, monkeypatch=monkeypatch) == 0
    told = "not taken from people.csv: age (numbers with decimal commas: write 1.5 for 1,5) ("
    assert told in capsys.readouterr().err


WORDS = "Von;An;Betrag;Datum\nann;bob, jr.;7614,35;07.04.2023\nbob, jr.;eve;12,5;01.05.2023\n"


def test_a_header_above_dates_and_decimal_commas_is_no_edge(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "orders.csv").write_text(WORDS)
    (here / "firms.csv").write_text("Firma;Branche\nann;red\nbob, jr.;blue\neve;red\n")
    arguments = (
        "import",
        "orders.csv",
        "--vertices",
        "firms.csv",
        "--label-column",
        "Branche",
        "-o",
        "my.store",
    )
    assert siafu(*arguments, "--weight-column", "Betrag", monkeypatch=monkeypatch) == 0
    assert "from column Von to column An" in capsys.readouterr().err
    graph = read_store(Path("my.store"))
    assert (graph.num_vertices, graph.num_edges, graph.num_classes) == (3, 2, 2)
    assert sorted(graph.edge_weight) == [12.5, np.float32(7614.35)]


def test_a_first_row_of_words_that_is_taken_for_data_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "likes.csv").write_text("Who,Whom\nann,bob\nbob,eve\n")
    (here / "firms.csv").write_text("Person\nann\nbob\neve\n")
    arguments = ("import", "likes.csv", "--vertices", "firms.csv", "-o", "my.store")
    assert siafu(*arguments, monkeypatch=monkeypatch) == 0
    told = capsys.readouterr().err
    assert "likes.csv has no header: its first row is an edge from 'Who' to 'Whom' (if it names" in told
    assert "firms.csv has no header: its first row is the vertex 'Person' (if it names" in told
    arguments = (*arguments, "--header", "--id-column", "Person", "--overwrite")
    assert siafu(*arguments, monkeypatch=monkeypatch) == 0
    assert "first row" not in capsys.readouterr().err
    assert read_store(Path("my.store")).num_vertices == 3


def test_a_table_whose_labels_nobody_named_is_told_its_columns(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "people.csv").write_text("id,team,age\n0,red,3\n1,blue,4\n2,red,5\n")
    arguments = ("import", "edges.csv", "--vertices", "people.csv", "--split", "random:50/25/25")
    assert siafu(*arguments, monkeypatch=monkeypatch) == 2
    told = "people.csv has no column 'label', so no labels to draw a split of: name their column with --label-column (it has age, team)"
    assert told in capsys.readouterr().err


def test_an_empty_weight_is_said_to_be_missing_not_a_column(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "paid.csv").write_text("src,dst,paid,day\n0,1,3,5\n1,2,,6\n")
    assert siafu("import", "paid.csv", "--weight-column", "paid", monkeypatch=monkeypatch) == 2
    assert "paid.csv, line 3: there is nothing in column 'paid': fill it in" in capsys.readouterr().err


def test_a_workbook_is_refused_as_one_whichever_of_its_parts_comes_first(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(here / "edges.xlsx", "w") as book:
        book.writestr("docProps/app.xml", "x" * 1000)
        book.writestr("[Content_Types].xml", "")
    assert siafu("import", "edges.xlsx", monkeypatch=monkeypatch) == 2
    assert "edges.xlsx is a workbook: save its sheet as CSV" in capsys.readouterr().err


def test_words_that_are_read_as_no_label_are_told_and_sodium_is_a_class(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "people.csv").write_text("id,label\n0,Na\n1,NA\n2,Cl\n3,\n")
    arguments = ("import", "edges.csv", "--vertices", "people.csv", "-o", "my.store")
    assert siafu(*arguments, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().err
    assert "labels: 2 classes (Cl, Na); 2 vertices have no label" in said
    assert "read as no label: NA" in said


def test_a_column_without_a_name_that_is_not_taken_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "rows.tsv").write_text("0\t1\t2\n1\t0\t2\n2\t1\t0\n")
    assert siafu("import", "rows.tsv", "-o", "rows.store", monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().err
    assert "not taken from rows.tsv: column 2 (" in said
    assert "--format triples" in said
    weighted = ("import", "rows.tsv", "-o", "rows.store", "--overwrite", "--weight-column", "2")
    assert siafu(*weighted, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().err
    assert "edges: weighted" in said
    assert "not taken" not in said


def test_all_of_a_vertex_tables_columns_can_be_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "people.csv").write_text("who,kind,part,a,b\n0,1,train,5,7\n1,0,val,6,8\n2,1,test,7,9\n")
    columns = [
        "--id-column",
        "who",
        "--label-column",
        "kind",
        "--split-column",
        "part",
        "--feature-columns",
        "b",
    ]
    options = ["-o", "store", "--vertices", "people.csv", *columns, "--features-dtype", "bf16"]
    assert siafu("import", "edges.csv", *options, monkeypatch=monkeypatch) == 0
    graph = read_store(here / "store")
    assert graph.x is not None and graph.y is not None
    assert (graph.x.shape, graph.x.dtype) == ((3, 1), np.uint16)
    assert graph.y.tolist() == [1, 0, 1]


_BAD = {
    "missing file": (["nothing.csv"], "no file or folder nothing.csv: check the name"),
    "unknown column": (
        ["edges.csv", "--src-column", "from"],
        "edges.csv has no column 'from': it has src, dst, strength",
    ),
    "id out of range": (
        ["edges.csv", "--num-vertices", "2"],
        "edges.csv, line 3: id 2 in column 'dst' is out of range",
    ),
    "NaN features": (["edges.csv", "--features", "nan.npy"], "feature 1 of vertex 2 is NaN or infinite"),
    "wrong number of labels": (
        ["edges.csv", "--labels", "five.npy"],
        "there are 5 rows; give one for each of the 3",
    ),
    "overlapping splits": (["overlap.npz"], "vertex 1 is in both train and test"),
    "empty split": (["edges.csv", "--split", "empty.csv"], "train is empty"),
    "truncated gzip": (["cut.csv.gz"], "cut.csv.gz is cut off: its gzip data ends too early"),
    "bad number": (["bad.csv"], "bad.csv, line 4: 'x' in column 1 is not a whole number"),
    "too little memory": (["edges.csv", "--memory-limit", "1MB"], "a memory limit of 1 MB is too small"),
    "not a size": (["edges.csv", "--memory-limit", "much"], "'much' is not a size"),
    "existing store": (
        ["edges.csv", "-o", "there"],
        "there exists already: choose another name, or replace it with overwrite=True (--overwrite)",
    ),
    "unknown format": (["edges.csv", "--format", "xml"], "'xml'"),
    "unknown option": (["edges.csv", "--colour"], "No such option: --colour"),
}


@pytest.mark.parametrize(("arguments", "message"), _BAD.values(), ids=_BAD.keys())
def test_bad_input_is_one_line_and_exit_code_2(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    np.save(here / "nan.npy", np.array([[1, 2], [3, 4], [5, np.nan]]))
    np.save(here / "five.npy", np.arange(5))
    np.savez(here / "overlap.npz", src=[0, 1], dst=[1, 2], train_idx=[0, 1], test_idx=[1, 2])
    (here / "empty.csv").write_text("val\nval\ntest\n")
    (here / "cut.csv.gz").write_bytes(gzip.compress(os.urandom(9999).hex().encode())[:-100])
    (here / "bad.csv").write_text("0,1\n# note\n1,2\n2,x\n")
    (here / "there").mkdir()
    before = sorted(here.iterdir())
    assert siafu("import", *arguments, monkeypatch=monkeypatch) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("siafu: ")
    assert message in lines[0]
    assert sorted(here.iterdir()) == before


@pytest.fixture
def small_disk(here: Path) -> Iterator[Path]:
    """A directory on a disk of 1 MB."""
    disk = here / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "siafu-test", disk], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_is_one_line_and_exit_code_2(
    here: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(here / "large.npz", src=np.arange(10**6) % 1000, dst=np.arange(10**6) % 999, num_nodes=1000)
    assert siafu("import", "large.npz", "-o", str(small_disk / "store"), monkeypatch=monkeypatch) == 2
    assert "no space left on the disk" in capsys.readouterr().err
    assert list(small_disk.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_import_leaves_nothing_behind(here: Path, how: signal.Signals) -> None:
    (here / "edges.txt").write_bytes(b"123456 654321\n" * 8_000_000)
    out = here / "out"
    out.mkdir()
    arguments = ["import", "edges.txt", "-o", str(out / "store")]
    child = subprocess.Popen([*_SIAFU, *arguments], stderr=subprocess.PIPE)
    while not open_scratch_files(child.pid, out):
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.01)
        assert child.returncode is None, "the import ended before it could be killed"
    child.send_signal(how)
    child.communicate(timeout=60)
    assert child.returncode != 0
    assert list(out.iterdir()) == []


def open_scratch_files(process: int, directory: Path) -> list[Path]:
    """Files with content but without a name that the process has open in the directory."""
    found = []
    for link in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            target = link.readlink()
            if target.is_relative_to(directory) and target.name.endswith("(deleted)") and link.stat().st_size:
                found.append(target)
    return found


def test_a_pipe_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"0,1\n")
    os.close(writing)
    assert siafu("import", f"/dev/fd/{reading}", "--format", "text", "-o", "s", monkeypatch=monkeypatch) == 2
    assert "is a pipe" in capsys.readouterr().err
    os.close(reading)
