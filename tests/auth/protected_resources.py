"""Protected resources to test, and helpers that read their refusals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from greenroom.auth.auth_gate import AuthGate
from greenroom.auth.auth_info import AuthInfo
from greenroom.auth.client.login_process import bearer_challenge
from greenroom.auth.resource_server import OAuthResource
from greenroom.transports.interfaces import HttpRefusal, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.auth.auth_info import AuthRequest

RESOURCE = "https://mcp.example/mcp"
ISSUER = "https://id.example"
METADATA = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
PLACES = ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource")
FOREIGN = {"origin": "https://somewhere.example"}
ANN = AuthInfo("ann", scopes=frozenset({"read"}))


def made(**given: Any) -> OAuthResource:
    usual: dict[str, Any] = {"resource": RESOURCE, "authorization_servers": [ISSUER]}
    if not {"keys", "key", "introspection", "authorizer"} & set(given):
        usual["authorizer"] = says(ANN)
    return OAuthResource(**(usual | given))


async def admit(
    provider: OAuthResource, authorization: str | None = "Bearer t", path: str = "/mcp"
) -> Peer | HttpRefusal:
    headers = {} if authorization is None else {"authorization": authorization}
    return await AuthGate(provider).authenticate("POST", path, headers, Peer("http", "10.0.0.1:5"))


def told(answer: Peer | HttpRefusal) -> tuple[int, Mapping[str, str] | None, Any]:
    """Status, challenge parameters and error of a refusal."""
    assert isinstance(answer, HttpRefusal)
    header = dict(answer.headers).get("www-authenticate")
    found = bearer_challenge(header) if header is not None else None
    return answer.status, None if found is None else found.params, json.loads(answer.body)["error"]


def says(found: Any) -> Callable[..., Any]:
    """An authorizer, or a function of the request, with a fixed result."""

    def decide(*_: Any) -> Any:
        return found

    return decide


def by(function: Callable[[AuthRequest], Any]) -> Callable[[AuthRequest], Any]:
    """Give a lambda the type of a function of the request."""
    return function
