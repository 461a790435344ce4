"""Proofs of possession and nonces as values: what a proof says, and which nonces are sent back."""

from __future__ import annotations

import hashlib
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.auth.client.dpop_proofs import GrantBinding, ProofKey, ServerNonces, strongest
from greenroom.auth.client.metadata_discovery import AuthorizationServerMetadata
from greenroom.auth.credential_headers import base64url
from greenroom.auth.errors import SignInError
from greenroom.auth.jose import (
    decode_part,
    make_key,
    parse_jwk,
    private_pem,
    public_members,
    thumbprint,
    verified_claims,
)
from greenroom.transports.client.errors import kinds_tried
from greenroom.transports.client.http_connection_pool import ResponseHead

KEY = ProofKey()
TOKEN = "an-access-token"


def claims(proof: str) -> dict[str, Any]:
    """The claims of a proof whose own key has signed it."""
    header = decode_part(proof, 0) or {}
    assert set(header) == {"typ", "alg", "jwk"}
    assert (header["typ"], header["alg"]) == ("dpop+jwt", "ES256")
    members = public_members(header["jwk"])
    assert members is not None
    assert members == header["jwk"], "nothing but the public key"
    key = parse_jwk(members)
    assert key is not None
    assert thumbprint(members) == KEY.thumbprint
    return verified_claims(proof, (key,), ("ES256",), carries_key=True)


@pytest.mark.row("26-A12")
def test_a_proof_names_its_request_and_its_token_and_is_never_made_twice() -> None:
    proofs = [claims(KEY.proof("POST", "https://mcp.example/mcp", token=TOKEN)) for _ in range(50)]
    assert len({each["jti"] for each in proofs}) == 50
    first = proofs[0]
    assert abs(first["iat"] - time.time()) < 5
    assert first | {"jti": 0, "iat": 0} == {
        "jti": 0,
        "iat": 0,
        "htm": "POST",
        "htu": "https://mcp.example/mcp",
        "ath": base64url(hashlib.sha256(TOKEN.encode()).digest()),
    }
    assert claims(KEY.proof("GET", "https://mcp.example", nonce="n")).keys() == {"jti", "iat", "htm", "htu", "nonce"}


@pytest.mark.parametrize(
    ("url", "htu"),
    [
        ("https://mcp.example/mcp?key=secret#part", "https://mcp.example/mcp"),
        ("https://user:secret@mcp.example:8443/a%20b", "https://mcp.example:8443/a%20b"),
        ("https://mcp.example", "https://mcp.example/"),
        ("http://[::1]:80/mcp/", "http://[::1]:80/mcp/"),
    ],
)
def test_the_url_in_a_proof_has_no_query_and_no_login(url: str, htu: str) -> None:
    assert claims(KEY.proof("POST", url))["htu"] == htu


@given(st.from_regex(r"https?://[a-z.]{1,9}(:[0-9]{1,4})?(/[!-~]{0,9})?", fullmatch=True))
@settings(max_examples=examples(100))
def test_the_url_in_a_proof_is_that_of_the_request(url: str) -> None:
    htu: str = claims(KEY.proof("POST", url))["htu"]
    found = urlsplit(htu)
    assert found[:2] == urlsplit(url)[:2]
    assert not found.query
    assert not found.fragment


def test_a_key_is_read_as_it_was_kept() -> None:
    again = ProofKey.read(KEY.pem)
    assert again is not None
    assert again.thumbprint == KEY.thumbprint
    claims(again.proof("POST", "https://mcp.example/"))
    assert ProofKey().thumbprint != KEY.thumbprint


@given(st.one_of(st.none(), st.integers(), st.text(), st.binary(), st.just(private_pem(make_key("OKP")))))
def test_anything_else_is_no_key(stored: object) -> None:
    assert ProofKey.read(stored) is None


# --- nonces


def test_the_newest_nonce_of_an_origin_is_used_at_that_origin_alone() -> None:
    nonces = ServerNonces()
    nonces.note("https://a.example/token", "1")
    nonces.note("https://b.example/mcp", "2")
    nonces.note("https://a.example/other?x", "3")
    assert nonces.newest("https://a.example/token") == "3"
    assert nonces.newest("https://b.example/") == "2"
    for other in ("http://a.example/token", "https://a.example:8443/token", "https://c.example/"):
        assert nonces.newest(other) is None
    nonces.note("https://a.example/token", None)
    assert nonces.newest("https://a.example/token") == "3", "a response without a nonce changes nothing"


def test_nonces_of_many_origins_are_not_kept() -> None:
    nonces = ServerNonces()
    for number in range(1000):
        nonces.note(f"https://{number}.example/", "n")
        nonces.note("https://mine.example/", "mine")
    assert nonces.newest("https://mine.example/") == "mine"
    assert nonces.newest("https://0.example/") is None
    assert sum(nonces.newest(f"https://{number}.example/") is not None for number in range(1000)) < 20


