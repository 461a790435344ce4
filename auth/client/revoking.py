"""Taking tokens back (RFC 7009): a login that is forgotten here is of no use to whoever else may have got hold of it.

Only the authorization server that gave them is told, at the place that its own metadata names.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from greenroom.auth.errors import SignInError
from greenroom.auth.grants import text, texts

from .discovery import discover_authorization_server, reach
from .oauth import OAuthWay
from .reaching import fetcher_for
from .token_calls import said

if TYPE_CHECKING:
    from .oauth import OAuth
    from .record import Record

PATIENCE: Final = 10.0
"""Seconds for all of it."""
_STEP: Final = "revocation"


async def revoke(settings: OAuth, url: str, record: Record, *, patience: float = PATIENCE) -> None:
    """Have the authorization server take the tokens of that login back. Raises `SignInError` where it was not told, and says why."""
    try:
        async with asyncio.timeout(patience):
            await _revoked(settings, url, record)
    except TimeoutError:
        raise SignInError(
            _STEP, f"{record.issuer} did not answer within {patience:g} seconds", temporary=True
        ) from None


async def _revoked(settings: OAuth, url: str, record: Record) -> None:
    fetch = settings.fetch or fetcher_for(url, private=settings.private, trust=settings.trust)
    server = await discover_authorization_server(record.issuer, fetch)
    place = text(server.raw.get("revocation_endpoint"))
    if place is None:
        raise SignInError(_STEP, f"{record.issuer} takes no tokens back")
    identity = await OAuthWay(settings, url, fetch).identity(record)
    if identity is None:
        raise SignInError(_STEP, f"it is not known any more as whom that login was made at {record.issuer}")
    methods = texts(server.raw.get("revocation_endpoint_auth_methods_supported")) or server.auth_methods
    # A refresh token first: most servers take all that came of it back as well, and then the other is only made sure of.
    for kind, token in (("refresh_token", record.refresh_token), ("access_token", record.access_token)):
        if token is None:
            continue
        form = {"token": token, "token_type_hint": kind}
        headers = {"content-type": "application/x-www-form-urlencoded"}
        identity.show(form, headers, offered=methods, audience=record.issuer, step=_STEP)
        body = urlencode(form).encode("ascii")
        answer = await reach(place, fetch, _STEP, method="POST", headers=headers, body=body)
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - a success has no body that anybody would have to read
            said(answer, _STEP)
