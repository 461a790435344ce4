"""A server of the Python SDK 2.x that wants tokens, with the SDK's own authorization server in it: `guarded.py PORT`."""

from __future__ import annotations

import secrets
import signal
import sys
import time
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthToken

LIFETIME = 2


class PermissiveAuthServer:
    """Knows every client that registers, and has a user who agrees to everything."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refreshes: dict[str, RefreshToken] = {}
        self.asked: list[str] = []

    async def get_client(self, client_id: str) -> Any:
        return self.clients.get(client_id)

    async def register_client(self, client_info: Any) -> None:
        self.asked.append("register")
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: Any, params: AuthorizationParams) -> str:
        self.asked.append("authorize")
        code = secrets.token_urlsafe(20)
        self.codes[code] = AuthorizationCode(
            code=code,
            client_id=client.client_id,
            scopes=params.scopes or ["read"],
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> Any:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        self.asked.append("code")
        del self.codes[authorization_code.code]
        return self.give(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> Any:
        return self.refreshes.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: RefreshToken, scopes: list[str]) -> OAuthToken:
        self.asked.append("refresh")
        del self.refreshes[refresh_token.token]
        return self.give(client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> Any:
        found = self.access.get(token)
        return found if found is not None and (found.expires_at or 0) > time.time() else None

    async def revoke_token(self, token: Any) -> None:
        self.access.pop(token.token, None)

    def give(self, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(20), secrets.token_urlsafe(20)
        until = int(time.time() + LIFETIME)
        self.access[access] = AccessToken(
            token=access, client_id=client_id, scopes=scopes, expires_at=until, resource=resource, subject="ann"
        )
        self.refreshes[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes, resource=resource)
        # it does not say how long: so no client renews it beforehand, and a 401 has to do
        return OAuthToken(access_token=access, refresh_token=refresh, scope=" ".join(scopes))


def main(port: int) -> None:
    """Serve."""
    auth_server = PermissiveAuthServer()
    origin = f"http://127.0.0.1:{port}"
    settings = AuthSettings(
        issuer_url=origin,  # type: ignore[arg-type]  # which it makes a URL of
        resource_server_url=f"{origin}/mcp",  # type: ignore[arg-type]
        validate_token_resource=True,
        required_scopes=["read"],
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=["read"], default_scopes=["read"]
        ),
    )
    server = MCPServer("abroad", auth_server_provider=auth_server, auth=settings)  # type: ignore[arg-type]

    @server.tool()
    def history() -> str:
        """The requests that the authorization server got."""
        return " ".join(auth_server.asked)

    server.run("streamable-http", port=port)


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(0)
    )  # its listener stops in order, and then raises the signal again
    main(int(sys.argv[1]))
