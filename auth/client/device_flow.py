"""The device grant (RFC 8628): a user signs in on another machine with a short code, and this one asks now and then whether they have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import urlencode

from greenroom.auth.errors import SignInError
from greenroom.auth.grants import number, text

from .discovery import reach
from .pkce import check_web
from .token_calls import DEVICE, Endpoint, ask, said
from .words import plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from greenroom.transports.client.fetch import Fetch

    from .discovery import Place
    from .identity import Identity
    from .registration import Registrar
    from .token_calls import Tokens

_STEP: Final = "device authorization"
_SLOWER: Final = 5.0
_SHORTEST: Final = 1.0
_LONGEST: Final = 60.0


class DeviceCode(NamedTuple):
    """What a user is told."""

    verification_uri: str
    user_code: str
    complete: str | None
    """The address with the code in it, for a link or a picture of one."""
    expires_in: float


class Shower(Protocol):
    """What tells them."""

    async def __call__(self, code: DeviceCode, /) -> None:
        """Tell them."""
        ...


class DeviceFlow(NamedTuple):
    """How it is done. `sleep` is the clock."""

    show: Shower
    registrar: Registrar
    fetch: Fetch
    seconds: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self, place: Place, scopes: Sequence[str]) -> tuple[Identity, Tokens]:
        """All of it. Raises `SignInError`."""
        server = place.server
        if server.device_endpoint is None or server.token_endpoint is None:
            raise SignInError(_STEP, f"{server.issuer} offers no codes for devices")
        identity = await self.registrar.identity(server, None, " ".join(scopes) or None)
        form = {"resource": place.resource} | ({"scope": " ".join(scopes)} if scopes else {})
        headers = {"content-type": "application/x-www-form-urlencoded"}
        identity.show(form, headers, offered=server.auth_methods, audience=server.issuer, step=_STEP)
        body = urlencode(form).encode("ascii")
        answer = said(
            await reach(server.device_endpoint, self.fetch, _STEP, method="POST", headers=headers, body=body), _STEP
        )
        device_code, code, uri = (text(answer.get(name)) for name in ("device_code", "user_code", "verification_uri"))
        if device_code is None or code is None or uri is None:
            raise SignInError(_STEP, f"{server.issuer} gave no code to show")
        check_web(uri, _STEP)
        complete = text(answer.get("verification_uri_complete"))
        if complete is not None:
            check_web(complete, _STEP)
        lives = min(number(answer.get("expires_in")) or self.seconds, self.seconds)
        await self.show(DeviceCode(uri, plain(code), complete, lives))
        interval = number(answer.get("interval")) or _SLOWER
        endpoint = Endpoint(server.token_endpoint, server.issuer, server.auth_methods)
        return identity, await self._tokens(endpoint, identity, device_code, place.resource, interval, lives)

    async def _tokens(
        self, endpoint: Endpoint, identity: Identity, device_code: str, resource: str, interval: float, lives: float
    ) -> Tokens:
        form = {"grant_type": DEVICE, "device_code": device_code}
        waited = 0.0
        while waited <= lives:
            pause = min(max(interval, _SHORTEST), _LONGEST)
            await self.sleep(pause)
            waited += pause
            try:
                return await ask(endpoint, identity, self.fetch, form, resource=resource)
            except SignInError as error:
                if error.code == "slow_down" or (error.temporary and error.code != "authorization_pending"):
                    interval += _SLOWER
                elif error.code == "expired_token":
                    break
                elif error.code != "authorization_pending":
                    raise
        raise SignInError(_STEP, "nobody has entered the code in time: begin again")
