"""The fixture for the suite's scenario `sep-2350-server-scope-challenge`: `scope_challenge_server.py PORT` serves it on 127.0.0.1, at `/mcp`.

Two opaque tokens are known, one with too few scopes and one with all. Requests without a token may use everything, as the suite's other scenarios expect.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Final

from greenroom import HttpConfig, Server
from greenroom.auth.auth_info import AuthInfo
from greenroom.auth.errors import Denied
from greenroom.auth.resource_server import OAuthResource

if TYPE_CHECKING:
    from greenroom.auth.auth_info import AuthRequest

LOW, FULL = "mcp-conformance-scope-low", "mcp-conformance-scope-full"
SCOPES: Final = {
    "tool": ("mcp:conformance:tools:call", "mcp:conformance:tools:test_simple_text"),
    "static": ("mcp:conformance:resources:read", "mcp:conformance:resources:static"),
    "template": ("mcp:conformance:resources:read", "mcp:conformance:resources:template:123"),
    "prompt": ("mcp:conformance:prompts:get", "mcp:conformance:prompts:test_simple_prompt"),
}
EVERYTHING: Final = frozenset(scope for scopes in SCOPES.values() for scope in scopes)
GRANTED: Final = {LOW: frozenset({"mcp:conformance:baseline"}), FULL: EVERYTHING}


class FixtureAuth(OAuthResource):
    """Admits requests without a token as an anonymous caller that may use everything."""

    def __init__(self, resource: str) -> None:
        super().__init__(resource=resource, authorization_servers=["https://id.example"], authorizer=_known)

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """Identify the caller by its token, if it shows one."""
        if "authorization" not in request.headers:
            return AuthInfo("anonymous", scopes=EVERYTHING, anonymous=True)
        return await super().authenticate(request)


async def _known(token: str, *_: object) -> AuthInfo:
    if token not in GRANTED:
        raise Denied("invalid_token")
    return AuthInfo("conformance", scopes=GRANTED[token])


def made(resource: str) -> Server:
    """The server, by the names of the suite's contract."""
    server = Server("scopes", version="1.0", auth=FixtureAuth(resource))

    @server.tool(scopes=SCOPES["tool"])
    def test_simple_text() -> str:
        """Answer with a text."""
        return "This is a simple text response for testing."

    @server.resource("test://static-text", scopes=SCOPES["static"])
    def static_text() -> str:
        """A text."""
        return "This is the content of the static text resource."

    @server.resource("test://template/{id}/data", scopes=SCOPES["template"])
    def template_data(id: str) -> str:
        """A text with the id of its URI."""
        return f"data for {id}"

    @server.prompt(scopes=SCOPES["prompt"])
    def test_simple_prompt() -> str:
        """A text."""
        return "This is a simple prompt for testing."

    return server


async def serve(port: int) -> None:
    """Serve until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = made(f"http://127.0.0.1:{port}/mcp")
    async with server.started():
        await server.listen(config=HttpConfig(port=port))
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
