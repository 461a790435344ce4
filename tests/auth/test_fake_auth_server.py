"""The fake authorization server behaves like real ones: each grant by hand in memory, and a whole flow over a socket."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from typing import Any
from urllib.parse import urlencode

import pytest

from greenroom.auth.client.metadata_discovery import build_authorization_url, gen_code_verifier
from greenroom.auth.errors import SignInError
from greenroom.auth.jose import make_key, parse_jwk_set, public_key, sign, verified_claims
from greenroom.auth.testing import Approve, AuthorizationServer, Refuse, RegisteredClient, redirect_params
from greenroom.transports.client.errors import TransportError
from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.http_address import Guard

ISSUER = "https://id.example"
RESOURCE = "https://mcp.example/mcp"
BACK = "http://127.0.0.1:1/callback"
ES = ("ES256",)


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def made(**given: Any) -> AuthorizationServer:
    return AuthorizationServer(issuer=ISSUER, **given)


async def post(idp: AuthorizationServer, place: str, headers: Any = None, **form: Any) -> tuple[int, Any]:
    body = urlencode(form, doseq=True).encode()
    answer = await idp.fetch(idp.url(place), method="POST", headers=headers, body=body)
    return answer.status, json.loads(answer.body)


async def get(idp: AuthorizationServer, path: str) -> tuple[int, Any]:
    answer = await idp.fetch(f"{ISSUER}{path}")
    return answer.status, json.loads(answer.body)


def login(id: str, secret: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(f'{id}:{secret}'.encode()).decode()}"}


async def signed_in(idp: AuthorizationServer, client: RegisteredClient, **more: str) -> tuple[dict[str, str], str]:
    """The parameters of the redirect, and the verifier."""
    params = {"client_id": client.id, "redirect_uri": BACK, "scope": "read", "resource": RESOURCE, **more}
    asked = build_authorization_url(idp.url("authorize"), params, state="s")
    return redirect_params(await idp.browse(asked.url)), asked.verifier


async def redeemed(
    idp: AuthorizationServer, client: RegisteredClient, back: dict[str, str], verifier: str
) -> tuple[int, Any]:
    return await post(
        idp,
        "token",
        grant_type="authorization_code",
        client_id=client.id,
        code=back["code"],
        redirect_uri=BACK,
        code_verifier=verifier,
    )


def claims_of(idp: AuthorizationServer, token: str) -> dict[str, Any]:
    return verified_claims(token, parse_jwk_set(idp.keys.document()), ES)


async def test_a_code_is_redeemed_once_and_only_by_the_client_that_requested_it() -> None:
    idp = made()
    client = idp.add_client("app", redirect_uris=[BACK])
    back, verifier = await signed_in(idp, client)
    assert (back["state"], back["iss"]) == ("s", ISSUER)
    assert (await redeemed(idp, client, back, gen_code_verifier()))[1]["error"] == "invalid_grant"
    status, tokens = await redeemed(idp, client, back, verifier)
    assert status == 200
    claims = claims_of(idp, tokens["access_token"])
    assert {name: claims[name] for name in ("iss", "sub", "aud", "scope", "client_id")} == {
        "iss": ISSUER,
        "sub": "ann",
        "aud": RESOURCE,
        "scope": "read",
        "client_id": "app",
    }
    assert (await redeemed(idp, client, back, verifier))[1]["error"] == "invalid_grant"
    assert idp.issued_tokens == {}  # what a replayed code had brought is taken back
    idp.faults.replayed_codes = True
    assert (await redeemed(idp, client, back, verifier))[0] == 200


async def test_a_refresh_token_is_good_once_and_its_second_use_ends_the_grant() -> None:
    idp = made()
    client = idp.add_client("app", redirect_uris=[BACK])
    _, first = await redeemed(idp, client, *await signed_in(idp, client))
    refresh = {"grant_type": "refresh_token", "client_id": "app"}
    status, second = await post(idp, "token", refresh_token=first["refresh_token"], **refresh)
    assert (status, claims_of(idp, second["access_token"])["sub"]) == (200, "ann")
    wider = await post(idp, "token", refresh_token=second["refresh_token"], scope="read write", **refresh)
    assert wider[1]["error"] == "invalid_scope"
    assert (await post(idp, "token", refresh_token=first["refresh_token"], **refresh))[1]["error"] == "invalid_grant"
    assert (await post(idp, "token", refresh_token=second["refresh_token"], **refresh))[1]["error"] == "invalid_grant"
    assert (idp.issued_tokens, idp.refresh_tokens) == ({}, {})


async def test_users_and_pages_say_no_in_the_redirect_and_strangers_are_sent_nowhere() -> None:
    idp = made()
    client = idp.add_client("app", redirect_uris=[BACK])
    idp.consent = lambda _: Refuse("access_denied", "not today")
    back, _ = await signed_in(idp, client)
    assert back == {"error": "access_denied", "error_description": "not today", "state": "s", "iss": ISSUER}
    idp.consent = lambda _: None
    with pytest.raises(SignInError, match="200"):
        await signed_in(idp, client)
    for wrong in ({"client_id": "unknown"}, {"redirect_uri": "https://evil.example/"}):
        with pytest.raises(SignInError, match="400"):
            await signed_in(idp, client, **wrong)
    other_port = "http://127.0.0.1:50123/callback"
    idp.consent = lambda wish: Approve("bob", wish.scopes[:1])
    found = await idp.browse(
        build_authorization_url(idp.url("authorize"), {"client_id": "app", "redirect_uri": other_port}).url
    )
    assert found.startswith(other_port)
    plain = urlencode({"client_id": "app", "redirect_uri": BACK, "response_type": "code"})
    assert redirect_params(await idp.browse(f"{idp.url('authorize')}?{plain}"))["error"] == "invalid_request"


async def test_a_program_registers_and_authenticates_as_registered() -> None:
    idp = made()
    body = json.dumps({"redirect_uris": [BACK], "client_name": "App", "application_type": "native"}).encode()
    answer = await idp.fetch(idp.url("register"), method="POST", body=body)
    said = json.loads(answer.body)
    assert (answer.status, said["client_name"], said["token_endpoint_auth_method"]) == (
        201,
        "App",
        "client_secret_basic",
    )
    client = idp.clients[said["client_id"]]
    assert client.secret == said["client_secret"]
    back, verifier = await signed_in(idp, client)
    assert (await redeemed(idp, client, back, verifier))[0] == 401  # it has a secret, and did not show it
    form = {"grant_type": "authorization_code", "code": back["code"], "code_verifier": verifier}
    assert (await post(idp, "token", login(client.id, said["client_secret"]), **form))[0] == 200
    wrongs: tuple[Any, ...] = (
        {"redirect_uris": ["javascript:alert(1)"]},
        {"redirect_uris": ["http://mcp.example/"]},
        {},
        [],
    )
    for wrong in wrongs:
        answer = await idp.fetch(idp.url("register"), method="POST", body=json.dumps(wrong).encode())
        assert answer.status == 400
    off = made(registration=False)
    assert "registration_endpoint" not in off.metadata()
    assert (await off.fetch(off.url("register"), method="POST", body=body)).status == 404


async def test_a_program_may_be_a_document() -> None:
    idp = made()
    url = "https://app.example/client.json"
    idp.client_documents[url] = {"client_id": url, "redirect_uris": [BACK]}
    client = RegisteredClient(url, redirect_uris=(BACK,))
    assert (await redeemed(idp, client, *await signed_in(idp, client)))[0] == 200
    idp.client_documents[url] = {"client_id": "https://other.example/client.json", "redirect_uris": [BACK]}
    with pytest.raises(SignInError, match="another client"):
        await signed_in(idp, client)


async def test_a_program_for_itself_by_secret_in_either_place_and_by_signature() -> None:
    idp = made()
    idp.add_client("basic", secret="b" * 20)
    idp.add_client("post", secret="p" * 20, method="client_secret_post")
    key = make_key("EC", kid="k")
    idp.add_client("signed", keys=[key])
    form = {"grant_type": "client_credentials", "scope": "read", "resource": RESOURCE}
    status, said = await post(idp, "token", login("basic", "b" * 20), **form)
    assert (status, claims_of(idp, said["access_token"])["sub"], "refresh_token" in said) == (200, "basic", False)
    assert (await post(idp, "token", login("basic", "wrong"), **form))[0] == 401
    assert (await post(idp, "token", client_id="post", client_secret="p" * 20, **form))[0] == 200
    assert (await post(idp, "token", client_id="basic", client_secret="b" * 20, **form))[0] == 401

    def assertion(**changes: Any) -> dict[str, str]:
        said: dict[str, Any] = {"iss": "signed", "sub": "signed", "aud": ISSUER, "exp": time.time() + 60}
        token = sign(said | {"jti": secrets.token_hex(4)} | changes, key, "ES256")
        kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        return {"client_id": "signed", "client_assertion_type": kind, "client_assertion": token}

    good = assertion()
    assert (await post(idp, "token", **good, **form))[0] == 200
    assert "before" in (await post(idp, "token", **good, **form))[1]["error_description"]
    for wrong in ({"aud": "https://other.example"}, {"exp": 1}, {"sub": "basic"}, {"jti": None}):
        assert (await post(idp, "token", **assertion(**wrong), **form))[0] == 401
    public = idp.add_client("public")
    assert (await post(idp, "token", client_id=public.id, **form))[1]["error"] == "unauthorized_client"


async def test_a_machine_without_a_browser_waits_for_its_user() -> None:
    clock = Clock()
    idp = made(clock=clock)
    idp.add_client("tv")
    _, said = await post(idp, "device_authorization", client_id="tv", scope="read", resource=RESOURCE)
    asked = {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "client_id": "tv",
        "device_code": said["device_code"],
    }
    assert (await post(idp, "token", **asked))[1]["error"] == "authorization_pending"
    assert (await post(idp, "token", **asked))[1]["error"] == "slow_down"
    clock.now += said["interval"]
    assert (await post(idp, "token", **asked))[1]["error"] == "authorization_pending"
    idp.decide(said["user_code"])
    _, tokens = await post(idp, "token", **asked)
    assert claims_of(idp, tokens["access_token"])["aud"] == RESOURCE
    assert (await post(idp, "token", **asked))[1]["error"] == "invalid_grant"
    _, other = await post(idp, "device_authorization", client_id="tv")
    idp.decide(other["user_code"], Refuse())
    asked["device_code"] = other["device_code"]
    assert (await post(idp, "token", **asked))[1]["error"] == "access_denied"
    clock.now += 601
    assert (await post(idp, "token", **asked))[1]["error"] == "expired_token"
    with pytest.raises(KeyError):
        idp.decide("NOBO-DYYY")


async def test_an_organisation_vouches_for_its_user_at_another_issuer() -> None:
    organisation = made()
    organisation.add_client("app", secret="o" * 20)
    idp = AuthorizationServer(issuer="https://mcp-id.example")
    idp.add_client("app-there", secret="t" * 20)
    idp.trust(organisation)
    identity = organisation.token(client_id="app")
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "audience": idp.issuer,
        "resource": RESOURCE,
        "scope": "read",
    }
    assert (await post(organisation, "token", login("app", "o" * 20), subject_token="x.y.z", **form))[0] == 400
    _, said = await post(
        organisation, "token", login("app", "o" * 20), subject_token=identity, client_id="app-there", **form
    )
    assert (said["token_type"], said["issued_token_type"]) == ("N_A", form["requested_token_type"])
    redeem = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": said["access_token"]}
    status, tokens = await post(idp, "token", login("app-there", "t" * 20), **redeem)
    claims = claims_of(idp, tokens["access_token"])
    assert (status, claims["sub"], claims["aud"], claims["scope"]) == (200, "ann", RESOURCE, "read")
    assert (await post(idp, "token", login("app-there", "t" * 20), **redeem))[1]["error"] == "invalid_grant"
    idp.trusted.clear()
    assert "trusted" in (await post(idp, "token", login("app-there", "t" * 20), **redeem))[1]["error_description"]
    plain = form | {"requested_token_type": form["subject_token_type"]}
    status, exchanged = await post(organisation, "token", login("app", "o" * 20), subject_token=identity, **plain)
    assert (status, exchanged["token_type"]) == (200, "Bearer")


async def test_tokens_can_be_asked_about_and_taken_back() -> None:
    clock = Clock()
    idp = made(opaque=True, clock=clock)
    idp.add_client("api", secret="a" * 20)
    mine = login("api", "a" * 20)
    token = idp.token(resource=RESOURCE, scope="read", client_id="api")
    assert "." not in token
    _, said = await post(idp, "introspect", mine, token=token)
    assert (said["active"], said["sub"], said["aud"], said["scope"]) == (True, "ann", RESOURCE, "read")
    assert (await post(idp, "introspect", token=token))[0] == 401
    await post(idp, "revoke", mine, token=token)
    assert (await post(idp, "introspect", mine, token=token))[1] == {"active": False}
    late = idp.token(lifetime=10)
    clock.now += 11
    assert (await post(idp, "introspect", mine, token=late))[1] == {"active": False}


@pytest.mark.parametrize(("path", "family"), [("", "EC"), ("/tenant", "RSA"), ("/a/b", "OKP")])
async def test_the_metadata_names_all_endpoints(path: str, family: Any) -> None:
    idp = AuthorizationServer(issuer=f"{ISSUER}{path}", path=path, family=family)
    places = ["/.well-known/oauth-authorization-server" + path, "/.well-known/openid-configuration" + path]
    for place in (*places, f"{path}/.well-known/openid-configuration"):
        status, said = await get(idp, place)
        assert (status, said["issuer"]) == (200, idp.issuer)
        assert said["code_challenge_methods_supported"] == ["S256"]
    before = idp.token()
    idp.rotate_keys()
    keys = parse_jwk_set((await get(idp, f"{path}/jwks"))[1])
    assert verified_claims(before, keys, (idp.keys.algorithm,))["sub"] == "ann"
    idp.rotate_keys(keep=False)
    assert len((await get(idp, f"{path}/jwks"))[1]["keys"]) == 1
    assert (await idp.fetch(f"{ISSUER}/elsewhere")).status == 404


async def test_over_a_socket_and_gone_without_a_trace() -> None:
    fetch = Fetcher(Guard(loopback=True))
    async with AuthorizationServer(path="/tenant") as idp:
        said = json.loads((await fetch(f"{idp.issuer}/.well-known/openid-configuration")).body)
        assert said["issuer"] == idp.issuer
        idp.add_client("api", secret="a" * 20)
        body = b"grant_type=client_credentials"
        answer = await fetch(said["token_endpoint"], method="POST", headers=login("api", "a" * 20), body=body)
        assert answer.status == 200
        assert [asked.path for asked in idp.requests] == ["/tenant/.well-known/openid-configuration", "/tenant/token"]
        port = int(idp.issuer.split(":")[2].partition("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"nonsense\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
    with pytest.raises(TransportError):
        await fetch(f"{idp.issuer}/jwks")
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    await idp.stop()
    with pytest.raises(RuntimeError):
        AuthorizationServer().issuer  # noqa: B018 - it is the question


async def test_a_pem_of_its_key_is_a_key() -> None:
    idp = made(family="RSA")
    assert public_key(idp.keys.current.inner.as_pem(private=False)).family == "RSA"
