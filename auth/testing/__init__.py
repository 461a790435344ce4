"""An authorization server for tests: it runs on this machine or in memory, does what real ones do, and does it wrong when it is asked to.

::

    async with AuthorizationServer() as idp:
        server = Server("demo", auth=OAuthResource(resource=url, authorization_servers=[idp.issuer], keys=idp.key_set()))
        token = idp.token(resource=url, scope="read")

It is for tests: it keeps everything in plain sight, and lets in the users that `consent` says.
"""

from .book import Approve, Asked, Client, Cut, Decision, Faults, Flood, Redirect, Refuse, Said, Silence, Wish, landed
from .server import AuthorizationServer

__all__ = [
    "Approve",
    "Asked",
    "AuthorizationServer",
    "Client",
    "Cut",
    "Decision",
    "Faults",
    "Flood",
    "Redirect",
    "Refuse",
    "Said",
    "Silence",
    "Wish",
    "landed",
]
