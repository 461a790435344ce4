"""The gate of a server: asks its provider who comes, looks at scopes, counts failures, and says no in the way that the provider wants it said.

Failures are counted by where they come from and by whom they claim to be, so that neither one source nor many can go on guessing. Credentials that
were good a while ago are let in whatever else comes from the same address: behind a proxy, or in one office, that is everybody. What is logged
has a kind, a detail and where it came from; what a request had in its credentials is struck out of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import re
import traceback
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from greenroom.errors import ConfigError
from greenroom.transports.seam import Peer, Refusal

from .answers import refusal
from .errors import Denied
from .failures import Failures
from .headers import extract_basic_auth
from .info import AuthInfo
from .remembered import Remembered
from .seam import Asking

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from greenroom.supervision import ChildSpec
    from greenroom.transports.seam import Notices

    from .seam import Notice, Provider

log = logging.getLogger(__name__)
_GUESSES: Final = frozenset({"invalid_token", "invalid_credentials", "invalid_request"})
"""What counts as a failure: who shows nothing, or what was good once, guesses at nothing."""
GOOD: Final = 10_000
FOR: Final = 24 * 3600.0
_NETWORK: Final = 64
"""How many bits of an IPv6 address are given to one customer; the rest is theirs to choose."""
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_LEAST: Final = 4
"""Characters that a secret has at least, to be struck out of a log: of fewer, words would be."""


class Gate:
    """A `Gatekeeper` with a provider."""

    def __init__(
        self,
        provider: Provider,
        *,
        required_scopes: Collection[str] = (),
        per_source: Failures | None = None,
        per_claim: Failures | None = None,
    ) -> None:
        """All of `required_scopes` are needed for anything at all."""
        self.provider = provider
        self.required_scopes = scopes_said(required_scopes)
        self._per_source = Failures(100, 60.0) if per_source is None else per_source
        self._per_claim = Failures(20, 60.0) if per_claim is None else per_claim
        self._good = Remembered(GOOD, FOR)

    @property
    def headers(self) -> Sequence[str]:
        """The request headers that it reads, for the CORS allow-list."""
        return self.provider.headers

    @property
    def notices(self) -> Notices | None:
        """What anybody may read of it; None where there is nothing."""
        notice: Notice | None = getattr(self.provider, "notice", None)
        return None if notice is None else Hung(notice)

    def share(self, key: bytes) -> None:
        """Have callers whom nobody has named told apart in the same way wherever a gate has this key: before anybody comes."""
        self._good = Remembered(GOOD, FOR, hashlib.blake2b(key, person=b"gate").digest()[:64])

    def children(self) -> Sequence[ChildSpec[Any]]:
        """The processes that the provider needs."""
        return self.provider.children()

    async def admit(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Peer | Refusal:
        """The peer with its principal, or a refusal."""
        asking = asking_of(method, path, headers, peer)
        shown = [headers.get(name, "") for name in self.provider.headers]
        digest = self._good.digest(*shown)
        known = self._good.knows(digest)
        if not known:
            now = asyncio.get_running_loop().time()
            wait = max(book.wait(who, now) for book, who in self._books(headers, peer, digest))
            if wait > 0:
                return too_many(wait)
        try:
            info = _found(await self.provider.authenticate(asking))
            who = self._principal(info, digest)
        except Denied as denied:
            if denied.kind in _GUESSES:
                self._good.drop(digest)
                now = asyncio.get_running_loop().time()
                for book, each in self._books(headers, peer, digest):
                    book.failed(each, now)
            return await self._refuse(denied, asking)
        except Exception as error:  # noqa: BLE001 - somebody's verifier: whatever it raises, nobody gets in
            log.error(  # noqa: TRY400 - the traceback as it is may have what was shown
                "the provider of authentication failed\n%s", told_without(error, shown)
            )
            return await self._refuse(Denied("server_error", detail=type(error).__name__), asking)
        if not known and not info.anonymous:
            self._good.keep(digest)
        if not info.has(self.required_scopes):
            return await self._refuse(Denied("insufficient_scope", scopes=self.required_scopes), asking)
        return Peer(peer.transport, peer.address, who, info)

    async def lacking(
        self, scopes: Collection[str], method: str, path: str, headers: Mapping[str, str], peer: Peer
    ) -> Refusal:
        """How somebody who was admitted is told that a call needs more than was granted."""
        needed = tuple(dict.fromkeys((*self.required_scopes, *scopes)))
        asking = asking_of(method, path, headers, peer)
        return await self._refuse(Denied("insufficient_scope", scopes=needed), asking)

    def _books(self, headers: Mapping[str, str], peer: Peer, digest: bytes) -> Sequence[tuple[Failures, Hashable]]:
        """Where it is counted: by where it comes from, and by whom it claims to be, a user by name, anything else by what was shown."""
        claim = digest
        with suppress(Denied):
            claim = self._good.digest("user", extract_basic_auth(headers)[0])
        return (self._per_source, source_of(peer.address)), (self._per_claim, claim)

    def _principal(self, info: AuthInfo, digest: bytes) -> Hashable:
        """Whose sessions these are. Genuine callers whom nobody has named are told apart by what they have shown."""
        principal = info.principal
        if principal is None and not info.anonymous:
            return ("", digest.hex())
        hash(principal)  # raises for what cannot be told from others
        return principal

    async def _refuse(self, denied: Denied, asking: Asking) -> Refusal:
        log.info("%s from %s: %s (%s)", asking.method, asking.address or "somewhere", denied.kind, denied.detail or "-")
        try:
            return await self.provider.challenge(denied, asking)
        except Exception as error:  # noqa: BLE001 - as above
            shown = [asking.headers.get(name, "") for name in self.provider.headers]
            log.error(  # noqa: TRY400 - as above
                "the provider of authentication could not say no in its own way\n%s", told_without(error, shown)
            )
            return refusal(denied)


class Hung:
    """A provider's document, as transports ask for it."""

    def __init__(self, notice: Notice) -> None:
        """`notice` is read anew each time."""
        self._notice = notice

    @property
    def paths(self) -> Collection[str]:
        """Where it is."""
        return self._notice.paths

    async def show(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Refusal:
        """The answer, whatever the method."""
        return await self._notice.read(asking_of(method, path, headers, peer))


def asking_of(method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Asking:
    """The request, for a provider."""
    path, _, query = path.partition("?")
    return Asking(method, path, headers, peer.address, query)


def _found(info: object) -> AuthInfo:
    if not isinstance(info, AuthInfo):
        raise TypeError(f"authenticate gave a {type(info).__name__}, which is no AuthInfo")
    return info


def too_many(wait: float) -> Refusal:
    """Come back later."""
    refused = refusal(Denied("too_many_failures"))
    return Refusal(refused.status, [*refused.headers, ("retry-after", str(int(wait) + 1))], refused.body)


def scopes_said(scopes: Collection[str]) -> tuple[str, ...]:
    """Scopes as a configuration says them. Raises `ConfigError`: one text would be taken for its letters."""
    said: Any = scopes
    if isinstance(said, str) or not all(isinstance(each, str) and _SCOPE.fullmatch(each) for each in said):
        raise ConfigError(f"scopes are a list of words without blanks, quotes and backslashes, not {said!r}")
    return tuple(dict.fromkeys(scopes))


def told_without(error: BaseException, secrets: Iterable[str]) -> str:
    """An error with its traceback, and without what was shown."""
    text = "".join(traceback.format_exception(error))
    hidden: set[str] = set()
    for secret in secrets:
        hidden.update((secret, *secret.split(" ")[1:]))
        with suppress(Denied):
            hidden.update(extract_basic_auth({"authorization": secret}))
    for each in sorted(hidden, key=len, reverse=True):
        if len(each) >= _LEAST:
            text = text.replace(each, "[hidden]")
    return text


@lru_cache(maxsize=1024)
def source_of(address: str) -> str:
    """Where somebody comes from: the host, all ports of it, and the whole network that an IPv6 address is drawn from."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host or address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return str(ipaddress.ip_network((int(ip), _NETWORK), strict=False))
        ip = ip.ipv4_mapped
    return str(ip)
