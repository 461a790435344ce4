"""Clients declare the extensions of the protocol by which they sign in, to servers of the revision that has extensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, Context
from greenroom.actors.client.settings import ClientSettings
from greenroom.auth import ClientCredentials, EnterpriseManaged, OAuth
from greenroom.client_targets import route_of
from greenroom.transports.client.interfaces import extensions_of
from greenroom.transports.client.remote_wire import RemoteRoute

from .bound_stage import stage
from .oauth_world import URL

if TYPE_CHECKING:
    from greenroom.auth import SignIn

PROGRAM, ENTERPRISE = (
    f"io.modelcontextprotocol/{name}" for name in ("oauth-client-credentials", "enterprise-managed-authorization")
)
ROBOT = ClientCredentials(client_id="a", client_secret="b")
DESK = EnterpriseManaged(client_id="a", idp_token_endpoint="https://sso.example/token", subject_token="t")


@pytest.mark.row("26-X3")
@pytest.mark.parametrize(
    ("auth", "declared"),
    [
        (ROBOT, [PROGRAM]),
        (DESK, [ENTERPRISE]),
        (ClientCredentials(workload_token="t"), []),
        (OAuth(), []),
        ("a-token", []),
        (None, []),
    ],
)
def test_a_route_knows_the_extensions_of_its_login(auth: SignIn | str | None, declared: list[str]) -> None:
    route = route_of(URL, auth=auth)
    assert list(extensions_of(route)) == declared
    place: Any = None
    assert list(extensions_of(RemoteRoute(route, place))) == declared


@pytest.mark.row("26-X3")
@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_each_request_declares_them_and_a_handshake_does_not(mode: str) -> None:
    async with stage(dpop=None) as at:
        seen: list[dict[str, Any]] = []

        @at.server.tool
        async def declared(ctx: Context) -> str:
            seen.append(dict(ctx.client_capabilities))
            return "kept"

        at.idp.add_client("robot", secret="s")
        settings = ClientSettings(mode=mode, capabilities={"extensions": {"com.example/own": True}})
        auth = ClientCredentials(client_id="robot", client_secret="s")
        async with Client(at.url, auth=auth, settings=settings) as client:
            await client.call("declared")
        extensions = seen[0]["extensions"]
        assert extensions["com.example/own"] == {}, "what a program declares itself stays"
        assert (PROGRAM in extensions) is (mode != "legacy")
