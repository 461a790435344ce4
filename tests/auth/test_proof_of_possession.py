"""Tokens that are bound to a key (DPoP): which proofs are accepted, how the others are refused, and how much they cost."""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom import ConfigError
from greenroom.auth.auth_gate import AuthGate, FailureLimiter, ProviderChain
from greenroom.auth.auth_info import AuthInfo, AuthRequest
from greenroom.auth.bearer_tokens import BearerAuth, ResourceDocument
from greenroom.auth.client.login_process import parse_challenges
from greenroom.auth.errors import Denied
from greenroom.auth.jose import ASYMMETRIC, make_key, public_jwk, public_members, sign, thumbprint
from greenroom.auth.jwks_and_introspection import Introspection
from greenroom.auth.proof_of_possession import (
    LONGEST_ID,
    LONGEST_PROOF,
    PROOF_SECONDS,
    DpopVerifier,
    NonceIssuer,
    ReplayGuard,
    bound_key,
)
from greenroom.auth.resource_server import OAuthResource
from greenroom.auth.shared_secrets import APIKeyAuth, CustomAuth
from greenroom.supervision import Supervisor, start, stop
from greenroom.transports.interfaces import HttpRefusal, Peer

from .auth_test_server import AUDIENCE, HELLO, ISSUER, KEY, Book, call, claims, reception
from .dpop_prover import ANN, BOB, Prover, base64url

if TYPE_CHECKING:
    from collections.abc import Mapping

PEM = KEY.inner.as_pem(private=False)
METADATA = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
ALGS = " ".join(ASYMMETRIC)


def resource(**options: Any) -> OAuthResource:
    """A resource server that takes the issuer's tokens."""
    return OAuthResource(resource=AUDIENCE, authorization_servers=[ISSUER], key=PEM, algorithms=("ES256",), **options)


async def admit(
    provider: Any, headers: Mapping[str, str], *, method: str = "POST", path: str = "/mcp", gate: AuthGate | None = None
) -> Peer | HttpRefusal:
    return await (gate or AuthGate(provider)).authenticate(method, path, headers, Peer("http", "203.0.113.7:5"))


def challenges(answer: Peer | HttpRefusal) -> dict[str, Mapping[str, str]]:
    """The challenges of a refusal by scheme."""
    assert isinstance(answer, HttpRefusal)
    lines = [value for name, value in answer.headers if name == "www-authenticate"]
    return {each.scheme: each.params for line in lines for each in parse_challenges(line)}


async def refused(provider: Any, headers: Mapping[str, str], **more: Any) -> str:
    """The description of the proof's refusal, which is a 401 with a challenge of the scheme DPoP alone."""
    answer = await admit(provider, headers, **more)
    assert isinstance(answer, HttpRefusal), "it was admitted"
    assert answer.status == 401
    said = challenges(answer)
    assert list(said) == ["dpop"]
    assert said["dpop"]["error"] == "invalid_dpop_proof"
    assert said["dpop"]["algs"] == ALGS
    assert said["dpop"]["resource_metadata"] == METADATA
    assert json.loads(answer.body)["error"] == "invalid_dpop_proof"
    return said["dpop"]["error_description"]


# --- right proofs


@pytest.mark.row("26-A12")
@pytest.mark.parametrize("dpop", [None, "accept", "require"])
@pytest.mark.parametrize(
    ("family", "algorithm"), [("EC", "ES256"), ("OKP", "EdDSA"), ("RSA", "RS256"), ("RSA", "PS256"), ("RSA", "PS512")]
)
async def test_a_bound_token_is_accepted_with_a_proof_of_its_key(family: Any, algorithm: str, dpop: Any) -> None:
    prover = Prover(make_key(family), algorithm)
    token = prover.token()
    provider = resource(dpop=dpop)
    for scheme in ("DPoP", "dpop", "DPOP"):
        peer = await admit(provider, prover.shown(token, scheme=scheme))
        assert isinstance(peer, Peer)
        assert peer.auth.subject == "ann"
        assert token not in repr(peer.auth)


@pytest.mark.row("26-A12")
async def test_the_same_bound_token_is_checked_with_each_request_although_its_signature_is_remembered() -> None:
    provider, token = resource(), ANN.token()
    assert isinstance(await admit(provider, ANN.shown(token)), Peer)
    assert isinstance(await admit(provider, ANN.shown(token)), Peer)
    assert "another key" in await refused(provider, BOB.shown(token))
    assert "missing" in await refused(provider, {"authorization": f"DPoP {token}"})


@pytest.mark.row("26-A12")
@pytest.mark.parametrize(
    "url",
    [
        AUDIENCE,
        "HTTPS://MCP.EXAMPLE/mcp",
        "https://mcp.example:443/mcp",
        "https://mcp.example/mcp/",
        "https://mcp.example/mcp?tenant=1",
        "https://mcp.example/mcp#part",
    ],
)
async def test_the_url_is_compared_by_its_parts_and_without_its_query(url: str) -> None:
    token = ANN.token()
    assert isinstance(await admit(resource(), ANN.shown(token, ANN.proof(token, htu=url))), Peer)


@pytest.mark.row("26-A12")
async def test_a_path_of_the_old_event_stream_and_the_path_behind_a_proxy_are_of_this_server() -> None:
    token = ANN.token()
    old = ANN.proof(token, htu="https://mcp.example/messages")
    assert isinstance(await admit(resource(), ANN.shown(token, old), path="/messages?session=1"), Peer)
    assert isinstance(await admit(resource(), ANN.shown(token), path="/inside/the/proxy"), Peer)
    got = ANN.proof(token, htm="GET")
    assert isinstance(await admit(resource(), ANN.shown(token, got), method="GET"), Peer)


