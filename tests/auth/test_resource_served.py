"""A protected resource as clients see it: public metadata, real tokens, and the ASGI middleware."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from greenroom import HttpConfig, Server
from greenroom.auth.asgi_middleware import Protected, WellKnownDocument
from greenroom.auth.bearer_tokens import BearerAuth
from greenroom.auth.client.login_process import bearer_challenge
from greenroom.auth.jwks_and_introspection import Introspection, KeySet
from greenroom.auth.resource_server import OAuthResource
from greenroom.auth.testing import AuthorizationServer
from greenroom.errors import ConfigError
from greenroom.transports import Fetcher, Guard

from .auth_test_server import HELLO, bearer, call, reception
from .protected_resources import ANN, FOREIGN, ISSUER, METADATA, PLACES, RESOURCE, made

# --- public metadata


@pytest.mark.row("SA-22", "SA-30")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("config", [{}, {"old_sse": True}, {"plain": True}])
async def test_the_metadata_is_public_at_both_paths(place: str, config: dict[str, Any]) -> None:
    provider = made(
        scopes_supported=["read"], resource_name="Play", resource_documentation="https://x/d", metadata={"x_more": [1]}
    )
    async with reception(provider, **config) as desk:
        paper = await desk.ask("GET", FOREIGN, path=place)
        assert paper.json == {
            "resource": RESOURCE,
            "authorization_servers": [ISSUER],
            "scopes_supported": ["read"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Play",
            "resource_documentation": "https://x/d",
            "x_more": [1],
        }
        assert paper.status == 200
        names = ("content-type", "cache-control", "access-control-allow-origin")
        assert [paper.headers[name] for name in names] == ["application/json", "no-store", "*"]
        assert (await desk.ask("HEAD", FOREIGN, path=place)).status == 200
        paper = await desk.ask("OPTIONS", FOREIGN, path=place)
        assert (paper.status, paper.body, paper.headers["access-control-allow-origin"]) == (204, b"", "*")
        for verb in ("POST", "PUT", "DELETE"):
            paper = await desk.ask(verb, FOREIGN, path=place)
            assert (paper.status, paper.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        assert (await desk.ask("GET", {}, path=f"{place}/other")).status == 404
        assert (await desk.ask("POST", {}, HELLO)).status == 401


@pytest.mark.row("SA-22")
async def test_a_bearer_provider_has_it_too() -> None:
    about = {"resource": RESOURCE, "authorization_servers": [ISSUER]}
    provider = BearerAuth(secret="s" * 32, audience=RESOURCE, resource_metadata=about)
    async with reception(provider) as desk:
        assert (await desk.ask("GET", FOREIGN, path=PLACES[1])).json["resource"] == RESOURCE
        paper = await desk.ask("POST", {}, HELLO)
        assert (paper.status, paper.headers["www-authenticate"]) == (
            401,
            f'Bearer realm="mcp", resource_metadata="{METADATA}"',
        )
    other = BearerAuth(
        secret="s" * 32, audience=None, resource_metadata=about | {"metadata_url": "https://x.example/m"}
    )
    async with reception(other) as desk:
        assert "https://x.example/m" in (await desk.ask("POST", {}, HELLO)).headers["www-authenticate"]
    for wrong, why in (
        (
            {"resource": RESOURCE},
            r"^resource_metadata: missing 1 required positional argument: 'authorization_servers'$",
        ),
        (about | {"strange": 1}, r"^resource_metadata: got an unexpected keyword argument 'strange'$"),
        (about | {"resource": "x"}, "x"),
    ):
        with pytest.raises(ConfigError, match=why):
            BearerAuth(secret="s" * 32, audience=None, resource_metadata=wrong)


# --- tokens of the server for tests


async def test_three_lines_are_enough() -> None:
    idp = AuthorizationServer(issuer=ISSUER)
    resource = OAuthResource(
        resource=RESOURCE,
        authorization_servers=[ISSUER],
        keys=KeySet(idp.url("jwks"), idp.fetch),
        required_scopes=["read"],
    )
    async with reception(resource) as desk:
        good = bearer(idp.token(resource=RESOURCE, scope="read deploy"))
        session = await desk.enter(good)
        paper = await desk.ask("POST", good, call("whoami"), mcp_session_id=session)
        assert paper.json["result"]["content"][0]["text"] == "ann"
        assert (await desk.ask("POST", bearer(idp.token(resource=f"{RESOURCE}/", scope="read")), HELLO)).status == 200
        for wrong in (
            idp.token(resource="https://mcp.example", scope="read"),
            idp.token(resource="https://other.example/mcp", scope="read"),
            idp.token(scope="read"),
            idp.token(resource=RESOURCE, scope="read", lifetime=-120),
            idp.token(resource=RESOURCE, scope="read", iss="https://evil.example"),
            idp.token(resource=RESOURCE, scope="read", iss=None),
            idp.token(resource=RESOURCE, scope="read", nbf=time.time() + 600),
        ):
            paper = await desk.ask("POST", bearer(wrong), HELLO)
            assert (paper.status, "invalid_token" in paper.headers["www-authenticate"]) == (401, True)
    async with reception(made(keys=KeySet(idp.url("jwks"), idp.fetch), required_scopes=["read"])) as desk:
        paper = await desk.ask("POST", bearer(idp.token(resource=RESOURCE, scope="write")), HELLO)
        assert (paper.status, 'scope="read"' in paper.headers["www-authenticate"]) == (403, True)
        for signature in ("none", "confused", "foreign", "broken"):
            idp.faults.signature = signature
            assert (await desk.ask("POST", bearer(idp.token(resource=RESOURCE, scope="read")), HELLO)).status == 401


async def test_opaque_tokens_by_asking_the_issuer() -> None:
    idp = AuthorizationServer(issuer=ISSUER, opaque=True)
    idp.add_client("mcp", secret="m" * 20)
    asked = Introspection(idp.url("introspect"), idp.fetch, client_id="mcp", client_secret="m" * 20)
    async with reception(made(introspection=asked)) as desk:
        assert (await desk.ask("POST", bearer(idp.token(resource=RESOURCE)), HELLO)).status == 200
        assert (await desk.ask("POST", bearer(idp.token(resource="https://other.example")), HELLO)).status == 401
        assert (await desk.ask("POST", bearer("unknown-token"), HELLO)).status == 401


async def test_a_tool_that_lacks_scopes_asks_for_them() -> None:
    idp = AuthorizationServer(issuer=ISSUER)
    async with reception(made(keys=KeySet(idp.url("jwks"), idp.fetch))) as desk:
        mine = bearer(idp.token(resource=RESOURCE, scope="read"))
        session = await desk.enter(mine)
        paper = await desk.ask("POST", mine, call("deploy"), mcp_session_id=session)
        assert paper.status == 403
        challenge = bearer_challenge(paper.headers["www-authenticate"])
        assert challenge is not None
        assert (challenge.params["error"], challenge.params["scope"]) == ("insufficient_scope", "deploy")
        assert challenge.params["resource_metadata"] == METADATA


# --- a stage of its own


class Heard:
    """The response of an ASGI application."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message["type"] == "http.response.body":
            self.body += message["body"]
        else:
            self.status = message["code"]


