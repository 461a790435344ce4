"""Each fault of the fake authorization server is a real one: a client that accepted it would be wrong."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.auth.client.metadata_discovery import build_authorization_url
from greenroom.auth.errors import Denied
from greenroom.auth.jose import InvalidKeyError, parse_jwk_set, secret_key, unverified_header, verified_claims
from greenroom.auth.testing import (
    AuthorizationServer,
    AuthServerResponse,
    EndlessResponse,
    NoResponse,
    RedirectResponse,
    TruncatedResponse,
    redirect_params,
)
from greenroom.transports.client.errors import ConnectionLost, ResponseTooLarge, SilentTooLong
from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.http_address import ForbiddenAddress, Guard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

ISSUER = "https://id.example"
ALL = ("ES256", "RS256", "EdDSA")


@pytest.fixture
async def idp() -> AsyncGenerator[AuthorizationServer]:
    async with AuthorizationServer() as made:
        yield made


@pytest.mark.parametrize("signature", ["none", "confused", "foreign", "broken"])
def test_badly_signed_tokens_are_refused(signature: Any) -> None:
    idp = AuthorizationServer(issuer=ISSUER)
    keys = parse_jwk_set(idp.keys.document())
    verified_claims(idp.token(), keys, ALL)
    idp.faults.signature = signature
    token = idp.token()
    with pytest.raises(Denied):
        verified_claims(token, keys, ALL)
    if signature == "confused":  # it is what it seems to be: HS256 with the public key
        pem = idp.keys.current.inner.as_pem(private=False)
        begun, _, last = token.rpartition(".")
        digest = hmac.new(pem, begun.encode(), hashlib.sha256).digest()
        assert (unverified_header(token).algorithm, last) == (
            "HS256",
            base64.urlsafe_b64encode(digest).decode().rstrip("="),
        )
        with pytest.raises(InvalidKeyError):
            secret_key(pem)
    if signature == "none":
        assert unverified_header(token).algorithm == "none"


def test_claims_and_headers_as_one_likes() -> None:
    idp = AuthorizationServer(issuer=ISSUER)
    idp.faults.claims = {"aud": "https://other.example", "exp": 1, "iss": None}
    idp.faults.header = {"kid": "../../dev/null"}
    token = idp.token(resource="https://mcp.example")
    claims = verified_claims(token, [idp.keys.current], ALL)
    assert (claims["aud"], claims["exp"], "iss" in claims) == ("https://other.example", 1, False)
    assert unverified_header(token).kid == "../../dev/null"


async def test_metadata_and_redirects_that_lie() -> None:
    idp = AuthorizationServer(issuer=ISSUER)
    idp.faults.metadata = {
        "issuer": "https://evil.example",
        "token_endpoint": "http://169.254.169.254/",
        "jwks_uri": None,
    }
    said = json.loads((await idp.fetch(f"{ISSUER}/.well-known/oauth-authorization-server")).body)
    assert (said["issuer"], said["token_endpoint"]) == ("https://evil.example", "http://169.254.169.254/")
    assert "jwks_uri" not in said
    idp.add_client("app", redirect_uris=["http://127.0.0.1/"])
    url = build_authorization_url(idp.url("authorize"), {"client_id": "app"}, state="s").url
    for fault in ({"iss": None}, {"iss": "https://evil.example"}, {"state": "other"}):
        idp.faults.redirect = fault
        back = redirect_params(await idp.browse(url))
        assert {name: back.get(name) for name in fault} == fault
        assert "code" in back


async def test_answers_that_never_come_or_never_end(idp: AuthorizationServer) -> None:
    fetch = Fetcher(Guard(loopback=True), seconds=0.2, size=100_000)
    idp.plan("/jwks", NoResponse())
    with pytest.raises(SilentTooLong):
        await fetch(idp.url("jwks"))
    idp.plan("/jwks", TruncatedResponse())
    with pytest.raises(ConnectionLost):
        await fetch(idp.url("jwks"))
    patient = Fetcher(Guard(loopback=True), size=100_000)
    idp.plan("/jwks", EndlessResponse())
    with pytest.raises(ResponseTooLarge):
        await patient(idp.url("jwks"))
    idp.plan("/jwks", RedirectResponse("http://169.254.169.254/latest/meta-data"))
    with pytest.raises(ForbiddenAddress):
        await Fetcher(Guard(loopback=True), redirects=3)(idp.url("jwks"))
    idp.plan("/jwks", AuthServerResponse(503, b"{}"), times=2)
    assert [(await patient(idp.url("jwks"))).status for _ in range(3)] == [503, 503, 200]
    idp.plan("/.well-known/oauth-authorization-server", AuthServerResponse(200, b"[]"))
    assert (await patient(f"{idp.issuer}/.well-known/oauth-authorization-server")).body == b"[]"
    idp.unplan()
    assert (await patient(f"{idp.issuer}/.well-known/oauth-authorization-server")).body != b"[]"


async def test_the_same_in_memory() -> None:
    idp = AuthorizationServer(issuer=ISSUER)
    idp.plan("/token", NoResponse())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await idp.fetch(idp.url("token"), method="POST")
    idp.plan("/token", TruncatedResponse())
    with pytest.raises(ConnectionLost):
        await idp.fetch(idp.url("token"), method="POST")
    idp.plan("/token", EndlessResponse())
    with pytest.raises(ResponseTooLarge):
        await idp.fetch(idp.url("token"), method="POST")
    idp.plan("/token", RedirectResponse("http://10.0.0.1/"))
    assert (await idp.fetch(idp.url("token"), method="POST")).headers["location"] == "http://10.0.0.1/"
