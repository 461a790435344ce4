"""The Python SDK 2.x signs in: with its own OAuth provider, to a server that it knows nothing of but the URL."""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2 as httpx
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

BACK = "http://127.0.0.1:1/callback"
LIFETIME = 4.0


class Memory:
    """Where the provider keeps what it gets."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


class Browser:
    """Goes where it is sent, and tells where that led."""

    def __init__(self) -> None:
        self.visits = 0
        self.back: dict[str, list[str]] = {}

    async def open(self, url: str) -> None:
        self.visits += 1
        async with httpx.AsyncClient() as client:
            answer = await client.get(url, follow_redirects=False)
        assert answer.status_code == 302, answer.text
        self.back = parse_qs(urlsplit(answer.headers["location"]).query)

    async def answer(self) -> AuthorizationCodeResult:
        iss = self.back.get("iss", [None])[0]
        return AuthorizationCodeResult(code=self.back["code"][0], state=self.back["state"][0], iss=iss)


async def text(client: Client, tool: str) -> str:
    """The text of a tool's result."""
    result = await client.call_tool(tool, {})
    assert not result.is_error, result
    said: str = result.content[0].text  # type: ignore[union-attr]
    return said


async def main(mode: str, url: str) -> None:
    """Sign in, be let in again with a new token, and get more."""
    browser = Browser()
    metadata = OAuthClientMetadata(redirect_uris=[BACK], client_name="player")  # type: ignore[list-item]  # which it makes a URL of
    provider = OAuthClientProvider(url, metadata, Memory(), browser.open, browser.answer)
    async with (
        httpx.AsyncClient(auth=provider, timeout=20) as web,
        Client(streamable_http_client(url, http_client=web), mode=mode) as client,
    ):
        said = await text(client, "whoami")
        assert said == "ann read", said
        print("ok sign in")
        history = (await text(client, "history")).split(", ")
        assert {"register", "token authorization_code", ".well-known/oauth-authorization-server"} <= set(history), (
            history
        )
        print("ok registration")
        await asyncio.sleep(LIFETIME + 0.5)
        assert await text(client, "whoami") == "ann read"
        history = (await text(client, "history")).split(", ")
        assert "token refresh_token" in history, history
        assert browser.visits == 1
        print("ok refresh")
        said = await text(client, "deploy")
        assert said == "deployed for ann", said
        assert browser.visits == 2
        said = await text(client, "whoami")
        assert said == "ann deploy read", said
        print("ok step-up")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
