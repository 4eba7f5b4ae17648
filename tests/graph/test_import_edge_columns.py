"""Features and types of edges, imported from every format: each stays with its edge."""

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph
from tests.cli.command import Siafu
from tests.graph.imports import imported

RNG = np.random.default_rng(5)
COUNT = 4000
SRC, DST = RNG.integers(0, 90, COUNT), RNG.integers(0, 90, COUNT)  # parallel edges and self-loops among them
ATTR = RNG.standard_normal((COUNT, 3)).astype(np.float32).round(3)
TYPE = RNG.integers(0, 4, COUNT)
WORDS = np.array(["zebra", "ant", "ümlaut", "bee"])


@pytest.fixture
def siafu_command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Siafu:
    return Siafu(monkeypatch, capfd)


def rows_of(graph: Graph) -> list[tuple[Any, ...]]:
    """Every edge with what it has, sorted."""
    names = np.arange(graph.num_vertices) if graph.ids is None else graph.ids
    target = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    attr = np.zeros((graph.num_edges, 0)) if graph.edge_attr is None else graph.edge_attr
    kind = np.zeros(graph.num_edges) if graph.edge_type is None else graph.edge_type
    labels = [graph.type_names[each] for each in kind] if graph.type_names else kind.tolist()
    weight = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    ends = zip(names[graph.indices].tolist(), names[target].tolist(), strict=True)
    return sorted(
        (*pair, w, *row, t)
        for pair, w, row, t in zip(ends, weight.tolist(), attr.tolist(), labels, strict=True)
    )


def expected(labels: Any = TYPE, weight: Any = None, names: Any = None) -> list[tuple[Any, ...]]:
    ends = [SRC, DST] if names is None else [names[SRC], names[DST]]
    weights = np.ones(COUNT) if weight is None else weight
    columns = [
        *(each.tolist() for each in ends),
        weights.tolist(),
        *ATTR.T.tolist(),
        np.asarray(labels).tolist(),
    ]
    return sorted(zip(*columns, strict=True))


def write_csv(path: Path, header: list[str], *columns: Any) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(zip(*columns, strict=True))
    return path


def test_columns_of_text_with_names_types_by_name_and_weights_in_little_memory(tmp_path: Path) -> None:
    names = np.array([f"v{number}".encode() for number in range(90)])
    weight = RNG.random(COUNT).astype(np.float32).round(3)
    texts = [each.astype(str) for each in (names[SRC], names[DST])]
    header = ["kind", "src", "dst", "len", "age", "weight", "depth", "note"]
    source = write_csv(
        tmp_path / "edges.csv", header, WORDS[TYPE], *texts, *ATTR.T[:2], weight, ATTR[:, 2], ["-"] * COUNT
    )
    from siafu.graph.importing.importer import ImportOptions, import_graph
    from siafu.graph.importing.inputs import InputOptions
    from siafu.graph.importing.readers.columns import EdgeColumns

    columns = EdgeColumns(features=("len", "age", "depth"), type="kind")
    done = import_graph(source, tmp_path / "store", ImportOptions(InputOptions(columns=columns)))
    graph = siafu.load(str(tmp_path / "store"))
    assert graph.type_names == ("ant", "bee", "zebra", "ümlaut")
    assert rows_of(graph) == expected(WORDS[TYPE], weight, names)
    assert done.ignored == {"edges.csv": ("note",)} and done.num_edge_features == 3 and done.num_types == 4
    graph.save(tmp_path / "again")
    assert siafu.load(str(tmp_path / "again")).type_names == graph.type_names


def test_an_edge_and_its_reverse_have_the_same_features_and_type(tmp_path: Path) -> None:
    header = ["src", "dst", "edge_type", "edge_attr_0", "edge_attr_1", "edge_attr_2"]
    graph = imported(write_csv(tmp_path / "e.csv", header, SRC, DST, TYPE, *ATTR.T), undirected=True)
    theirs = Graph.from_edges(SRC, DST, edge_attr=ATTR, edge_type=TYPE, undirected=True, num_vertices=90)
    assert rows_of(graph) == rows_of(theirs) and graph.is_symmetric


@pytest.mark.parametrize("layout", ["list", "csr"])
def test_arrays_of_npz(tmp_path: Path, layout: str) -> None:
    order = np.argsort(SRC, kind="stable") if layout == "csr" else np.arange(COUNT)
    if layout == "csr":
        counts = np.bincount(SRC, minlength=90)
        edges = {"indptr": np.r_[0, np.cumsum(counts)], "indices": DST[order]}
    else:
        edges = {"edge_index": np.stack([SRC, DST])}
    path = tmp_path / "g.npz"
    np.savez(
        path, **edges, edge_attr=ATTR[order].astype(np.float64), edge_type=TYPE[order], colour=np.zeros(3)
    )
    assert rows_of(imported(path)) == expected()


