"""One HTTP request: the checks before it is acted on, its body, and the responses: errors, headers and events.

A header value from outside this module (an origin, a session id, an authenticator's header) passes through `checked_header`, so it cannot
put a line break into a response.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from greenroom.errors import ConfigError
from greenroom.protocol import sse
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.jsonrpc import encode_error
from greenroom.protocol.mirrored_headers import is_mirrored_header
from greenroom.supervision import visible as shown

from .http_config import ANY, LOOPBACK_NAMES
from .open_connections import host_in, source_of

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from greenroom.protocol.jsonrpc import RequestId

    from .http_config import HttpConfig
    from .http_engine import Responder
    from .interfaces import Authenticator, EncodedReply, FeedEvent, HttpRefusal, Peer, PublicDocuments


# --- Checks of a request: host, origin, accepted types, content type. Pure.
# Origins and hosts are compared by their parts, never by prefix. A header that must be single and occurs twice is refused: two parsers
# could use different ones. A mirrored header that occurs twice is refused later, with the other differences between headers and body.

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"

_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#@\s]+)", re.ASCII | re.IGNORECASE)
_HOST: Final = re.compile(r"(\[[0-9a-f:.%]+\]|[^:\[\]/?#@\s,]+)(?::([0-9]{1,5}))?", re.ASCII | re.IGNORECASE)
_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MIRRORED_NAME: Final = re.compile(r"mcp-method|mcp-name|mcp-param-[!#$%&'*+.^_`|~0-9a-z-]+")
_SINGLE: Final = frozenset(
    {
        "authorization",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "origin",
    }
)
_PORTS: Final = {"http": 80, "https": 443}
_TWICE: Final = "\0"
"""Stands between the values of a mirrored header that occurs twice: no header can have it, so the value equals nothing in a body.

With a comma, two headers could pass for one value that has a comma, while a proxy acts on the first of them.
"""


class DuplicateHeader(Exception):
    """A header with a single value occurred twice."""


def headers_by_name(headers: Iterable[tuple[bytes | str, bytes | str]]) -> dict[str, str]:
    """The headers by lower-case name. Raises `DuplicateHeader`."""
    folded: dict[str, str] = {}
    for name, value in headers:
        key = (name.decode("latin-1") if isinstance(name, bytes) else name).lower()
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        mirrored = key.startswith("mcp-") and is_mirrored_header(key)
        # `strip` takes more than blanks and tabs away, and a mirrored value with anything else is invalid.
        text = text.strip(" \t") if mirrored else text.strip()
        if key in folded:
            if key in _SINGLE:
                raise DuplicateHeader(key)
            text = f"{folded[key]}{_TWICE if mirrored else ', '}{text}"
        folded[key] = text
    return folded


def checked_header(name: str, value: str) -> tuple[str, str]:
    """Check that name and value form exactly one header. Raises `ValueError`, for a line break for example."""
    if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
        raise ValueError(f"invalid header {name!r}: {value!r}")
    return name, value


class HostPort(NamedTuple):
    """A host and a port; the port is None where none is given, or any matches."""

    host: str
    port: int | None


@lru_cache(maxsize=256)
def parse_host(text: str) -> HostPort | None:
    """Parse a `Host` header; None for an invalid one."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    host, port = found.groups()
    return HostPort(host.strip("[]").lower(), int(port) if port else None)


class PageOrigin(NamedTuple):
    """The origin of a page."""

    scheme: str
    host: str
    port: int | None


def parse_origin(text: str) -> PageOrigin | None:
    """Parse an `Origin` header; None for `null` and for an invalid one."""
    found = _ORIGIN.fullmatch(text)
    where = parse_host(found[2]) if found else None
    if found is None or where is None:
        return None
    scheme = found[1].lower()
    return PageOrigin(scheme, where.host, where.port or _PORTS.get(scheme))


