"""The access log: one record at INFO on the logger `greenroom.access` for each call and each refusal.

The record's message is for people; `record.greenroom` has the same as plain data, which `greenroom.supervision.logs.JsonLines` writes. Nothing is formatted
when the logger is disabled. A call is logged when it is decided (`CallEnded`), so it is one line on any transport and wherever its handler
ran. Refusals come from peers without credentials, so they are rate-limited: one line a second for each kind, with a count of those left out.

Text from peers is shortened and escaped (`visible`). Queries of paths and URIs are left out, since they may hold secrets.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from greenroom.protocol.methods import METHODS
from greenroom.supervision import clock, visible
from greenroom.supervision.event_bus import bus

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from greenroom.event_types import CallEnded, PrincipalKind

    from .interfaces import Peer

log: Final = logging.getLogger("greenroom.access")

REFUSAL_INTERVAL: Final = 1.0
"""Seconds between two lines of one kind of refusal."""
_KINDS: Final = 256
"""How many kinds are distinguished at a time; they come from this program, so there are a few dozen."""
_NAME: Final = 100
_PATH: Final = 200
_WHY: Final = 300


def is_on() -> bool:
    """Whether the access log is enabled."""
    return log.isEnabledFor(logging.INFO)


# --- calls


_OUTCOMES: Final[Mapping[str, str]] = {
    "result": "ok",
    "tool_error": "tool error",
    "asks": "asks",
    "deadline": "timed out",
    "cancelled": "cancelled",
    "peer_gone": "lost with its session",
    "worker_crashed": "crashed",
    "process_ended": "lost with its process",
}
_TASK_STATUS: Final[Mapping[str, str]] = {"result": "completed", "cancelled": "cancelled", "peer_gone": "cancelled"}
"""The last status of a task; of all others it is "failed"."""


def log_call(ended: CallEnded) -> None:
    """Log a call. Call it only if `is_on`."""
    method, name = visible(ended.method, _NAME), visible(ended.name.partition("?")[0], _NAME)
    milliseconds = round(ended.seconds * 1000, 1)
    data: dict[str, Any] = {
        "event": "call",
        "method": method,
        "name": name or None,
        "outcome": _outcome_text(ended),
        "ms": milliseconds,
        "principal": ended.principal or None,
        "revision": ended.revision or None,
        "transport": ended.transport,
        "address": visible(ended.address, _NAME) or None,
    }
    what = f"{method} {name!r}" if name else method
    if ended.task:
        data["task"] = ended.task
        what = f"{what} as task {ended.task}"
    if bus.tracer is not None and (ids := bus.tracer.ids_of(ended.call)) is not None:
        data["trace_id"], data["span_id"] = ids
    source, revision = _source_text(data), ended.revision or "no revision"
    _write(f"{what}: {data['outcome']}, {milliseconds:.1f} ms, {source}, {revision}", data)


def _outcome_text(ended: CallEnded) -> str:
    if ended.way == "task":
        return _TASK_STATUS.get(ended.outcome, "failed")
    if ended.method == "subscriptions/listen" and ended.outcome in ("result", "cancelled"):
        return "ended"
    if ended.outcome == "refused":
        return f"refused {ended.detail}".rstrip()
    text = f"error {ended.code}" if ended.outcome == "error" else _OUTCOMES[ended.outcome]
    return f"{text} ({ended.detail})" if ended.detail else text


def name_in(params: Mapping[str, Any]) -> str:
    """The tool, prompt or resource that a request is about."""
    found = params.get("name") or params.get("uri")
    return found if isinstance(found, str) else ""


# --- refusals


_STATUS_KINDS: Final[Mapping[int | None, str]] = {
    None: "bad_message",
    400: "bad_request",
    401: "not_authenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "too_slow",
    413: "too_large",
    414: "too_large",
    415: "media_type",
    429: "too_many_failures",
    431: "too_large",
    503: "busy",
}
_KNOWN_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", *METHODS})
"""Of HTTP and of the protocol: a peer may make up others."""


class _RefusalCounts:
    """The refusals of one event loop: when each kind was last logged, and how many were left out since."""

    def __init__(self) -> None:
        self.logged_at: dict[Hashable, float] = {}
        self.left_out: dict[Hashable, int] = {}
        self.scheduled: set[Hashable] = set()
        """Kinds with a timer: after a flood no further refusal may come to report the count."""


_counts_by_loop: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _RefusalCounts]] = WeakKeyDictionary()


def log_refusal(  # noqa: PLR0913 - what a line says
    why: str,
    *,
    status: int | None = None,
    peer: Peer | None = None,
    address: str = "",
    method: str = "",
    path: str = "",
    seen: str | None = None,
    setting: str = "",
    program: str = "",
) -> None:
    """Log a refusal, and emit `RequestRefused`. `seen` is the peer's refused value, and `setting` the setting that would allow it.

    `why` is logged as it is. Its first word, with `status` and `setting`, is the kind, so `why` must begin with a word of this program.
    """
    listener = bus.listener
    if listener is not None:
        from greenroom.event_types import RequestRefused  # noqa: PLC0415 - only a program with a listener loads the events

        listener(
            RequestRefused(
                program=program,
                kind=setting or _STATUS_KINDS.get(status, "refused"),
                status=status,
                setting=setting,
                method=method if method in _KNOWN_METHODS else "",
                transport="http" if peer is None else peer.transport,
                principal_kind="anonymous" if peer is None else principal_kind(peer.principal),
            )
        )
    if not is_on():
        return
    loop = asyncio.get_running_loop()
    counts = _counts_by_loop.setdefault(loop, _RefusalCounts())
    kind: Hashable = (status, setting, why.partition(" ")[0])
    if kind not in counts.logged_at and len(counts.logged_at) >= _KINDS:
        kind = status
    data: dict[str, Any] = {
        "event": "refused",
        "status": status,
        "why": visible(why, _WHY),
        "method": visible(method, _NAME) or None,
        "path": visible(path.partition("?")[0], _PATH) or None,
        "seen": None if seen is None else visible(seen, _PATH),
        "setting": setting or None,
        "principal": None if peer is None else principal_of(peer),
        "transport": None if peer is None else peer.transport,
        "address": visible(address or ("" if peer is None else peer.forwarded or peer.address), _NAME) or None,
    }
    now = clock.now(loop)
    if now - counts.logged_at.get(kind, -math.inf) >= REFUSAL_INTERVAL:
        counts.logged_at[kind] = now
        _log_one_refusal(data, counts.left_out.pop(kind, 0))
        return
    counts.left_out[kind] = counts.left_out.get(kind, 0) + 1
    if kind not in counts.scheduled:
        counts.scheduled.add(kind)
        loop.call_later(REFUSAL_INTERVAL, _log_left_out, loop, counts, kind, data)


def _log_left_out(
    loop: asyncio.AbstractEventLoop, counts: _RefusalCounts, kind: Hashable, data: dict[str, Any]
) -> None:
    left, now = counts.left_out.get(kind, 0), clock.now(loop)
    if left and now - counts.logged_at[kind] < REFUSAL_INTERVAL:  # a later line has reported the count meanwhile
        loop.call_later(REFUSAL_INTERVAL, _log_left_out, loop, counts, kind, data)
        return
    counts.scheduled.discard(kind)
    if left and is_on():
        del counts.left_out[kind]
        counts.logged_at[kind] = now
        _log_one_refusal(data, left - 1)


def _log_one_refusal(data: dict[str, Any], left_out: int) -> None:
    what = ("refused", str(data["status"] or ""), data["method"] or "", data["path"] or "")
    text = f"{' '.join(each for each in what if each)}: {data['why']}"
    if data["setting"]:
        said = "" if data["seen"] is None else f"it says {data['seen']!r}; "
        text = f"{text} ({said}the setting is {data['setting']})"
    text = f"{text}, {_source_text(data)}"
    if left_out:
        data = {**data, "left_out": left_out}
        text = f"{text}; {left_out} more of this kind left out"
    _write(text, data)


def principal_of(peer: Peer) -> str | None:
    """The principal of a call as it may be logged; None without credentials."""
    return None if peer.principal is None else principal_text(peer.principal)


def principal_text(principal: Hashable) -> str:
    """A principal as it may be logged."""
    match principal:
        case ("", str() as digest):  # a caller without a name is identified by a hash of its credentials
            return f"unnamed {digest[:8]}"
        case (str() as issuer, str() as subject, str() as client):
            return visible(f"{subject or client}{f' of {issuer}' if issuer else ''}", _NAME)
        case _:
            return visible(str(principal), _NAME)


def principal_kind(principal: Hashable) -> PrincipalKind:
    """What is known of a caller with this principal."""
    match principal:
        case None:
            return "anonymous"
        case ("", str()):
            return "unnamed"
        case (str() as issuer, str(), str()) if issuer:
            return "token"
        case _:
            return "named"


def _source_text(data: dict[str, Any]) -> str:
    principal, address, transport = data["principal"], data["address"], data["transport"]
    where = address or transport or "an unknown address"
    return f"from {where}" if principal is None else f"for {principal!r} from {where}"


def _write(text: str, data: dict[str, Any]) -> None:
    log.info("%s", text, extra={"greenroom": data})
