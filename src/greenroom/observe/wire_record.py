"""The messages of the protocol that passed, kept for a while: grouped by request, bounded in number and bytes, and shown without secrets.

`WireRecord.take` is a listener of the bus for details. What is kept is as it was sent, since a message may be sent again; whatever leaves here is masked.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from greenroom.event_types import FramePassed
from greenroom.supervision import visible

from .secret_masks import LEFT_OUT, masked_body, masked_part
from .view_rows import FrameRow, WireGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from greenroom.event_types import Event

Owner: TypeAlias = tuple[str, str, str]
"""Side, program and session."""

MOST_FRAMES: Final = 2_000
MOST_BYTES: Final = 8 * 1024 * 1024
_SHARE: Final = 4
"""A session, and all exchanges of one program together, may have one part in so many."""
_LONGEST_KEPT: Final = 64 * 1024
"""The largest message in bytes that is kept; of a larger one only what it is about."""
_LONGEST_READ: Final = 1024 * 1024
"""The largest message that is read for what it is about: it takes the time of the code that sends it."""
MOST_SHOWN: Final = 256 * 1024
"""The bytes of all messages of one page together that are shown: to hide the secrets of 64 KiB takes some 20 ms."""
_MOST_FRAMES_OF_GROUP: Final = 50
_OPEN_GROUPS: Final = 1_000
_LONGEST_ID: Final = 128
_ANSWERED: Final = frozenset({"elicitation/create", "sampling/createMessage"})
"""Requests whose results are what a person or a model has said."""


class _Params(msgspec.Struct):
    """What the params of a request are about."""

    name: Any = None
    uri: Any = None
    request_id: Any = msgspec.field(name="requestId", default=None)


class _Message(msgspec.Struct):
    """What a message is about."""

    id: str | int | float | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()  # empty where there is none: msgspec knows no `Raw | None`
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_MESSAGES: Final = msgspec.json.Decoder(_Message)
_PARAMS: Final = msgspec.json.Decoder(_Params)


@dataclass(slots=True, eq=False)
class _Frame:
    """One message."""

    number: int
    at: float
    event: FramePassed
    kind: str
    size: int
    group: _Group | None = None

    @property
    def kept(self) -> int:
        """The bytes that it takes here."""
        return len(self.event.body)


@dataclass(slots=True, eq=False)
class _Group:
    """A request and what belongs to it, or one message alone."""

    number: int
    method: str
    name: str
    request: str
    owner: Owner
    at: float
    frames: list[_Frame] = field(default_factory=list[_Frame])
    """Those that are kept: none where all were dropped while a view was made."""


class PageRoom:
    """What may still be shown on a page, in bytes of messages."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_SHOWN

    def has(self, size: int) -> bool:
        """Whether there is room for a message of this size, which it takes then."""
        if size > self.left:
            return False
        self.left -= size
        return True