class AllowedHosts:
    """The host names this server answers to: the protection against DNS rebinding."""

    __slots__ = ("_allowed",)

    def __init__(self, config: HttpConfig) -> None:
        """Raises `ConfigError` for an invalid entry."""
        listed = config.allowed_hosts
        if listed is None:
            listed = (*LOOPBACK_NAMES, config.host) if config.is_loopback else ANY
        self._allowed: frozenset[HostPort] | None = None
        if listed != ANY:
            self._allowed = frozenset(_parsed_host(each) for each in listed)

    def allow(self, header: str | None) -> bool:
        """Whether a request with this `Host` is meant for this server. A request without one is not."""
        if self._allowed is None:
            return True
        where = parse_host(header) if header else None
        return where is not None and (where in self._allowed or HostPort(where.host, None) in self._allowed)


def _parsed_host(text: str) -> HostPort:
    where = parse_host(f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text)
    if where is None:
        bare = text.partition("://")[2].partition("/")[0] or text.partition("/")[0]
        instead = f": write {bare!r}, without a scheme or a path" if parse_host(bare) is not None else ""
        raise ConfigError(f"allowed_hosts must have names, or name:port, not {text!r}{instead}")
    return where


_OTHER_SITES: Final = frozenset({"cross-site", "same-site"})


class AllowedOrigins:
    """The page origins that may call."""

    __slots__ = ("_listed", "_local", "_missing", "_null")

    def __init__(self, config: HttpConfig) -> None:
        """Raises `ConfigError` for an invalid entry."""
        listed = config.allowed_origins
        self._missing = config.allow_missing_origin
        self._local = listed is None
        self._listed: frozenset[PageOrigin] | None = frozenset()
        self._null = listed == ANY
        if listed == ANY:
            self._listed = None
        elif listed is not None:
            self._null = "null" in listed
            self._listed = frozenset(_parsed_origin(each) for each in listed if each != "null")

    def allow(self, header: str | None, site: str | None = None) -> bool:
        """Whether a request with this `Origin` is allowed; `site` is its `Sec-Fetch-Site`.

        A browser omits `Origin` from a GET whose response the page cannot read (an image, a frame). `Sec-Fetch-Site` identifies such a
        request from another site, so it is not taken for a program's.
        """
        if header is None:
            return self._missing and site not in _OTHER_SITES
        if header == "null":
            return self._null
        where = parse_origin(header)
        if where is None or _VALUE.fullmatch(header) is None:
            return False
        if self._local:
            return where.scheme in _PORTS and where.host in LOOPBACK_NAMES
        return self._listed is None or where in self._listed


def _parsed_origin(text: str) -> PageOrigin:
    where = parse_origin(text)
    if where is None:
        raise ConfigError(f"allowed_origins must have origins as scheme://host[:port], or 'null', not {text!r}")
    return where


@lru_cache(maxsize=256)
def accepted_types(header: str) -> tuple[str, ...]:
    """The media types an `Accept` header allows, of the two that are served, in its order."""
    taken: list[str] = []
    for each in header.lower().split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        if any(part.startswith("q=") and _weightless(part[2:]) for part in parameters):
            continue
        matches: Sequence[str] = _MATCHES.get(kind, ())
        taken += [match for match in matches if match not in taken]
    return tuple(taken)


_MATCHES: Final[Mapping[str, Sequence[str]]] = {
    JSON: (JSON,),
    "application/*": (JSON,),
    EVENTS: (EVENTS,),
    "text/*": (EVENTS,),
    "*/*": (JSON, EVENTS),
}


def _weightless(quality: str) -> bool:
    return bool(quality) and set(quality) <= {"0", "."}


def is_json(content_type: str | None) -> bool:
    """Whether a body of this type may be JSON. A missing type is accepted: the parser decides."""
    return content_type is None or content_type.partition(";")[0].strip().lower() == JSON


if TYPE_CHECKING:
    Headers: TypeAlias = Sequence[tuple[str, str]]

SESSION_HEADER: Final = "mcp-session-id"
INSTANCE_HEADER: Final = "greenroom-instance"
"""Names the process that responds: sent with `initialize`, and with each refusal of a request that was not executed.

A client that sees the same process twice knows that no load balancer gave its request to another server first, so it can safely resend;
without the header it could not know.
"""
KEEP_ALIVE: Final = sse.KEEP_ALIVE
STREAM_WRITE_SIZE: Final = 16 * 1024
"""How many bytes of a stream are written at once, unless one event is larger: the rest stays in the session's buffer."""
PREFLIGHT_AGE: Final = "600"
_LONGEST_ASKED: Final = 4096
"""How many characters of a preflight's list of headers are read."""

