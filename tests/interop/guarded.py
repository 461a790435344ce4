"""A server that lets no client in without a token, beside the issuer of its tokens: `guarded.py PORT`. Clients that others wrote sign in to it.

Its tokens live for a few seconds only, and one tool needs more than it takes to come in.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from greenroom import Context, HttpConfig, Server
from greenroom.auth.resource_server import OAuthResource
from greenroom.auth.testing import AuthorizationServer

LIFETIME = 4.0


def made(idp: AuthorizationServer, resource: str) -> Server:
    """The server."""
    protected = OAuthResource(
        resource=resource,
        authorization_servers=[idp.issuer],
        keys=idp.key_set(),
        scopes_supported=["read", "deploy"],
        required_scopes=["read"],
        clock_skew=0,
    )
    server = Server("guarded", version="1.0", auth=protected)

    @server.tool
    def whoami(ctx: Context) -> str:
        """The subject and the scopes of a token."""
        allowed = sorted(ctx.auth.scopes & {"read", "deploy"})  # some clients ask for offline_access besides
        return f"{ctx.auth.subject} {' '.join(allowed)}"

    @server.tool(scopes=["deploy"])
    def deploy(ctx: Context) -> str:
        """For users who may deploy."""
        return f"deployed for {ctx.auth.subject}"

    @server.tool
    def history() -> str:
        """The requests that the issuer has received."""
        told = [f"{asked.path.removeprefix('/')} {asked.form.get('grant_type', '')}".strip() for asked in idp.requests]
        return ", ".join(told)

    return server


async def serve(port: int) -> None:
    """Serve until SIGTERM."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    async with AuthorizationServer(scopes=["read", "deploy"], lifetime=LIFETIME) as idp:
        server = made(idp, f"http://127.0.0.1:{port}/mcp")
        async with server.started():
            await server.listen(config=HttpConfig(port=port))
            await told.wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
