"""A caller's token stays at the gateway: it reaches no upstream, no child process and no log."""

from __future__ import annotations

import base64
import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.auth.auth_test_server import Reception
from tests.transports.client_http.scripted_server import ReceivedRequest, ScriptedServer, scripted_server

from greenroom import Client, Context, Server
from greenroom.auth.bearer_tokens import BearerAuth
from greenroom.auth.shared_secrets import APIKeyAuth, BasicAuth, hash_password
from greenroom.client_targets import route_of
from greenroom.host import Host
from greenroom.transports.client.errors import TransportError

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom.auth.auth_info import AuthProvider

pytestmark = pytest.mark.greenroom(clock="real")
CANARY = "canary-0123456789-abcdefghij"
OWN = "the-gateways-own-token"
CHILD = """
import json, os, sys
from greenroom import Server

server = Server("child")

@server.tool
def all_i_know() -> str:
    return json.dumps([dict(os.environ), sys.argv])

server.run()
"""


def _known(token: str) -> dict[str, Any] | None:
    return {"sub": "ann", "scope": "use"} if token == CANARY else None


WAYS: dict[str, tuple[AuthProvider, dict[str, str]]] = {
    "bearer": (BearerAuth(verifier=_known, audience=None), {"authorization": f"Bearer {CANARY}"}),
    "key": (APIKeyAuth({CANARY: {"subject": "ann", "scopes": ["use"]}}), {"x-api-key": CANARY}),
    "password": (
        BasicAuth({"ann": hash_password(CANARY, iterations=1)}),
        {"authorization": f"Basic {base64.b64encode(f'ann:{CANARY}'.encode()).decode()}"},
    ),
}
TOOLS = {"web": "work", "child": "all_i_know"}
FORMS = (CANARY, base64.b64encode(f"ann:{CANARY}".encode()).decode(), CANARY.encode().hex())


def holds_a_canary(text: str) -> bool:
    return any(each in text for each in FORMS)


def everything(server: ScriptedServer) -> str:
    """All that a server was ever sent."""
    return "\n".join(f"{each.method} {each.path} {each.headers} {each.body.decode()}" for each in server.requests)


async def _tools(visit: ReceivedRequest) -> None:
    await visit.result({"tools": [{"name": "work", "inputSchema": {"type": "object"}}]})


@pytest.mark.row("SA-23")
@pytest.mark.parametrize("way", WAYS)
async def test_no_server_behind_a_gateway_is_shown_what_its_callers_show(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider, shown = WAYS[way]
    program = tmp_path / "child.py"
    program.write_text(CHILD)
    more = {**shown, "cookie": f"session={CANARY}", "proxy-authorization": f"Basic {CANARY}"}
    seen: list[str] = []
    with caplog.at_level(logging.DEBUG):
        async with scripted_server() as web:
            web.on("tools/list", _tools)
            upstreams: dict[str, Any] = {"web": route_of(web.url, auth=OWN)}
            if way == "bearer":  # one child is enough: it takes a second to start
                upstreams["child"] = route_of([sys.executable, str(program)])
            server = Server("front", auth=provider)

            @server.tool
            async def own(ctx: Context) -> str:
                seen.append(f"{ctx.auth!r} {vars(ctx.auth) if hasattr(ctx.auth, '__dict__') else ''} {ctx.auth.claims}")
                return repr(ctx.auth)

            server.mount(Host(upstreams, patience=10.0))
            async with server.started():
                desk = Reception(server, plain=True)
                for name in ("own", *(f"{id}__{tool}" for id, tool in TOOLS.items() if id in upstreams)):
                    params: dict[str, Any] = {"name": name, "arguments": {}}
                    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                    paper = await desk.ask("POST", more, message)
                    seen.append(paper.body.decode())
                await desk.close()
        assert web.seen("tools/call"), seen
        sent = everything(web)
        assert OWN in sent
        assert not holds_a_canary(sent)
        assert sum("child.py" in each for each in seen) == ("child" in upstreams), seen
        assert not any(holds_a_canary(each) for each in seen)
    assert not holds_a_canary(caplog.text)
    assert OWN not in caplog.text


@pytest.mark.row("SA-23")
async def test_each_server_is_shown_its_own_token_and_no_other() -> None:
    async with scripted_server() as one, scripted_server() as other:
        for each in (one, other):
            each.on("tools/list", _tools)
        host = Host(
            {"one": route_of(one.url, auth="token-of-one"), "other": route_of(other.url, auth="token-of-other")}
        )
        async with host:
            for id in ("one:work", "other:work"):
                await host.call(id)
        for server, own, foreign in (
            (one, "token-of-one", "token-of-other"),
            (other, "token-of-other", "token-of-one"),
        ):
            assert {each.headers["authorization"] for each in server.requests} == {f"Bearer {own}"}
            assert foreign not in everything(server)
            assert server.seen("tools/call")


@pytest.mark.row("SA-23")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_server_cannot_have_its_token_shown_to_another_by_a_redirect(status: int) -> None:
    """Nor the message: an answer that leads elsewhere is an error, whatever the verb."""
    async with scripted_server() as other:

        async def moved(visit: ReceivedRequest) -> None:
            await visit.reply(status, location=other.url)

        async with scripted_server(initialize=moved) as server:
            with pytest.raises(TransportError):
                async with Client(server.url, auth="token-of-one"):
                    raise AssertionError
        assert other.requests == []
