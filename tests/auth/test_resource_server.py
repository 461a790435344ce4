"""`OAuthResource`: its settings, how it verifies tokens, and its challenges."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.auth.auth_info import AuthInfo, AuthRequest
from greenroom.auth.credential_headers import checked_issuer_url, checked_resource_url, covers, is_same_resource
from greenroom.auth.errors import Denied
from greenroom.auth.testing import AuthorizationServer
from greenroom.errors import ConfigError
from greenroom.transports.interfaces import HttpRefusal, Peer

from .auth_test_server import reception
from .protected_resources import ANN, ISSUER, METADATA, PLACES, RESOURCE, admit, by, made, says, told

if TYPE_CHECKING:
    from greenroom.auth.resource_server import OAuthResource


# --- settings


@pytest.mark.row("SA-24")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resource": "/mcp"}, "absolute"),
        ({"resource": "ftp://mcp.example"}, "absolute"),
        ({"resource": "https://mcp.example/mcp#x"}, "fragment"),
        ({"resource": "https://ann:pw@mcp.example/"}, "absolute"),
        ({"resource": 7}, "absolute"),
        ({"authorization_servers": []}, "empty"),
        ({"authorization_servers": ISSUER}, "a list"),
        ({"authorizer": None}, "needs exactly one of authorizer, keys, key, introspection, and was given none"),
        ({"authorizer": "me"}, "a function"),
        ({"authorizer": print, "key": "x"}, "authorizer, key"),
        ({"authorizer": print, "audience": "x"}, "not used with an authorizer"),
        ({"token_validator": print}, "no token_validator: the authorizer decides"),
        ({"audience_validation": True}, "no audience_validation: the authorizer"),
        ({"scope": ["a"]}, "no scope"),
        ({"scopes_supported": "read write"}, "a list of texts"),
        ({"required_scopes": ["read write"]}, "without spaces"),
        ({"jwks_uri": "jwks"}, "jwks_uri"),
        ({"resource_metadata_url": "x"}, "resource_metadata_url"),
    ],
)
def test_contradictory_settings_are_refused_by_the_constructor(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(**wrong)


@pytest.mark.row("SA-25")
async def test_issuers_are_https_or_local_and_managed_metadata_cannot_be_overridden() -> None:
    for good in (
        ISSUER,
        "https://id.example/tenant",
        "http://localhost:9000",
        "http://127.0.0.1:1/a",
        "http://[::1]:1",
    ):
        assert await made(authorization_servers=[good]).authorization_servers(AuthRequest("GET", "/mcp", {})) == (good,)
    for bad in (
        "http://id.example",
        "http://127.0.0.1.evil.example",
        "http://127.evil.example",
        f"{ISSUER}?a=1",
        f"{ISSUER}#a",
        f"{ISSUER}?",
        "id.example",
        "https://",
        "",
    ):
        with pytest.raises(ConfigError):
            made(authorization_servers=[bad])
    made(authorization_servers=["http://id.example"], allow_insecure_authorization_servers=True)
    with pytest.raises(ConfigError, match="authorization_servers, resource: "):
        made(metadata={"resource": "https://evil.example", "authorization_servers": []})


# --- who decides


@pytest.mark.row("SA-26")
async def test_an_authorizer_is_a_function_or_an_object_and_is_given_token_resource_and_request() -> None:
    seen: list[Any] = []

    async def decide(token: str, resource: OAuthResource, request: AuthRequest) -> AuthInfo:
        seen.append((token, resource.resource, request.path, request.query))
        return ANN

    class Authorizer:
        def authorize(self, token: str, resource: OAuthResource, request: AuthRequest) -> dict[str, Any]:
            seen.append((token, resource.resource, request.path, request.query))
            return {"sub": "bob", "azp": "app", "scp": ["read"], "aud": RESOURCE, "exp": 5, "extra": 1}

    peer = await admit(made(authorizer=decide), "bEaReR  abc", "/mcp?realm=x")
    assert isinstance(peer, Peer)
    assert peer.auth is ANN
    peer = await admit(made(authorizer=Authorizer()), "Bearer abc")
    assert isinstance(peer, Peer)
    info = peer.auth
    assert (info.subject, info.client_id, info.scopes, info.audience) == ("bob", "app", {"read"}, (RESOURCE,))
    assert (info.expires_at, info.claims["extra"]) == (5, 1)
    assert seen == [("abc", RESOURCE, "/mcp", "realm=x"), ("abc", RESOURCE, "/mcp", "")]
    for nothing in (None, "", "   ", "Basic YTpi"):
        assert told(await admit(made(authorizer=decide), nothing))[0] == 401
    assert len(seen) == 2  # it is never asked about nothing


@pytest.mark.row("SA-27")
@pytest.mark.parametrize("raised", [True, False])
@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        ("missing", 401, None),
        ("invalid_token", 401, "invalid_token"),
        ("expired_token", 401, "invalid_token"),
        ("insufficient_scope", 403, "insufficient_scope"),
        ("invalid_request", 400, "invalid_request"),
    ],
)
async def test_each_kind_of_no_has_its_status(kind: Any, status: int, error: str | None, *, raised: bool) -> None:
    def decide(token: str, resource: OAuthResource, request: AuthRequest) -> Denied:
        if raised:
            raise Denied(kind, "because")
        return Denied(kind, "because")

    found, challenge, _ = told(await admit(made(authorizer=decide)))
    assert challenge is not None
    assert (found, challenge.get("error")) == (status, error)
    assert challenge.get("error_description") == (None if error is None else "because")
    bare = told(await admit(made(authorizer=says(Denied(kind)))))[1]
    assert bare is not None
    assert (error is None) is ("error_description" not in bare)


@pytest.mark.row("SA-27")
@pytest.mark.parametrize("found", [RuntimeError("secret"), object(), "ann", 7, Denied("server_error", "x")])
async def test_an_authorizer_that_fails_is_an_error_of_the_server_without_a_challenge(
    found: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def decide(*_: Any) -> Any:
        if isinstance(found, RuntimeError):
            raise found
        return found

    with caplog.at_level(logging.CRITICAL):
        answer = await admit(made(authorizer=decide))
    assert told(answer)[:2] == (500, None)
    assert isinstance(answer, HttpRefusal)
    assert b"secret" not in answer.body
    assert told(await admit(made(authorizer=says(None))))[0] == 401  # None is no principal


# --- challenges


@pytest.mark.row("SA-28")
async def test_a_challenge_names_the_metadata_and_the_scopes() -> None:
    assert told(await admit(made(), None))[1] == {"resource_metadata": METADATA}
    asked = made(required_scopes=["read", "write"], scopes_supported=["all"])
    assert told(await admit(asked, None)) == (
        401,
        {"resource_metadata": METADATA, "scope": "read write"},
        "unauthorized",
    )
    no = made(authorizer=says(Denied("invalid_token", 'a "quoted"\r\nreason')), required_scopes=["read"])
    assert told(await admit(no))[1] == {
        "error": "invalid_token",
        "error_description": 'a "quoted"??reason',
        "resource_metadata": METADATA,
    }
    lacking = says(Denied("insufficient_scope"))
    cases: tuple[tuple[dict[str, Any], str | None], ...] = (
        ({"required_scopes": ["read"], "scopes_supported": ["all"]}, "read"),
        ({"required_scopes": by(lambda asking: [asking.query])}, "x=1"),
        ({"scopes_supported": ["all", "more"]}, "all more"),
        ({}, None),
    )
    for settings, scope in cases:
        challenge = told(await admit(made(authorizer=lacking, **settings), path="/mcp?x=1"))[1]
        assert challenge is not None
        assert challenge.get("scope") == scope
    own = made(authorizer=says(Denied("insufficient_scope", scopes=["pay"])), required_scopes=["read"])
    challenge = told(await admit(own))[1]
    assert challenge is not None
    assert challenge["scope"] == "read pay"


@pytest.mark.row("SA-28")
async def test_a_function_that_fails_makes_a_challenge_say_less(caplog: pytest.LogCaptureFixture) -> None:
    def fails(asking: AuthRequest) -> Any:
        raise RuntimeError(asking)

    broken = made(required_scopes=fails, resource_metadata_url=fails)
    with caplog.at_level(logging.CRITICAL):
        assert told(await admit(broken, None)) == (401, {}, "unauthorized")
        half = made(required_scopes=["read"], resource_metadata_url=says("no url"))
        assert told(await admit(half, None))[1] == {"scope": "read"}


@pytest.mark.row("SA-32")
async def test_tenants_have_issuers_and_addresses_of_their_own() -> None:
    async def servers(asking: AuthRequest) -> list[str]:
        return [f"{ISSUER}/{asking.query.removeprefix('realm=')}"]

    tenants = made(authorization_servers=servers, resource_metadata_url=by(lambda asking: f"{METADATA}?{asking.query}"))
    challenge = told(await admit(tenants, None, "/mcp?realm=a"))[1]
    assert challenge == {"resource_metadata": f"{METADATA}?realm=a"}
    async with reception(tenants) as desk:
        paper = await desk.ask("GET", {}, path=f"{PLACES[0]}?realm=b")
        assert paper.json["authorization_servers"] == [f"{ISSUER}/b"]


async def test_a_function_that_gives_no_issuers_is_an_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        for gives in (["http://id.example"], [], "text", None):
            async with reception(made(authorization_servers=says(gives))) as desk:
                paper = await desk.ask("GET", {}, path=PLACES[0])
                assert (paper.status, paper.json) == (500, {"error": "server_error"})


# --- the claims


@pytest.mark.row("SA-29")
def test_claims_in_all_their_spellings() -> None:
    info = AuthInfo.from_map({"sub": "ann", "scope": "read write", "aud": ["https://a", "https://b"], "client_id": "c"})
    assert (info.subject, info.client_id, info.audience) == ("ann", "c", ("https://a", "https://b"))
    assert (info.has_scope("read"), info.has_scope("pay")) == (True, False)
    assert (info.has_scopes(["read", "write"]), info.has_scopes(["read", "pay"]), info.has_scopes([])) == (
        True,
        False,
        True,
    )
    unknown = AuthInfo.from_map({"sub": "ann"})
    assert (unknown.has_scope("read"), unknown.has_scopes([])) == (False, True)
    for name in ("scp", "scopes", "scope"):
        assert AuthInfo.from_map({name: ["read"]}).has_scope("read")


@pytest.mark.row("SA-29")
@pytest.mark.parametrize(
    ("audience", "covers"),
    [
        ("https://mcp.example/mcp", True),
        ("https://mcp.example/mcp/", True),
        ("https://mcp.example", True),
        ("https://mcp.example:443/", True),
        ("HTTPS://MCP.example/mcp", True),
        ("https://mcp.example/other", False),
        ("https://mcp.example/mc", False),
        ("https://mcp.example/mcp/deeper", False),
        ("https://mcp.example:444/mcp", False),
        ("http://mcp.example/mcp", False),
        ("https://evil.example/mcp", False),
        ("https://mcp.example:port/mcp", False),
        ("mcp", False),
        ("", False),
    ],
)
def test_which_audience_covers_a_resource(audience: str, *, covers: bool) -> None:
    assert AuthInfo("ann", audience=("x", audience)).covers_resource(RESOURCE) is covers


@given(one=st.text(max_size=40) | st.from_regex(r"https?://[a-zA-Z0-9\[\]:@.%/?#-]{0,20}", fullmatch=True))
def test_whatever_stands_for_a_url_is_compared_and_checked_without_a_crash(one: str) -> None:
    assert covers(one, RESOURCE) in (True, False)
    assert is_same_resource(one, RESOURCE) is (
        covers(one, RESOURCE) and covers(RESOURCE, one) and "?" not in one.partition("#")[0]
    )
    for check in (checked_resource_url, checked_issuer_url):
        with contextlib.suppress(ConfigError):
            found = check(one)
            assert (found, covers(found, found)) == (one, True)


async def test_a_single_public_key_verifies_tokens() -> None:
    idp = AuthorizationServer(issuer=ISSUER)
    resource = made(key=idp.keys.current.inner.as_pem(private=False))
    assert isinstance(await admit(resource, f"Bearer {idp.token(resource=RESOURCE)}"), Peer)
    assert told(await admit(resource, f"Bearer {idp.token(resource='https://other.example')}"))[0] == 401
    named = made(key=idp.keys.current.inner.as_pem(private=False), audience="api://calendar")
    assert isinstance(await admit(named, f"Bearer {idp.token(resource='api://calendar')}"), Peer)
    assert told(await admit(named, f"Bearer {idp.token(resource=RESOURCE)}"))[0] == 401
