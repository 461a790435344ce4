"""A protected server and its fake authorization server, both in memory; clients reach them through `fetch`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from greenroom.auth.testing import AuthorizationServer
from greenroom.transports.client.errors import ConnectFailed
from greenroom.transports.client.fetch import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

URL = "https://mcp.example/mcp"
PRM = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
CHALLENGE = f'Bearer resource_metadata="{PRM}", scope="read"'
ISSUER = "https://idp.example"


class World:
    """A protected server, its authorization server, and other documents by URL."""

    def __init__(self, **options: Any) -> None:
        self.idp = AuthorizationServer(issuer=ISSUER, **options)
        self.others: list[AuthorizationServer] = []
        self.documents: dict[str, Any] = {PRM: {"resource": URL, "authorization_servers": [ISSUER]}}
        self.asked: list[str] = []
        self.down = False
        self.visits: list[str] = []

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchResponse:
        """The `Fetch` of the client."""
        self.asked.append(url)
        if self.down:
            raise ConnectFailed("no server is there")
        for idp in (self.idp, *self.others):
            if url.startswith(f"{idp.issuer}/") or (url.startswith(ISSUER) and idp is self.idp):
                return await idp.fetch(url, method=method, headers=headers, body=body)
        found = self.documents.get(url)
        if isinstance(found, int):
            return FetchResponse(found, {}, b"", url)
        return FetchResponse(404 if found is None else 200, {}, json.dumps(found).encode(), url)

    async def browse(self, url: str, /) -> str | None:
        """The user, who consents."""
        self.visits.append(url)
        for idp in (self.idp, *self.others):
            if url.startswith(f"{idp.issuer}/"):
                return await idp.browse(url)
        raise AssertionError(url)

    def tokens(self, kind: str | None = None) -> list[dict[str, str]]:
        """The forms that were sent to the token endpoint."""
        forms = [asked.form for asked in self.idp.requests if asked.path == "/token"]
        return [form for form in forms if kind is None or form["grant_type"] == kind]
