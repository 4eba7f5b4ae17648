"""Memory of a plan: the list that training makes, for other machines and for graphs that are only shapes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import siafu
from siafu.base.hardware.memory import own_bytes
from siafu.cost.fleet import Fleet
from siafu.cost.prices import price_book
from siafu.graph.generate import SHAPES, generate
from siafu.graph.partition import make_partition
from siafu.graph.partition.saved import save_partition
from siafu.graph.stores.fingerprint import fingerprint
from siafu.options import Options
from siafu.planning import words
from siafu.planning.estimate import Estimates
from siafu.planning.machines import memory_budget
from siafu.planning.offer import TrainingSetup
from siafu.planning.planner import make_plan
from siafu.planning.request import Request
from siafu.planning.shapes import planned_graph
from siafu.server.memory.fitting import fit, fit_servers
from siafu.server.memory.listing import RunListing
from siafu.server.memory.server_hardware import ServerHardware, this_machine
from siafu.server.memory.server_part import parts_of
from siafu.server.plan import ServerPlan
from siafu.tables import ScratchDirectory
from siafu.training.explanation import explain_training
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.run_sizes import RunSizes
from siafu.virtual.workload import ModelShape
from tests.planning.plans import reference
from tests.training_runs import tangled_graph

BOOK = price_book()
MODELS = [
    ModelShape("gcn", 32, 2),
    ModelShape("sage", 24, 3),
    ModelShape("gat", 16, 2, heads=4),
    ModelShape("gin", 16, 2),
]
SMALL_MACHINE = ServerHardware(8, 1 << 20)
# A graph whose tables are large beside its edges, for machines with 16 GiB.
LARGE = GraphShape(60_000_000, 600_000_000, 64, 16, train=0.1, locality=0.5)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "tangled"
    graph = tangled_graph(4000)
    graph.save(path)
    save_partition(path, make_partition(graph, 3, method="hash"), fingerprint(graph))
    return path


def sizes_of(store: Path, model: ModelShape) -> RunSizes:
    _, shape, known = planned_graph(store)
    assert known is not None
    return RunSizes.of_graph(known.graph, model, shape, known.parts)


def arrays(listed: object) -> dict[tuple[str, str], int]:
    """Bytes by name and lifetime, but for the program, whose size is measured when a list is made."""
    return {(each.name, each.lifetime): each.bytes for each in listed.allocations if each.name != "program"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", MODELS, ids=lambda each: each.name)
def test_a_plan_and_explain_list_the_same_bytes(model: ModelShape, stored: Path) -> None:
    graph = siafu.load(stored)
    said = explain_training(graph, model.build(graph.num_features, graph.num_classes), "1TB", advisor="off")
    (listing,) = sizes_of(stored, model).listings(1, this_machine(), own_bytes())
    assert said.memory is not None
    assert arrays(listing.listed) == arrays(said.memory)


def test_a_plan_and_explain_spare_the_same_under_a_budget(stored: Path, tmp_path: Path) -> None:
    graph, model = siafu.load(stored), MODELS[1]
    (listing,) = sizes_of(stored, model).listings(1, this_machine(), 0)
    for share in (0.8, 0.5, 0.0):
        budget = int(share * listing.listed.peak)
        plan = ServerPlan.of(
            graph, model.build(graph.num_features, graph.num_classes), Options(), make_partition(graph, 1)
        )
        theirs = fit(RunListing.of(plan, taken=0), budget, ScratchDirectory(tmp_path))
        ours = fit_servers([listing], budget, tmp_path)
        assert ours.peak == theirs.choice.listed.peak
        assert ours.scratch == theirs.scratch
        assert ours.plan.savings == theirs.plan.savings


def test_servers_of_a_saved_partition_are_listed_to_the_byte(stored: Path) -> None:
    graph, model = siafu.load(stored), MODELS[0]
    partition = make_partition(graph, 3, method="hash")
    built = model.build(graph.num_features, graph.num_classes)
    plan = ServerPlan.of(graph, built, Options(servers=3), partition)
    theirs = [RunListing.of(plan, [part], 0).listed.peak for part in parts_of(graph, partition)]
    assert [each.listed.peak for each in sizes_of(stored, model).listings(3, this_machine(), 0)] == theirs


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, GraphShape]:
    """A store, and the shape that it was generated from."""
    path, shape = tmp_path_factory.mktemp("generated") / "store", SHAPES["amazon"].scaled(0.005)
    edges = generate(shape, path)
    sizes = (shape.num_vertices, edges, shape.num_features, shape.num_classes)
    return path, GraphShape(*sizes, train=shape.train, locality=shape.inside)


@pytest.mark.parametrize("servers", [1, 4])
@pytest.mark.parametrize("model", MODELS, ids=lambda each: each.name)
def test_a_shape_needs_what_a_generated_store_of_it_needs(
    model: ModelShape, servers: int, generated: tuple[Path, GraphShape]
) -> None:
    path, shape = generated
    both = sizes_of(path, model), RunSizes.of_shape(model, shape)
    # Ghosts of a partition are counted in stores, and modelled in shapes (tests/virtual): here they are the same.
    both = replace(both[0], shape=shape), both[1]
    for budget in (1 << 60, 0):
        stored, planned = (
            fit_servers(each.listings(servers, SMALL_MACHINE, 0), budget).peak for each in both
        )
        assert planned == pytest.approx(stored, rel=0.1)


def test_a_plan_for_a_shape_agrees_with_that_for_a_generated_store(
    generated: tuple[Path, GraphShape],
) -> None:
    path, shape = generated
    _, counted, known = planned_graph(path)
    asked = {"instances": ("c7g.2xlarge",), "most_servers": 1, "lambdas": False}
    stored, planned = (
        make_plan(Request("both", each, MODELS[0], known=graph, **asked), prices=BOOK, measured=reference())  # type: ignore[arg-type]
        for each, graph in ((counted, known), (shape, None))
    )
    for name in ("seconds", "seconds_per_epoch", "usd", "server_bytes"):
        assert getattr(planned.chosen, name) == pytest.approx(getattr(stored.chosen, name), rel=0.1)


def large_request(**changes: object) -> Request:
    given = {
        "instances": ("c5d.2xlarge", "c5n.4xlarge"),
        "most_servers": 2,
        "epochs": 20,
        "lambdas": False,
    } | changes
    return Request("large", LARGE, ModelShape("sage", 64, 2), **given)  # type: ignore[arg-type]


def setup_on(instance: str, servers: int = 1, *, disk: bool = True) -> TrainingSetup:
    found = BOOK.instance(instance)
    return TrainingSetup(Fleet(BOOK.rental(instance), servers), disk=BOOK.disk(found) if disk else None)


def test_what_fits_no_memory_fits_with_a_disk_and_takes_longer_there() -> None:
    estimates = Estimates(large_request(), reference(), BOOK)
    without, on_disk = setup_on("c5d.2xlarge", disk=False), setup_on("c5d.2xlarge")
    assert not estimates.fit(without).fits
    found = estimates.fit(on_disk)
    assert found.fits
    assert 0 < found.scratch <= 200e9
    assert found.peak <= memory_budget(BOOK.instance("c5d.2xlarge"))
    assert found.epoch(1.0) > 1.0 + found.seconds


def test_a_slower_disk_makes_a_longer_epoch() -> None:
    estimates = Estimates(large_request(), reference(), BOOK)
    local, rented = (estimates.fit(setup_on(name)) for name in ("c5d.2xlarge", "c5.2xlarge"))
    assert local.disk_seconds < rented.disk_seconds


def test_a_plan_offers_disks_and_its_command_has_memory_and_scratch() -> None:
    plan = make_plan(
        large_request(instances=("c5d.2xlarge",), most_servers=1), prices=BOOK, measured=reference()
    )
    chosen, (command,) = plan.chosen, words.commands(plan)
    assert chosen.scratch_bytes > 0
    assert chosen.summary()["disk"] == "local NVMe"
    assert f"--memory {chosen.memory_bytes // 10**6}MB --scratch /mnt/scratch" in command
    assert "GB local NVMe" in words.row(chosen)[words.HEADERS.index("disk")]
    said = words.about_memory(plan)
    assert said is not None
    assert "mounted at /mnt/scratch" in said
    json.dumps(chosen.summary())


def test_volumes_are_paid_for_by_size_and_throughput() -> None:
    request = large_request(instances=("c5.2xlarge",), most_servers=1)
    offer = Estimates(request, reference(), BOOK).offer(setup_on("c5.2xlarge"))
    gigabytes = -(-offer.scratch_bytes // 10**9)
    assert offer.usd_disks == pytest.approx(gigabytes * 0.08 / 730 * offer.seconds / 3600, rel=0.01)
    assert offer.usd == offer.usd_servers + offer.usd_lambdas + offer.usd_disks


def test_a_machine_on_which_nothing_fits_is_left_out_with_the_least_that_would_do() -> None:
    huge = replace(LARGE, vertices=200_000_000, edges=400_000_000)
    tiny = replace(BOOK.instance("c5d.2xlarge"), name="tiny", disk_gb=1.0)
    book = replace(BOOK, instances={**BOOK.instances, "tiny": tiny})
    request = replace(large_request(instances=("tiny", "r5d.2xlarge"), most_servers=1), shape=huge)
    plan = make_plan(request, prices=book, measured=reference())
    (missing,) = plan.left_out
    assert missing.instance.name == "tiny"
    assert missing.scratch_bytes > 1e9
    said = words.left_out(plan)
    assert said is not None
    assert "tiny" in said
    assert "\n" not in said
    assert all(each.setup.fleet.rental.instance.name != "tiny" for each in plan.offers)


def test_without_disks_only_what_fits_memory_is_offered() -> None:
    plan = make_plan(large_request(disks=False), prices=BOOK, measured=reference())
    assert all(each.setup.disk is None and each.scratch_bytes == 0 for each in plan.offers)
    assert [each.instance.name for each in plan.left_out] == ["c5d.2xlarge"]