SESSION_LOST: Final = "The session has ended before it answered. Send initialize to begin a new one."
STOPPED: Final = "The server stopped before this was answered; it may have been done or not"
JSON_HEADERS: Final = (("content-type", JSON),)
STREAM_HEADERS: Final = (
    ("content-type", EVENTS),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
)
EXPOSED: Final = "WWW-Authenticate, Mcp-Session-Id, MCP-Protocol-Version"
ALLOWED: Final = ("Content-Type", "Accept", "Mcp-Session-Id", "MCP-Protocol-Version", "Last-Event-ID")


_SHOWN_VALUE: Final = 100
"""How many characters of a refused value are quoted."""


class HttpRequestRefused(Exception):
    """Ends the processing of a request with this response."""

    def __init__(  # noqa: PLR0913 - the response and the log record
        self,
        status: int,
        headers: Headers = (),
        body: bytes = b"",
        *,
        why: str = "",
        seen: str | None = None,
        setting: str = "",
        maybe_done: bool = False,
    ) -> None:
        """The whole response, and for the access log: the reason, the invalid value, and the setting that would allow it.

        `maybe_done`: a session may have received the request before it ended.
        """
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body
        self.why = why
        self.seen = seen
        self.setting = setting
        self.maybe_done = maybe_done


def invalid_request(
    status: int,
    message: str,
    id: RequestId | None = None,
    headers: Headers = (),
    *,
    seen: str | None = None,
    setting: str = "",
) -> HttpRequestRefused:
    """A refusal as a JSON-RPC error, with the request's id if it was read."""
    told = message if seen is None else f"{message} (it says {shown(seen, _SHOWN_VALUE)!r})"
    body = encode_error(id, McpError(ErrorCode.INVALID_REQUEST, told))
    return HttpRequestRefused(status, (*JSON_HEADERS, *headers), body, why=message, seen=seen, setting=setting)


def session_lost_error(id: RequestId | None) -> bytes:
    """The reply to a request whose session ended before answering."""
    return encode_error(id, McpError(ErrorCode.INTERNAL_ERROR, SESSION_LOST))


def server_stopped_error(id: RequestId | None) -> bytes:
    """The reply to a request that was still running when the server's grace period ended."""
    return encode_error(id, McpError(ErrorCode.INTERNAL_ERROR, STOPPED))


def stream_headers(session_id: str) -> Headers:
    """The headers of an event stream; without an id, of a stream outside any session."""
    return (*STREAM_HEADERS, checked_header(SESSION_HEADER, session_id)) if session_id else STREAM_HEADERS


def cors_headers(origin: str) -> Headers:
    """The CORS headers that let a page of this origin, which was checked, read the response."""
    return (
        checked_header("access-control-allow-origin", origin),
        ("access-control-expose-headers", EXPOSED),
        ("vary", "Origin"),
    )


def preflight_headers(methods: Sequence[str], more: Sequence[str], headers: Mapping[str, str]) -> Headers:
    """The response headers to a preflight with these headers. `more` are the headers that the authenticator reads.

    Mirrored headers are allowed where they are asked for by name: a tool may have any, and a wildcard does not hold for requests with credentials.
    """
    verbs = ", ".join(methods)
    if "origin" not in headers:
        return (("allow", verbs),)
    return (
        ("allow", verbs),
        ("access-control-allow-methods", verbs),
        checked_header(
            "access-control-allow-headers",
            ", ".join((*ALLOWED, *more, *_mirrored_in(headers.get("access-control-request-headers", "")))),
        ),
        ("access-control-max-age", PREFLIGHT_AGE),
    )


def _mirrored_in(asked: str) -> list[str]:
    """The valid names of mirrored headers in a list of names, without the rest of a list that is too long."""
    if len(asked) > _LONGEST_ASKED:
        asked = asked[:_LONGEST_ASKED].rpartition(",")[0]
    names = dict.fromkeys(name.strip(" \t").lower() for name in asked.split(","))
    return [name for name in names if _MIRRORED_NAME.fullmatch(name)]


