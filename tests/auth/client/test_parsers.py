"""Parsers of data from other servers parse any input or raise the documented error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.auth import SignInError
from greenroom.auth.client.interactive_flows import html_page, parse_authorization_response
from greenroom.auth.client.login_process import parse_challenges
from greenroom.auth.client.metadata_discovery import (
    check_endpoint,
    discover_authorization_server,
    parse_resource_metadata,
    parse_server_metadata,
    printable_line,
)
from greenroom.auth.client.token_requests import response_object
from greenroom.auth.client.token_stores import LoginRecord
from greenroom.auth.credential_headers import covers
from greenroom.transports.client.fetch import FetchResponse

from .oauth_world import URL

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([URL, "https://[", "a" * 9000, 10**400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "resource",
        "issuer",
        "authorization_servers",
        "scopes_supported",
        "token_endpoint",
        "error",
        "error_description",
        "access_token",
        "expires_in",
        "expires_at",
        "scope",
        "refresh_token",
        "client_id",
        "code_challenge_methods_supported",
        "token_type",
    ]
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)


def refusal(read: Callable[[], object]) -> str:
    """In which words it is refused; none when it is not."""
    try:
        read()
    except SignInError as error:
        return str(error)
    return ""


@given(st.text() | st.from_regex(r"Bearer( [a-z]+=(\"[^\"]*\"|x),?)*"))
def test_challenges(header: str) -> None:
    for each in parse_challenges(header):
        assert each.scheme == each.scheme.lower()


@given(OBJECTS | VALUES)
def test_documents(value: Any) -> None:
    body = json.dumps(value).encode()
    for read in (
        lambda: parse_resource_metadata(body, URL),
        lambda: parse_server_metadata(body, None),
        lambda: response_object(FetchResponse(400, {}, body, URL), "token"),
    ):
        assert refusal(read).isprintable()


@given(OBJECTS)
def test_tokens(value: Any) -> None:
    from greenroom.auth.client.token_requests import _parse_token_response  # noqa: PLC0415

    try:
        found = _parse_token_response(value, "token", bearer=True)
    except SignInError as refused:
        assert str(refused).isprintable()
        return
    assert found.access_token.isprintable()


@given(OBJECTS)
def test_any_stored_entry_is_parsed_or_ignored(value: Any) -> None:
    LoginRecord.read(value)


@given(st.text() | st.from_regex(r"https?://[\[\]a-z0-9:@/.]*"))
def test_addresses(url: str) -> None:
    covers(url, URL)
    try:
        check_endpoint(url, "discovery")
    except SignInError as refused:
        assert str(refused).isprintable()
        return
    assert url.startswith(("https://", "http://"))


async def test_an_issuer_that_is_none() -> None:
    async def fetch(url: str, **_: Any) -> FetchResponse:
        return FetchResponse(404, {}, b"", url)

    for issuer in ("https://[", "", "x", "javascript:1"):
        with pytest.raises(SignInError, match=r"^discovery: "):
            await discover_authorization_server(issuer, fetch)


@given(st.text())
def test_any_authorization_response_is_parsed_and_made_printable(text: str) -> None:
    parse_authorization_response(text)
    assert "<script" not in html_page(text, text).lower().replace("&lt;", "")
    assert printable_line(text).isprintable()
