"""Who may see the dashboard, and what may stop a run."""

import pytest
from starlette.datastructures import Headers

from siafu.base.addresses import is_loopback
from siafu.base.errors import BadInput
from siafu.dashboard.access import Access

TOKEN = "a token of some length"


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8642", "localhost", "LOCALHOST:1", "[::1]:8642", "10.0.0.7:80", "box.example:8642"]
)
def test_addresses_and_known_names_are_answered(host: str) -> None:
    assert Access(names=frozenset({"box.example"})).knows_host(Headers({"host": host}))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example:8642",
        "localhost.evil.example",
        "",
        "user@localhost",
        "localhost/x",
        "[::1",
        "::1",
    ],
)
def test_names_that_others_may_point_here_are_not(host: str) -> None:
    assert not Access().knows_host(Headers({"host": host}))


def test_a_request_without_a_host_or_with_two_is_refused() -> None:
    assert not Access().knows_host(Headers({}))
    assert not Access().knows_host(Headers(raw=[(b"host", b"localhost"), (b"host", b"evil.example")]))


def test_without_a_token_who_reaches_it_may_see_it() -> None:
    assert Access().is_signed_in(Headers({}), 80)


def test_the_token_or_its_cookie_lets_in_and_nothing_else_does() -> None:
    access = Access(TOKEN)
    cookie = f"other=1; {access.cookie_name(80)}={access.cookie_value}"
    assert access.is_signed_in(Headers({"authorization": f"Bearer {TOKEN}"}), 80)
    assert access.is_signed_in(Headers({"cookie": cookie}), 80)
    assert not access.is_signed_in(Headers({"cookie": cookie}), 81)
    assert not access.is_signed_in(Headers({}), 80)
    assert not access.is_signed_in(Headers({"authorization": f"Bearer {TOKEN}x"}), 80)
    assert not access.is_signed_in(Headers({"authorization": f"Basic {TOKEN}"}), 80)
    assert not access.is_signed_in(Headers({"cookie": f"{access.cookie_name(80)}={TOKEN}"}), 80)


def test_a_cookie_of_another_process_is_worth_nothing() -> None:
    one, other = Access(TOKEN), Access(TOKEN)
    assert not other.is_signed_in(Headers({"cookie": f"{one.cookie_name(80)}={one.cookie_value}"}), 80)


def test_a_short_token_is_refused() -> None:
    with pytest.raises(BadInput, match="at least 16"):
        Access("short")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)
def test_no_other_page_can_change_anything_even_with_the_secret(headers: dict[str, str]) -> None:
    access = Access()
    ours = {"host": "localhost:8642", "x-siafu-session": access.session}
    assert access.may_change(Headers(ours))
    assert access.may_change(
        Headers({**ours, "origin": "http://localhost:8642", "sec-fetch-site": "same-origin"})
    )
    assert not access.may_change(Headers({**ours, **headers}))


def test_nothing_changes_without_the_secret() -> None:
    access = Access()
    assert not access.may_change(Headers({"host": "localhost"}))
    assert not access.may_change(Headers({"host": "localhost", "x-siafu-session": "guess"}))


@pytest.mark.parametrize(
    ("host", "ours"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)],
)
def test_only_loopback_is_this_machine_alone(host: str, ours: bool) -> None:
    assert is_loopback(host) is ours