# --- wrong proofs: each has one thing wrong

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no jti": ({"jti": None}, "jti"),
    "an empty jti": ({"jti": ""}, "jti"),
    "a number as jti": ({"jti": 5}, "jti"),
    "a long jti": ({"jti": "j" * (LONGEST_ID + 1)}, "jti"),
    "no htm": ({"htm": None}, "htm"),
    "another method": ({"htm": "GET"}, "htm"),
    "the method in lower case": ({"htm": "post"}, "htm"),
    "a list as htm": ({"htm": ["POST"]}, "htm"),
    "no htu": ({"htu": None}, "htu"),
    "another server": ({"htu": "https://other.example/mcp"}, "htu"),
    "another scheme": ({"htu": "http://mcp.example/mcp"}, "htu"),
    "another port": ({"htu": "https://mcp.example:8443/mcp"}, "htu"),
    "another path": ({"htu": "https://mcp.example/other"}, "htu"),
    "a path below": ({"htu": "https://mcp.example/mcp/more"}, "htu"),
    "a path above": ({"htu": "https://mcp.example"}, "htu"),
    "a user in the URL": ({"htu": "https://ann@mcp.example/mcp"}, "htu"),
    "a path alone": ({"htu": "/mcp"}, "htu"),
    "a list as htu": ({"htu": [AUDIENCE]}, "htu"),
    "no iat": ({"iat": None}, "iat"),
    "a text as iat": ({"iat": "now"}, "iat"),
    "true as iat": ({"iat": True}, "iat"),
    "no ath": ({"ath": None}, "ath"),
    "another token's ath": ({"ath": base64url(b"x" * 32)}, "ath"),
    "a list as ath": ({"ath": []}, "ath"),
    "an ath that is not ASCII": ({"ath": "é"}, "ath"),
}
WRONG_HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "no typ": ({"typ": None}, "typ"),
    "another typ": ({"typ": "JWT"}, "typ"),
    "typ in upper case": ({"typ": "DPOP+JWT"}, "typ"),
    "no jwk": ({"jwk": None}, "jwk"),
    "an empty jwk": ({"jwk": {}}, "jwk"),
    "a jwk with a private member": ({"jwk": {**ANN.members, "d": "AA"}}, "jwk"),
    "a jwk with a null for a private member": ({"jwk": {**ANN.members, "d": 5}}, "jwk"),
    "a symmetric jwk": ({"jwk": {"kty": "oct", "k": "AAAA"}}, "jwk"),
    "a family that is a list": ({"jwk": {**ANN.members, "kty": ["EC"]}}, "jwk"),
    "a coordinate that is a number": ({"jwk": {**ANN.members, "x": 5}}, "jwk"),
    "a coordinate that is empty": ({"jwk": {**ANN.members, "x": ""}}, "jwk"),
    "a coordinate with a quote": ({"jwk": {**ANN.members, "x": 'a"b'}}, "jwk"),
    "another key": ({"jwk": BOB.members}, "another key"),
    "crit": ({"crit": ["exp"], "exp": 1}, "not signed"),
}


@pytest.mark.row("26-A12")
@pytest.mark.parametrize("case", WRONG)
async def test_a_proof_with_a_wrong_claim_is_refused(case: str) -> None:
    changes, word = WRONG[case]
    token = ANN.token()
    assert word in await refused(resource(), ANN.shown(token, ANN.proof(token, **changes)))


@pytest.mark.row("26-A12")
@pytest.mark.parametrize("case", WRONG_HEADERS)
async def test_a_proof_with_a_wrong_header_is_refused(case: str) -> None:
    changes, word = WRONG_HEADERS[case]
    token = ANN.token()
    header = base64url(json.dumps({"alg": "ES256", **ANN.header(**changes)}).encode())
    _, body, signature = ANN.proof(token).split(".")
    assert word in await refused(resource(), ANN.shown(token, f"{header}.{body}.{signature}"))


@pytest.mark.row("26-A12")
async def test_an_algorithm_is_an_accepted_one_of_the_keys_family() -> None:
    token = ANN.token()
    never: list[Any] = ["none", "HS256", "HS512", "ES256K", "", None, 5, ["ES256"], {}]
    for wrong in never:
        said = await refused(resource(), ANN.shown(token, ANN.forged(token, alg=wrong)))
        assert said.startswith("alg is none of")
    for wrong in ("RS256", "EdDSA", "ES384", "ES512"):  # accepted, and not for this key
        assert "not signed" in await refused(resource(), ANN.shown(token, ANN.forged(token, alg=wrong)))


@pytest.mark.row("26-A12")
async def test_a_signature_of_another_key_over_the_right_header_and_claims_is_refused() -> None:
    token = ANN.token()
    forger = Prover(BOB.key)
    forger.members = ANN.members
    assert "not signed" in await refused(resource(), ANN.shown(token, forger.proof(token)))
    header, body, signature = ANN.proof(token).split(".")
    flipped = ("A" if signature[0] != "A" else "B") + signature[1:]
    assert "not signed" in await refused(resource(), ANN.shown(token, f"{header}.{body}.{flipped}"))
    assert "not signed" in await refused(resource(), ANN.shown(token, f"{header}.{body}."))


