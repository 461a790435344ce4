"""The access log: one record at INFO on the logger `greenroom.access` for each call, and for each refusal.

The record's text is for people; `record.greenroom` has the same as plain data, which `greenroom.supervision.logs.JsonLines` writes. Nothing is made
where the logger is not enabled. Calls are logged where they are decided, in the session's process, so it is one line whatever brought the call and
wherever its handler ran. Refusals come from peers that need no credentials, so their number is bounded: of each kind one line a second, with
a count of those that were left out.

What peers have sent is shortened and spelt out (`visible`). Queries of paths and URIs are left out: they may hold secrets.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import msgspec

from greenroom.supervision import clock, visible

if TYPE_CHECKING:
    from collections.abc import Hashable

    from .interfaces import Peer

log: Final = logging.getLogger("greenroom.access")

EVERY: Final = 1.0
"""Seconds between two lines of one kind of refusal."""
_KINDS: Final = 256
"""Kinds that are told apart at a time; they are this program's own, so there are a few dozen."""
_NAME: Final = 100
_PATH: Final = 200
_WHY: Final = 300


def is_on() -> bool:
    """Whether anything is to be logged."""
    return log.isEnabledFor(logging.INFO)


# --- calls


def log_call(  # noqa: PLR0913 - what a line says
    method: str, name: str, outcome: str, seconds: float, peer: Peer, revision: str | None, *, task: str | None = None
) -> None:
    """A call is decided. Only where `is_on`."""
    method, name = visible(method, _NAME), visible(name.partition("?")[0], _NAME)
    milliseconds = round(seconds * 1000, 1)
    data: dict[str, Any] = {
        "event": "call",
        "method": method,
        "name": name or None,
        "outcome": outcome,
        "ms": milliseconds,
        "principal": principal_of(peer),
        "revision": revision,
        "transport": peer.transport,
        "address": visible(peer.forwarded or peer.address, _NAME) or None,
    }
    what = f"{method} {name!r}" if name else method
    if task is not None:
        data["task"] = task
        what = f"{what} as task {task}"
    _write(f"{what}: {outcome}, {milliseconds:.1f} ms, {_whose(data)}, {revision or 'no revision'}", data)


def name_in(params: Any) -> str:
    """What a request is about: a tool, a prompt, a resource."""
    found = params.get("name") or params.get("uri")
    return found if isinstance(found, str) else ""


class _Result(msgspec.Struct):
    isError: Any = False  # noqa: N815 - as the wire has it


class _Error(msgspec.Struct):
    code: Any = None


class _Body(msgspec.Struct):
    result: _Result | msgspec.UnsetType = msgspec.UNSET
    error: _Error | msgspec.UnsetType = msgspec.UNSET


_decoder: Final = msgspec.json.Decoder(_Body)


_WHOLE: Final = 65_536
"""Bytes of a response that are decoded: of a longer one, its head and its tail tell (100 MB kept the loop for 150 ms)."""
_HEAD: Final = re.compile(
    rb'\{"jsonrpc":"2\.0","id":(?:null|-?\d{1,20}|"(?:[^"\\]|\\.){0,1024}"),"error":\{"code":(-?\d{1,20}),'
)
_TAIL: Final = re.compile(rb'"isError":(true|false)')


def outcome_of(body: bytes) -> str:
    """How a response of this program says that the call has ended."""
    if len(body) > _WHOLE:
        if error := _HEAD.match(body):
            return f"error {int(error[1])}"
        return "tool error" if _TAIL.findall(body, len(body) - _WHOLE)[-1:] == [b"true"] else "ok"
    said = _decoder.decode(body)
    if said.error is not msgspec.UNSET:
        return f"error {said.error.code}"
    return "tool error" if said.result is not msgspec.UNSET and said.result.isError is True else "ok"


# --- refusals


class _Book:
    """The refusals of one loop: when each kind was last told, and what was left out since."""

    def __init__(self) -> None:
        self.told: dict[Hashable, float] = {}
        self.left_out: dict[Hashable, int] = {}
        self.waiting: set[Hashable] = set()
        """Kinds with a timer: a flood may be over, and then no refusal follows that would tell the count."""


_books: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Book]] = WeakKeyDictionary()


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
) -> None:
    """Something was refused, in the loop that runs. `seen` is the value of the peer's that is not allowed, and `setting` what would allow it.

    `why` is told as it is, and its first word is a kind with `status` and `setting`: it begins with a word of this program's.
    """
    if not is_on():
        return
    loop = asyncio.get_running_loop()
    book = _books.setdefault(loop, _Book())
    kind: Hashable = (status, setting, why.partition(" ")[0])
    if kind not in book.told and len(book.told) >= _KINDS:
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
    if now - book.told.get(kind, -math.inf) >= EVERY:
        book.told[kind] = now
        _say(data, book.left_out.pop(kind, 0))
        return
    book.left_out[kind] = book.left_out.get(kind, 0) + 1
    if kind not in book.waiting:
        book.waiting.add(kind)
        loop.call_later(EVERY, _tell_rest, loop, book, kind, data)


def _tell_rest(loop: asyncio.AbstractEventLoop, book: _Book, kind: Hashable, data: dict[str, Any]) -> None:
    left, now = book.left_out.get(kind, 0), clock.now(loop)
    if left and now - book.told[kind] < EVERY:  # a line has told others meanwhile
        loop.call_later(EVERY, _tell_rest, loop, book, kind, data)
        return
    book.waiting.discard(kind)
    if left and is_on():
        del book.left_out[kind]
        book.told[kind] = now
        _say(data, left - 1)


def _say(data: dict[str, Any], left_out: int) -> None:
    what = ("refused", str(data["status"] or ""), data["method"] or "", data["path"] or "")
    text = f"{' '.join(each for each in what if each)}: {data['why']}"
    if data["setting"]:
        said = "" if data["seen"] is None else f"it says {data['seen']!r}; "
        text = f"{text} ({said}the setting is {data['setting']})"
    text = f"{text}, {_whose(data)}"
    if left_out:
        data = {**data, "left_out": left_out}
        text = f"{text}; {left_out} more of this kind left out"
    _write(text, data)


def principal_of(peer: Peer) -> str | None:
    """The principal of a call, as it may be shown; None for a peer that has shown no credentials."""
    principal = peer.principal
    if principal is None:
        return None
    match principal:
        case ("", str() as digest):  # a caller without a name is known by a hash of the credentials
            return f"unnamed {digest[:8]}"
        case (str() as issuer, str() as subject, str() as client):
            return visible(f"{subject or client}{f' of {issuer}' if issuer else ''}", _NAME)
        case _:
            return visible(str(principal), _NAME)


def _whose(data: dict[str, Any]) -> str:
    principal, address, transport = data["principal"], data["address"], data["transport"]
    where = address or transport or "an unknown address"
    return f"from {where}" if principal is None else f"for {principal!r} from {where}"


def _write(text: str, data: dict[str, Any]) -> None:
    log.info("%s", text, extra={"greenroom": data})
