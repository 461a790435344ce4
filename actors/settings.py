"""The settings of a server: one frozen value, whose limits are checked when it is made.

A wrong value is refused where it was written, before anything starts. Times are seconds; None means no limit where it is allowed.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from greenroom.errors import GreenroomError, suggests
from greenroom.protocol.cache_hints import BadCache, Cache, check_caches
from greenroom.protocol.definitions import Implementation
from greenroom.protocol.sealing import KeyRing
from greenroom.protocol.wire_shapes import LOG_LEVELS, LogLevel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MIB: Final = 1024 * 1024


class BadSetting(GreenroomError, ValueError):
    """An invalid setting: its name, its value, and what it must be."""

    def __init__(self, name: str, value: object, needed: str) -> None:
        """`needed` completes "must be"."""
        super().__init__(f"{name} must be {needed}, not {value!r}")
        self.name = name


@suggests("Settings", {"timeout": "write call_timeout=…"})
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A server's identity, and the limits for its peers.

    All are optional. The defaults are safe, and high enough for ordinary use.
    """

    name: str = "greenroom"
    """The server's name for clients, reports, workers and `greenroom tree`."""
    version: str = "0"
    """The server's own version, for clients."""
    title: str | None = None
    """The name for people."""
    description: str | None = None
    """The server's purpose, in a sentence."""
    website_url: str | None = None
    """The address of its website."""
    icons: Sequence[Any] = ()
    """Its icons: `Icon(…)`."""
    instructions: str | None = None
    """Instructions for a model that uses the server."""

    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Declared instead of what follows from the registrations: `{"logging": None}` declares no logging."""
    experimental: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Capabilities outside of the protocol, declared unchanged."""

    sessions: bool = True
    """Whether there are sessions at all; without, each request over HTTP is independent."""
    gate: bool = True
    """Whether requests wait for `notifications/initialized`: before it, all but `ping` are refused."""
    max_sessions: int | None = 10_000
    """How many sessions may exist at once; None for no limit."""
    max_sessions_per_principal: int | None = 1000
    """How many of them one principal may have; without authentication, one address, unless it is this machine's own."""
    session_idle: float | None = 1800.0
    """How long a peer may be silent; calls in flight and open streams keep a session alive."""
    session_lifetime: float | None = None
    """How long any session may last, even an active one."""

    max_in_flight: int = 256
    """How many requests of one peer may be in flight at once."""
    call_timeout: float | None = 60.0
    """How long a call without a limit of its own may be silent; each report of progress and each log message restarts that time, sent or not.
    """
    ask_timeout: float | None = 30.0
    """How long the peer may take to answer a request of the server."""
    max_asks: int = 64
    """How many requests of the server to one peer may be open; in the stateless era, questions of one call."""
    max_exchanges: int | None = 10_000
    """How many requests of the stateless era may be worked on at once; None for no limit."""
    max_exchanges_per_principal: int | None = 256
    """How many of them one principal may have; without authentication, one address, unless it is this machine's own."""
    max_parked: int = 10_000
    """How many calls of the stateless era may wait for answers of their users."""
    max_parked_per_principal: int = 256
    """How many of them one principal may have; callers that cannot be told apart share one such number."""
    parked_timeout: float = 600.0
    """How long a call of the stateless era waits for the answers to a question, unless the question says otherwise."""
    cancel_grace: float = 0.5
    """How long a cancelled call may take to notice, before it is ended."""

    buffer_events: int = 256
    """How many events a stream keeps, for readers that reconnect."""
    buffer_bytes: int = 4 * _MIB
    """How many bytes of events a stream keeps; a session as a whole keeps four times as many."""
    channel_events: int = 4096
    """How many messages may wait for the reader of a channel; then notifications are dropped, and requests wait."""
    channel_bytes: int = 16 * _MIB
    """How many bytes of messages may wait."""

    max_tasks: int = 64
    """How many tasks of one owner may be unfinished at once. An owner is a principal; without authentication a session, or without one an address."""
    max_tasks_in_all: int | None = 10_000
    """How many tasks of all owners may be unfinished at once; None for no limit."""
    max_tasks_kept: int = 512
    """How many ended tasks are kept for each owner; the oldest go first, whatever their ttl."""
    task_bytes: int = 16 * _MIB
    """How many bytes of results those may hold together; the newest always stays."""
    task_ttl: float = 3600.0
    """How long an ended task is kept, if the peer gives no ttl."""
    task_ttl_max: float = 86_400.0
    """The longest ttl that a peer may give."""
    task_lifetime: float = 86_400.0
    """How long a task may take, input from its peer included; then it has failed."""
    task_poll: float = 1.0
    """The poll interval that peers are asked to keep."""

    cache: Cache | float | Mapping[str, Cache] | None = None
    """How long clients of the stateless era may keep lists and the description of the server: one hint for all, or hints by method."""

    log_level: LogLevel = "info"
    """The level of a session that has set none."""
    page_size: int = 50
    """How many entries a page of a list has."""
    strict: bool = False
    """Whether tools' arguments and results are checked against handwritten schemas unless a tool says otherwise."""
    expose_errors: bool = False
    """Whether peers get the text of exceptions."""
    crashes: Literal["tool", "protocol"] = "tool"
    """How a tool's exception is reported: as a result with `isError`, or as a JSON-RPC error."""

    seal_keys: Sequence[str] = field(default=(), repr=False)
    """The keys of the values that clients keep for this server, newest first: 32 bytes as base64 each. Servers that share clients need the same keys. Without any,
    those in the environment variable `GREENROOM_SEAL_KEYS`, separated by commas; else a new one for each program."""

    tool_threads: int = 8
    """How many threads one tool may hold."""
    principal_threads: int = 16
    """How many threads the calls of one principal may hold."""

    def __post_init__(self) -> None:
        for name in ("name", "version"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise BadSetting(name, getattr(self, name), "a text that is not empty")
        for name in ("title", "description", "website_url", "instructions"):
            if not isinstance(getattr(self, name), str | None):
                raise BadSetting(name, getattr(self, name), "a text, or None")
        for each in fields(self):
            kind = _KINDS.get(each.name)
            if kind is not None:
                _check(each.name, getattr(self, each.name), kind)
        try:
            check_caches("cache", self.cache)
        except BadCache as error:
            raise BadSetting("cache", self.cache, f"as its error says: {error}") from None
        if self.log_level not in LOG_LEVELS:
            raise BadSetting("log_level", self.log_level, "one of " + ", ".join(LOG_LEVELS))
        if self.crashes not in ("tool", "protocol"):
            raise BadSetting("crashes", self.crashes, "'tool' or 'protocol'")
        if self.seal_keys:
            KeyRing.parse(self.seal_keys)


SEAL_KEYS_VARIABLE: Final = "GREENROOM_SEAL_KEYS"


def key_ring_of(settings: Settings) -> KeyRing | None:
    """The keys of the settings, or else of the environment; None if there are none. Raises `ConfigError`."""
    if settings.seal_keys:
        return KeyRing.parse(settings.seal_keys)
    written = os.environ.get(SEAL_KEYS_VARIABLE, "")
    return KeyRing.parse(written.split(","), SEAL_KEYS_VARIABLE) if written.strip() else None


_COUNT, _COUNT_OR_NONE, _SECONDS, _SECONDS_OR_NONE, _SPAN, _FLAG = range(6)
_KINDS: Final[Mapping[str, int]] = {
    "sessions": _FLAG,
    "gate": _FLAG,
    "strict": _FLAG,
    "expose_errors": _FLAG,
    "max_sessions": _COUNT_OR_NONE,
    "max_sessions_per_principal": _COUNT_OR_NONE,
    "session_idle": _SECONDS_OR_NONE,
    "session_lifetime": _SECONDS_OR_NONE,
    "max_in_flight": _COUNT,
    "call_timeout": _SECONDS_OR_NONE,
    "ask_timeout": _SECONDS_OR_NONE,
    "max_asks": _COUNT,
    "max_exchanges": _COUNT_OR_NONE,
    "max_exchanges_per_principal": _COUNT_OR_NONE,
    "max_parked": _COUNT,
    "max_parked_per_principal": _COUNT,
    "parked_timeout": _SECONDS,
    "cancel_grace": _SPAN,
    "buffer_events": _COUNT,
    "buffer_bytes": _COUNT,
    "channel_events": _COUNT,
    "channel_bytes": _COUNT,
    "max_tasks": _COUNT,
    "max_tasks_in_all": _COUNT_OR_NONE,
    "max_tasks_kept": _COUNT,
    "task_bytes": _COUNT,
    "task_ttl": _SECONDS,
    "task_ttl_max": _SECONDS,
    "task_lifetime": _SECONDS,
    "task_poll": _SECONDS,
    "page_size": _COUNT,
    "tool_threads": _COUNT,
    "principal_threads": _COUNT,
}


def _check(name: str, value: object, kind: int) -> None:
    if kind == _FLAG:
        if not isinstance(value, bool):
            raise BadSetting(name, value, "True or False")
        return
    if value is None and kind in (_COUNT_OR_NONE, _SECONDS_OR_NONE):
        return
    or_none = ", or None for no limit" if kind in (_COUNT_OR_NONE, _SECONDS_OR_NONE) else ""
    if kind in (_COUNT, _COUNT_OR_NONE):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BadSetting(name, value, f"a whole number, 1 or more{or_none}")
        return
    least = 0 if kind == _SPAN else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise BadSetting(name, value, f"a number of seconds{or_none}")
    if value < 0 or (least is None and value == 0):
        raise BadSetting(name, value, f"{'0 or more' if least == 0 else 'more than 0'} seconds{or_none}")


_known_info: Final[dict[int, tuple[Settings, dict[str, Any]]]] = {}
# By identity: settings are not hashable, and each reply of the stateless era names the server. The settings are kept beside, so an id is not used again.
_MOST_KNOWN: Final = 64


def server_info(settings: Settings) -> dict[str, Any]:
    """The server's name, version and so on."""
    known = _known_info.get(id(settings))
    if known is None:
        if len(_known_info) >= _MOST_KNOWN:
            _known_info.clear()
        known = _known_info[id(settings)] = (settings, _server_info(settings))
    return known[1]


def _server_info(settings: Settings) -> dict[str, Any]:
    return Implementation(
        name=settings.name,
        version=settings.version,
        title=settings.title,
        description=settings.description,
        website_url=settings.website_url,
        icons=settings.icons,
    ).to_wire()


def cache_members(settings: Settings, method: str, *, private: bool = False) -> dict[str, Any] | None:
    """The cache hints of a list, or of the server's description; None where none were given."""
    cache = check_caches("cache", settings.cache).get(method)
    return None if cache is None else cache.to_wire(private=private)