@pytest.mark.row("26-A12")
@pytest.mark.parametrize(
    "text", ["", "x", "a.b.c", "..", "a.b", "a.b.c.d", "é.é.é", "[].[].[]", "a" * (LONGEST_PROOF + 1)]
)
async def test_a_header_that_is_no_proof_is_refused(text: str) -> None:
    await refused(resource(), ANN.shown(ANN.token(), text))


@pytest.mark.row("26-A12")
async def test_the_longest_proof_and_the_longest_id_are_examined_and_longer_ones_are_not() -> None:
    token = ANN.token()
    assert isinstance(await admit(resource(), ANN.shown(token, ANN.proof(token, jti="j" * LONGEST_ID))), Peer)
    room = (LONGEST_PROOF - len(ANN.proof(token, jti="once", pad=""))) * 3 // 4
    for letters in range(room - 4, room + 5):  # four letters of base64 are three of the claim
        long = ANN.proof(token, jti="once", pad="x" * letters)
        if len(long) == LONGEST_PROOF:
            assert isinstance(await admit(resource(), ANN.shown(token, long)), Peer)
            break
    else:
        pytest.fail("no proof has the length")
    long = ANN.proof(token, pad="x" * LONGEST_PROOF)
    assert "more than 8192 characters" in await refused(resource(), ANN.shown(token, long))


@pytest.mark.row("26-A12")
async def test_two_proofs_are_refused_even_if_both_are_right() -> None:
    token = ANN.token()
    assert "not one" in await refused(resource(), ANN.shown(token, f"{ANN.proof(token)}, {ANN.proof(token)}"))


@pytest.mark.row("26-A12")
async def test_a_proof_is_good_for_five_minutes_either_way() -> None:
    token, now = ANN.token(), time.time()
    for near in (-PROOF_SECONDS + 5, PROOF_SECONDS - 5, 0.5):
        assert isinstance(await admit(resource(), ANN.shown(token, ANN.proof(token, iat=now + near))), Peer)
    for far in (-PROOF_SECONDS - 2, PROOF_SECONDS + 5, -1e9, 1e300):
        assert "iat" in await refused(resource(), ANN.shown(token, ANN.proof(token, iat=now + far)))


@pytest.mark.row("26-A12")
async def test_a_proof_is_good_once_and_an_id_belongs_to_its_key() -> None:
    provider, ann, bob = resource(), ANN.token(), BOB.token()
    proof = ANN.proof(ann, jti="same")
    assert isinstance(await admit(provider, ANN.shown(ann, proof)), Peer)
    assert "used before" in await refused(provider, ANN.shown(ann, proof))
    assert "used before" in await refused(provider, ANN.shown(ann, ANN.proof(ann, jti="same", htm="POST")))
    assert isinstance(await admit(provider, BOB.shown(bob, BOB.proof(bob, jti="same"))), Peer)


@pytest.mark.row("26-A12")
async def test_a_refused_proof_is_not_remembered_so_no_other_party_can_use_up_an_id() -> None:
    provider, token = resource(), ANN.token()
    await refused(provider, ANN.shown(token, ANN.forged(token, jti="mine")))
    await refused(provider, ANN.shown(token, ANN.proof(token, jti="mine", htm="GET")))
    assert isinstance(await admit(provider, ANN.shown(token, ANN.proof(token, jti="mine"))), Peer)


# --- the token's side of the binding


@pytest.mark.row("26-A12")
@pytest.mark.parametrize("dpop", [None, "accept", "require"])
async def test_a_bound_token_never_passes_as_a_bearer_token(dpop: Any) -> None:
    token = ANN.token()
    for headers in ({"authorization": f"Bearer {token}"}, ANN.shown(token, scheme="Bearer")):
        assert "bound to a key" in await refused(resource(dpop=dpop), headers)


@pytest.mark.row("26-A12")
async def test_providers_without_proofs_refuse_a_bound_token_in_each_scheme() -> None:
    token, book = ANN.token(), Book()
    opaque = book.issue(claims(cnf={"jkt": ANN.jkt}))
    providers: list[tuple[Any, str]] = [
        (BearerAuth(key=PEM, algorithms=("ES256",), audience=AUDIENCE), token),
        (BearerAuth(verifier=book.verify, audience=AUDIENCE), opaque),
        (CustomAuth(book.verify), opaque),
        (ProviderChain([APIKeyAuth(["k" * 30]), CustomAuth(book.verify)]), opaque),
    ]
    for provider, shown in providers:
        for scheme in ("Bearer", "DPoP"):
            answer = await admit(provider, ANN.shown(shown, ANN.proof(shown), scheme))
            assert isinstance(answer, HttpRefusal)
            assert answer.status == 401
            assert "dpop" not in challenges(answer)


@pytest.mark.row("26-A12")
@pytest.mark.parametrize(
    "cnf", [5, "x", [], {"jkt": None}, {"jkt": 5}, {"jkt": ""}, {"jkt": "short"}, {"jkt": "é" * 43}]
)
async def test_a_malformed_binding_does_not_count_as_none(cnf: Any) -> None:
    token = ANN.token(cnf=cnf)
    for headers in (ANN.shown(token), {"authorization": f"Bearer {token}"}):
        answer = await admit(resource(), headers)
        assert isinstance(answer, HttpRefusal)
        assert answer.status == 401
    custom = CustomAuth({"t": {"subject": "ann", "cnf": cnf}}.get)
    assert isinstance(await admit(custom, {"authorization": "Bearer t"}), HttpRefusal)


