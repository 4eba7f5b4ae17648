"""The dashboard in a real browser: runs watched, stopped, named by others, and used without a mouse or eyes."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

import siafu
from siafu.base.errors import Interrupted
from siafu.dashboard.access import Access
from tests.browser.gated import training
from tests.dashboard.runs import add_epochs, epoch, make_run
from tests.dashboard.served import served
from tests.sessions import FOREVER, gcn
from tests.toys import toy_graph

pytestmark = pytest.mark.slow  # starts a browser

HOSTILE = [
    "<script>document.title = 'taken'</script>",
    "<img src=x onerror=document.title='taken'>",
    '"><svg onload=document.title="taken">',
    "javascript:document.title='taken'",
    "${name} $id {{name}} %s",
    "a\nb\u202ec",
]


def refuse_barriers(page: Page) -> None:
    """What axe-core finds that keeps people out."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def picture(page: Page, name: str) -> str:
    """A chart's pixels."""
    found: str = page.locator(f"[data-chart={name}] canvas").evaluate("canvas => canvas.toDataURL()")
    return found


def test_a_run_is_watched_from_its_first_epoch_to_its_last(page: Page, tmp_path: Path) -> None:
    with served(tmp_path) as at, training(tmp_path / "mine", epochs=12) as run:
        page.goto(at.url)
        row = page.get_by_role("row", name="mine")
        expect(row).to_contain_text("running")
        expect(row).to_contain_text("1 of 12")
        row.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("mine")
        loss = page.get_by_role("figure", name="Loss").get_by_role("img")
        expect(loss).to_have_attribute("aria-label", re.compile("at epoch 1[^0-9]"))
        before = picture(page, "loss")

        run.gate.let_through(5)
        expect(loss).to_have_attribute("aria-label", re.compile("at epoch 6[^0-9]"))
        page.wait_for_function(
            "before => document.querySelector('[data-chart=loss] canvas').toDataURL() !== before", arg=before
        )
        expect(page.get_by_role("progressbar", name="Epochs done")).to_have_attribute("value", "6")

        run.gate.open()
        expect(page.locator("#status")).to_have_text("finished")
        expect(loss).to_have_attribute("aria-label", re.compile("at epoch 12[^0-9]"))
        expect(page.get_by_role("button", name="Stop…")).to_be_disabled()
        run.join()
        assert isinstance(run.ended, siafu.Run)
        shown = page.locator("dl div", has_text="Training loss").locator("dd").inner_text()
        assert float(shown) == pytest.approx(run.ended.history[-1].train_loss, rel=1e-3)