@given(st.one_of(st.text(max_size=50), st.text(min_size=1025, max_size=1100)))
@settings(max_examples=examples(300))
def test_only_a_nonce_as_it_is_defined_is_sent_back(text: str) -> None:
    nonces = ServerNonces()
    nonces.note("https://a.example/", text)
    allowed = 0 < len(text) <= 1024 and all(0x21 <= ord(each) <= 0x7E and each not in '"\\' for each in text)
    assert nonces.newest("https://a.example/") == (text if allowed else None)


# --- how often a request is tried

NONCE, TOKEN_REFUSED, SCOPES = (
    ResponseHead(401, b"1.1", [(b"www-authenticate", b'DPoP error="use_dpop_nonce"'), (b"dpop-nonce", b"n")]),
    ResponseHead(401, b"1.1", [(b"www-authenticate", b"DPoP"), (b"dpop-nonce", b"n")]),
    ResponseHead(403, b"1.1", [(b"www-authenticate", b'DPoP error="insufficient_scope"'), (b"dpop-nonce", b"n")]),
)


@given(st.lists(st.sampled_from([NONCE, TOKEN_REFUSED, SCOPES]), max_size=12))
def test_a_server_that_always_wants_something_is_asked_a_few_times(heads: list[ResponseHead]) -> None:
    tried: frozenset[int] | None = frozenset()
    times: dict[int, int] = {}
    for head in heads:
        assert tried is not None
        tried = kinds_tried(tried, head)
        if tried is None:
            break
        times[id(head)] = times.get(id(head), 0) + 1
    assert times.get(id(TOKEN_REFUSED), 0) <= 1
    assert times.get(id(SCOPES), 0) <= 1
    assert times.get(id(NONCE), 0) <= 3


def test_a_nonce_may_be_wanted_after_each_login() -> None:
    tried: frozenset[int] | None = frozenset()
    for head in (TOKEN_REFUSED, NONCE, SCOPES, NONCE):
        assert tried is not None
        tried = kinds_tried(tried, head)
    assert tried is not None
    for head in (TOKEN_REFUSED, NONCE, SCOPES):
        assert kinds_tried(tried, head) is None


@pytest.mark.parametrize(
    "lines",
    [
        [(b"www-authenticate", b'DPoP error="use_dpop_nonce"')],
        [(b"dpop-nonce", b"n"), (b"www-authenticate", b"DPoP")],
        [(b"dpop-nonce", b"n")],
    ],
)
def test_a_401_without_a_nonce_to_use_counts_as_a_refused_token(lines: list[Any]) -> None:
    tried = kinds_tried(frozenset(), ResponseHead(401, b"1.1", lines))
    assert tried is not None
    assert tried == frozenset({401})
    assert kinds_tried(tried, TOKEN_REFUSED) is None


def test_all_challenges_of_a_response_are_read() -> None:
    lines = [(b"www-authenticate", b'Bearer scope="a"'), (b"x", b"1"), (b"www-authenticate", b'DPoP algs="ES256"')]
    assert ResponseHead(401, b"1.1", lines).get(b"www-authenticate") == 'Bearer scope="a", DPoP algs="ES256"'
    assert ResponseHead(200, b"1.1", [(b"x", b"1"), (b"x", b"2")]).get(b"x") == "2"


# --- whether tokens are bound


@pytest.mark.parametrize(
    ("use", "registered", "algorithms", "outcome"),
    [
        ("never", False, ["ES256"], None),
        ("never", True, ["ES256"], True),
        ("auto", False, ["ES256"], False),
        ("auto", False, ["RS256"], None),
        ("auto", False, None, None),
        ("auto", True, None, True),
        ("require", False, ["RS256", "ES256"], True),
        ("require", False, None, True),
        ("require", False, ["RS256"], "refused"),
        ("never", True, ["RS256"], "refused"),
    ],
)
def test_a_grant_is_bound_where_both_servers_and_the_program_agree(
    use: Any, *, registered: bool, algorithms: list[str] | None, outcome: object
) -> None:
    raw = {} if algorithms is None else {"dpop_signing_alg_values_supported": algorithms}
    server = AuthorizationServerMetadata("https://idp.example", raw=raw)
    binding = GrantBinding(use, ServerNonces())
    if outcome == "refused":
        with pytest.raises(SignInError, match="issues none for keys of ES256"):
            binding.prover(server, registered=registered)
        return
    prover = binding.prover(server, registered=registered)
    assert (None if prover is None else prover.required) == outcome


def test_the_strongest_use_wins() -> None:
    assert strongest(["never", "require", "auto"]) == "require"
    assert strongest(["never", "auto"]) == "auto"
    assert strongest(["never"]) == "never"