@pytest.mark.row("26-A12")
def test_a_thumbprint_is_that_of_rfc_7638() -> None:
    modulus = (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W"
        "-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyr"
        "dkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
    )
    members = public_members({"n": modulus, "kty": "RSA", "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"})
    assert members is not None
    assert members == {"kty": "RSA", "e": "AQAB", "n": modulus}
    assert thumbprint(members) == thumbprint(dict(reversed(members.items())))
    assert thumbprint(members) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


@pytest.mark.row("26-A12")
def test_a_public_key_has_bounded_members() -> None:
    assert public_members({"kty": "RSA", "e": "A" * 6, "n": "x" * 683})
    assert public_members({"kty": "RSA", "e": "A" * 7, "n": "x" * 683}) is None
    assert public_members({"kty": "RSA", "e": "A" * 6, "n": "x" * 684}) is None
    for private in ("d", "p", "q", "dp", "dq", "qi", "oth", "k"):
        assert public_members({**ANN.members, private: None}) is None


@pytest.mark.row("26-A12")
async def test_a_member_of_the_header_that_is_unknown_is_ignored() -> None:
    token = ANN.token()
    signed = ".".join(
        base64url(json.dumps(each).encode()) for each in (ANN.header(alg="ES256", cnonce="x"), ANN.claims(token))
    )
    raw: bytes = ANN.key.inner.private_key.sign(signed.encode(), ec.ECDSA(hashes.SHA256()))
    signature = b"".join(part.to_bytes(32, "big") for part in decode_dss_signature(raw))
    proof = f"{signed}.{base64url(signature)}"
    assert isinstance(await admit(resource(), ANN.shown(token, proof)), Peer)


@pytest.mark.row("26-A12")
@pytest.mark.parametrize("text", ["DPoP a b", "DPoP é", "DPoP a,b", 'DPoP "a"', "DPoP  ", "DPoP"])
async def test_a_malformed_token_of_the_scheme_is_refused_before_it_is_verified(text: str) -> None:
    answer = await admit(resource(), {"authorization": text, "dpop": "x"})
    assert isinstance(answer, HttpRefusal)
    assert answer.status == (401 if text.strip() == "DPoP" else 400)


@pytest.mark.row("26-A12")
def test_a_binding_is_a_thumbprint_or_none_or_the_token_is_invalid() -> None:
    assert bound_key({}) is bound_key({"cnf": None}) is bound_key({"cnf": {"kid": "x"}}) is None
    assert bound_key({"cnf": {"jkt": ANN.jkt}}) == ANN.jkt
    malformed: list[Any] = [
        5,
        "x",
        [],
        {"jkt": None},
        {"jkt": [ANN.jkt]},
        {"jkt": "é" * 43},
        {"jkt": ANN.jkt + "A"},
        {"jkt": "A" * 42},
    ]
    for wrong in malformed:
        with pytest.raises(Denied, match="invalid_token"):
            bound_key({"cnf": wrong})


@pytest.mark.row("26-A12")
async def test_a_token_bound_by_other_means_or_not_at_all_passes_as_before() -> None:
    for cnf in (None, {}, {"x5t#S256": "AAAA"}):
        token = ANN.token(cnf=cnf)
        assert isinstance(await admit(resource(), {"authorization": f"Bearer {token}"}), Peer)
        answer = await admit(resource(), ANN.shown(token))
        assert challenges(answer)["dpop"]["error"] == "invalid_token"
        answer = await admit(resource(dpop="require"), {"authorization": f"Bearer {token}"})
        assert "as this server requires" in challenges(answer)["dpop"]["error_description"]


@pytest.mark.row("26-A12")
@pytest.mark.row("26-A10")
async def test_audience_issuer_expiry_and_scopes_are_checked_under_a_right_proof_too() -> None:
    provider = resource(required_scopes=["use"], dpop="require")
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"aud": "https://other.example/mcp"}, 401, "invalid_token"),
        ({"iss": "https://evil.example"}, 401, "invalid_token"),
        ({"exp": time.time() - 3600}, 401, "invalid_token"),
        ({"scope": "look"}, 403, "insufficient_scope"),
    ]
    for changes, status, error in cases:
        token = ANN.token(**changes)
        answer = await admit(provider, ANN.shown(token))
        assert isinstance(answer, HttpRefusal)
        assert answer.status == status
        assert challenges(answer)["dpop"]["error"] == error


@pytest.mark.row("26-A12")
async def test_an_introspected_token_is_bound_by_the_cnf_of_the_response() -> None:
    book = Book()
    token = book.issue(claims(cnf={"jkt": ANN.jkt}, token_type="DPoP"))
    asked = Introspection("https://id.example/introspect", book.fetch, client_id="me", client_secret="s")
    provider = OAuthResource(resource=AUDIENCE, authorization_servers=[ISSUER], introspection=asked)
    tree = await start(Supervisor, list(provider.children()))
    try:
        gate = AuthGate(provider)
        for _ in range(2):
            assert isinstance(await admit(provider, ANN.shown(token), gate=gate), Peer)
        assert "another key" in await refused(provider, BOB.shown(token), gate=gate)
        assert "bound to a key" in await refused(provider, {"authorization": f"Bearer {token}"}, gate=gate)
        assert book.asked == 1
    finally:
        await stop(tree)


@pytest.mark.row("26-A12")
async def test_claims_that_an_authorizer_returns_bind_the_token_as_well() -> None:
    async def authorize(token: str, *_: Any) -> dict[str, Any]:
        return claims(cnf={"jkt": ANN.jkt})

    provider = OAuthResource(resource=AUDIENCE, authorization_servers=[ISSUER], authorizer=authorize)
    assert isinstance(await admit(provider, ANN.shown("opaque")), Peer)
    assert "bound to a key" in await refused(provider, {"authorization": "Bearer opaque"})
    assert "another key" in await refused(provider, BOB.shown("opaque"))


