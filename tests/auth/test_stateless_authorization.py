"""Authorization of requests of revision 2026-07-28: each one is authorized by itself, and learns all that it lacks at once."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Context, Server
from greenroom.auth.client.login_process import bearer_challenge
from greenroom.auth.resource_server import OAuthResource

from .auth_test_server import AUDIENCE, ISSUER, KEY, Reception, bearer
from .dpop_prover import ANN
from .scope_challenge_server import FULL, LOW, SCOPES, made

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from tests.transports.http.engine_driver import RecordedResponse

VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
SERVER = "http://127.0.0.1:8000/mcp"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("tools/call", {"name": "test_simple_text"}),
    "static": ("resources/read", {"uri": "test://static-text"}),
    "template": ("resources/read", {"uri": "test://template/123/data"}),
    "prompt": ("prompts/get", {"name": "test_simple_prompt"}),
}


async def exchange(
    desk: Reception, shown: Mapping[str, str | None], method: str, params: dict[str, Any] | None = None, **more: Any
) -> RecordedResponse:
    """Send an enveloped request with its mirrored headers."""
    meta: dict[str, Any] = {f"{PREFIX}protocolVersion": VERSION, f"{PREFIX}clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": meta}}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": VERSION, "mcp-method": method}
    if method in NAMED:
        headers["mcp-name"] = (params or {})[NAMED[method]]
    return await desk.ask("POST", {**headers, **shown}, message, **more)


@asynccontextmanager
async def opened(server: Server) -> AsyncGenerator[Reception]:
    async with server.started():
        desk = Reception(server)
        try:
            yield desk
        finally:
            await desk.close()


def resource(**options: Any) -> OAuthResource:
    """A resource server that takes the issuer's tokens."""
    pem = KEY.inner.as_pem(private=False)
    return OAuthResource(resource=AUDIENCE, authorization_servers=[ISSUER], key=pem, algorithms=("ES256",), **options)


def token(**claims: Any) -> str:
    """An unbound token."""
    given: dict[str, Any] = {"cnf": None, "scope": "", **claims}
    return ANN.token(**given)


@pytest.mark.row("26-A9")
@pytest.mark.parametrize("kind", OPERATIONS)
async def test_the_scenario_of_the_suite_for_scope_challenges(kind: str) -> None:
    method, params = OPERATIONS[kind]
    async with opened(made(SERVER)) as desk:
        refused = await exchange(desk, bearer(LOW), method, params)
        assert refused.status == 403
        said = bearer_challenge(refused.headers["www-authenticate"])
        assert said is not None
        assert said.params["error"] == "insufficient_scope"
        assert said.params["resource_metadata"] == "http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp"
        assert set(SCOPES[kind]) == set(said.params["scope"].split())
        assert json.loads(refused.body)["error"]["data"]["required_scopes"] == list(SCOPES[kind])
        for shown in (bearer(FULL), {}):  # and without a token everything goes on as in the other scenarios
            answered = await exchange(desk, shown, method, params)
            assert answered.status == 200
            result = answered.json["result"]
            (content,) = result.get("content") or result.get("contents") or result["messages"]
            assert "123" in content["text"] if kind == "template" else content
        assert (await exchange(desk, bearer("unknown"), method, params)).status == 401


@pytest.mark.row("26-A9")
async def test_a_token_without_any_of_the_scopes_needs_one_step_up_only() -> None:
    server = Server("steps", auth=resource(required_scopes=["mcp"]), required_scopes=["use"])

    @server.tool(scopes=["deploy"])
    def deploy() -> str:
        return "deployed"

    async with opened(server) as desk:
        scopes = ""
        for status in (403, 200):
            answer = await exchange(desk, bearer(token(scope=scopes)), "tools/call", {"name": "deploy"})
            assert answer.status == status
            if status == 403:
                said = bearer_challenge(answer.headers["www-authenticate"])
                assert said is not None
                scopes = said.params["scope"]
        assert set(scopes.split()) == {"mcp", "use", "deploy"}


@pytest.mark.row("26-A10")
async def test_each_request_needs_authorization_of_its_own() -> None:
    server = Server("each", auth=resource())

    @server.tool
    def whoami(ctx: Context) -> str:
        return f"{ctx.auth.subject} {vars_of(ctx.auth)}"

    def vars_of(info: Any) -> str:
        return " ".join(str(getattr(info, name)) for name in info.__slots__)

    asks: list[tuple[str, dict[str, Any] | None]] = [
        ("server/discover", None),
        ("tools/list", None),
        ("tools/call", {"name": "whoami"}),
        ("subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
        ("no/method", None),
        ("initialize", None),
    ]
    async with opened(server) as desk:
        good = token()
        shown = await exchange(desk, bearer(good), "tools/call", {"name": "whoami"})
        text = shown.json["result"]["content"][0]["text"]
        assert text.startswith("ann ")
        assert good not in text  # a handler cannot pass the token on
        assert good.split(".")[2] not in text
        wrong = (
            token(aud="https://other.example/mcp"),
            token(aud="https://mcp.example"),
            token(iss="https://evil.example"),
            token(exp=1),
            "x",
        )
        for method, params in asks:
            assert (await exchange(desk, {}, method, params)).status == 401
            for each in wrong:
                assert (await exchange(desk, bearer(each), method, params)).status == 401
        for headers in ({}, bearer(wrong[0])):
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            assert (await desk.ask("POST", headers, note, mcp_protocol_version=VERSION)).status == 401
        for query in (f"?access_token={good}", f"?token={good}"):
            assert (await exchange(desk, {}, "tools/list", path=f"/mcp{query}")).status == 401


@pytest.mark.row("26-A10")
async def test_the_metadata_are_public_and_what_a_challenge_names() -> None:
    async with opened(Server("public", auth=resource(scopes_supported=["use"], dpop="require"))) as desk:
        refused = await exchange(desk, {}, "server/discover")
        place = "/.well-known/oauth-protected-resource/mcp"
        assert f'resource_metadata="https://mcp.example{place}"' in refused.headers["www-authenticate"]
        document = (await desk.ask("GET", {}, path=place)).json
        assert document["resource"] == AUDIENCE
        assert document["authorization_servers"] == [ISSUER]
        assert document["scopes_supported"] == ["use"]
        assert document["dpop_bound_access_tokens_required"] is True


@pytest.mark.row("26-A12")
async def test_each_exchange_needs_a_proof_of_its_own() -> None:
    async with opened(Server("proofs", auth=resource(dpop="require", dpop_nonce_seconds=60))) as desk:
        bound = ANN.token()
        refused = await exchange(desk, ANN.shown(bound), "server/discover")
        assert refused.status == 401
        assert 'error="use_dpop_nonce"' in refused.headers["www-authenticate"]
        nonce = refused.headers["dpop-nonce"]
        for _ in range(2):
            shown = ANN.shown(bound, ANN.proof(bound, nonce=nonce))
            assert (await exchange(desk, shown, "server/discover")).status == 200
            again = await exchange(desk, shown, "tools/list")
            assert again.status == 401
            assert 'error="invalid_dpop_proof"' in again.headers["www-authenticate"]
