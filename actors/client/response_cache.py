"""`ResponseCache`: results of lists and reads that a server of the stateless era lets its clients keep.

::

    cache = ResponseCache()
    async with Client(url, cache=cache) as one, Client(url, cache=cache) as other: ...   # `public` results are fetched once for both

A result is kept for the time that its server says, and until the server announces a change. A private one is given to requests with the same
authorization alone. It is kept as bytes, so each reader gets an object of its own. Nothing here waits, and the time is a parameter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast
from weakref import WeakValueDictionary

import msgspec

from greenroom.actors.settings import BadSetting
from greenroom.errors import ConfigError, suggests
from greenroom.protocol.cache_hints import CACHEABLE, received_cache
from greenroom.protocol.errors import BadAnswer, PeerError
from greenroom.transports.client.errors import (
    ConnectFailed,
    ConnectionLost,
    HttpError,
    ProcessDied,
    SessionGone,
    SilentTooLong,
    Unauthorized,
)
from greenroom.transports.client.interfaces import authorization_of, endpoint_of, is_http

from .errors import InitTimeout, RequestLost, RequestTimeout, Unavailable

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from greenroom.transports.client.interfaces import Route

    Outcome: TypeAlias = tuple[dict[str, Any] | None, BaseException | None]
    """The result of a request, or its error."""

_PARAM: Final[Mapping[str, str]] = {method: "cursor" for method in CACHEABLE if method.endswith("/list")} | {
    "resources/read": "uri"
}
"""The one param by which the results of a method differ. `server/discover` is sent to learn how the server is now, and is not kept."""
_LISTS: Final[Mapping[str, str]] = {
    "tools/list": "notifications/tools/list_changed",
    "prompts/list": "notifications/prompts/list_changed",
    "resources/list": "notifications/resources/list_changed",
    "resources/templates/list": "notifications/resources/list_changed",
}
"""The notification that makes a list stale."""
_UPDATED: Final = "notifications/resources/updated"
KEPT_METHODS: Final = frozenset(_PARAM)
"""The methods whose results may be kept."""
CHANGES: Final = frozenset((*_LISTS.values(), _UPDATED))
"""The notifications that make results stale."""
_LONGEST_PARAM: Final = 4096
"""Characters of the longest URI or cursor in a key."""
_MOST_PARENTS: Final = 64
"""An update may name a part of a resource that was read: so many shorter URIs are taken for resources that contain it."""
_OVERHEAD: Final = 512
"""Bytes that an entry takes beside its result and its param."""
_LARGEST_PART: Final = 4
"""A result that takes more than this part of the cache would push out too much else."""
_UNREACHABLE: Final = (ConnectFailed, ConnectionLost, ProcessDied, SilentTooLong, InitTimeout, RequestTimeout)
"""Failures after which the content may still be what it was: no word of the server came."""


class CacheKey(NamedTuple):
    """The identity of a result, which is never given to a request with another key."""

    endpoint: Hashable
    """The server."""
    declared: bytes
    """The capabilities that its client declares in each request: a server may answer by them."""
    method: str
    param: str | None
    """The URI of a read, or the cursor of a page; None for the first page."""


def cache_key(endpoint: Hashable, declared: bytes, method: str, params: Mapping[str, Any] | None) -> CacheKey | None:
    """The key of a request; None for one whose result is not kept: it has params that no key contains, such as the answers of a retry."""
    name = _PARAM.get(method)
    given = params or {}
    if name is None or not given.keys() <= {name, "_meta"}:
        return None
    if name == "cursor" and name not in given:
        return CacheKey(endpoint, declared, method, None)
    value: Any = given.get(name)
    known = isinstance(value, str) and len(value) <= _LONGEST_PARAM
    return CacheKey(endpoint, declared, method, value) if known else None


def is_unreachable(error: BaseException | None) -> bool:
    """Whether a request failed in a way that says nothing about its content: the server was not reached, or gave no answer.

    A refused login is none of these: the authorization for what is kept may be gone.
    """
    if isinstance(error, RequestLost | Unavailable):
        cause = error.cause
        if isinstance(cause, HttpError):
            return cause.is_temporary and not isinstance(cause, Unauthorized | SessionGone)
        return isinstance(cause, _UNREACHABLE) or (cause is None and isinstance(error, Unavailable))
    return isinstance(error, RequestTimeout)


class _Subject:
    """The subject of one piece of news: the pages of a list, or a resource, from one piece of news to the next.

    Entries and requests under way refer to it, and nothing else does: it is gone with the last of them.
    """

    __slots__ = ("__weakref__", "is_old", "slots")

    def __init__(self) -> None:
        self.is_old = False
        """Whether there was news: a result that was requested before is not kept."""
        self.slots: dict[_Slot, None] = {}
        """Where its results are kept."""


_PUBLIC: Final = object()
"""In place of an authorization: the result is the same for all callers."""


class _Slot(NamedTuple):
    """Where a result is kept: under its key, for one authorization or for all."""

    key: CacheKey
    authorization: Hashable


class _Entry:
    """A result that is kept."""

    __slots__ = ("data", "fresh_until", "owner", "serial", "size", "subject")

    def __init__(self, data: bytes, size: int, fresh_until: float, fetch: CacheFetch) -> None:
        self.data = data
        self.size = size
        self.fresh_until = fresh_until
        self.owner = fetch.owner
        self.serial = fetch.serial
        self.subject = fetch.subject

    def result(self, now: float) -> dict[str, Any]:
        """The result, for its reader alone. `ttlMs` is what is left of it, so that a gateway does not promise more."""
        found: dict[str, Any] = msgspec.json.decode(self.data)
        found["ttlMs"] = max(0, math.floor((self.fresh_until - now) * 1000))
        return found


@dataclass(frozen=True, slots=True)
class CachedResult:
    """A result that is kept, without its content."""

    method: str
    param: str | None
    """The URI of a read, or the cursor of a page; None for the first page."""
    public: bool
    seconds_left: float
    size: int
    """Its bytes."""


class _Share:
    """The results that are kept for one owner, oldest first."""

    __slots__ = ("size", "slots")

    def __init__(self) -> None:
        self.slots: dict[_Slot, None] = {}
        self.size = 0


@suggests("ResponseCache", {"ttl": "write max_seconds=…", "max_size": "write max_bytes=… or max_entries=…"})
class ResponseCache:
    """Results of lists and reads, for any number of clients in one event loop.

    When it is full, the owner that has the most gives its oldest entry: so one caller of a gateway pushes out its own, and not what others
    have. Nothing is fetched because its time is over; the next reader fetches it.
    """

    def __init__(
        self,
        *,
        max_entries: int = 1024,
        max_bytes: int = 16 * 1024 * 1024,
        max_seconds: float = 86_400.0,
        stale_seconds: float = 0.0,
    ) -> None:
        """`max_seconds` bounds how long a result is kept, whatever the server says.

        For `stale_seconds` after its time, a result is still given where fetching it again fails because the server cannot be reached or gives no
        answer. By default it is not: a program that gets an error knows that what it has is old.
        """
        counts: dict[str, Any] = {"max_entries": max_entries, "max_bytes": max_bytes}
        for name, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise BadSetting(name, count, "a whole number, 1 or more")
        times: dict[str, Any] = {"max_seconds": max_seconds, "stale_seconds": stale_seconds}
        for name, seconds in times.items():
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
                raise BadSetting(name, seconds, "a number of seconds, 0 or more")
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self.max_seconds = max_seconds
        self.stale_seconds = stale_seconds
        self._entries: dict[_Slot, _Entry] = {}
        self._shares: dict[Hashable, _Share] = {}
        self._size = 0
        self._serial = 0
        self._subjects: WeakValueDictionary[tuple[Hashable, str, str], _Subject] = WeakValueDictionary()
        """By endpoint, the method of the notification, and the URI of a resource."""

    def __repr__(self) -> str:
        return f"<ResponseCache, {len(self._entries)} entries, {self._size:,} bytes>"

    @property
    def count(self) -> int:
        """How many results are kept."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """How many bytes its entries take."""
        return self._size

    def find(self, key: CacheKey, authorization: Hashable, now: float) -> dict[str, Any] | None:
        """The fresh result for a request with this authorization, if there is one. An unknown authorization is None, and gets public results alone."""
        for slot in _slots(key, authorization):
            entry = self._entries.get(slot)
            if entry is None:
                continue
            if now < entry.fresh_until:
                return entry.result(now)
            if now >= entry.fresh_until + self.stale_seconds:
                self._drop(slot)
        return None

    def fetch(self, key: CacheKey, authorization: Hashable, owner: Hashable = None) -> CacheFetch:
        """A request for this key is about to be sent. Its outcome goes to `CacheFetch.settle`.

        `owner` is to whose share a result counts; by default that of its authorization.
        """
        self._serial += 1
        about = _subject_of(key)
        subject = self._subjects.get(about)
        if subject is None:
            subject = self._subjects[about] = _Subject()
        return CacheFetch(self, key, authorization, authorization if owner is None else owner, self._serial, subject)

    def on_notification(self, endpoint: Hashable, method: str, params: Mapping[str, Any]) -> None:
        """The server at this endpoint has announced a change: drop what it is about, and keep no result that was requested before it."""
        if method == _UPDATED:
            uri: Any = params.get("uri")
            if isinstance(uri, str):
                for each in (uri, *_parents(uri[:_LONGEST_PARAM])):
                    self._end((endpoint, method, each))
        else:
            self._end((endpoint, method, ""))

    def forget(self, endpoint: Hashable) -> None:
        """Drop all results of this endpoint, and keep none that was requested before: its changes may have been missed."""
        for about in [about for about in self._subjects if about[0] == endpoint]:
            self._end(about)

    def clear(self) -> None:
        """Drop all results, and keep none that was requested before."""
        for about in tuple(self._subjects):
            self._end(about)

    def results(self, endpoint: Hashable, authorization: Hashable, now: float) -> list[CachedResult]:
        """The fresh results of an endpoint that requests with this authorization get, oldest first."""
        return [
            CachedResult(
                slot.key.method, slot.key.param, slot.authorization is _PUBLIC, entry.fresh_until - now, entry.size
            )
            for slot, entry in self._entries.items()
            if slot.key.endpoint == endpoint
            and slot.authorization in (_PUBLIC, authorization)
            and now < entry.fresh_until
        ]

    # --- for `CacheFetch`

    def keep(self, fetch: CacheFetch, result: Mapping[str, Any], now: float) -> None:
        """Keep this answer in place of what was kept, if its server allows it and nothing has changed since it was requested."""
        key, authorization = fetch.key, fetch.authorization
        before = [slot for slot in _slots(key, authorization) if slot in self._entries]
        if any(self._entries[slot].serial > fetch.serial for slot in before):
            return  # the answer to a later request came first
        for slot in before:
            self._drop(slot)
        if not result.get("ttlMs") or result.get("resultType", "complete") != "complete":
            return  # as most results: nothing else of it needs to be read
        hint = received_cache(result)
        seconds, public = min(hint.seconds, self.max_seconds), hint.public
        if not seconds or fetch.subject.is_old or (authorization is None and not public):
            return
        data = msgspec.json.encode(result)
        size = len(data) + len(key.param or "") + _OVERHEAD
        if size * _LARGEST_PART > self.max_bytes:
            return
        slot = _Slot(key, _PUBLIC if public else authorization)
        self._entries[slot] = _Entry(data, size, now + seconds, fetch)
        fetch.subject.slots[slot] = None
        share = self._shares.setdefault(fetch.owner, _Share())
        share.slots[slot] = None
        share.size += size
        self._size += size
        while len(self._entries) > self.max_entries or self._size > self.max_bytes:
            by_size = self._size > self.max_bytes
            fullest = max(self._shares.values(), key=_size_of if by_size else _count_of)
            self._drop(next(iter(fullest.slots)))

    def stale(self, fetch: CacheFetch, now: float) -> dict[str, Any] | None:
        """The kept result for a request that failed, also when its time is over, but for no longer than `stale_seconds`."""
        for slot in _slots(fetch.key, fetch.authorization):
            entry = self._entries.get(slot)
            if entry is not None and now < entry.fresh_until + self.stale_seconds:
                return entry.result(now)
        return None

    def refuse(self, fetch: CacheFetch) -> None:
        """The server answered with an error: drop what is kept for this request, and with a cursor all pages of its list."""
        key, authorization = fetch.key, fetch.authorization
        if key.param is None or key.method not in _LISTS:
            refused: Iterable[_Slot] = _slots(key, authorization)
        else:
            pages = fetch.subject.slots
            refused = [
                slot for slot in pages if slot in _slots(slot.key, authorization) and slot.key.method == key.method
            ]
        for slot in refused:
            entry = self._entries.get(slot)
            if entry is not None and entry.serial < fetch.serial:
                self._drop(slot)

    # --- entries

    def _end(self, about: tuple[Hashable, str, str]) -> None:
        subject = self._subjects.pop(about, None)
        if subject is not None:
            subject.is_old = True
            for slot in tuple(subject.slots):
                self._drop(slot)

    def _drop(self, slot: _Slot) -> None:
        entry = self._entries.pop(slot)
        del entry.subject.slots[slot]
        self._size -= entry.size
        share = self._shares[entry.owner]
        del share.slots[slot]
        share.size -= entry.size
        if not share.slots:
            del self._shares[entry.owner]


def cache_of(given: ResponseCache | bool) -> ResponseCache | None:  # noqa: FBT001 - an option as it was given
    """The cache of a client's or a host's option: a shared one, one of its own, or none. Raises `ConfigError`."""
    if isinstance(given, bool):
        return ResponseCache() if given else None
    if not isinstance(cast("object", given), ResponseCache):
        raise ConfigError(f"cache is a ResponseCache, True or False, not {given!r}")
    return given


class CacheFetch:
    """A request under way whose result may be kept."""

    __slots__ = ("_cache", "authorization", "key", "owner", "serial", "subject")

    def __init__(
        self,
        cache: ResponseCache,
        key: CacheKey,
        authorization: Hashable,
        owner: Hashable,
        serial: int,
        subject: _Subject,
    ) -> None:
        """Made by `ResponseCache.fetch`."""
        self._cache = cache
        self.key = key
        self.authorization = authorization
        self.owner = owner
        self.serial = serial
        self.subject = subject

    def settle(
        self, result: dict[str, Any] | None, error: BaseException | None, authorization: Hashable, now: float
    ) -> Outcome:
        """The outcome of the request for its caller. `authorization` is the present one: a result is kept if that is still the one of the request."""
        if error is None:
            if result is not None and authorization == self.authorization:
                self._cache.keep(self, result, now)
        elif isinstance(error, PeerError | BadAnswer):
            self._cache.refuse(self)
        elif self._cache.stale_seconds and authorization == self.authorization and is_unreachable(error):
            kept = self._cache.stale(self, now)
            if kept is not None:
                return kept, None
        return result, error


class LineCache:
    """A cache as one line uses it: its server, what its requests declare, and on whose behalf they are sent."""

    def __init__(
        self, cache: ResponseCache, route: Route, line: Hashable, *, server: Hashable = None, principal: Hashable = None
    ) -> None:
        """`line` is unique to the line. `server` is its server's identity among those of this cache, by default that of the route.

        `principal` is on whose behalf its requests are sent, where that does not follow from the route. Lines share private results if they send
        equal credentials for the same principal.
        """
        self.cache = cache
        self.server = (endpoint_of(route) or line) if server is None else server
        self.declared = b""
        """The capabilities that its requests declare, encoded."""
        self.has_headers = is_http(route)
        """Whether calls of listed tools repeat arguments in headers."""
        self._route = route
        self._principal = principal
        self._owner = line if principal is None else principal

    @property
    def _authorization(self) -> Hashable:
        if not self.has_headers:  # a process of its own, or this program: who the client is does not change
            return self._owner
        sent = authorization_of(self._route)
        return None if sent is None else (self._principal, sent)

    def key(self, method: str, params: Mapping[str, Any] | None) -> CacheKey | None:
        """The key of a request; None if its result is not kept."""
        return cache_key(self.server, self.declared, method, params)

    def find(self, key: CacheKey, now: float) -> dict[str, Any] | None:
        """The fresh result of a request; None where there is none."""
        return self.cache.find(key, self._authorization, now)

    def look_up(self, key: CacheKey, now: float) -> dict[str, Any] | CacheFetch:
        """The fresh result of a request; where there is none, a `fetch`."""
        authorization = self._authorization
        return self.cache.find(key, authorization, now) or self.cache.fetch(key, authorization, self._owner)

    def fetch(self, key: CacheKey) -> CacheFetch:
        """A request is about to be sent."""
        return self.cache.fetch(key, self._authorization, self._owner)

    def settle(
        self, fetch: CacheFetch, result: dict[str, Any] | None, error: BaseException | None, now: float
    ) -> Outcome:
        """The outcome of that request for its caller."""
        return fetch.settle(result, error, self._authorization, now)

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """The server has announced a change."""
        self.cache.on_notification(self.server, method, params)

    def forget(self) -> None:
        """Changes of the server may have been missed."""
        self.cache.forget(self.server)

    def results(self, now: float) -> list[CachedResult]:
        """The fresh results of this server that requests of this line get, oldest first."""
        return self.cache.results(self.server, self._authorization, now)


def _slots(key: CacheKey, authorization: Hashable) -> Iterator[_Slot]:
    """Where a result for this authorization may be kept."""
    if authorization is not None:
        yield _Slot(key, authorization)
    yield _Slot(key, _PUBLIC)


def _subject_of(key: CacheKey) -> tuple[Hashable, str, str]:
    news = _LISTS.get(key.method)
    return (key.endpoint, _UPDATED, key.param or "") if news is None else (key.endpoint, news, "")


def _parents(uri: str) -> Iterator[str]:
    """Shorter URIs that may be of resources which contain this one, with and without the mark at which they end."""
    end = len(uri)
    for _ in range(_MOST_PARENTS):
        end = max(uri.rfind(mark, 0, end) for mark in "/?#")
        if end <= 0:
            return
        yield uri[: end + 1]
        yield uri[:end]


def _size_of(share: _Share) -> int:
    return share.size


def _count_of(share: _Share) -> int:
    return len(share.slots)