# --- what is advertised


@pytest.mark.row("26-A12")
async def test_challenges_and_metadata_say_what_is_configured_and_nothing_by_default() -> None:
    request = AuthRequest("GET", "/", {})
    for dpop, schemes, more in (
        (None, ["bearer"], {}),
        ("accept", ["bearer", "dpop"], {"dpop_signing_alg_values_supported": list(ASYMMETRIC)}),
        (
            "require",
            ["dpop"],
            {"dpop_signing_alg_values_supported": list(ASYMMETRIC), "dpop_bound_access_tokens_required": True},
        ),
    ):
        provider: Any = resource(dpop=dpop, required_scopes=["use"])
        said = challenges(await admit(provider, {}))
        assert list(said) == schemes
        for params in said.values():
            assert "error" not in params
            assert params["scope"] == "use"
            assert params["resource_metadata"] == METADATA
        document = await provider.public_document.document(request)
        assert {name: value for name, value in document.items() if name.startswith("dpop")} == more
        assert ("dpop" in provider.headers) == (dpop is not None)
        wrong = challenges(await admit(provider, {"authorization": "Bearer x.y.z"}))
        assert list(wrong) == schemes
        assert wrong[schemes[0]]["error"] == "invalid_token"
        assert all("HS" not in each and each != "none" for each in ASYMMETRIC)


@pytest.mark.row("26-A12")
async def test_a_caller_that_lacks_a_scope_is_challenged_in_the_scheme_that_it_used() -> None:
    gate = AuthGate(resource(dpop="accept"), required_scopes=["more"])
    for headers, scheme in (
        (ANN.shown(ANN.token()), "dpop"),
        ({"authorization": f"Bearer {ANN.token(cnf=None)}"}, "bearer"),
    ):
        answer = await admit(None, headers, gate=gate)
        assert isinstance(answer, HttpRefusal)
        assert answer.status == 403
        said = challenges(answer)
        assert list(said) == [scheme]
        assert said[scheme]["scope"] == "more"


