"""Credentials in headers are parsed strictly; malformed ones are refused and never crash the server."""

from __future__ import annotations

import base64
import logging
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greenroom.auth.auth_info import AuthInfo, check_not_expired, info_from_claims, number, parse_scopes
from greenroom.auth.bearer_tokens import check_claims
from greenroom.auth.credential_headers import (
    LONGEST_CREDENTIAL,
    challenge,
    extract_api_key,
    extract_basic_auth,
    extract_bearer_token,
    quoted,
)
from greenroom.auth.errors import Denied
from greenroom.auth.jose import InvalidKeyError, parse_jwk_set, secret_key, unverified_header, verified_claims
from greenroom.transports.http_request import checked_header

from .auth_test_server import KEY, KINDS


def _joined(*parts: str) -> str:
    return "".join(parts)


VALUES = st.one_of(
    st.text(max_size=300),
    st.text(st.characters(max_codepoint=255), max_size=300),
    st.builds(
        _joined,
        st.sampled_from(["Bearer", "bearer", "Basic", "ApiKey", "Digest", ""]),
        st.sampled_from([" ", "  ", "\t", ""]),
        st.one_of(st.text(max_size=100), st.binary(max_size=100).map(lambda raw: base64.b64encode(raw).decode())),
    ),
)


@pytest.mark.row("SA-20")
def test_credentials_are_extracted_from_headers() -> None:
    assert extract_bearer_token({"Authorization": "bEARER abc.def-_~+/="}) == "abc.def-_~+/="
    assert extract_api_key({"X-API-KEY": " k "}) == "k"
    assert extract_api_key({"authorization": "apikey k"}) == "k"
    assert extract_api_key({"X-My-Key": "k"}, "x-my-key") == "k"
    assert extract_basic_auth({"authorization": "Basic " + base64.b64encode("änn:p:ß".encode()).decode()}) == (
        "änn",
        "p:ß",
    )


@pytest.mark.row("SA-20")
@pytest.mark.parametrize("value", [None, "", " ", "Digest abc", "Bearer", "Bearer  ", "Basic", "ApiKey ", "garbage"])
@pytest.mark.parametrize("extract", [extract_bearer_token, extract_basic_auth, extract_api_key])
def test_nothing_shown_is_missing(extract: Any, value: str | None) -> None:
    with pytest.raises(Denied) as denied:
        extract({} if value is None else {"authorization": value})
    assert (denied.value.kind, denied.value.status) == ("missing", 401)


@pytest.mark.parametrize(
    ("extract", "value"),
    [
        (extract_bearer_token, "Bearer a b"),
        (extract_bearer_token, "Bearer a\r\nset-cookie: b"),
        (extract_bearer_token, "Bearer ä"),
        (extract_bearer_token, "(xxxx) yyyyyyyy"),
        (extract_bearer_token, "Bearer " + "a" * (LONGEST_CREDENTIAL - 6)),
        (extract_basic_auth, "Basic äöü"),
        (extract_basic_auth, "Basic " + base64.b64encode(b"no colon").decode()),
        (extract_basic_auth, "Basic " + base64.b64encode(b"\xff:\xff").decode()),
        (extract_basic_auth, "Basic " + base64.b64encode(b"ann:a\nb").decode()),
        (extract_api_key, "ApiKey a b"),
        (extract_api_key, "ApiKey " + "ä"),
    ],
)
def test_malformed_credentials_are_refused_without_being_quoted(extract: Any, value: str) -> None:
    with pytest.raises(Denied) as denied:
        extract({"authorization": value})
    assert denied.value.kind == "invalid_request"
    assert value[7:20] not in f"{denied.value} {denied.value.detail}"


def test_a_credential_may_be_as_long_as_a_large_token_is() -> None:
    assert LONGEST_CREDENTIAL == 16 * 1024
    token = "a" * (LONGEST_CREDENTIAL - len("Bearer "))
    assert extract_bearer_token({"authorization": f"Bearer {token}"}) == token
    assert extract_api_key({"x-api-key": "k" * LONGEST_CREDENTIAL}) == "k" * LONGEST_CREDENTIAL
    with pytest.raises(Denied):
        extract_api_key({"x-api-key": "k" * (LONGEST_CREDENTIAL + 1)})


def refused(function: Any, *arguments: Any) -> int | None:
    """As which status, if it is."""
    try:
        function(*arguments)
    except Denied as denied:
        return denied.status
    return None


