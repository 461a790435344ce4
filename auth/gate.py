"""The gate of a server: asks its provider who comes, looks at scopes, counts failures, and says no in the way that the provider wants it said.

A success after failures is let in at once: a bucket is for guesses. What is logged has a kind, a detail without secrets, and where it came from.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from greenroom.transports.seam import Refusal

from .answers import refusal
from .errors import Denied
from .failures import Failures
from .seam import Asking

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping, Sequence

    from greenroom.transports.seam import Peer

    from .info import AuthInfo
    from .seam import Provider

log = logging.getLogger(__name__)
_GUESSES: Final = frozenset({"invalid_token", "invalid_credentials", "invalid_request"})
"""What counts as a failure: who shows nothing, or what was good once, guesses at nothing."""


class Gate:
    """A `Gatekeeper` with a provider."""

    def __init__(
        self, provider: Provider, *, required_scopes: Collection[str] = (), failures: Failures | None = None
    ) -> None:
        """All of `required_scopes` are needed for anything at all."""
        self.provider = provider
        self.required_scopes = tuple(dict.fromkeys(required_scopes))
        self._failures = failures or Failures()

    @property
    def headers(self) -> Sequence[str]:
        """The request headers that it reads, for the CORS allow-list."""
        return self.provider.headers

    async def admit(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Peer | Refusal:
        """The peer with its principal, or a refusal."""
        asking = Asking(method, path, headers, peer.address)
        source = source_of(peer.address)
        now = asyncio.get_running_loop().time()
        wait = self._failures.wait(source, now)
        if wait > 0:
            refused = refusal(Denied("too_many_failures"))
            return Refusal(refused.status, [*refused.headers, ("retry-after", str(int(wait) + 1))], refused.body)
        try:
            info = await self.provider.authenticate(asking)
            self._check_scopes(info)
        except Denied as denied:
            return await self._refuse(denied, asking, source)
        except Exception as error:  # somebody's verifier: whatever it raises, nobody gets in
            log.exception("the provider of authentication failed")
            return await self._refuse(Denied("server_error", detail=type(error).__name__), asking, source)
        return replace(peer, principal=info.principal, auth=info)

    def _check_scopes(self, info: AuthInfo) -> None:
        if not info.has(self.required_scopes):
            raise Denied("insufficient_scope", scopes=self.required_scopes)

    async def _refuse(self, denied: Denied, asking: Asking, source: Hashable) -> Refusal:
        if denied.kind in _GUESSES:
            self._failures.failed(source, asyncio.get_running_loop().time())
        log.info("%s from %s: %s (%s)", asking.method, asking.address or "somewhere", denied.kind, denied.detail or "-")
        try:
            return await self.provider.challenge(denied, asking)
        except Exception:
            log.exception("the provider of authentication could not say no in its own way")
            return refusal(denied)


def source_of(address: str) -> str:
    """Where somebody comes from: the host, all ports of it."""
    return address.rpartition(":")[0] or address