@pytest.mark.row("26-A12")
async def test_a_bearer_provider_takes_the_url_from_its_metadata_or_from_resource() -> None:
    usual: dict[str, Any] = {"key": PEM, "algorithms": ("ES256",), "audience": AUDIENCE}
    token = ANN.token()
    document: dict[str, Any] = {"resource": AUDIENCE, "authorization_servers": [ISSUER]}
    ways: list[dict[str, Any]] = [
        {"resource": AUDIENCE},
        {"resource_metadata": document, "dpop": "accept"},
        {"resource_metadata": ResourceDocument(**document), "dpop": "require"},
    ]
    for options in ways:
        provider: Any = BearerAuth(**usual, **options)
        assert isinstance(await admit(provider, ANN.shown(token)), Peer)
        assert isinstance(await admit(provider, {"authorization": f"Bearer {token}"}), HttpRefusal)
        if provider.public_document is not None:
            shown = await provider.public_document.document(AuthRequest("GET", "/", {}))
            assert shown["dpop_signing_alg_values_supported"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dpop": "accept"}, "the URL that proofs have to name"),
        ({"dpop": "always", "resource": AUDIENCE}, '"accept", "require" or None'),
        ({"dpop": True, "resource": AUDIENCE}, '"accept", "require" or None'),
        ({"dpop": "accept", "resource": "/mcp"}, "absolute"),
        ({"dpop_nonce_seconds": 1, "resource": AUDIENCE}, "2 to 300"),
        ({"dpop_nonce_seconds": 301, "resource": AUDIENCE}, "2 to 300"),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BearerAuth(secret="s" * 40, audience=AUDIENCE, **options)
    with pytest.raises(ConfigError, match="argument dpop"):
        resource(dpop="accept", metadata={"dpop_signing_alg_values_supported": []})


# --- nonces


@pytest.mark.row("26-A12")
async def test_with_nonces_a_proof_without_one_is_challenged_and_with_it_accepted() -> None:
    provider, token = resource(dpop_nonce_seconds=60), ANN.token()

    async def nonce_for(proof: str) -> str:
        answer = await admit(provider, ANN.shown(token, proof))
        assert isinstance(answer, HttpRefusal)
        assert answer.status == 401
        assert challenges(answer)["dpop"]["error"] == "use_dpop_nonce"
        headers = dict(answer.headers)
        assert headers["access-control-expose-headers"] == "DPoP-Nonce"
        return headers["dpop-nonce"]

    nonce = await nonce_for(ANN.proof(token))
    assert nonce
    for wrong in ("made up", "", 5, [nonce], nonce[:-1], nonce + "A"):
        assert await nonce_for(ANN.proof(token, nonce=wrong)) == nonce
    for _ in range(3):
        assert isinstance(await admit(provider, ANN.shown(token, ANN.proof(token, nonce=nonce))), Peer)
    once = ANN.proof(token, nonce=nonce)
    assert isinstance(await admit(provider, ANN.shown(token, once)), Peer)
    answer = await admit(provider, ANN.shown(token, once))
    assert "used before" in challenges(answer)["dpop"]["error_description"]
    assert dict(answer.headers)["dpop-nonce"] == nonce  # type: ignore[union-attr]
    # no nonce where no proof was asked for
    assert "dpop-nonce" not in dict((await admit(provider, {})).headers)  # type: ignore[union-attr]


@pytest.mark.row("26-A12")
def test_a_nonce_lives_for_half_of_its_seconds_at_least_and_for_all_at_most() -> None:
    issuer = NonceIssuer(60)
    for moment in (0.0, 29.9, 30.0, 59.0):
        nonce = issuer.issue(1_000_020 + moment)
        assert issuer.accepts(nonce, 1_000_020 + moment + 30)
        assert not issuer.accepts(nonce, 1_000_020 + moment + 60)
        assert not issuer.accepts(nonce, 1_000_020 + moment - 60)  # of the future
    assert issuer.issue(0) != issuer.issue(30)
    assert not NonceIssuer(60).accepts(issuer.issue(5), 5)


@pytest.mark.row("26-A12")
async def test_gates_that_share_a_key_accept_each_others_nonces_and_others_do_not() -> None:
    token = ANN.token()
    first, second, stranger = (resource(dpop_nonce_seconds=60) for _ in range(3))
    chain = AuthGate(ProviderChain([APIKeyAuth(["k" * 30]), second]))
    gate = AuthGate(first)
    gate.share(b"k" * 32)
    chain.share(b"k" * 32)
    nonce = dict((await admit(first, ANN.shown(token), gate=gate)).headers)["dpop-nonce"]  # type: ignore[union-attr]
    assert isinstance(await admit(None, ANN.shown(token, ANN.proof(token, nonce=nonce)), gate=chain), Peer)
    answer = await admit(stranger, ANN.shown(token, ANN.proof(token, nonce=nonce)))
    assert challenges(answer)["dpop"]["error"] == "use_dpop_nonce"


# --- the gate: fresh proofs are no new credentials


@pytest.mark.row("26-A12")
async def test_a_thief_without_the_key_cannot_have_its_victim_limited() -> None:
    provider, token = resource(dpop="accept"), ANN.token()
    gate = AuthGate(provider, per_claim=FailureLimiter(3, 60.0), per_source=FailureLimiter(3, 60.0))
    for _ in range(10):
        await refused(provider, ANN.shown(token, ANN.forged(token)), gate=gate)
        await refused(provider, {"authorization": f"Bearer {token}"}, gate=gate)
    assert isinstance(await admit(provider, ANN.shown(token), gate=gate), Peer)


@pytest.mark.row("26-A12")
async def test_guessed_tokens_are_limited_though_each_comes_with_a_fresh_proof_and_known_ones_are_not() -> None:
    provider, token = resource(dpop="accept"), ANN.token()
    gate = AuthGate(provider, per_source=FailureLimiter(3, 60.0))
    assert isinstance(await admit(provider, ANN.shown(token), gate=gate), Peer)
    statuses: list[int] = []
    for number in range(6):
        guess = sign(claims(f"guess {number}"), BOB.key, "ES256")
        answer = await admit(provider, ANN.shown(guess), gate=gate)
        assert isinstance(answer, HttpRefusal)
        statuses.append(answer.status)
    assert statuses == [401, 401, 401, 429, 429, 429]
    assert isinstance(await admit(provider, ANN.shown(token), gate=gate), Peer)  # known by its token, not by its proof


@pytest.mark.row("26-A12")
async def test_a_caller_without_a_subject_stays_one_principal_across_its_proofs() -> None:
    provider = resource(dpop="accept")
    gate, token = AuthGate(provider), ANN.token(sub=None)
    first, second = [await admit(provider, ANN.shown(token), gate=gate) for _ in range(2)]
    assert isinstance(first, Peer)
    assert isinstance(second, Peer)
    assert first.principal == second.principal


# --- over HTTP, with sessions


@pytest.mark.row("26-A12")
@pytest.mark.row("26-A10")
async def test_each_request_of_a_session_needs_a_proof_of_its_own() -> None:
    async with reception(resource(dpop="require")) as desk:
        token = ANN.token()
        paper = await desk.ask("POST", ANN.shown(token), HELLO)
        assert paper.status == 200
        session = paper.headers["mcp-session-id"]
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await desk.ask("POST", ANN.shown(token), note, mcp_session_id=session)).status == 202
        shown = ANN.shown(token)
        paper = await desk.ask("POST", shown, call("whoami"), mcp_session_id=session)
        assert paper.json["result"]["content"][0]["text"] == "ann"
        again = await desk.ask("POST", shown, call("whoami", id=2), mcp_session_id=session)
        assert again.status == 401
        assert 'error="invalid_dpop_proof"' in again.headers["www-authenticate"]
        bare = await desk.ask("POST", {"authorization": f"DPoP {token}"}, call("whoami", id=3), mcp_session_id=session)
        assert bare.status == 401
        none = await desk.ask("POST", {}, call("whoami", id=4), mcp_session_id=session)
        assert none.status == 401
        assert none.headers["www-authenticate"].startswith("DPoP ")
        lacking = await desk.ask("POST", ANN.shown(token), call("deploy", id=5), mcp_session_id=session)
        assert lacking.status == 403
        assert lacking.headers["www-authenticate"].startswith("DPoP ")
        assert 'scope="deploy"' in lacking.headers["www-authenticate"]


@pytest.mark.row("26-A12")
async def test_pages_may_send_the_proof_where_it_is_configured() -> None:
    asked = {"origin": "http://localhost", "access-control-request-headers": "dpop"}
    for dpop, allowed in (("accept", True), (None, False)):
        async with reception(resource(dpop=dpop)) as desk:
            paper = await desk.ask("OPTIONS", asked)
            assert ("dpop" in paper.headers["access-control-allow-headers"]) == allowed