@given(VALUES, VALUES)
@example("Basic \x80", "")
@example("Bearer " + "[" * 9000, "")
def test_no_header_crashes_a_parser(value: str, key: str) -> None:
    for extract in (extract_bearer_token, extract_basic_auth, extract_api_key):
        assert refused(extract, {"authorization": value, "x-api-key": key}) in (None, 400, 401)


def _segments() -> st.SearchStrategy[str]:
    return st.one_of(
        st.text(max_size=60),
        st.binary(max_size=200).map(lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("=")),
    )


@given(st.one_of(st.text(max_size=200), st.lists(_segments(), max_size=5).map(".".join)))
@example("e30.e30.")
@example(base64.urlsafe_b64encode(b'{"alg":"HS256","a":' + b"[" * 9000).decode().rstrip("=") + ".e30.e30")
@example(base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=") + ".e30.")
@example(base64.urlsafe_b64encode(b'{"alg":"HS256","crit":["b64"],"b64":false}').decode().rstrip("=") + ".e30.e30")
@example(base64.urlsafe_b64encode(b'{"alg":"HS256","kid":' + b'"a"' * 2 + b"}").decode().rstrip("=") + ".e30.e30")
def test_no_token_crashes_a_reader(token: str) -> None:
    with pytest.raises(Denied):
        verified_claims(token, (secret_key("s" * 40), KEY), ("HS256", "ES256"))
    with pytest.raises(Denied):
        unverified_header("x" + token * 2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(
    st.dictionaries(st.sampled_from(["sub", "iss", "aud", "exp", "nbf", "scope", "scp", "client_id", "azp", "x"]), JSON)
)
@example({"exp": 10**400})
@example({"exp": float("nan")})
def test_no_claims_crash_their_check(claims: dict[str, Any]) -> None:
    info = info_from_claims(claims)
    hash(info.principal)
    status = refused(partial(check_claims, now=1.0, issuers=("i",), audience=("a",)), claims)
    assert status == 401 or (status is None and claims["iss"] == "i")


@given(JSON)
def test_no_document_crashes_the_reader_of_keys(document: Any) -> None:
    for each in (document, {"keys": document}, {"keys": [document, {"kty": "RSA", "n": document, "e": "AQAB"}]}):
        try:
            assert isinstance(parse_jwk_set(each), list)
        except InvalidKeyError:
            continue


@given(st.text(max_size=100))
def test_a_challenge_is_one_header_whatever_is_in_it(text: str) -> None:
    checked_header("www-authenticate", challenge("Bearer", realm=text, error=None))
    inside = quoted(text)[1:-1].replace("\\\\", "")
    assert inside.count('"') == inside.count('\\"')


@pytest.mark.row("SA-07")
def test_scopes_are_a_text_or_a_list() -> None:
    assert parse_scopes("a  b") == parse_scopes(["a", "b"]) == frozenset({"a", "b"})
    for nothing in (None, 5, {"a": 1}, ["a", 5]):
        assert parse_scopes(nothing) is None
    assert info_from_claims({"sub": "x", "permissions": ["a"], "scope": "admin"}, "permissions").scopes == frozenset(
        {"a"}
    )
    assert info_from_claims({"sub": "x", "scope": "admin"}, "permissions").scopes is None  # nor is another claim meant


def test_credentials_hold_until_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenroom.auth.auth_info.time.time", lambda: 1000.0)
    for holds in (AuthInfo("ann", expires_at=1000.5), AuthInfo("ann", expires_at=9e9), AuthInfo("ann")):
        assert check_not_expired(holds) is holds
    for over in (1000.0, 999.5, 0.0):
        with pytest.raises(Denied) as denied:
            check_not_expired(AuthInfo("ann", expires_at=over))
        assert denied.value.kind == "expired_token"


@pytest.mark.row("SA-03", "SA-08")
def test_the_fields_of_a_callers_identity() -> None:
    info = AuthInfo("ann", issuer="i", scopes=None, claims={"secret": "xyzzy"}, metadata={"more": "xyzzy"})
    assert "xyzzy" not in repr(info)
    assert not info.has(["a"])  # nothing is known of scopes, which is no yes
    assert info.has([])
    assert info.lacks(["a"]) == {"a"}
    assert AuthInfo(None).principal is None
    assert AuthInfo("anonymous", anonymous=True).principal is None
    assert AuthInfo(None, client_id="c").principal != AuthInfo("c").principal
    assert AuthInfo("ann", issuer="i").principal != AuthInfo("ann", issuer="j").principal
    truth: Any = True
    assert number(truth) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_provider_shows_no_secret(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        told = repr(KINDS[kind].make())
    for secret in ("long enough", "0123456789abcdef", "right", "pbkdf2", "pepper"):
        assert secret not in told + caplog.text