def encode_event(event: FeedEvent, retry: int | None = None) -> bytes:
    """Encode one event. The event's own `retry` overrides the argument."""
    return sse.encode_event(event.id, event.data, retry=event.retry if event.retry is not None else retry)


def encode_events(events: Sequence[FeedEvent], retry: int | None = None) -> Iterator[bytes]:
    """Encode events in as few writes as possible. `retry` goes with the first."""
    piece: list[bytes] = []
    size = 0
    for event in events:
        one = encode_event(event, retry)
        retry = None
        if size and size + len(one) > STREAM_WRITE_SIZE:
            yield b"".join(piece)
            piece.clear()
            size = 0
        piece.append(one)
        size += len(one)
    yield piece[0] if len(piece) == 1 else b"".join(piece)


@lru_cache(maxsize=256)
def _encoded(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)


def encode_headers(headers: Sequence[tuple[str, str]]) -> tuple[tuple[bytes, bytes], ...]:
    """The headers as bytes, as ASGI wants them. Headers that repeat are cached; a session id is not."""
    lines = tuple(headers)
    if lines and lines[-1][0] == SESSION_HEADER:
        return (*_encoded(lines[:-1]), (SESSION_HEADER.encode(), lines[-1][1].encode("latin-1")))
    return _encoded(lines)


# --- The request, and the documents that any caller may read without authentication.