# --- hostile proofs: any text is a refusal, in linear time and bounded memory

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
MEMBERS = st.sampled_from(["typ", "alg", "jwk", "crit", "kid", "b64", "cty"])
CLAIMS = st.sampled_from(["jti", "htm", "htu", "iat", "ath", "nonce"])


@pytest.mark.row("26-A12")
@settings(max_examples=examples(500))
@given(
    st.dictionaries(MEMBERS, JSON, min_size=1),
    st.dictionaries(CLAIMS, JSON, max_size=3),
    st.sampled_from(["wrong", "right"]),
)
async def test_any_json_in_a_header_or_claims_is_a_refusal_and_never_an_error(
    header: dict[str, Any], changes: dict[str, Any], signature: str
) -> None:
    token = ANN.token()
    verifier = DpopVerifier(resource=AUDIENCE, nonce_seconds=60)
    info = AuthInfo("ann", claims={"cnf": {"jkt": ANN.jkt}})
    claims_ = ANN.claims(token) | changes
    proof = (
        ".".join(base64url(json.dumps(each).encode()) for each in ({"alg": "ES256", **ANN.header(), **header}, claims_))
        + ".AAAA"
    )
    if signature == "right":
        proof = sign(claims_, ANN.key, "ES256", ANN.header())
    with pytest.raises(Denied) as caught:
        verifier.check("dpop", info, AuthRequest("POST", "/mcp", ANN.shown(token, proof)))
    assert caught.value.kind in ("invalid_dpop_proof", "use_dpop_nonce")


@pytest.mark.row("26-A12")
@settings(max_examples=examples(300))
@given(
    st.text(alphabet=st.characters(codec="latin-1"), max_size=200)
    | st.binary(max_size=150).map(lambda raw: raw.decode("latin-1"))
)
async def test_any_text_as_a_proof_is_a_refusal_and_never_an_error(text: str) -> None:
    verifier = DpopVerifier(resource=AUDIENCE)
    info = AuthInfo("ann", claims={"cnf": {"jkt": ANN.jkt}})
    with pytest.raises(Denied, match="invalid_dpop_proof"):
        verifier.check("dpop", info, AuthRequest("POST", "/mcp", ANN.shown("t", text)))


@pytest.mark.row("26-A12")
@pytest.mark.parametrize(
    "members",
    [
        {"kty": "RSA", "e": "AQAB", "n": "x" * 684},
        {"kty": "RSA", "e": "A" * 7, "n": "x" * 342},
        {"kty": "RSA", "e": "AQAB", "n": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "A" * 4000, "y": "A"},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "crv": "P-999", "x": "AAAA", "y": "AAAA"},
        {"kty": "OKP", "crv": "X25519", "x": base64url(b"\x09" + b"\x00" * 31)},
        {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"},
    ],
)
async def test_a_huge_small_or_unusable_key_is_refused_even_if_an_issuer_has_bound_a_token_to_it(
    members: dict[str, str],
) -> None:
    prover = Prover(make_key("EC"))
    prover.members = members
    text = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
    token = prover.token(cnf={"jkt": base64url(hashlib.sha256(text).digest())})
    algorithm = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}[members["kty"]]
    said = await refused(resource(), prover.shown(token, prover.forged(token, alg=algorithm)))
    assert "jwk" in said or "not signed" in said


def test_a_proof_with_a_deep_or_wide_header_is_refused_in_linear_time() -> None:
    verifier = DpopVerifier(resource=AUDIENCE)
    info = AuthInfo("ann", claims={"cnf": {"jkt": ANN.jkt}})
    for header in (b'{"jwk":' + b"[" * 3000, b'{"jwk":{' + b",".join(b'"k%d":1' % n for n in range(600)) + b"}}"):
        proof = f"{base64url(header)}.e30.AAAA"
        assert len(proof) < LONGEST_PROOF
        with pytest.raises(Denied, match="invalid_dpop_proof"):
            verifier.check("dpop", info, AuthRequest("POST", "/mcp", ANN.shown("t", proof)))


# --- the memory of proofs


@pytest.mark.row("26-A12")
def test_used_proofs_are_forgotten_when_they_would_be_refused_anyway() -> None:
    guard = ReplayGuard()
    for second in range(1000, 2000):
        for number in range(3):
            assert guard.first_use("ann", b"%d %d" % (second, number), second, second)
            assert not guard.first_use("ann", b"%d %d" % (second, number), second, second + PROOF_SECONDS)
        assert len(guard) <= 3 * (PROOF_SECONDS + 1)
    assert guard.first_use("ann", b"late", 3000, 3000.5)
    assert len(guard) == 1
    assert len(guard._counts) == 1