def test_the_stop_button_saves_the_run_and_ends_it(page: Page, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    with served(tmp_path) as at, training(out, epochs=FOREVER) as run:
        page.goto(at.url)
        page.get_by_role("link", name="mine").click()
        stop = page.get_by_role("button", name="Stop…")
        stop.click()
        page.get_by_role("button", name="Let it run").click()
        assert not (out / "stop").exists()
        stop.click()
        page.get_by_role("button", name="Stop the run").click()
        expect(page.locator("#status")).to_have_text("stopping")
        run.gate.open()
        expect(page.locator("#status")).to_have_text("stopped")
        run.join()
    assert isinstance(run.ended, Interrupted)
    assert (out / "checkpoint.safetensors").is_file()
    assert not (out / "stop").exists()


def test_a_page_elsewhere_cannot_stop_a_run(page: Page, browser: Browser, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    with served(tmp_path) as at, training(out, epochs=FOREVER) as run:
        page.goto(at.url)
        address = page.get_by_role("link", name="mine").get_attribute("href") or ""
        secret = page.locator("meta[name=siafu-session]").get_attribute("content")
        elsewhere = browser.new_page()  # whose console tells of what it was refused
        elsewhere.route(
            "http://elsewhere.example/", lambda route: route.fulfill(body="<p>x", content_type="text/html")
        )
        elsewhere.goto("http://elsewhere.example/")
        tried = elsewhere.evaluate(_ATTEMPTS, [f"{at.url}/api{address}/stop", secret])
        elsewhere.close()
        assert set(tried) <= {"refused", "opaque"}
        assert not (out / "stop").exists()
        assert run.is_alive()


# A plain request, one with the secret, which no other page can know, and one with cookies.
_ATTEMPTS = """async ([url, secret]) => {
    const attempts = [{mode: "no-cors"}, {headers: {"X-Siafu-Session": secret}}, {credentials: "include"}];
    return Promise.all(attempts.map((attempt) =>
        fetch(url, {method: "POST", ...attempt}).then((answer) => answer.type, () => "refused")));
}"""


def test_hostile_names_are_text(page: Page, tmp_path: Path) -> None:
    for name in HOSTILE:
        run = make_run(tmp_path / name.replace("/", "∕"))
        config = json.loads((run / "config.json").read_text())
        config["graph"]["name"] = config["model"]["name"] = name
        (run / "config.json").write_text(json.dumps(config))
        add_epochs(run, epoch(4, busy_seconds={name: 1.0, "__proto__": 2.0, "constructor": 3.0}))
    with served(tmp_path) as at:
        page.goto(at.url)
        links = page.locator("#runs th a")
        expect(links).to_have_count(len(HOSTILE))
        assert {link.text_content() for link in links.all()} == {name.replace("/", "∕") for name in HOSTILE}
        expect(page).to_have_title("Runs – Siafu")
        for address in [link.get_attribute("href") for link in links.all()]:
            page.goto(at.url + (address or ""))
            expect(page.locator("canvas").first).to_be_visible()
            name = page.get_by_role("heading", level=1).text_content()
            assert page.title() == " ".join(f"{name} – Siafu".split())
            assert urlsplit(page.url).netloc == urlsplit(at.url).netloc


def test_charts_are_walked_with_keys_and_read_as_tables(page: Page, tmp_path: Path) -> None:
    make_run(tmp_path / "mine", epochs=5)
    with served(tmp_path) as at:
        page.goto(at.url)
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the runs")).to_be_focused()
        page.get_by_role("link", name="mine").focus()
        page.keyboard.press("Enter")
        figure = page.get_by_role("figure", name="Accuracy")
        figure.get_by_role("img").focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        expect(figure.locator("[aria-live]")).to_have_text(re.compile("^epoch 2: .*validation 50.00 %"))
        figure.get_by_text("Table").click()
        expect(figure.get_by_role("table").last.get_by_role("row")).to_have_count(6)
        expect(figure.get_by_role("table").last).to_contain_text("75.00 %")


def test_another_metric_has_its_own_name_and_unit(page: Page, tmp_path: Path) -> None:
    described = {"name": "mine", "metric": "mean_error", "larger_is_better": False, "is_share": False}
    make_run(tmp_path / "mine", epochs=5, objective=described)
    with served(tmp_path) as at:
        page.goto(at.url)
        expect(page.get_by_role("row", name="mine")).not_to_contain_text("%")
        page.get_by_role("link", name="mine").click()
        expect(page.locator("#facts")).to_contain_text("Best validation mean-error0")
        figure = page.get_by_role("figure", name="Mean-error")
        figure.get_by_text("Table").click()
        expect(figure.get_by_role("table").last).to_contain_text("0.75")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_out_those_who_see_or_hear_otherwise(page: Page, tmp_path: Path, scheme: str) -> None:
    make_run(tmp_path / "mine", epochs=5)
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    with served(tmp_path) as at:
        page.goto(at.url)
        expect(page.get_by_role("link", name="mine")).to_be_visible()
        refuse_barriers(page)
        page.get_by_role("link", name="mine").click()
        expect(page.locator("canvas").first).to_be_visible()
        refuse_barriers(page)


def test_light_or_dark_as_the_system_says_or_as_was_chosen(page: Page, tmp_path: Path) -> None:
    def background() -> str:
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    with served(tmp_path) as at:
        page.emulate_media(color_scheme="light")
        page.goto(at.url)
        light = background()
        page.emulate_media(color_scheme="dark")
        dark = background()
        assert light != dark
        page.get_by_label("Theme").select_option("light")
        assert background() == light
        page.reload()
        assert background() == light


def test_the_token_opens_the_page_and_leaves_its_address(page: Page, tmp_path: Path) -> None:
    make_run(tmp_path / "mine")
    with served(tmp_path, Access("a token of some length")) as at:
        page.goto(f"{at.url}/?token=a%20token%20of%20some%20length")
        expect(page.get_by_role("link", name="mine")).to_be_visible()
        assert "token" not in page.url


def test_what_ran_where_is_shown_when_asked_for(page: Page, tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=4, out=tmp_path / "traced")
    make_run(tmp_path / "untraced")
    with served(tmp_path) as at:
        page.goto(at.url)
        page.get_by_role("link", name="untraced").click()
        expect(page.get_by_role("button", name="Show what ran where")).to_be_enabled()
        page.goto(at.url)
        page.get_by_role("link", name="traced", exact=True).click()
        page.get_by_role("button", name="Show what ran where").click()
        expect(page.locator("canvas.gantt")).to_be_visible()
        refuse_barriers(page)
