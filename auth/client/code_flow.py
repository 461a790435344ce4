"""The authorization code grant: a user is sent to sign in, and comes back with a code that only we can redeem.

Before the code is shown to anybody, what came back is held against what was sent: the state, and the issuer (RFC 9207), of an error as well.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from greenroom.auth.errors import SignInError
from greenroom.supervision.acceptor import tcp_sockets

from .discovery import check_endpoint
from .landing import HOST, Landing, read_return, same
from .pkce import build_authorization_url
from .token_calls import Endpoint, exchange_code
from .words import plain, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.transports.client.fetch import Fetch

    from .browsers import Browser
    from .discovery import Place
    from .identity import Identity
    from .landing import Return
    from .metadata import ServerMetadata
    from .registration import Registrar
    from .token_calls import Tokens

_STEP: Final = "authorization"
_MOST: Final = 1
"""How often somebody who was forgotten is registered anew."""


class CodeFlow(NamedTuple):
    """How it is done."""

    browser: Browser
    registrar: Registrar
    fetch: Fetch
    port: int
    seconds: float

    async def run(self, place: Place, scopes: Sequence[str]) -> tuple[Identity, Tokens]:
        """All of it. Raises `SignInError`."""
        server = place.server
        check_server(server)
        async with await self._landing(server.issuer) as landing:
            wanted = " ".join(scopes) or None
            redirect_uri = landing.redirect_uri
            identity = await self.registrar.identity(server, redirect_uri, wanted)
            assert server.authorization_endpoint is not None and server.token_endpoint is not None  # noqa: PT018 - looked at above
            asked = build_authorization_url(
                server.authorization_endpoint,
                {
                    "client_id": identity.client_id,
                    "redirect_uri": redirect_uri,
                    "scope": wanted,
                    "resource": place.resource,
                    "prompt": "consent" if "offline_access" in scopes else None,
                },
            )
            back = await self._back(landing, asked.url, asked.state)
            code = judge(back, asked.state, server)
            endpoint = Endpoint(server.token_endpoint, server.issuer, server.auth_methods)
            tokens = await exchange_code(
                endpoint,
                identity,
                self.fetch,
                code=code,
                verifier=asked.verifier,
                redirect_uri=redirect_uri,
                resource=place.resource,
            )
            return identity, tokens

    async def _landing(self, issuer: str) -> Landing:
        """At the port that was pinned, else where the issuer expects users to come back to, if that is free, else anywhere."""
        if self.port:
            return Landing(self.port)
        told = await self.registrar.redirect(issuer)
        port = urlsplit(told).port if told else None
        if port and await _is_free(port):
            return Landing(port)
        return Landing()

    async def _back(self, landing: Landing, url: str, state: str) -> Return:
        arrival = asyncio.ensure_future(landing.arrival(state))
        going = asyncio.ensure_future(self.browser(url))
        try:
            async with asyncio.timeout(self.seconds):
                await asyncio.wait((arrival, going), return_when=asyncio.FIRST_COMPLETED)
                if not arrival.done():
                    pasted = await going
                    if pasted is not None:
                        return read_return(urlsplit(pasted.strip()).query)
                return await arrival
        except TimeoutError:
            raise SignInError(_STEP, f"nobody came back from signing in within {self.seconds:g} s: try again") from None
        except ValueError:
            raise SignInError(_STEP, "what was pasted is no address: paste the whole line of the browser") from None
        finally:
            for each in (arrival, going):
                each.cancel()
            await asyncio.gather(arrival, going, return_exceptions=True)


def check_server(server: ServerMetadata) -> None:
    """Raises `SignInError` for an authorization server that a code is not safe with, or that knows no codes."""
    if server.authorization_endpoint is None or server.token_endpoint is None:
        raise SignInError(_STEP, f"{server.issuer} names no endpoint for signing in with a browser")
    check_endpoint(server.authorization_endpoint, _STEP)
    check_endpoint(server.token_endpoint, "token")
    if server.challenge_methods is None or "S256" not in server.challenge_methods:
        raise SignInError(
            _STEP,
            f"{server.issuer} does not say that it checks proofs of codes (PKCE with S256): its operator has to see to that",
        )


def judge(back: Return, state: str, server: ServerMetadata) -> str:
    """The code, if all is as it was sent out. Raises `SignInError`, which repeats nothing of what another issuer may have said."""
    if not same(back.state, state):
        raise SignInError(_STEP, "what came back is not what was asked for (another state): begin again")
    if back.issuer is None and server.names_issuer:
        raise SignInError(_STEP, "what came back does not say who has sent it, and it should: it was not used")
    if back.issuer is not None and back.issuer != server.issuer:
        raise SignInError(_STEP, f"what came back is not from {server.issuer}: it was not used")
    if back.error is not None:
        raise SignInError(_STEP, quoted(back.error, back.description), code=plain(back.error))
    if not back.code:
        raise SignInError(_STEP, "what came back has no code in it: begin again")
    return back.code


async def _is_free(port: int) -> bool:
    try:
        sockets = await tcp_sockets(HOST, port)
    except OSError:
        return False
    for each in sockets:
        each.close()
    return True
