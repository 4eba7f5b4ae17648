"""Plans: what is offered, what is chosen, and what is refused."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.base.errors import BadInput
from siafu.cost.fleet import Fleet
from siafu.cost.prices import price_book
from siafu.cost.ratios import Ratios, ratios
from siafu.planning import words
from siafu.planning.estimate import Estimates
from siafu.planning.machines import aws_lambda, lambda_bytes_s, machine_of, memory_budget
from siafu.planning.offer import Offer, TrainingSetup, pareto
from siafu.planning.planner import fewest_servers
from siafu.planning.plot import plot
from tests.planning.plans import HIDDEN, paper_plan, reference, small_plan, small_request

BOOK = price_book()


def offer(seconds: float, usd: float) -> Offer:
    setup = TrainingSetup(Fleet(BOOK.rental("c5.2xlarge"), 1))
    return Offer(setup, 1.0, 1, 0.0, seconds, 1.0, 1.0, 0.0, 0, usd, 0.0)


def refusal(**changes: object) -> str:
    with pytest.raises(BadInput) as caught:
        small_plan(**changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", HIDDEN)
def test_the_choice_beats_the_largest_machine_without_lambdas_on_the_papers_graphs(name: str) -> None:
    plan = paper_plan(name)
    assert plan.naive is not None
    assert plan.naive.setup.lambda_count == 0
    dearest = max(each.on_demand_usd_h for each in BOOK.instances.values() if each.accelerator is None)
    assert plan.naive.setup.fleet.rental.usd_h == dearest
    assert plan.chosen.value > plan.naive.value


@pytest.mark.slow
@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_offered_fits_into_the_memory_of_its_machines(name: str) -> None:
    for each in paper_plan(name).offers:
        assert each.server_bytes <= memory_budget(each.setup.fleet.rental.instance)


def test_advice_against_lambdas_comes_with_its_arithmetic() -> None:
    plan = small_plan()
    assert plan.chosen.setup.lambda_count == 0
    assert plan.lambdas is not None
    said = words.about_lambdas(plan)
    assert said is not None
    assert said.startswith("Lambdas do not pay here")
    assert words.dollars(plan.lambdas.usd) in said
    assert words.dollars(plan.threads.usd) in said


@pytest.mark.slow
def test_nothing_takes_or_costs_less_than_its_bound() -> None:
    estimates = Estimates(small_request(), reference(), BOOK)
    for instance in ("c5.2xlarge", "c7g.2xlarge"):
        for servers in (1, 2, 4):
            fleet = Fleet(BOOK.rental(instance), servers)
            for setup in (
                TrainingSetup(fleet),
                TrainingSetup(fleet, "async"),
                TrainingSetup(fleet, "pipe", 8),
            ):
                bound, found = estimates.bound(setup), estimates.offer(setup)
                assert bound.seconds <= found.seconds * 1.0001
                assert bound.usd <= found.usd * 1.0001


def test_the_choice_without_limits_is_worth_most() -> None:
    plan = small_plan()
    assert plan.chosen.value == max(each.value for each in plan.offers)
    assert plan.chosen == plan.offers[0]
    assert repr(plan).startswith(f"Plan({plan.chosen.setup}: ")
    assert len(repr(plan)) < 200


def test_with_a_deadline_the_cheapest_that_meets_it_is_chosen() -> None:
    free = small_plan()
    fastest = min(each.seconds for each in free.offers)
    plan = small_plan(deadline_s=fastest * 1.01)
    assert plan.chosen.seconds <= fastest * 1.01
    in_time = [each for each in plan.offers if each.seconds <= fastest * 1.01]
    assert plan.chosen.usd == min(each.usd for each in in_time)


def test_with_a_budget_the_fastest_within_it_is_chosen() -> None:
    cheapest = min(each.usd for each in small_plan().offers)
    plan = small_plan(budget_usd=cheapest * 1.01)
    assert plan.chosen.usd <= cheapest * 1.01
    affordable = [each for each in plan.offers if each.usd <= cheapest * 1.01]
    assert plan.chosen.seconds == min(each.seconds for each in affordable)


def test_an_impossible_deadline_is_answered_with_the_fastest() -> None:
    assert "the fastest takes" in refusal(deadline_s=0.001)


def test_an_impossible_budget_is_answered_with_the_cheapest() -> None:
    assert "the cheapest costs $" in refusal(budget_usd=1e-9)


@pytest.mark.slow
def test_a_deadline_and_a_budget_that_exclude_each_other_are_answered_with_both() -> None:
    quick_or_cheap = {"instances": ("c5n.4xlarge", "r7g.xlarge"), "epochs": 20_000, "lambdas": False}
    plan = small_plan(**quick_or_cheap)
    fastest, cheapest = min(each.seconds for each in plan.offers), min(each.usd for each in plan.offers)
    said = refusal(**quick_or_cheap, deadline_s=fastest * 1.001, budget_usd=cheapest * 1.001)
    assert "in that time the cheapest costs" in said


@pytest.mark.untraced
def test_a_graph_that_fits_nowhere_is_told_what_it_would_need() -> None:
    from siafu.virtual.graph_shape import GraphShape

    with pytest.raises(
        BadInput,
        match=r"fits on no machine: on 4 servers each would hold .* GiB, or .* GiB with .* of tables on disk",
    ) as caught:
        from siafu.planning.planner import make_plan
        from siafu.planning.request import Request

        huge = GraphShape(10**10, 10**12, 64, 8)
        make_plan(
            Request("huge", huge, small_request().model, most_servers=4),
            prices=BOOK,
            measured=reference(),
        )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "says"), [("c5.3xlarge", "c5.2xlarge"), ("p3.2xlarge", "GPU")])
def test_an_instance_that_cannot_be_is_refused(name: str, says: str) -> None:
    assert says in refusal(instances=(name,))


def test_spot_machines_are_offered_where_their_price_is_known() -> None:
    plan = small_plan(spot=True)
    assert all(each.setup.fleet.rental.spot for each in plan.offers if each != plan.naive)
    assert plan.chosen.usd < small_plan().chosen.usd


@pytest.mark.slow
def test_the_machine_at_hand_takes_longer_with_more_epochs_and_nothing_where_it_is_too_small() -> None:
    few, many = (small_plan(epochs=epochs).here for epochs in (20, 200))
    assert few is not None
    assert many is not None
    assert few[0] == many[0]
    assert few[1] < many[1]
    assert paper_plan("friendster").here is None


@pytest.mark.slow
def test_fewest_servers_is_the_first_number_that_fits() -> None:
    estimates = Estimates(small_request(), reference(), BOOK)
    small = BOOK.instance("c5.2xlarge")
    assert fewest_servers(estimates, small, 64) == 1
    amazon = paper_plan("amazon").estimates
    least = fewest_servers(amazon, small, 64)
    assert least is not None
    assert amazon.fits.least(small, least) <= memory_budget(small) < amazon.fits.least(small, least - 1)
    assert fewest_servers(amazon, small, 1) is None


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1e-6, 1e6)), min_size=1, max_size=30))
def test_nothing_beats_what_is_on_the_front_in_both(points: list[tuple[float, float]]) -> None:
    offers = [offer(seconds, usd) for seconds, usd in points]
    front = pareto(offers)
    for each in front:
        assert not any(
            other.seconds <= each.seconds and other.usd < each.usd for other in offers if other is not each
        )
    for each in offers:
        assert any(other.dominates(each.seconds, each.usd) for other in front)


def test_the_plot_shows_every_offer_and_is_well_formed() -> None:
    plan = small_plan()
    drawn = ElementTree.fromstring(plot(plan))
    dots = drawn.findall(".//{http://www.w3.org/2000/svg}circle/{http://www.w3.org/2000/svg}title")
    assert len(dots) == len(plan.offers)


@pytest.mark.slow
@pytest.mark.parametrize("name", HIDDEN)
def test_labels_of_the_plot_cover_no_point(name: str) -> None:
    svg = "{http://www.w3.org/2000/svg}"
    drawn = ElementTree.fromstring(plot(paper_plan(name)))
    points = [
        (float(each.get("cx", "")), float(each.get("cy", "")))
        for each in drawn.iter(f"{svg}circle")
        if each.find(f"{svg}title") is not None
    ]
    labels = [each for each in drawn.iter(f"{svg}text") if each.get("font-size") == "10"]
    assert any((each.text or "").startswith("chosen: ") for each in labels)
    for each in labels:
        left, bottom, width = float(each.get("x", "")), float(each.get("y", "")), 5.5 * len(each.text or "")
        covered = [(x, y) for x, y in points if left < x < left + width and bottom - 10 < y < bottom]
        assert not covered, each.text


def test_the_commands_name_the_machines_and_how_many() -> None:
    one = words.commands(small_plan())
    assert any(each.startswith("siafu train small --model gcn --hidden 32") for each in one)
    many = words.commands(paper_plan("friendster"))
    servers = paper_plan("friendster").chosen.setup.fleet.servers
    assert many[0].startswith(f"siafu cluster up --on aws --machines {servers}")
    assert f"--servers {servers} --cluster auto" in many[1]


def test_a_machine_of_the_same_processor_is_as_fast_as_the_one_measured() -> None:
    skylake = BOOK.processors["skylake-8124m"]
    same = ratios(skylake, skylake)
    assert same == ratios(skylake, None) == Ratios(1.0, 1.0, 1.0)


def test_an_instance_has_its_own_cores_memory_and_network() -> None:
    instance = BOOK.instance("c5n.4xlarge")
    machine = machine_of(instance, reference(), BOOK)
    assert machine.cores == 16
    assert machine.memory_bytes == instance.memory_bytes
    assert machine.network_bytes_s == 15e9 / 8
    assert machine.near_cache == 1 << 20


def test_a_lambdas_network_gets_slower_as_they_get_more() -> None:
    assert lambda_bytes_s(1) == pytest.approx(100e6)
    assert lambda_bytes_s(100) == pytest.approx(25e6)
    assert lambda_bytes_s(10) > lambda_bytes_s(50)


def test_half_the_memory_is_half_a_processor() -> None:
    whole, half = aws_lambda(reference(), 8, 1769), aws_lambda(reference(), 8, 1769 // 2)
    assert half.thread.stream == pytest.approx(whole.thread.stream / 2, rel=0.01)
    assert aws_lambda(reference(), 8, 3538).thread == whole.thread
