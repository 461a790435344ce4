"""Issuer lookups: introspection of opaque tokens (RFC 7662) and JWK sets, both cached for a while.

`IntrospectionProcess` merges simultaneous requests for one token into a single one and limits how many run at a time. The cache is bounded, expires with
the token, and is keyed by a digest, so that memory contains no tokens. It outlives the process: after a crash it is still used.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from greenroom.errors import ConfigError, GreenroomError
from greenroom.protocol.jsonrpc import decode, is_object
from greenroom.supervision import ActorError, GenServer, Ref, Reject, child, later, send, send_after, spawn
from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.http_address import Guard, is_local

from .auth_info import number
from .errors import Denied
from .jose import parse_jwk_set
from .shared_secrets import ExpiringCache

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.supervision import Caller, ChildSpec, Timer
    from greenroom.transports.client.fetch import FetchFunction

    from .jose import JsonWebKey, TokenHeader

RESULT_SECONDS: Final = 60.0
"""Seconds for which a result is cached: for so long a revoked token still works."""
MOST_RESULTS: Final = 10_000
REQUESTS_AT_ONCE: Final = 64
LARGEST_RESPONSE: Final = 16 * 1024
"""The largest response in bytes: as large as a token may be."""
INTROSPECTION_TIMEOUT: Final = 20.0
_OK: Final = 200


class Introspection:
    """An introspection endpoint, and our credentials there."""

    def __init__(
        self,
        url: str,
        fetch: FetchFunction | None = None,
        *,
        client_id: str,
        client_secret: str,
        fresh: float = RESULT_SECONDS,
        most: int = MOST_RESULTS,
    ) -> None:
        """`fetch` defaults to a `Fetcher` for public addresses, and for this machine if `url` is there. Results are cached for `fresh` seconds, at most `most` of them."""
        if not client_id or not client_secret:
            raise ConfigError("introspection endpoints require authentication: give client_id and client_secret")
        if most < 1 or fresh < 0:
            raise ConfigError("most must be 1 or more, and fresh 0 or more")
        self.url = url
        self.fetch: FetchFunction = default_fetcher(url) if fetch is None else fetch
        self.fresh = fresh
        login = f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()
        self._login = f"Basic {base64.b64encode(login).decode()}"
        self._name = ("greenroom introspection", id(self))
        self._good = ExpiringCache[IntrospectionResult](most)
        self._bad = ExpiringCache[IntrospectionResult](most)  # a cache of its own: made-up tokens evict no valid one

    def __repr__(self) -> str:
        return f"Introspection({self.url.partition('?')[0]!r})"

    def child_spec(self) -> ChildSpec[Ref[IntrospectionProcess]]:
        """The child spec of its process, for a supervisor."""
        return child(IntrospectionProcess, self).but(name=self._name, id=self._name)

    async def claims(self, token: str) -> Mapping[str, Any]:
        """The claims of the token. Raises `Denied`. A cached result is read by the caller itself, without a call to the process."""
        digest = hashlib.sha256(token.encode()).digest()
        known = self.known(digest)
        if known is not None:
            if known.claims is None:
                raise Denied("invalid_token")
            return known.claims
        try:
            found = await Ref[IntrospectionProcess](self._name, INTROSPECTION_TIMEOUT).call(
                IntrospectionProcess.look_up, token, digest
            )
        except ActorError as error:
            raise Denied("server_error", detail=f"the introspection process is not available: {error}") from None
        if found is None:
            raise Denied("invalid_token")
        return found

    def known(self, digest: bytes) -> IntrospectionResult | None:
        """The cached result for the token with that digest."""
        return self._good.get(digest) or self._bad.get(digest)

    def keep(self, digest: bytes, claims: Mapping[str, Any] | None) -> None:
        """Cache a result."""
        fresh = self.fresh
        expires = None if claims is None else number(claims.get("exp"))
        if expires is not None:
            fresh = min(fresh, expires - time.time())
        if fresh > 0:
            (self._bad if claims is None else self._good).keep(digest, IntrospectionResult(claims), fresh)

    async def ask(self, token: str) -> Mapping[str, Any] | None:
        """Introspect the token now. None for an inactive one. Raises `Denied` if the request fails."""
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        headers = {"authorization": self._login, "content-type": "application/x-www-form-urlencoded"}
        try:
            answer = await self.fetch(self.url, method="POST", headers=headers, body=body)
            result = decode(answer.body) if answer.status == _OK and len(answer.body) <= LARGEST_RESPONSE else None
        except GreenroomError as error:
            raise Denied("server_error", detail=f"introspection failed: {error}") from None
        if not is_object(result):
            raise Denied("server_error", detail=f"introspection answered with status {answer.status}")
        return result if result.get("active") is True else None


class IntrospectionResult(NamedTuple):
    """A cached result: the claims of an active token, None for an inactive one."""

    claims: Mapping[str, Any] | None


class _IntrospectionDone(NamedTuple):
    """The outcome of an introspection request."""

    digest: bytes
    claims: Mapping[str, Any] | None
    error: Denied | None


class IntrospectionProcess(GenServer):
    """Sends introspection requests, one for all callers that wait for the same token."""

    def __init__(self, about: Introspection) -> None:
        """`about` holds the caches, which outlive this process."""
        self._settings = about
        self._waiting: dict[bytes, list[Caller[Any]]] = {}

    def look_up(self, token: str, digest: bytes) -> Mapping[str, Any] | None:
        """The claims from the cache or from the issuer; None for an inactive token."""
        known = self._settings.known(digest)
        if known is not None:
            return known.claims
        waiting = self._waiting.get(digest)
        if waiting is None:
            if len(self._waiting) >= REQUESTS_AT_ONCE:
                raise Reject(
                    Denied("server_error", detail=f"{REQUESTS_AT_ONCE} introspection requests are in flight already")
                )
            waiting = self._waiting[digest] = []
            spawn(_introspect, self._settings, token, digest, self.pid)
        waiting.append(self.caller)
        return later()  # type: ignore[no-any-return]  # the reply comes later

    def handle_info(self, message: Any) -> None:
        """Answer the waiting callers."""
        if not isinstance(message, _IntrospectionDone):
            super().handle_info(message)
            return
        for caller in self._waiting.pop(message.digest, ()):
            if message.error is None:
                caller.reply(message.claims)
            else:
                caller.fail(message.error)
        if message.error is None:
            self._settings.keep(message.digest, message.claims)


async def _introspect(about: Introspection, token: str, digest: bytes, process: Any) -> None:
    try:
        done = _IntrospectionDone(digest, await about.ask(token), None)
    except Denied as denied:
        done = _IntrospectionDone(digest, None, denied)
    except BaseException as error:
        send(
            process,
            _IntrospectionDone(
                digest, None, Denied("server_error", detail=f"introspection failed: {type(error).__name__}")
            ),
        )
        raise
    send(process, done)


def _now() -> float:
    return asyncio.get_running_loop().time()


# --- JWK sets of issuers: cached, and fetched again when they are old or when a token names an unknown key.
# One process fetches, so a thousand simultaneous requests with a new key id are one fetch. A request whose key is cached reads a snapshot without a call.
# While the issuer cannot be reached, the cached keys stay in use.

log = logging.getLogger(__name__)

KEYSET_SECONDS: Final = 600.0
"""Seconds after which the keys are fetched again in any case."""
REFETCH_PAUSE: Final = 30.0
"""Seconds between two fetches for unknown key ids: a client that makes up key ids causes no more fetches than that."""
KEYSET_TIMEOUT: Final = 15.0


class KeySetError(GreenroomError):
    """The key set could not be fetched."""


class KeySetProcess(GenServer):
    """Fetches one key set for all callers."""

    def __init__(self, about: KeySet) -> None:
        """`about` holds the keys, which outlive this process."""
        self._settings = about
        self._attempted_at: float | None = None
        self._failure: str = ""
        self._timer: Timer | None = None

    async def ensure_key(self, kid: str | None) -> None:
        """Fetch the keys if the key is unknown and the last fetch is not too recent. Raises `KeySetError` while there are no keys."""
        if self._settings.has(kid):
            return
        if self._attempted_at is None or _now() - self._attempted_at >= self._settings.pause:
            await self._fetch_keys()
        if self._settings.keys is None:
            raise Reject(KeySetError(self._failure))

    async def handle_info(self, message: Any) -> None:
        """Fetch the keys again once they are old."""
        if message == "old":
            await self._fetch_keys()
        else:
            super().handle_info(message)

    async def _fetch_keys(self) -> None:
        self._attempted_at = _now()
        try:
            answer = await self._settings.fetch(self._settings.url)
            if answer.status != _OK:
                raise KeySetError(f"status {answer.status}")  # noqa: TRY301 - handled like every other failure below
            self._settings.keys = tuple(parse_jwk_set(decode(answer.body)))
        except Exception as error:  # noqa: BLE001 - `fetch` may be a program's own and raise anything: the keys stay as they are
            why = str(error) if isinstance(error, GreenroomError) else type(error).__name__
            self._failure = f"the keys of {self._settings.url.partition('?')[0]} could not be fetched: {why}"
            log.warning("%s", self._failure)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = send_after(self._settings.fresh, self.pid, "old")


class KeySet:
    """The JWK set of an issuer, by its URL. The server that uses it starts its process (`child_spec`)."""

    def __init__(
        self,
        url: str,
        fetch: FetchFunction | None = None,
        *,
        fresh: float = KEYSET_SECONDS,
        pause: float = REFETCH_PAUSE,
    ) -> None:
        """`fetch` defaults to a `Fetcher` for public addresses, and for this machine if `url` is there."""
        self.url = url
        self.fetch = default_fetcher(url) if fetch is None else fetch
        self.fresh = fresh
        self.pause = pause
        self.keys: tuple[JsonWebKey, ...] | None = None
        """The keys; None before the first fetch. Replaced as a whole, so that verifications by the previous keys can be recognised."""
        self._name = ("greenroom key set", id(self))

    def __repr__(self) -> str:
        return f"KeySet({self.url.partition('?')[0]!r})"

    def child_spec(self) -> ChildSpec[Ref[KeySetProcess]]:
        """The child spec of its process, for a supervisor."""
        return child(KeySetProcess, self).but(name=self._name, id=self._name)

    def has(self, kid: str | None) -> bool:
        """Whether there are keys, and this one is among them."""
        return self.keys is not None and (kid is None or any(key.kid == kid for key in self.keys))

    async def find(self, heading: TokenHeader) -> Sequence[JsonWebKey]:
        """The keys that can have signed a token with this header. Raises `Denied` if the keys cannot be fetched."""
        if not self.has(heading.kid):
            try:
                await Ref[KeySetProcess](self._name, KEYSET_TIMEOUT).call(KeySetProcess.ensure_key, heading.kid)
            except KeySetError as error:
                raise Denied("server_error", detail=str(error)) from None
            except ActorError as error:
                raise Denied("server_error", detail=f"the process of {self!r}: {error}") from None
        return [key for key in self.keys or () if heading.kid is None or key.kid in (None, heading.kid)]


# --- The default fetcher for URLs that the program itself configured: keys and introspection of an issuer, which may be on this machine.


def default_fetcher(url: str) -> Fetcher:
    """A fetcher for public addresses, and for this machine if the URL is there. It follows no redirect, so a remote server cannot redirect it to this machine."""
    return Fetcher(Guard(loopback=is_local(urlsplit(url).hostname or "")))