class WireRecord:
    """The messages that passed while it was listening."""

    def __init__(self, now: Callable[[], float], *, capture: bool | Collection[str] = False) -> None:
        """`now` is a clock in seconds since 1970. `capture`: whether params and results are shown, of all calls or of these tools."""
        self._now = now
        self.capture = capture
        self.lock = threading.RLock()
        self.dropped = 0
        self.bytes = 0
        self._count = 0
        self._frames: OrderedDict[Owner, deque[_Frame]] = OrderedDict()
        """By owner, the one that was silent for longest first."""
        self._sizes: dict[Owner, int] = {}
        self._open: OrderedDict[tuple[Owner, bool, str], _Group] = OrderedDict()
        """The newest requests without a reply, by owner, direction and id."""
        self._number = 0

    def __len__(self) -> int:
        return self._count

    def clear(self) -> None:
        """Forget all messages."""
        with self.lock:
            self._frames.clear()
            self._sizes.clear()
            self._open.clear()
            self.bytes = self._count = 0

    def take(self, event: Event) -> None:
        """Take one message; other events are ignored."""
        if type(event) is not FramePassed:
            return
        size = len(event.body)
        message = _read(event.body) if size <= _LONGEST_READ else None
        kept = event.body if size <= _LONGEST_KEPT else b""
        with self.lock:
            self._number += 1
            frame = _Frame(
                self._number, self._now(), msgspec.structs.replace(event, body=kept), _kind_of(message), size
            )
            owner = (event.side, event.program, event.session)
            self._join(frame, owner, message or _Message())
            self._keep(frame, owner)

    def _join(self, frame: _Frame, owner: Owner, message: _Message) -> None:
        """Add the message to its request's group, or begin one."""
        outgoing = frame.event.direction == "out"
        if frame.kind in ("result", "error"):
            group = self._opened_by(owner, str(message.id)[:_LONGEST_ID], outgoing=not outgoing)
        elif frame.kind == "notification":
            group = self._group_of_notification(owner, message, outgoing=outgoing)
        else:
            group = None
        if group is None:
            params = _read_params(message)
            name = next((each for each in (params.name, params.uri) if isinstance(each, str)), "")
            request = "" if message.id is None else str(message.id)[:_LONGEST_ID]
            group = _Group(frame.number, message.method or "", name[:_LONGEST_ID], request, owner, frame.at)
            if frame.kind == "request":
                self._open[owner, outgoing, request] = group
                if len(self._open) > _OPEN_GROUPS:
                    self._open.popitem(last=False)
        if len(group.frames) >= _MOST_FRAMES_OF_GROUP:
            group.frames.pop(-2)
        group.frames.append(frame)
        frame.group = group

    def _opened_by(self, owner: Owner, request: str, *, outgoing: bool) -> _Group | None:
        """The request that this reply ends. `initialize` belongs to no session, and its reply to the new one."""
        own = self._open.pop((owner, outgoing, request), None)
        if own is not None or not owner[2]:
            return own
        key = ((owner[0], owner[1], ""), outgoing, request)
        first = self._open.get(key)
        return self._open.pop(key) if first is not None and first.method == "initialize" else None

    def _group_of_notification(self, owner: Owner, message: _Message, *, outgoing: bool) -> _Group | None:
        """Of a cancellation the request that it cancels; otherwise the only request that is open in the other direction, if there is just one."""
        if message.method == "notifications/cancelled":
            return self._open.get((owner, outgoing, str(_read_params(message).request_id)[:_LONGEST_ID]))
        if message.method not in ("notifications/progress", "notifications/message"):
            return None
        # Which request it belongs to is in a token that the client chose, most often its id; with one request open there is no doubt.
        newest = next(reversed(self._open), None)
        return None if newest is None or newest[0] != owner or newest[1] == outgoing else self._open[newest]

    def _keep(self, frame: _Frame, owner: Owner) -> None:
        own = self._frames.get(owner)
        if own is None:
            own = self._frames[owner] = deque()
        self._frames.move_to_end(owner)
        own.append(frame)
        self._sizes[owner] = self._sizes.get(owner, 0) + frame.kept
        self._count += 1
        self.bytes += frame.kept
        while len(own) > MOST_FRAMES // _SHARE or self._sizes.get(owner, 0) > MOST_BYTES // _SHARE:
            self._drop(owner, own)
        while self._count > MOST_FRAMES or self.bytes > MOST_BYTES:
            silent = next(iter(self._frames))
            self._drop(silent, self._frames[silent])

    def _drop(self, owner: Owner, own: deque[_Frame]) -> None:
        frame = own.popleft()
        self._count -= 1
        self.bytes -= frame.kept
        self._sizes[owner] -= frame.kept
        self.dropped += 1
        if frame.group is not None:
            frame.group.frames = [each for each in frame.group.frames if each is not frame]
        if not own:
            del self._frames[owner], self._sizes[owner]

    # --- reading

    def groups(self) -> list[_Group]:
        """All groups, the newest first."""
        with self.lock:
            found = {
                id(each.group): each.group for own in self._frames.values() for each in own if each.group is not None
            }
            return sorted(found.values(), key=lambda each: -each.number)

    def of_call(self, session: str, request: str, name: str) -> _Group | None:
        """The newest group of that request."""
        return next(
            (
                each
                for each in self.groups()
                if each.request == request and each.name == name and each.owner[2] == session
            ),
            None,
        )

    def shows(self, group: _Group) -> bool:
        """Whether params and results of this group are shown."""
        if isinstance(self.capture, bool):
            return self.capture
        return group.method == "tools/call" and group.name in self.capture

    def bodies(self, group: _Group) -> tuple[str | None, str | None]:
        """The request and the reply of a group as JSON, without secrets; None for one that is not there."""
        by_kind = {each.kind: each for each in group.frames if each.event.body}
        request, reply = by_kind.get("request"), by_kind.get("result") or by_kind.get("error")
        hides_answers = group.method in _ANSWERED
        return (
            None if request is None else masked_part(request.event.body, ("params",), hides_answers=hides_answers),
            None if reply is None else masked_part(reply.event.body, ("result", "error"), hides_answers=hides_answers),
        )

    def row(self, group: _Group, room: PageRoom | None = None) -> WireGroup:
        """A group to be shown, without secrets. Messages for which the page has no room left are left out."""
        is_captured, frames = self.shows(group), group.frames.copy()
        _, program, session = group.owner
        is_answered = len(frames) > 1 and frames[-1].kind in ("result", "error")
        return WireGroup(
            method=visible(group.method, _LONGEST_ID),
            name=visible(group.name, _LONGEST_ID),
            request=visible(group.request, _LONGEST_ID),
            session=visible(session, _LONGEST_ID),
            program=visible(program, _LONGEST_ID),
            at=group.at,
            seconds=frames[-1].at - group.at if is_answered else None,
            frames=[self._frame_row(each, group, is_captured=is_captured, room=room) for each in frames],
            can_replay=bool(frames) and self._replayable(frames[0], group) is not None,
        )

    def _frame_row(self, frame: _Frame, group: _Group, *, is_captured: bool, room: PageRoom | None = None) -> FrameRow:
        event = frame.event
        body = None
        if event.body and room is not None and not room.has(len(event.body)):
            body = f'"{LEFT_OUT}"'
        elif event.body:
            body = masked_body(event.body, is_captured=is_captured, hides_answers=group.method in _ANSWERED)
        return FrameRow(
            number=frame.number,
            at=frame.at,
            side=event.side,
            program=visible(event.program, _LONGEST_ID),
            session=visible(event.session, _LONGEST_ID),
            direction=event.direction,
            transport=event.transport,
            method=visible(group.method, _LONGEST_ID),
            request=visible(group.request, _LONGEST_ID),
            kind=frame.kind,  # type: ignore[arg-type]  # one of the literals
            size=frame.size,
            body=body,
        )

    def find_request(self, number: int) -> tuple[str, bytes, str] | None:
        """The method, the body and the program of a request that may be sent again, by the number of its message."""
        with self.lock:
            for own in self._frames.values():
                for frame in own:
                    if frame.number == number and frame.group is not None:
                        return self._replayable(frame, frame.group)
        return None

    def _replayable(self, frame: _Frame, group: _Group) -> tuple[str, bytes, str] | None:
        event = frame.event
        may = frame.kind == "request" and event.side == "server" and event.body and self.shows(group)
        return (group.method, event.body, event.program) if may else None

    def lines(self) -> Iterator[bytes]:
        """All messages for a file: JSON lines, the oldest first, without secrets."""
        with self.lock:
            frames = sorted((each for own in self._frames.values() for each in own), key=lambda each: each.number)
        for frame in frames:
            assert frame.group is not None  # set when it was taken
            yield msgspec.json.encode(self._frame_row(frame, frame.group, is_captured=self.shows(frame.group))) + b"\n"


def _read(body: bytes) -> _Message | None:
    try:
        return _MESSAGES.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _read_params(message: _Message) -> _Params:
    try:
        return _PARAMS.decode(message.params) if bytes(message.params) else _Params()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Params()


def _kind_of(message: _Message | None) -> str:
    if message is None:
        return "unreadable"
    if message.method is not None:
        return "notification" if message.id is None else "request"
    if bytes(message.error):
        return "error"
    return "result" if bytes(message.result) else "unreadable"
