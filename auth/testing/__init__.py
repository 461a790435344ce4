"""A fake authorization server for tests, over HTTP on this machine or in memory, which can be told to misbehave.

::

    async with AuthorizationServer() as idp:
        server = Server("demo", auth=OAuthResource(resource=url, authorization_servers=[idp.issuer], keys=idp.key_set()))
        token = idp.token(resource=url, scope="read")

For tests only: its clients, codes and tokens are public attributes, and the function `consent` answers for the user.
"""

from .fake_auth_records import (
    Approve,
    AuthServerRequest,
    AuthServerResponse,
    ConsentRequest,
    Decision,
    EndlessResponse,
    Faults,
    NoResponse,
    RedirectResponse,
    Refuse,
    RegisteredClient,
    TruncatedResponse,
    redirect_params,
)
from .fake_auth_server import AuthorizationServer

__all__ = [
    "Approve",
    "AuthServerRequest",
    "AuthServerResponse",
    "AuthorizationServer",
    "ConsentRequest",
    "Decision",
    "EndlessResponse",
    "Faults",
    "NoResponse",
    "RedirectResponse",
    "Refuse",
    "RegisteredClient",
    "TruncatedResponse",
    "redirect_params",
]
