"""Events of a server's transports: messages of the protocol, and streams to clients. Everything here is called only while there is a listener."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from greenroom.event_types import FramePassed, StreamClosed, StreamOpened
from greenroom.supervision import current_node
from greenroom.supervision.event_bus import bus, next_call

from .interfaces import short_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .interfaces import SessionHandle

StreamKind: TypeAlias = Literal["session", "call", "listen"]


def emit_frames(
    direction: Literal["in", "out"], bodies: Iterable[bytes], program: str, transport: str, session_id: str = ""
) -> None:
    """Emit `FramePassed` for each message."""
    listener = bus.detail_listener
    if listener is None:
        return
    session = short_id(session_id)
    for body in bodies:
        if body:  # an event that only sets a resumption mark has none
            listener(
                FramePassed(
                    side="server",
                    program=program,
                    session=session,
                    direction=direction,
                    transport=transport,
                    body=bytes(body),
                )
            )


def observe_stream(program: str, session: SessionHandle | None, *, is_general: bool, is_listen: bool) -> ObservedStream:
    """A stream of HTTP begins."""
    kind: StreamKind = "session" if is_general else "listen" if is_listen else "call"
    return ObservedStream(program, kind, "" if session is None else session.id)


class ObservedStream:
    """A stream to a client that a listener hears of."""

    __slots__ = ("_began_at", "_kind", "_number", "_program", "_sent_at", "_session")

    def __init__(self, program: str, kind: StreamKind, session_id: str = "") -> None:
        """It begins now."""
        self._program = program
        self._kind: StreamKind = kind
        self._session = short_id(session_id)
        self._number = next_call()
        self._began_at = self._sent_at = current_node().now()
        if bus.listener is not None:
            bus.listener(StreamOpened(program=program, stream=self._number, kind=kind, session=self._session))

    def note_send(self) -> None:
        """Something is sent now."""
        self._sent_at = current_node().now()

    @property
    def since_send(self) -> float:
        """The seconds since then. A reader that is too slow loses its connection in the middle of a write that takes very long."""
        return current_node().now() - self._sent_at

    def end(self, *, is_evicted: bool) -> None:
        """It has ended."""
        if bus.listener is not None:
            bus.listener(
                StreamClosed(
                    program=self._program,
                    stream=self._number,
                    kind=self._kind,
                    session=self._session,
                    seconds=current_node().now() - self._began_at,
                    is_evicted=is_evicted,
                )
            )
