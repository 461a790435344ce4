"""Opaque tokens, by RFC 7662: the issuer is asked what a token is good for, and its answer is kept for a moment.

What is kept is bounded, is never kept longer than the token lives, and has a digest of the token for its name: a reader of our memory finds none.
Many requests with one new token are one question, and so many questions at most are under way at a time.
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
"""Seconds for which an answer is kept: for so long a token that was taken back still works."""
MOST_RESULTS: Final = 10_000
REQUESTS_AT_ONCE: Final = 64
LARGEST_RESPONSE: Final = 16 * 1024
"""Bytes of an answer: as large as a token may be."""
INTROSPECTION_TIMEOUT: Final = 20.0
_OK: Final = 200


class Introspection:
    """The endpoint that is asked, and how we authenticate there."""

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
        """`fetch` is by default a `Fetcher` that goes to public addresses, and to this machine where `url` is there. `fresh` is for how long an answer is believed, `most` how many are kept."""
        if not client_id or not client_secret:
            raise ConfigError("introspection is for those who show themselves: client_id and client_secret")
        if most < 1 or fresh < 0:
            raise ConfigError("most is 1 or more, and fresh 0 or more")
        self.url = url
        self.fetch: FetchFunction = default_fetcher(url) if fetch is None else fetch
        self.fresh = fresh
        login = f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()
        self._login = f"Basic {base64.b64encode(login).decode()}"
        self._name = ("greenroom introspection", id(self))
        self._good = ExpiringCache[IntrospectionResult](most)
        self._bad = ExpiringCache[IntrospectionResult](
            most
        )  # apart: a client that makes tokens up puts no good one out

    def __repr__(self) -> str:
        return f"Introspection({self.url.partition('?')[0]!r})"

    def child_spec(self) -> ChildSpec[Ref[IntrospectionProcess]]:
        """The process, for a supervisor."""
        return child(IntrospectionProcess, self).but(name=self._name, id=self._name)

    async def claims(self, token: str) -> Mapping[str, Any]:
        """What the issuer says of the token. Raises `Denied`. What is known already is looked up by the caller itself, without a wait."""
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
            raise Denied("server_error", detail=f"nobody can be asked about tokens: {error}") from None
        if found is None:
            raise Denied("invalid_token")
        return found

    def known(self, digest: bytes) -> IntrospectionResult | None:
        """What is known of the token with that digest."""
        return self._good.get(digest) or self._bad.get(digest)

    def keep(self, digest: bytes, claims: Mapping[str, Any] | None) -> None:
        """Know it for a while."""
        fresh = self.fresh
        expires = None if claims is None else number(claims.get("exp"))
        if expires is not None:
            fresh = min(fresh, expires - time.time())
        if fresh > 0:
            (self._bad if claims is None else self._good).keep(digest, IntrospectionResult(claims), fresh)

    async def ask(self, token: str) -> Mapping[str, Any] | None:
        """Ask about it now. None for a token that is good for nothing. Raises `Denied` when there is no answer."""
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        headers = {"authorization": self._login, "content-type": "application/x-www-form-urlencoded"}
        try:
            answer = await self.fetch(self.url, method="POST", headers=headers, body=body)
            said = decode(answer.body) if answer.status == _OK and len(answer.body) <= LARGEST_RESPONSE else None
        except GreenroomError as error:
            raise Denied("server_error", detail=f"introspection failed: {error}") from None
        if not is_object(said):
            raise Denied("server_error", detail=f"introspection answered with status {answer.status}")
        return said if said.get("active") is True else None


class IntrospectionResult(NamedTuple):
    """An answer: the claims of a good token."""

    claims: Mapping[str, Any] | None


class _IntrospectionDone(NamedTuple):
    """What came of a question."""

    digest: bytes
    claims: Mapping[str, Any] | None
    error: Denied | None


class IntrospectionProcess(GenServer):
    """Asks, once for all requests with the same token."""

    def __init__(self, about: Introspection) -> None:
        """`about` has the books: they outlive this process."""
        self._settings = about
        self._waiting: dict[bytes, list[Caller[Any]]] = {}

    def look_up(self, token: str, digest: bytes) -> Mapping[str, Any] | None:
        """What is known, or what the issuer says."""
        known = self._settings.known(digest)
        if known is not None:
            return known.claims
        waiting = self._waiting.get(digest)
        if waiting is None:
            if len(self._waiting) >= REQUESTS_AT_ONCE:
                raise Reject(Denied("server_error", detail=f"{REQUESTS_AT_ONCE} tokens are being asked about already"))
            waiting = self._waiting[digest] = []
            spawn(_introspect, self._settings, token, digest, self.pid)
        waiting.append(self.caller)
        return later()  # type: ignore[no-any-return]  # stands for what comes later

    def handle_info(self, message: Any) -> None:
        """An answer."""
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


async def _introspect(about: Introspection, token: str, digest: bytes, keeper: Any) -> None:
    try:
        told = _IntrospectionDone(digest, await about.ask(token), None)
    except Denied as denied:
        told = _IntrospectionDone(digest, None, denied)
    except BaseException as error:
        send(
            keeper,
            _IntrospectionDone(
                digest, None, Denied("server_error", detail=f"introspection failed: {type(error).__name__}")
            ),
        )
        raise
    send(keeper, told)


def _now() -> float:
    return asyncio.get_running_loop().time()


# --- The keys of an issuer: fetched, kept, and fetched again when they are old or when a token names one that is not among them.
# One process does it, so a thousand requests that come at once with a new key's name are one fetch. A request whose key is there looks at
# a snapshot, and does not wait. An issuer that cannot be reached leaves the keys as they are.

log = logging.getLogger(__name__)

KEYSET_SECONDS: Final = 600.0
"""Seconds after which keys are fetched again without a reason."""
REFETCH_PAUSE: Final = 30.0
"""Seconds between two fetches for keys that were not there: a client that makes up names of keys has us ask no more often."""
KEYSET_TIMEOUT: Final = 15.0


class KeySetError(GreenroomError):
    """The keys could not be had."""


class KeySetProcess(GenServer):
    """The process."""

    def __init__(self, about: KeySet) -> None:
        """`about` has the keys: they outlive this process."""
        self._settings = about
        self._attempted_at: float | None = None
        self._failure: str = ""
        self._timer: Timer | None = None

    async def ensure_key(self, kid: str | None) -> None:
        """See to it that the key is there, if it can be had at all. Raises `KeySetError` while there are none."""
        if self._settings.has(kid):
            return
        if self._attempted_at is None or _now() - self._attempted_at >= self._settings.pause:
            await self._fetch_keys()
        if self._settings.keys is None:
            raise Reject(KeySetError(self._failure))

    async def handle_info(self, message: Any) -> None:
        """The keys are old."""
        if message == "old":
            await self._fetch_keys()
        else:
            super().handle_info(message)

    async def _fetch_keys(self) -> None:
        self._attempted_at = _now()
        try:
            answer = await self._settings.fetch(self._settings.url)
            if answer.status != _OK:
                raise KeySetError(f"status {answer.status}")  # noqa: TRY301 - told as all that can fail here
            self._settings.keys = tuple(parse_jwk_set(decode(answer.body)))
        except Exception as error:  # noqa: BLE001 - `fetch` may be a program's own: the keys stay as they are
            why = str(error) if isinstance(error, GreenroomError) else type(error).__name__
            self._failure = f"the keys of {self._settings.url.partition('?')[0]} could not be had: {why}"
            log.warning("%s", self._failure)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = send_after(self._settings.fresh, self.pid, "old")


class KeySet:
    """An issuer's keys, by the URL of its JWK set. `child_spec` is its process, which the server starts that it is for."""

    def __init__(
        self,
        url: str,
        fetch: FetchFunction | None = None,
        *,
        fresh: float = KEYSET_SECONDS,
        pause: float = REFETCH_PAUSE,
    ) -> None:
        """`fetch` is by default a `Fetcher` that goes to public addresses, and to this machine where `url` is there."""
        self.url = url
        self.fetch = default_fetcher(url) if fetch is None else fetch
        self.fresh = fresh
        self.pause = pause
        self.keys: tuple[JsonWebKey, ...] | None = None
        """Replaced as a whole: what was found out with the keys of before is not known any more. None before there were any."""
        self._name = ("greenroom key set", id(self))

    def __repr__(self) -> str:
        return f"KeySet({self.url.partition('?')[0]!r})"

    def child_spec(self) -> ChildSpec[Ref[KeySetProcess]]:
        """The process, for a supervisor."""
        return child(KeySetProcess, self).but(name=self._name, id=self._name)

    def has(self, kid: str | None) -> bool:
        """Whether there are keys, and that one among them."""
        return self.keys is not None and (kid is None or any(key.kid == kid for key in self.keys))

    async def find(self, heading: TokenHeader) -> Sequence[JsonWebKey]:
        """The keys that a token of this heading may have been signed with. Raises `Denied` when there are none to be had."""
        if not self.has(heading.kid):
            try:
                await Ref[KeySetProcess](self._name, KEYSET_TIMEOUT).call(KeySetProcess.ensure_key, heading.kid)
            except KeySetError as error:
                raise Denied("server_error", detail=str(error)) from None
            except ActorError as error:
                raise Denied("server_error", detail=f"the keeper of {self!r}: {error}") from None
        return [key for key in self.keys or () if heading.kid is None or key.kid in (None, heading.kid)]


# --- What fetches from a URL that the program itself has named: keys and introspection of an issuer, which may be on this machine.


def default_fetcher(url: str) -> Fetcher:
    """To public addresses, and to this machine where the URL is there. It follows no redirect, so none leads from elsewhere to this machine."""
    return Fetcher(Guard(loopback=is_local(urlsplit(url).hostname or "")))
