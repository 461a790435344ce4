"""An authorization server for tests: it runs on this machine or in memory, does what real ones do, and does it wrong when it is asked to.

::

    async with AuthorizationServer() as idp:
        server = Server("demo", auth=OAuthResource(resource=url, authorization_servers=[idp.issuer], keys=idp.key_set()))
        token = idp.token(resource=url, scope="read")

It is for tests: it keeps everything in plain sight, and lets in the users that `consent` says.
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
