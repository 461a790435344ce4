"""Refusals and rare features of the fake authorization server: a client must not get by with what real servers refuse."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from typing import Any

import pytest

from greenroom.auth.client.metadata_discovery import build_authorization_url
from greenroom.auth.errors import SignInError
from greenroom.auth.jose import make_key, public_jwk, sign
from greenroom.auth.testing import AuthorizationServer, AuthServerRequest, AuthServerResponse, RegisteredClient
from greenroom.transports.client.errors import TransportError
from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.http_address import Guard

from .test_fake_auth_server import BACK, ISSUER, claims_of, login, made, post, redeemed, signed_in

CLIENT = {"grant_type": "client_credentials"}


async def test_a_document_is_fetched_and_believed_only_of_itself() -> None:
    async with AuthorizationServer() as host:
        url = host.url("jwks")  # any place that says what it is told to
        idp = made()
        said: dict[str, Any] = {"client_id": url, "redirect_uris": [BACK]}
        host.plan("/jwks", AuthServerResponse(200, json.dumps(said).encode()))
        client = RegisteredClient(url, redirect_uris=(BACK,))
        assert (await redeemed(idp, client, *await signed_in(idp, client)))[0] == 200
        host.plan("/jwks", AuthServerResponse(200, json.dumps(said | {"jwks": "none"}).encode()))
        with pytest.raises(SignInError, match="not a JWK set"):
            await signed_in(idp, client)
        host.plan("/jwks", AuthServerResponse(200, b"<html>"))
        with pytest.raises(SignInError, match="cannot be read"):
            await signed_in(idp, client)


async def test_an_id_token_comes_with_openid_and_the_default_audience_applies_without_a_resource() -> None:
    idp = made()
    idp.audience = "api://everything"
    client = idp.add_client("app", redirect_uris=[BACK])
    params = {"client_id": "app", "redirect_uri": BACK, "scope": "openid read"}
    asked = build_authorization_url(idp.url("authorize"), params)
    code = (await idp.browse(asked.url)).partition("code=")[2].partition("&")[0]
    form = {"grant_type": "authorization_code", "client_id": client.id, "code": code, "code_verifier": asked.verifier}
    _, tokens = await post(idp, "token", **form)
    assert claims_of(idp, tokens["access_token"])["aud"] == "api://everything"
    identity = claims_of(idp, tokens["id_token"])
    assert (identity["aud"], identity["sub"]) == ("app", "ann")
    many = claims_of(idp, idp.token(resource=["https://a.example", "https://b.example"]))
    assert many["aud"] == ["https://a.example", "https://b.example"]


async def test_a_grant_is_for_its_resource_and_its_redirect() -> None:
    idp = made()
    client = idp.add_client("app", redirect_uris=[BACK])
    back, verifier = await signed_in(idp, client)
    form = {"grant_type": "authorization_code", "client_id": "app", "code": back["code"], "code_verifier": verifier}
    other = await post(idp, "token", redirect_uri="http://127.0.0.1:2/", **form)
    assert "redirect_uri" in other[1]["error_description"]
    assert (await post(idp, "token", resource="https://other.example", **form))[1]["error"] == "invalid_target"
    for wrong in ({"resource": "relative"}, {"resource": "https://x/#y"}):
        assert (await signed_in(idp, client, **wrong))[0]["error"] == "invalid_target"
    assert (await signed_in(idp, client, response_type="token"))[0]["error"] == "unsupported_response_type"


async def test_a_client_gets_what_it_may_ask_for() -> None:
    idp = made()
    idp.add_client("code-only", secret="c" * 20, grants=["authorization_code"])
    mine = login("code-only", "c" * 20)
    assert (await post(idp, "token", mine, **CLIENT))[1]["error"] == "unauthorized_client"
    assert (await post(idp, "token", mine, grant_type="password"))[1]["error"] == "unsupported_grant_type"
    for authorization in ("Basic %%%", "Basic eA==", "Digest x"):
        assert (await post(idp, "token", {"authorization": authorization}, **CLIENT))[0] == 401
    assert (await post(idp, "token", **CLIENT))[0] == 401
    idp.add_client("keyed", keys=[make_key("EC")])
    kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    foreign = sign(
        {"sub": "keyed", "iss": "keyed", "aud": ISSUER, "jti": "1", "exp": time.time() + 9}, make_key("EC"), "ES256"
    )
    for assertion, type_ in ((foreign, kind), (foreign, "saml"), ("nonsense", kind)):
        form = {"client_assertion": assertion, "client_assertion_type": type_}
        assert (await post(idp, "token", **form, **CLIENT))[0] in (400, 401)


async def test_a_program_registers_with_a_key_of_its_own() -> None:
    idp = made()
    key = make_key("EC", kid="mine")
    said = {
        "grant_types": ["client_credentials"],
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks": {"keys": [public_jwk(key)]},
    }
    answer = await idp.fetch(idp.url("register"), method="POST", body=json.dumps(said).encode())
    id = json.loads(answer.body)["client_id"]
    assert idp.clients[id].secret is None
    assertion = sign({"sub": id, "iss": id, "aud": idp.url("token"), "jti": "1", "exp": time.time() + 9}, key, "ES256")
    kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert (await post(idp, "token", client_assertion=assertion, client_assertion_type=kind, **CLIENT))[0] == 200
    strange = said | {"token_endpoint_auth_method": "magic"}
    answer = await idp.fetch(idp.url("register"), method="POST", body=json.dumps(strange).encode())
    assert answer.status == 400


async def test_revoked_tokens_are_gone() -> None:
    idp = made()
    client = idp.add_client("app", redirect_uris=[BACK])
    _, tokens = await redeemed(idp, client, *await signed_in(idp, client))
    await post(idp, "revoke", client_id="app", token=tokens["refresh_token"])
    assert (idp.issued_tokens, idp.refresh_tokens) == ({}, {})
    idp.token()
    idp.revoke_all()
    assert idp.issued_tokens == {}
    idp.rotates = False
    _, tokens = await redeemed(idp, client, *await signed_in(idp, client))
    refresh = {"grant_type": "refresh_token", "client_id": "app", "refresh_token": tokens["refresh_token"]}
    again = [await post(idp, "token", **refresh) for _ in range(2)]
    assert [(status, "refresh_token" in said) for status, said in again] == [(200, False)] * 2


async def test_exchanges_that_are_refused() -> None:
    idp = made()
    idp.add_client("app", secret="a" * 20)
    mine = login("app", "a" * 20)
    usual = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token": idp.token(),
    }
    jag = "urn:ietf:params:oauth:token-type:id-jag"
    for wrong, error in (
        ({"subject_token_type": "saml2"}, "invalid_request"),
        ({"requested_token_type": "saml2"}, "invalid_request"),
        ({"requested_token_type": jag}, "invalid_target"),
    ):
        assert (await post(idp, "token", mine, **(usual | wrong)))[1]["error"] == error
    other = AuthorizationServer(issuer="https://other.example")
    idp.trust(other)
    bearer = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}
    for assertion in (other.token(resource="https://elsewhere"), other.token(resource=ISSUER, exp=1), "x", "a.b.c"):
        assert (await post(idp, "token", mine, assertion=assertion, **bearer))[1]["error"] == "invalid_grant"
    assert (await post(idp, "device_authorization", mine))[0] == 200
    device = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": "none"}
    assert (await post(idp, "token", mine, **device))[1]["error"] == "invalid_grant"


async def test_recorded_requests_hide_secrets_in_their_repr() -> None:
    idp = made()
    assert (await idp.fetch(idp.url("device"))).status == 200
    assert (await idp.fetch(idp.url("token"), method="OPTIONS")).status == 204
    await post(idp, "token", {"authorization": "Basic c2VjcmV0"}, client_secret="hidden")
    assert "hidden" not in repr(idp.requests[-1])
    assert "c2VjcmV0" not in repr(idp.requests[-1])
    assert AuthServerRequest("POST", "/", body=b"{").json() is None
    assert ISSUER in repr(idp)
    with pytest.raises(TransportError):
        await idp.fetch("https://elsewhere.example/")


async def test_the_fake_server_runs_as_a_program() -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "greenroom.auth.testing", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert program.stdout is not None
        issuer = (await program.stdout.readline()).decode().strip()
        said = json.loads((await Fetcher(Guard(loopback=True))(f"{issuer}/.well-known/openid-configuration")).body)
        assert said["issuer"] == issuer
        program.send_signal(signal.SIGTERM)
        assert await program.wait() == 0
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
