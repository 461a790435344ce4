"""A server that takes tokens which are bound to a key (DPoP), and its authorization server, both at addresses of this machine."""

from __future__ import annotations

import json
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from greenroom import HttpConfig, Server
from greenroom.auth.jose import decode_part
from greenroom.auth.resource_server import OAuthResource
from greenroom.auth.testing import AuthorizationServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.auth.auth_info import AuthInfo, AuthRequest


class WatchedResource(OAuthResource):
    """A resource server that keeps what its callers have shown."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.requests: list[AuthRequest] = []

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """Keep the request, and decide about it."""
        self.requests.append(request)
        return await super().authenticate(request)

    @property
    def proofs(self) -> list[str]:
        """The proofs, in order."""
        return [each.headers["dpop"] for each in self.requests if "dpop" in each.headers]

    @property
    def schemes(self) -> list[str]:
        """How tokens were shown; empty for a request without one."""
        return [each.headers.get("authorization", "").partition(" ")[0] for each in self.requests]

    def change_nonces(self) -> None:
        """From now on, the nonces that were handed out are not accepted."""
        self._dpop.share(json.dumps(len(self.requests)).encode())


class Stage(NamedTuple):
    """The server, its address, and its authorization server."""

    server: Server
    idp: AuthorizationServer
    url: str
    resource: WatchedResource

    @property
    def token_requests(self) -> list[dict[str, Any]]:
        """The claims of the proofs at the token endpoint, with the grant; without a proof, only the grant."""
        asked = [each for each in self.idp.requests if each.path == "/token"]
        return [{"grant": each.form["grant_type"], **proof_claims(each.headers.get("dpop"))} for each in asked]


def proof_claims(proof: str | None) -> dict[str, Any]:
    """The claims of a proof."""
    return {} if proof is None else decode_part(proof, 1) or {}


@asynccontextmanager
async def stage(
    *, dpop: Any = "require", nonces: float | None = None, idp: AuthorizationServer | None = None, **options: Any
) -> AsyncGenerator[Stage]:
    """The server: `look` needs the scope `read`, and `paint` needs `write`. `options` are those of the server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    async with idp or AuthorizationServer(dpop="accept") as issuer:
        resource = WatchedResource(
            resource=url,
            authorization_servers=[issuer.issuer],
            keys=issuer.key_set(),
            scopes_supported=["read"],
            allow_insecure_authorization_servers=True,
            dpop=dpop,
            dpop_nonce_seconds=nonces,
        )
        server = Server("stage", auth=resource, required_scopes=["read"], **options)

        @server.tool
        async def look() -> str:
            return "a stage"

        @server.tool(scopes=["write"])
        async def paint() -> str:
            return "painted"

        async with server.started():
            await server.listen(config=HttpConfig(port=port))
            yield Stage(server, issuer, url, resource)
