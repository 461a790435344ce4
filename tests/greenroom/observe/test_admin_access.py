"""Links, viewers and the checks of requests, without sockets: bounds, lifetimes, and hostile input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from greenroom.auth import APIKeyAuth
from greenroom.observe import Admin
from greenroom.observe.admin_access import AdminAccess, TooManyGuesses, is_csrf_token, is_local

AUTH = APIKeyAuth({"k" * 40: {"subject": "ada"}})


def access(**settings: Any) -> AdminAccess:
    made = AdminAccess(Admin(**settings))
    made.port = 9091
    return made


def redeem(made: AdminAccess, token: str, source: str = "127.0.0.1", now: float = 0.0) -> str | None:
    try:
        return made.redeem(token, source, now)
    except TooManyGuesses:
        return None


@given(some.lists(some.text(max_size=300), max_size=40), some.binary(max_size=8))
def test_no_text_but_the_token_signs_in_and_nothing_grows(guesses: list[str], odd: bytes) -> None:
    made = access()
    token = made.new_token(0.0)
    near = [
        token[:-1],
        f"{token}x",
        token.swapcase(),
        f" {token}",
        "",
        odd.decode("utf-8", "surrogateescape"),
        "\ud800",
    ]
    assert [redeem(made, each) for each in (*guesses, *near)] == [None] * (len(guesses) + len(near))
    assert [made.viewer_of(each, 0.0) for each in (*guesses, *near, token)] == [None] * (len(guesses) + len(near) + 1)
    cookie = redeem(made, token)
    assert cookie is not None
    assert cookie != token
    assert redeem(made, token) is None
    viewer = made.viewer_of(cookie, 0.0)
    assert viewer is not None
    assert all(not is_csrf_token(viewer, each) for each in (*guesses, *near, token, cookie, None))
    assert is_csrf_token(viewer, viewer.csrf)
    assert token not in repr(made) + repr(viewer)
    assert viewer.csrf not in repr(viewer)


def test_links_are_few_and_expire() -> None:
    made = access(link_lifetime=10.0)
    tokens = [made.new_token(0.0) for _ in range(17)]
    assert redeem(made, tokens[0], now=1.0) is None  # the oldest has given way
    assert redeem(made, tokens[1], now=9.9) is not None
    assert redeem(made, tokens[2], now=10.0) is None


def test_viewers_are_few_and_the_idle_one_gives_way() -> None:
    made = access(max_viewers=2, session_lifetime=10.0)
    first, second = (made.sign_in("one", 0.0, may_act=True) for _ in range(2))
    assert made.viewer_of(first, 1.0) is not None
    third = made.sign_in("one", 2.0, may_act=True)
    assert [made.viewer_of(each, 3.0) is not None for each in (first, second, third)] == [True, False, True]
    assert [made.viewer_of(each, 10.0) is not None for each in (first, third)] == [False, True]
    viewer = made.viewer_of(third, 11.0)
    assert viewer is not None
    assert made.is_signed_in(viewer, 11.9)
    assert not made.is_signed_in(viewer, 12.0)
    made.sign_out(viewer)
    assert not made.is_signed_in(viewer, 11.0)
    assert made.viewer_of(third, 11.0) is None


def test_one_principal_takes_a_share_of_the_places() -> None:
    made = access(auth=AUTH, scope="observe", max_viewers=8)
    other = made.sign_in("bob", 0.0, may_act=False)
    own = [made.sign_in("ada", 0.0, may_act=False) for _ in range(20)]
    assert made.viewer_of(other, 1.0) is not None
    assert [made.viewer_of(each, 1.0) is not None for each in own] == [False] * 18 + [True] * 2


def test_credentials_that_expire_end_the_session() -> None:
    made = access(auth=AUTH, scope="observe")
    cookie = made.sign_in("ada", 0.0, may_act=False, expires=5.0)
    assert made.viewer_of(cookie, 4.9) is not None
    assert made.viewer_of(cookie, 5.0) is None


@pytest.mark.parametrize("settings", [{}, {"acts": True}, {"faults": True}, {"acts": True, "faults": True}])
def test_a_right_counts_only_where_it_is_switched_on(settings: dict[str, bool]) -> None:
    for may_act in (False, True):
        made = access(**settings)
        viewer = made.viewer_of(made.sign_in("one", 0.0, may_act=may_act), 0.0)
        assert viewer is not None
        assert viewer.may_act == (may_act and settings.get("acts", False))
        assert viewer.may_inject_faults == (may_act and settings.get("faults", False))


def test_guessers_are_told_to_wait_each_by_itself_in_bounded_memory() -> None:
    made = access()
    for number in range(20_000):
        assert redeem(made, "guess", source=f"192.0.2.{number}") is None
    for _ in range(20):
        assert made.redeem("guess", "127.0.0.1", 0.0) is None
    with pytest.raises(TooManyGuesses) as told:
        made.redeem("guess", "127.0.0.1", 0.0)
    assert told.value.seconds > 0
    assert made.redeem("guess", "127.0.0.1", 120.0) is None


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:9091", True),
        ("localhost", True),
        ("[::1]:9091", True),
        ("LOCALHOST:1", True),
        (None, False),
        ("", False),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("192.0.2.1", False),
        ("127.0.0.1:9091, evil.example", False),
        ("127.0.0.1\x00", False),
    ],
)
def test_on_loopback_only_this_machines_names_are_answered(host: str | None, allowed: bool) -> None:  # noqa: FBT001 - a row
    assert access().allows_host(host) is allowed


@pytest.mark.parametrize(
    ("host", "allowed"),
    [("10.0.0.7:9091", True), ("[2001:db8::1]", True), ("evil.example", False), ("0.0.0.0", True), (None, False)],
)
def test_elsewhere_addresses_are_answered_and_names_only_where_they_are_listed(host: str | None, allowed: bool) -> None:  # noqa: FBT001 - a row
    assert access(host="0.0.0.0", auth=AUTH, scope="observe").allows_host(host) is allowed
    listed = access(host="0.0.0.0", auth=AUTH, scope="observe", allowed_hosts=["ops.example"])
    assert listed.allows_host("ops.example:9091")
    assert not listed.allows_host("10.0.0.7")


FORM = {"host": "127.0.0.1:9091", "origin": "http://127.0.0.1:9091", "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize(
    ("method", "changes", "is_allowed"),
    [
        ("POST", {}, True),
        ("POST", {"origin": "https://127.0.0.1:9091"}, True),  # behind a proxy that speaks TLS
        ("POST", {"origin": "http://127.0.0.1:9092"}, False),
        ("POST", {"origin": "http://localhost:9091"}, False),
        ("POST", {"origin": "null"}, False),
        ("POST", {"origin": ""}, False),
        ("POST", {"host": ""}, False),
        ("POST", {"sec-fetch-site": ""}, False),
        ("POST", {"sec-fetch-site": "none"}, False),
        ("POST", {"sec-fetch-site": "same-site"}, False),
        ("DELETE", {"sec-fetch-site": "cross-site"}, False),
        ("GET", {}, True),
        ("GET", {"sec-fetch-site": "none"}, True),
        ("GET", {"sec-fetch-site": "same-site"}, False),
        ("GET", {"sec-fetch-site": "cross-site"}, False),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, True),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, False),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "document"}, False),
        ("HEAD", {"sec-fetch-site": "cross-site"}, False),
    ],
)
def test_only_the_listeners_own_pages_send_and_load(method: str, changes: dict[str, str], is_allowed: bool) -> None:  # noqa: FBT001 - a row
    assert (access().refusal_of_fetch(method, {**FORM, **changes}) is None) is is_allowed


def test_programs_send_no_fetch_metadata_and_may_read() -> None:
    assert access().refusal_of_fetch("GET", {"host": "127.0.0.1:9091"}) is None
    assert access().refusal_of_fetch("POST", {"host": "127.0.0.1:9091"}) is not None


@pytest.mark.parametrize(
    ("address", "headers", "local"),
    [
        ("127.0.0.1", {}, True),
        ("::1", {}, True),
        ("10.0.0.1", {}, False),
        ("", {}, False),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1"}, False),
        ("127.0.0.1", {"forwarded": ""}, False),
    ],
)
def test_details_are_for_this_machine(address: str, headers: dict[str, str], local: bool) -> None:  # noqa: FBT001 - a row
    assert is_local(address, headers) is local


def test_with_tls_no_other_host_can_set_the_cookie() -> None:
    plain, secure = access(), access(certfile="admin.pem")
    assert (plain.cookie_name, plain.cookie_path) == ("greenroom-observe-9091", "/observe/")
    # Browsers take a cookie of such a name from this host only, with this path, over TLS.
    assert (secure.cookie_name, secure.cookie_path) == ("__Host-greenroom-observe-9091", "/")
