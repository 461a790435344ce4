"""Tokens that are bound to a key (DPoP) from the client's side: against our own server, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from greenroom import Client
from greenroom.auth import ClientCredentials, EnterpriseManaged, FileStore, MemoryStore, OAuth, SignInError
from greenroom.auth.auth_info import AuthRequest
from greenroom.auth.errors import Denied
from greenroom.auth.jose import decode_part, make_key, private_pem
from greenroom.auth.testing import AuthorizationServer, AuthServerResponse
from greenroom.transports import HttpRoute

from .bound_stage import proof_claims, stage
from .oauth_world import ISSUER, PRM, URL, World

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from greenroom.auth import DeviceCode
    from greenroom.auth.client.login_process import LoginCredentials
    from greenroom.transports.client.fetch import FetchResponse

BOTH = f'Bearer resource_metadata="{PRM}", DPoP algs="ES256", resource_metadata="{PRM}", scope="read"'
BOUND = f'DPoP algs="ES256", resource_metadata="{PRM}", scope="read"'
PLAIN = f'Bearer resource_metadata="{PRM}", scope="read"'


def oauth(world: World, **options: Any) -> OAuth:
    given: dict[str, Any] = {"browser": world.browse, "fetch": world.fetch, **options}
    return OAuth(**given)


async def sign_in(credentials: LoginCredentials, challenge: str = BOUND) -> Mapping[str, str]:
    """Request, get a refusal, and retry, as a wire does."""
    assert await credentials.refused(401, challenge, await credentials.headers_for("POST", URL))
    return await credentials.headers_for("POST", URL)


def key_of(shown: Mapping[str, str] | str) -> Any:
    """The public key in a proof."""
    proof = shown if isinstance(shown, str) else shown["dpop"]
    return (decode_part(proof, 0) or {})["jwk"]


def token_proofs(world: World) -> list[str | None]:
    """The proofs at the token endpoint."""
    return [each.headers.get("dpop") for each in world.idp.requests if each.path == "/token"]


# --- against our own server


@pytest.mark.row("26-A12")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_shows_a_bound_token_with_a_new_proof_in_each_request(mode: str) -> None:
    async with stage() as at, Client(at.url, mode=mode, auth=OAuth(browser=at.idp.browse)) as client:
        assert await client.call("look") == "a stage"
        assert await client.call("look") == "a stage"
        proofs = [proof_claims(each) for each in at.resource.proofs]
        shown = [each for each in at.resource.requests if "dpop" in each.headers]
        assert len(proofs) >= 3
        assert set(at.resource.schemes) == {"", "DPoP"}
        assert len({each["jti"] for each in proofs}) == len(proofs)
        assert [each["htm"] for each in proofs] == [each.method for each in shown]
        assert {each["htu"] for each in proofs} == {at.url}
        [asked] = at.token_requests
        assert (asked["grant"], asked["htm"], asked["htu"]) == ("authorization_code", "POST", at.idp.url("token"))
        assert "ath" not in asked


@pytest.mark.row("26-A12")
async def test_nonces_of_both_servers_are_used_and_replaced_when_they_change() -> None:
    async with stage(nonces=60.0) as at:
        at.idp.dpop_nonce = "first"
        async with Client(at.url, auth=OAuth(browser=at.idp.browse)) as client:
            assert await client.call("look") == "a stage"
            assert [each.get("nonce") for each in at.token_requests] == [None, "first"]
            known = {proof_claims(each).get("nonce") for each in at.resource.proofs}
            at.resource.change_nonces()
            refused = len(at.resource.proofs)
            assert await client.call("look") == "a stage"
            again = [proof_claims(each)["nonce"] for each in at.resource.proofs[refused:]]
            assert again[0] in known, "the nonce that was good so far, until the server says otherwise"
            assert len(again) == 2
            assert again[1] not in known
            # And after that, while the step-up takes its time, both change once more.
            at.idp.dpop_nonce = "second"
            at.resource.change_nonces()
            assert await client.call("paint") == "painted"
        assert [each.get("nonce") for each in at.token_requests] == [None, "first", "first", "second"]
        assert len({each["jti"] for each in at.token_requests}) == 4


async def test_a_burst_of_calls_without_a_good_nonce_is_done_once_each() -> None:
    async with stage(nonces=60.0) as at, Client(at.url, auth=OAuth(browser=at.idp.browse)) as client:
        await client.call("look")
        at.resource.change_nonces()
        assert await asyncio.gather(*(client.call("look") for _ in range(20))) == ["a stage"] * 20
        assert len(set(at.resource.proofs)) == len(at.resource.proofs)


@pytest.mark.row("26-A12")
async def test_more_scopes_mean_a_new_grant_with_a_new_key() -> None:
    async with stage() as at, Client(at.url, auth=OAuth(browser=at.idp.browse)) as client:
        await client.call("look")
        first = key_of(at.resource.proofs[-1])
        assert await client.call("paint") == "painted"
        assert key_of(at.resource.proofs[-1]) != first
        assert [each["grant"] for each in at.token_requests] == ["authorization_code"] * 2


async def test_a_server_that_takes_both_gets_a_bound_token_where_one_can_be_had() -> None:
    for idp, scheme in ((AuthorizationServer(dpop="accept"), "DPoP"), (AuthorizationServer(), "Bearer")):
        async with stage(dpop="accept", idp=idp) as at:
            async with Client(at.url, auth=OAuth(browser=idp.browse)) as client:
                assert await client.call("look") == "a stage"
            assert set(at.resource.schemes) == {"", scheme}


async def test_a_server_that_says_nothing_of_proofs_gets_a_bearer_token() -> None:
    async with stage(dpop=None) as at:
        async with Client(at.url, auth=OAuth(browser=at.idp.browse)) as client:
            assert await client.call("look") == "a stage"
        assert set(at.resource.schemes) == {"", "Bearer"}
        assert at.token_requests == [{"grant": "authorization_code"}]


async def test_a_program_may_insist_on_bound_tokens_or_decline_them() -> None:
    async with stage(dpop=None) as at:
        async with Client(at.url, auth=OAuth(browser=at.idp.browse, dpop="require")) as client:
            assert await client.call("look") == "a stage"
        assert set(at.resource.schemes) == {"", "DPoP"}
    async with stage(dpop="accept") as at:
        async with Client(at.url, auth=OAuth(browser=at.idp.browse, dpop="never")) as client:
            assert await client.call("look") == "a stage"
        assert set(at.resource.schemes) == {"", "Bearer"}


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_server_that_wants_a_nonce_for_ever_is_asked_three_times(mode: str) -> None:
    """No token, a token without a nonce, and one with the nonce that the server named: then the refusal is final."""
    async with stage(nonces=60.0) as at:
        at.resource._dpop._nonces.accepts = lambda *_: False  # type: ignore[method-assign, union-attr]
        with pytest.raises(Exception, match=r"use_dpop_nonce|401") as caught:
            await Client(at.url, mode=mode, auth=OAuth(browser=at.idp.browse)).open()
        assert all(token not in str(caught.value) for token in at.idp.issued_tokens)
        assert len([each for each in at.idp.requests if each.path == "/token"]) == 1, "the token was not to blame"


# --- the authorization server


@pytest.mark.row("26-A12")
async def test_a_refreshed_token_is_bound_to_the_key_of_its_grant() -> None:
    world = World(dpop="accept")
    credentials = oauth(world).credentials(URL)
    first = await sign_in(credentials)
    assert await credentials.refused(401, BOUND, first)
    second = await credentials.headers_for("POST", URL)
    assert [form["grant_type"] for form in world.tokens()] == ["authorization_code", "refresh_token"]
    assert second["authorization"] != first["authorization"]
    assert key_of(second) == key_of(first) == key_of(token_proofs(world)[1] or "")


async def test_a_code_is_bound_to_the_key_before_the_user_is_asked() -> None:
    world = World(dpop="accept")
    shown = await sign_in(oauth(world).credentials(URL))
    [visit] = world.visits
    [jkt] = parse_qs(urlsplit(visit).query)["dpop_jkt"]
    token = shown["authorization"].removeprefix("DPoP ")
    assert world.idp.issued_tokens[token][1]["cnf"] == {"jkt": jkt}


async def test_a_nonce_challenge_without_end_is_answered_once() -> None:
    world = World(dpop="accept")
    refusal = AuthServerResponse(400, b'{"error":"use_dpop_nonce"}', [("dpop-nonce", "again")])
    world.idp.plan("/token", refusal)
    with pytest.raises(SignInError, match="use_dpop_nonce") as caught:
        await sign_in(oauth(world).credentials(URL))
    assert caught.value.step == "token"
    assert [proof_claims(each).get("nonce") for each in token_proofs(world)] == [None, "again"]


async def test_a_nonce_that_comes_with_a_token_is_in_the_next_proof() -> None:
    world = World(dpop="accept")

    async def fetch(url: str, **request: Any) -> FetchResponse:
        found = await world.fetch(url, **request)
        return found._replace(headers={**found.headers, "dpop-nonce": f"n{len(world.tokens())}"})

    credentials = oauth(world, fetch=fetch).credentials(URL)
    first = await sign_in(credentials)
    assert "nonce" not in proof_claims(first["dpop"]), "a nonce of one origin is used at no other"
    assert await credentials.refused(401, BOUND, first)
    assert [proof_claims(each).get("nonce") for each in token_proofs(world)] == [None, "n1"]


@pytest.mark.parametrize(
    "refusal",
    [
        AuthServerResponse(400, b'{"error":"use_dpop_nonce"}'),
        AuthServerResponse(400, b'{"error":"use_dpop_nonce"}', [("dpop-nonce", "")]),
        AuthServerResponse(400, b'{"error":"invalid_dpop_proof"}', [("dpop-nonce", "n")]),
        AuthServerResponse(400, b"[]", [("dpop-nonce", "n")]),
        AuthServerResponse(403, b'{"error":"use_dpop_nonce"}', [("dpop-nonce", "n")]),
    ],
)
async def test_what_is_no_nonce_challenge_is_a_refusal(refusal: AuthServerResponse) -> None:
    world = World(dpop="accept")
    world.idp.plan("/token", refusal)
    with pytest.raises(SignInError):
        await sign_in(oauth(world).credentials(URL))
    assert len(world.tokens()) == 1


async def test_an_assertion_is_signed_anew_when_a_nonce_was_missing() -> None:
    world = World(dpop="accept")
    world.idp.dpop_nonce = "n"
    key = make_key("EC")
    world.idp.add_client("robot", keys=[key])
    auth = ClientCredentials(client_id="robot", key=key, fetch=world.fetch)
    shown = await sign_in(auth.credentials(URL))
    assert shown["authorization"].startswith("DPoP ")
    first, second = (form["client_assertion"] for form in world.tokens())
    assert first != second, "the authorization server may remember the first one as used"


@pytest.mark.parametrize("kind", ["bearer", "Bearer", "mac", "DPoPs"])
async def test_a_token_that_is_not_bound_is_not_used_where_it_had_to_be(kind: str) -> None:
    world = World(dpop="accept")
    world.idp.faults.answer = {"token_type": kind}
    credentials = oauth(world).credentials(URL)
    with pytest.raises(SignInError, match=r"not bound to a key|only bearer"):
        await sign_in(credentials)
    assert await credentials.headers_for("POST", URL) == {}


async def test_a_bearer_token_is_used_where_both_are_accepted() -> None:
    world = World(dpop="accept")
    world.idp.faults.answer = {"token_type": "Bearer"}
    shown = await sign_in(oauth(world).credentials(URL), BOTH)
    assert list(shown) == ["authorization"]
    assert shown["authorization"].startswith("Bearer ")
    assert token_proofs(world) != [None]


@pytest.mark.parametrize("algorithms", [[], ["RS256"], "none", 7])
async def test_an_authorization_server_without_our_algorithm_is_told_of(algorithms: Any) -> None:
    world = World(dpop="accept")
    world.idp.faults.metadata = {"dpop_signing_alg_values_supported": algorithms}
    with pytest.raises(SignInError, match=r"bound to a key \(DPoP\), and https://idp\.example issues none"):
        await sign_in(oauth(world).credentials(URL))
    assert world.tokens() == []
    assert (await sign_in(oauth(world).credentials(URL), BOTH))["authorization"].startswith("Bearer ")


async def test_an_authorization_server_that_does_not_say_is_tried_where_it_has_to_be() -> None:
    world = World(dpop="accept")
    world.idp.faults.metadata = {"dpop_signing_alg_values_supported": None}
    assert (await sign_in(oauth(world).credentials(URL)))["authorization"].startswith("DPoP ")
    assert (await sign_in(oauth(world).credentials(URL), BOTH))["authorization"].startswith("Bearer ")


@pytest.mark.parametrize(
    ("metadata", "scheme"),
    [
        ({"dpop_bound_access_tokens_required": True}, "DPoP"),
        ({"dpop_signing_alg_values_supported": ["ES256", "EdDSA"]}, "DPoP"),
        ({"dpop_signing_alg_values_supported": ["EdDSA"]}, "Bearer"),
        ({"dpop_signing_alg_values_supported": "ES256 ES384", "dpop_bound_access_tokens_required": 1}, "Bearer"),
        ({}, "Bearer"),
    ],
)
async def test_the_metadata_of_the_server_say_whether_it_takes_bound_tokens(
    metadata: dict[str, Any], scheme: str
) -> None:
    world = World(dpop="accept")
    world.documents[PRM] |= metadata
    shown = await sign_in(oauth(world).credentials(URL), PLAIN)
    assert shown["authorization"].startswith(f"{scheme} ")


# --- the other ways to sign in


async def test_a_device_a_program_and_an_organisation_get_bound_tokens() -> None:
    world = World(dpop="require")

    async def show(code: DeviceCode) -> None:
        world.idp.decide(code.user_code)

    sso = AuthorizationServer(issuer="https://sso.example")
    sso.add_client("desk", secret="s")
    world.others = [sso]
    world.idp.trust(sso)
    world.idp.add_client("robot", secret="s")
    world.idp.add_client("desk", secret="s")
    world.idp.device_interval = 0
    ways: list[Any] = [
        oauth(world, device=show, browser=None),
        ClientCredentials(client_id="robot", client_secret="s", fetch=world.fetch),
        EnterpriseManaged(
            client_id="desk",
            client_secret="s",
            idp_token_endpoint=sso.url("token"),
            subject_token=sso.token(user="ann", client_id="desk", aud="desk"),
            fetch=world.fetch,
        ),
    ]
    for way in ways:
        shown = await sign_in(way.credentials(URL))
        assert shown["authorization"].startswith("DPoP ")
    assert all("dpop" not in each.headers for each in sso.requests), "the identity provider is shown no proof"


async def test_a_client_registered_for_bound_tokens_gets_no_others() -> None:
    world, store = World(dpop="accept"), MemoryStore()
    await sign_in(oauth(world, store=store, dpop="require").credentials(URL), PLAIN)
    [bound] = world.idp.clients.values()
    assert bound.metadata["dpop_bound_access_tokens"] is True
    shown = await sign_in(oauth(world, store=store, account="other").credentials(URL), PLAIN)
    assert shown["authorization"].startswith("Bearer ")
    assert len(world.idp.clients) == 2, "a client that may have bearer tokens has a registration of its own"


async def test_a_registration_that_demands_bound_tokens_is_respected() -> None:
    world = World(dpop="accept")
    answer = {"client_id": "strict", "dpop_bound_access_tokens": True}
    world.idp.add_client("strict", redirect_uris=["http://127.0.0.1/callback"])
    world.idp.clients["strict"].metadata = answer
    world.idp.plan("/register", AuthServerResponse(201, json.dumps(answer).encode()))
    shown = await sign_in(oauth(world).credentials(URL), PLAIN)
    assert shown["authorization"].startswith("DPoP ")


# --- from one kind to the other


async def test_a_server_that_takes_bound_tokens_no_longer_gets_a_bearer_token() -> None:
    world = World(dpop="accept")
    credentials = oauth(world).credentials(URL)
    first = await sign_in(credentials)
    assert await credentials.refused(401, PLAIN, first)
    assert (await credentials.headers_for("POST", URL))["authorization"].startswith("Bearer ")
    assert len(world.visits) == 2


async def test_a_server_that_wants_bound_tokens_from_now_on_gets_one_without_asking_the_user() -> None:
    world = World(dpop="accept")
    credentials = oauth(world).credentials(URL)
    first = await sign_in(credentials, PLAIN)
    assert await credentials.refused(401, BOUND, first)
    assert (await credentials.headers_for("POST", URL))["authorization"].startswith("DPoP ")
    assert len(world.visits) == 1
    assert [form["grant_type"] for form in world.tokens()] == ["authorization_code", "refresh_token"]


async def test_a_refused_proof_costs_no_token() -> None:
    world = World(dpop="accept")
    credentials = oauth(world).credentials(URL)
    first = await sign_in(credentials)
    for error in ("use_dpop_nonce", "invalid_dpop_proof"):
        assert await credentials.refused(401, f'DPoP error="{error}", algs="ES256"', first)
    second = await credentials.headers_for("POST", URL)
    assert second["authorization"] == first["authorization"]
    assert proof_claims(second["dpop"])["jti"] != proof_claims(first["dpop"])["jti"]
    assert len(world.tokens()) == 1


async def test_a_bearer_login_is_not_used_by_a_program_that_insists_on_bound_tokens() -> None:
    world, store = World(dpop="accept"), MemoryStore()
    await sign_in(oauth(world, store=store).credentials(URL), PLAIN)
    strict = oauth(world, store=store, dpop="require").credentials(URL)
    assert await strict.headers_for("POST", URL) == {}
    assert (await sign_in(strict, PLAIN))["authorization"].startswith("DPoP ")


# --- what is kept, and what is shown


async def test_another_program_with_the_same_store_makes_proofs_with_the_same_key(tmp_path: Path) -> None:
    world = World(dpop="accept")
    first = await sign_in(oauth(world, store=FileStore(tmp_path)).credentials(URL))
    world.down = True
    again = await oauth(world, store=FileStore(tmp_path), browser=None).credentials(URL).headers_for("GET", URL)
    assert again["authorization"] == first["authorization"]
    assert key_of(again) == key_of(first)


@pytest.mark.parametrize(
    "key", [None, 7, "", "no key", private_pem(make_key("RSA")), make_key("EC").inner.as_pem(private=False).decode()]
)
async def test_a_stored_login_whose_key_is_damaged_is_none(key: Any) -> None:
    world, store = World(dpop="accept"), MemoryStore()
    await sign_in(oauth(world, store=store).credentials(URL))
    damaged = MemoryStore()
    for name, entry in store._entries.items():
        await damaged.put(name, {**entry, "proof_key": key} if name.startswith("user ") else entry)
    credentials = oauth(world, store=damaged).credentials(URL)
    assert await credentials.headers_for("POST", URL) == {}
    await sign_in(credentials)
    assert len(world.visits) == 2


async def test_a_key_is_in_no_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world, store = World(dpop="accept"), MemoryStore()
    auth = oauth(world, store=store)
    credentials = auth.credentials(URL)
    await sign_in(credentials)
    entry = next(entry for name, entry in store._entries.items() if name.startswith("user "))
    secrets = ["".join(entry["proof_key"].split("\n")[1:-2])[:40], entry["access_token"], entry["refresh_token"]]
    record = credentials._view.record
    assert record is not None
    assert record.proof_key is not None
    with pytest.raises(SignInError, match="headers_for") as caught:
        await credentials.headers()
    texts = [repr(each) for each in (auth, credentials, store, record, record.proof_key, caught.value)]
    texts += [str(caught.value), caplog.text, record.proof_key.thumbprint]
    for secret in secrets:
        assert all(secret not in text for text in texts)


async def test_a_route_with_a_bound_login_shows_the_request_that_it_sends() -> None:
    """The standalone stream is a GET, the end of the session a DELETE: each proof names its own method."""
    async with stage() as at:
        route = HttpRoute(at.url, credentials=OAuth(browser=at.idp.browse).credentials(at.url))
        async with Client(route, mode="legacy") as client:
            await client.call("look")
        methods = [each.method for each in at.resource.requests if "dpop" in each.headers]
        assert {"POST", "DELETE"} <= set(methods)
        assert [proof_claims(each)["htm"] for each in at.resource.proofs] == methods


async def test_a_proof_for_another_address_is_refused_by_our_server() -> None:
    async with stage() as at:
        credentials = OAuth(browser=at.idp.browse).credentials(at.url)
        assert await credentials.refused(401, 'DPoP algs="ES256", scope="read"', {})
        right = await credentials.headers_for("POST", at.url)
        await at.resource.authenticate(AuthRequest("POST", "/mcp", right))
        for method, url in (("GET", at.url), ("POST", f"{ISSUER}/mcp")):
            wrong = await credentials.headers_for(method, url)
            with pytest.raises(Denied, match=r"htm is not|htu is not"):
                await at.resource.authenticate(AuthRequest("POST", "/mcp", wrong))