@pytest.mark.row("26-A12")
def test_a_principal_that_exceeds_its_share_loses_its_own_old_proofs_and_no_replay_passes() -> None:
    guard = ReplayGuard(most=1000, of_each=10)
    used = [(b"%d" % number, 5000 + number // 4) for number in range(40)]
    for digest, second in used:
        assert guard.first_use("ann", digest, second, 5010)
    assert guard.first_use("bob", b"old", 5000, 5010)  # another's share is not touched
    for digest, second in used:
        assert not guard.first_use("ann", digest, second, 5010)
    assert not guard.first_use("ann", b"new, and too old", 5003, 5010)
    assert guard.first_use("ann", b"fresh", 5010, 5010)
    assert len(guard) <= 12
    assert guard.first_use("ann", b"much later", 5400, 5400)
    assert not guard._floors


@pytest.mark.row("26-A12")
async def test_all_keys_of_a_principal_have_one_share_and_a_nameless_one_has_its_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners: list[Any] = []

    def first_use(guard: ReplayGuard, owner: Any, *_: Any) -> bool:
        owners.append(owner)
        return True

    monkeypatch.setattr(ReplayGuard, "first_use", first_use)
    provider = resource()
    for prover in (ANN, BOB):
        for subject in ("ann", None):
            token = prover.token("ann", sub=subject)
            assert isinstance(await admit(provider, prover.shown(token)), Peer)
    named = (ISSUER, "ann", "")
    assert owners == [named, ANN.jkt, named, BOB.jkt]


@pytest.mark.row("26-A12")
def test_exactly_as_many_proofs_are_remembered_as_the_limits_say() -> None:
    guard = ReplayGuard(most=5, of_each=3)
    for owner, second in (("ann", 101), ("ann", 101), ("ann", 102), ("bob", 103), ("bob", 104)):
        assert guard.first_use(owner, b"%d" % len(guard), second, 110)
    assert len(guard) == 5
    assert guard._counts == {"ann": 3, "bob": 2}
    assert guard.first_use("ann", b"fourth", 105, 110)  # the two of her first second go
    assert guard._counts == {"ann": 2, "bob": 2}
    assert guard.first_use("cat", b"fifth", 105, 110)
    assert guard.first_use("dan", b"sixth", 105, 110)  # the older one of her two goes
    assert guard._counts == {"ann": 1, "bob": 2, "cat": 1, "dan": 1}
    assert len(guard) == 5
    assert guard.first_use("eve", b"seventh", 105, 110)  # and the older one of his two
    assert guard._counts == {"ann": 1, "bob": 1, "cat": 1, "dan": 1, "eve": 1}
    assert guard.first_use("fay", b"eighth", 105, 110)  # none has more than one: the oldest second goes, which is his
    assert guard._counts == {"ann": 1, "cat": 1, "dan": 1, "eve": 1, "fay": 1}
    assert not guard.first_use("gus", b"old", 104, 110)
    assert guard.first_use("bob", b"new", 106, 110)


@pytest.mark.row("26-A12")
def test_principals_that_date_their_proofs_ahead_do_not_lock_the_others_out() -> None:
    guard = ReplayGuard(most=1000, of_each=100)
    ahead = 5000 + PROOF_SECONDS
    for principal in range(10):
        for number in range(100):
            assert guard.first_use(principal, b"%d" % number, ahead, 5000)
    for number in range(300):
        assert guard.first_use(f"user {number % 30}", b"%d" % number, 5000, 5000)
    assert len(guard) <= 1000
    for principal in range(10):
        assert not guard.first_use(principal, b"0", ahead, 5000)
    for number in range(300):
        assert not guard.first_use(f"user {number % 30}", b"%d" % number, 5000, 5000)


@pytest.mark.row("26-A12")
def test_beyond_the_memory_of_all_the_oldest_second_goes_and_no_replay_passes() -> None:
    guard = ReplayGuard(most=20, of_each=10)
    used = [(number, b"%d" % number, 5000 + number // 5) for number in range(100)]
    for owner, digest, second in used:
        guard.first_use(owner, digest, second, 5020)
        assert len(guard) <= 20
    for owner, digest, second in used:
        assert not guard.first_use(owner, digest, second, 5020)
    assert guard.first_use("new", b"fresh", 5020, 5020)
    assert len(guard._counts) <= 20


@pytest.mark.row("26-A12")
@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(-3, 3), st.integers(0, 40)), max_size=120))
def test_no_proof_is_accepted_twice_while_it_would_be_accepted_at_all(
    steps: list[tuple[int, int, int, int]],
) -> None:
    guard, accepted, now = ReplayGuard(most=8, of_each=4), set[tuple[int, int, int]](), 10_000
    for owner, identifier, offset, passes in steps:
        now += passes
        second = now + offset * 100
        proof = (owner, identifier, second)
        if guard.first_use(owner, b"%d %d" % (identifier, second), second, now):
            assert proof not in accepted
            accepted.add(proof)
        assert len(guard) <= 8
        assert sum(len(used) for owners in guard._seconds.values() for used in owners.values()) == len(guard)
        assert sum(guard._counts.values()) == len(guard)


@pytest.mark.row("26-A12")
async def test_a_key_in_a_token_itself_is_not_followed() -> None:
    """The header of an access token may carry a key as well: it verifies nothing."""
    token = sign(claims(cnf={"jkt": ANN.jkt}), ANN.key, "ES256", {"jwk": public_jwk(ANN.key)})
    answer = await admit(resource(), ANN.shown(token))
    assert isinstance(answer, HttpRefusal)
    assert challenges(answer)["dpop"]["error"] == "invalid_token"


def test_no_repr_or_error_has_a_proof_or_a_token() -> None:
    token = ANN.token()
    proof = ANN.proof(token, htm="GET")
    verifier = DpopVerifier(resource=AUDIENCE)
    with pytest.raises(Denied) as caught:
        verifier.check(
            "dpop",
            AuthInfo("ann", claims={"cnf": {"jkt": ANN.jkt}}),
            AuthRequest("POST", "/mcp", ANN.shown(token, proof)),
        )
    for secret in (token, proof, proof.split(".")[2]):
        assert secret not in str(caught.value) + caught.value.detail + repr(verifier)