class HttpRequest:
    """One HTTP request on its way through the engine, and its responder."""

    __slots__ = ("cors", "has_replied", "headers", "method", "path", "peer", "responder")

    def __init__(self, method: str, peer: Peer, responder: Responder) -> None:
        self.method = method
        self.path = ""
        self.responder = responder
        self.peer = peer
        self.headers: dict[str, str] = {}
        self.cors: Headers = ()
        self.has_replied = False

    async def reply(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Send the whole response."""
        self.has_replied = True
        await self.responder.reply(status, (*headers, *self.cors) if self.cors else headers, body)


class PublicDocumentRoutes:
    """The paths of an authenticator's public documents, if it has any."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._documents: PublicDocuments | None = getattr(authenticator, "public_documents", None)
        self.paths: Collection[str] = () if self._documents is None else self._documents.paths

    async def respond(self, request: HttpRequest, path: str) -> None:
        """Answer with a public document. `path` includes the query."""
        assert self._documents is not None
        shown = await self._documents.respond(request.method, path, request.headers, request.peer)
        await request.reply(shown.status, checked_headers(shown), shown.body)


def checked_headers(refusal: HttpRefusal) -> Headers:
    """The headers of a response that other code has made. Raises `ValueError` for an invalid one."""
    return tuple(checked_header(name.lower(), value) for name, value in refusal.headers)


async def refuse_for_scopes(
    request: HttpRequest, authenticator: Authenticator, answer: EncodedReply, instance: Headers
) -> None:
    """Answer a call that lacks scopes: the session's error, with the authenticator's challenge around it."""
    refusal = await authenticator.challenge_for_scopes(
        answer.needs, request.method, request.path, request.headers, request.peer
    )
    more = tuple(each for each in checked_headers(refusal) if each[0] != "content-type")
    await request.reply(refusal.status, (*JSON_HEADERS, *more, *instance), answer.body)


# --- Reading a request's body

NO_CONTENT: Final = 204
"""The status of a response without body and content length."""
LINGER: Final = 2.0
"""Seconds for which the rest of a refused body is read, so that the refusal is not lost in a connection reset."""


class PeerGone(Exception):
    """The peer disconnected while its body was read."""


class BodyReader:
    """Base of requests whose body arrives in pieces."""

    __slots__ = ("_config", "_rest", "gone")

    def __init__(self, config: HttpConfig) -> None:
        self._config = config
        self._rest = True  # whether more of the body may come
        self.gone = False
        """Whether the peer has disconnected."""

    async def _chunk(self) -> bytes:
        """The next piece; afterwards `_rest` tells whether more may come. Raises `PeerGone`."""
        raise NotImplementedError

    async def _gather(self, share: BodyShare) -> bytes:
        """Read the whole body within its share of the memory budget. Raises `HttpRequestRefused` and `PeerGone`."""
        limit = self._config.max_body
        chunks: list[bytes] = []
        size = 0
        while self._rest:
            chunk = await self._chunk()
            size += len(chunk)
            if size > limit:
                chunks.clear()
                raise body_size_error(self._config)
            if not share.take(len(chunk)):
                chunks.clear()
                raise body_budget_error()
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _discard(self) -> None:
        """Read and drop the rest of a body that is not wanted."""
        left = 4 * self._config.max_body
        try:
            async with asyncio.timeout(LINGER):
                while self._rest and left > 0:
                    left -= len(await self._chunk())
        except (TimeoutError, PeerGone):
            pass
        self._rest = False


def body_timeout_error() -> HttpRequestRefused:
    """The refusal of a body that does not arrive in time."""
    return invalid_request(408, "The body did not arrive in time")


def body_budget_error() -> HttpRequestRefused:
    """The refusal while other bodies use the whole memory budget, or the caller its whole share."""
    message = "The server is reading as many bytes of requests as it has room for; try again"
    return invalid_request(503, message, headers=(("retry-after", "1"),))


def body_size_error(config: HttpConfig) -> HttpRequestRefused:
    """The refusal of a body over the limit."""
    return invalid_request(413, f"Payload too large: a message may have {config.max_body} bytes")


# --- A wait that another task may end without cancelling the whole task.


class Interruption:
    """``with Interruption() as wait: await …``; `wait.interrupt()` ends the block from another task.

    It cancels the task and then tells its own cancellation from a real one by `Task.cancelling()` and `uncancel()`, as `asyncio.timeout`
    does. A separate task for each wait would cost a task and a context switch per request.
    """

    __slots__ = ("_before", "_task", "fired")

    def __init__(self) -> None:
        self.fired = False
        self._task: asyncio.Task[object] | None = None
        self._before = 0

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "Interruption must be used in a task"
        self._task, self._before = task, task.cancelling()
        return self

    def interrupt(self) -> None:
        """End the block, unless it is over."""
        if self._task is not None and not self.fired:
            self.fired = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        if not self.fired or task is None:
            return False
        return task.uncancel() <= self._before and kind is asyncio.CancelledError


# --- The memory budget for request bodies over all connections, which no caller can use up alone.
# A caller may hold as much as is free. So a single caller gets half of the budget, two get a third each, and a newcomer always finds as
# much free as any of them holds. A fixed share would be too small for one caller, or leave nothing for others.


def _budget_owner(peer: Peer) -> Hashable:
    """The principal; without one the source address. All clients behind a proxy without principals share one half."""
    return ("address", source_of(host_in(peer.address))) if peer.principal is None else ("principal", peer.principal)


class BodyBudget:
    """The budget of one endpoint."""

    def __init__(self, size: int) -> None:
        """`size` is in bytes."""
        self.size = size
        self.used = 0
        self.held: dict[Hashable, int] = {}
        """The bytes held by each caller."""

    def body(self, peer: Peer) -> BodyShare:
        """A share for one body of this caller: a context manager that returns what was taken, once."""
        return BodyShare(self, _budget_owner(peer))


class BodyShare:
    """One body's share of a memory budget."""

    __slots__ = ("_budget", "_caller", "size")

    def __init__(self, budget: BodyBudget, caller: Hashable) -> None:
        self._budget = budget
        self._caller = caller
        self.size = 0

    def take(self, size: int) -> bool:
        """Reserve memory for so many bytes more. False if there is no room; then nothing was taken."""
        if not size:
            return True  # otherwise a caller that holds nothing would stay in the table
        budget = self._budget
        held = budget.held.get(self._caller, 0) + size
        if held > budget.size - budget.used - size:
            return False
        budget.held[self._caller] = held
        budget.used += size
        self.size += size
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        budget, size = self._budget, self.size
        if size:
            self.size = 0
            budget.used -= size
            budget.held[self._caller] -= size
            if not budget.held[self._caller]:
                del budget.held[self._caller]