async def receive() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def ask(app: Any, path: str, *, token: str | None = None, method: str = "GET", **scope: Any) -> Heard:
    heard = Heard()
    headers = [(b"host", b"localhost")] + ([] if token is None else [(b"authorization", f"Bearer {token}".encode())])
    whole = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers, "client": None}
    await app(whole | scope, receive, heard.send)
    return heard


@pytest.mark.row("SA-31")
async def test_a_stage_in_front_of_any_application() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope.get("state", {}).get("greenroom.peer"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"in"})

    stage = Protected(app, made(), required_scopes=["read"])
    refused = await ask(stage, "/anything")
    assert refused.status == 401
    assert "greenroom-instance" not in refused.headers, (
        "clients know no such word of this application, and would doubt the 401"
    )
    assert (await ask(stage, "/anything", token="t")).body == b"in"
    assert seen.pop().auth is ANN
    assert (await ask(stage, "/anything", method="OPTIONS")).body == b"in"
    assert json.loads((await ask(stage, PLACES[1])).body)["resource"] == RESOURCE
    assert (await ask(stage, "/ws", type="websocket")).status == 1008
    twice = [(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")]
    assert (await ask(stage, "/x", headers=twice)).status == 400
    assert (await ask(Protected(app, None), "/anything")).body == b"in"
    assert seen.pop() is None
    refused = await ask(Protected(app, made(), required_scopes=["pay"]), "/x", token="t")
    assert (refused.status, 'scope="pay"' in refused.headers["www-authenticate"]) == (403, True)


@pytest.mark.row("SA-31")
async def test_the_server_behind_a_stage_knows_who_calls() -> None:
    async with reception(None) as desk:
        mounted = desk.server.asgi()
        stage = Protected(mounted, made())
        try:
            body = json.dumps(HELLO).encode()

            async def once() -> Any:
                return {"type": "http.request", "body": body, "more_body": False}

            heard = Heard()
            headers = [
                (b"host", b"localhost"),
                (b"authorization", b"Bearer t"),
                (b"content-type", b"application/json"),
                (b"accept", b"application/json, text/event-stream"),
            ]
            scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers}
            await stage(scope, once, heard.send)
            assert heard.status == 200
            session = desk.server.session(heard.headers["mcp-session-id"])
            assert session.auth is ANN
            refused = await ask(stage, "/mcp", method="POST")
            assert refused.status == 401
            assert refused.headers["greenroom-instance"] == heard.headers["greenroom-instance"], "a client believes it"
        finally:
            await mounted.close()


@pytest.mark.row("SA-30", "SA-31")
async def test_the_document_alone_for_the_root_of_another_application() -> None:
    document = WellKnownDocument(made())
    for scope in (
        {"path": PLACES[0]},
        {"path": PLACES[0], "root_path": "/.well-known"},  # as hosts do that leave the path whole
        {"path": "/oauth-protected-resource/mcp", "root_path": ""},  # and those that do not
    ):
        heard = await ask(document, **scope)
        assert json.loads(heard.body)["resource"] == RESOURCE
    assert (await ask(document, "/else")).status == 404
    assert (await ask(document, PLACES[0], method="POST")).status == 405
    with pytest.raises(ConfigError):
        WellKnownDocument(BearerAuth(secret="s" * 32, audience=None))


@pytest.mark.row("SA-22", "SA-30")
@pytest.mark.parametrize("config", [{}, {"plain": True}, {"old_sse": True}, {"hypercorn": True}])
async def test_over_a_socket_by_every_transport(config: dict[str, Any]) -> None:
    fetch = Fetcher(Guard(loopback=True))
    server = Server("here", auth=made())
    async with server.started():
        url = await server.listen(config=HttpConfig(port=0, **config))
        for place in PLACES:
            where = url.replace("/mcp", place)
            whole = await fetch(where, headers=FOREIGN)
            assert (whole.status, json.loads(whole.body)["resource"]) == (200, RESOURCE)
            bare = await fetch(where, method="HEAD")
            assert (bare.status, bare.body, bare.headers["cache-control"]) == (200, b"", "no-store")
            assert (await fetch(where, method="OPTIONS", headers=FOREIGN)).status == 204
            assert (await fetch(where, method="POST", body=b"{}")).status == 405
        assert (await fetch(url, method="POST", body=b"{}")).status == 401


@pytest.mark.row("SA-30")
async def test_mounted_it_is_below_the_mount() -> None:
    mounted = Server("here", auth=made()).asgi()
    try:
        for path in (f"/tools{PLACES[1]}", PLACES[1]):  # hosts differ in what they leave of it
            heard = await ask(mounted, path, root_path="/tools")
            assert json.loads(heard.body)["resource"] == RESOURCE
        assert (await ask(mounted, "/tools/mcp", root_path="/tools", method="POST")).status == 401
    finally:
        await mounted.close()