def test_columns_of_parquet_and_rows_of_files_beside(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"u": SRC, "v": DST, **{f"edge_attr_{k}": ATTR[:, k] for k in range(3)}, "etype": WORDS[TYPE]}
    table = pa.table(columns | {"bad": [[1.0]] * COUNT})
    parquet.write_table(table, tmp_path / "e.parquet", row_group_size=1000)
    assert rows_of(imported(tmp_path / "e.parquet")) == expected(WORDS[TYPE])
    with pytest.raises(BadInput, match=r"column 'bad' holds list<.*columns of one number"):
        imported(tmp_path / "e.parquet", type="bad")

    plain = write_csv(tmp_path / "plain.csv", ["u", "v"], SRC, DST)
    np.save(tmp_path / "attr.npy", ATTR)
    kinds = tmp_path / "types.txt"
    kinds.write_text("\n".join(map(str, TYPE)))
    both = {"edge_features": tmp_path / "attr.npy", "edge_types": kinds}
    assert rows_of(imported(plain, **both)) == expected()
    for short, message in (
        (ATTR[:-1], "3,999 rows, and more edges"),
        (np.r_[ATTR, ATTR], "more rows than the 4,000 edges"),
    ):
        np.save(tmp_path / "attr.npy", short)
        with pytest.raises(BadInput, match=message):
            imported(plain, **both)


def test_an_ogb_folder_with_edge_feat(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    texts = {
        "edge": "\n".join(f"{u},{v}" for u, v in zip(SRC, DST, strict=True)),
        "num-node-list": "90",
        "edge-feat": "\n".join(",".join(map(str, row)) for row in ATTR),
        "edge_reltype": "\n".join(map(str, TYPE)),
    }
    for name, text in texts.items():
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    from siafu.graph.importing.importer import import_graph

    import_graph(tmp_path, tmp_path / "out.store")
    assert rows_of(siafu.load(str(tmp_path / "out.store"))) == expected()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "src,dst,t\n0,1,1.5\n",
            ["--type-column", "t"],
            "an edge has the type 1.5: number the types from 0 up",
        ),
        ("src,dst,t\n0,1,-1\n", ["--type-column", "t"], "an edge has the type -1"),
        ("src,dst,t\n0,1,7\n0,1,up\n", ["--type-column", "t"], "line 3: 'up' in column 't' is not a number"),
        (
            "src,dst,a\n0,1,nan\n",
            ["--edge-feature-columns", "a"],
            "line 2: 'nan' in column 'a' is not a finite",
        ),
        ("src,dst,a\n0,1,2\n", ["--edge-feature-columns", "b"], "has no column 'b': it has src, dst, a"),
        ("src,dst,a\n0,1,2\n", ["--edge-feature-columns", "a", "--type-column", "a"], "'a' is given for two"),
        (
            "src,dst,edge_type\n0,1,2\n",
            ["--merge-parallel"],
            "parallel edges with features or types stay apart",
        ),
    ],
)
def test_refusals(siafu_command: Siafu, tmp_path: Path, text: str, options: list[str], message: str) -> None:
    (tmp_path / "e.csv").write_text(text)
    assert message in siafu_command.refused("import", tmp_path / "e.csv", "-o", tmp_path / "s", *options)
    assert not (tmp_path / "s").exists()


def test_the_import_tells_what_it_took_and_info_shows_it(siafu_command: Siafu, tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("src,dst,rel,len,day\na,b,likes,1.5,mon\nb,c,owns,2,tue\n")
    target = str(tmp_path / "s")
    asked = ("--edge-feature-columns", "len", "--type-column", "rel")
    done = siafu_command("import", str(tmp_path / "e.csv"), "-o", target, *asked)
    assert "1 feature an edge, 2 types (likes, owns), directed" in done.err
    assert (
        "not taken from e.csv: day (take them with --weight-column, --edge-feature-columns or --type-column;"
        in done.err
    )
    shown = siafu_command("info", target)
    assert (
        "without weights, directed, 1 feature an edge (edge_attr), 2 types (edge_type) (likes, owns)"
        in shown.out
    )
    facts = siafu_command("info", target, "--json").json()
    assert (facts["edge_features"], facts["type_names"], facts["split"]) == (1, ["likes", "owns"], {})


def test_links_that_are_held_out_take_their_features_along() -> None:
    from siafu.graph.links import split_links

    graph = Graph.from_edges(SRC, DST, edge_attr=ATTR, edge_type=TYPE, num_vertices=90)
    kept = split_links(graph, val=0.1, test=0.2).graph
    assert kept.num_edges < graph.num_edges
    assert set(rows_of(kept)) <= set(rows_of(graph))
    assert scipy.sparse.csr_matrix((np.ones(kept.num_edges), kept.indices, kept.indptr)).nnz == kept.num_edges
