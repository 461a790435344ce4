"""The way to a server by way of another process: what parses its words, and holds its sockets or its child process, runs there.

The wire here stands for the one there. It finds out where there is room (`Place`), has an outpost started, and passes on what is said and
heard; its owner sees a wire like any other. When the other process is lost, that is this wire's end, and says how that one ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

import msgspec

from greenroom.protocol.errors import PeerError
from greenroom.protocol.messages import Failure, Notification, Request, Response
from greenroom.supervision import (
    NORMAL,
    SHUTDOWN,
    Caller,
    CallTimeout,
    Crash,
    Down,
    Exit,
    GenServer,
    GreenroomError,
    NoConnection,
    NoProcess,
    Options,
    Quit,
    Ref,
    Shutdown,
    Stop,
    current_node,
    exit,
    kill,
    monitor,
    receive,
    self_pid,
    spawn_link,
    trap_exit,
)
from greenroom.supervision.cluster import CannotTravel, NodeLost, launch_on, values
from greenroom.supervision.cluster.streams import Credit, Receipts, answering

from .errors import ConnectFailed, ConnectionLost, NodeEnded, TransportError, WireFull
from .interfaces import Broken, Inbound, Lost, check_travels, process_of, ticket_of, unread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.protocol.messages import RequestId
    from greenroom.supervision import ExitReason, Pid

    from .interfaces import ClientWire, Credentials, Heard, Route, Ticket

WAITING: Final = 4096
"""How many messages may wait for the other process to take them,"""
WAITING_BYTES: Final = 64 * 1024 * 1024
"""and how much they may weigh."""
UNREAD: Final = 16
"""So many mails of ours in the connection's mailbox, and no more is asked for until it has caught up."""
LOOK_AGAIN: Final = 0.005
OFTEN: Final = 8
"""After so many mails, the other end is told that they were taken;"""
MUCH: Final = 1024 * 1024
"""or after so many bytes."""
LAST_WORDS: Final = 0.5
"""How long it may take, once the link is gone, until it is known how the process has ended."""


class Lodging(NamedTuple):
    """Room on a node."""

    node: str
    keeper: Pid
    """Ends when the process of that node does, and then says how."""


class Place(Protocol):
    """Where there is room for wires. A value, used again for each new one."""

    async def lodge(self) -> Lodging:
        """Have a node for the calling process, for as long as that lives. Raises what keeps one from coming up."""
        ...


class _Settled(NamedTuple):
    outpost: Ref[Outpost]
    keeper: Pid


class Word:
    """What the two ends of a wire say to each other: lists that begin with one of these.

    ::

        here -> there    SAY frame, id, ordered     FORGET id        AGREED version
                         HEARD mails, bytes         so much of what came has been passed on
                         CLOSE                      end in order
        there -> here    TOOK mails, bytes          so much of what was to be said has been handed to the server's wire
                         CAME packed, plain         what the server has said, parsed there, as one mail
                         LINE text                  a line of the server's stderr
                         ENDED reason               the last

    Who we are is asked by a call of the kernel's: the credentials stay here.
    """

    SAY: Final = 1
    FORGET: Final = 2
    AGREED: Final = 3
    HEARD: Final = 4
    CLOSE: Final = 6
    CAME: Final = 11
    LINE: Final = 13
    ENDED: Final = 14
    TOOK: Final = 15


class FarRoute:
    """A route of which each wire is in another process."""

    def __init__(self, route: Route, place: Place) -> None:
        """Raises `ConfigError` for a route that leads through this process alone."""
        check_travels(route)
        self.route = route
        self.place = place

    def __repr__(self) -> str:
        return f"FarRoute({self.route!r})"

    @property
    def description(self) -> str:
        """Where it leads."""
        return self.route.description

    def open(self, owner: Pid) -> FarWire:
        """Begin a wire for the calling process."""
        return FarWire(self, owner)


class FarWire:
    """One wire, as it is seen here."""

    def __init__(self, route: FarRoute, owner: Pid) -> None:
        """Made by `FarRoute.open`, in the owner's process."""
        self.description = route.description
        self._route = route
        self._owner = process_of(owner)
        self._outpost: Ref[Outpost] | None = None
        self._ended: ExitReason | None = None
        """Why the owner of the other process ended."""
        self._waiting: deque[list[Any]] = deque()
        self._credit = Credit(WAITING, WAITING_BYTES)
        self._closing: ExitReason | None = None
        self._taken = Receipts(OFTEN, MUCH)
        self._looking: asyncio.TimerHandle | None = None
        self.pid: Pid = spawn_link(self._live)

    def __repr__(self) -> str:
        return f"<FarWire {self.description}, {'on a node' if self._outpost else 'not there yet'}>"

    # --- what the connection does

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False) -> None:
        """Have it said there. Raises `WireFull`."""
        credit = self._credit
        if not credit.has_room(len(frame)):
            raise WireFull(
                f"{credit.events} messages, {credit.size:,} bytes, wait for the process that is to send them"
            )
        credit.spend(len(frame))
        self._post([Word.SAY, frame, id, ordered])

    def forget(self, id: RequestId) -> None:
        """The caller does not wait for that answer any more."""
        self._post([Word.FORGET, id])

    def agreed(self, version: str) -> None:
        """The handshake is over."""
        self._post([Word.AGREED, version])

    def _post(self, word: list[Any]) -> None:
        if self._outpost is None:
            self._waiting.append(word)
        else:
            self._outpost.send(word)

    # --- the process

    async def _live(self) -> None:
        trap_exit()
        _ = asyncio.get_running_loop().create_task(self._settle())  # the process keeps its tasks, and they end with it
        try:
            over: ExitReason | None = None
            while over is None:
                over = self._came(await receive())
            reason = await self._known(over)
        finally:
            self._waiting.clear()
            if self._looking is not None:
                self._looking.cancel()
        raise Quit(reason)

    async def _settle(self) -> None:
        """Find room, and have an outpost there."""
        me = Ref[Any](self.pid)
        try:
            ticket = ticket_of(self._route.route)
            lodging = await self._route.place.lodge()
            options = Options(label=f"wire of {current_node().name}")
            outpost = await launch_on(lodging.node, options, Outpost, (self.pid, ticket), link=True)
        except Exception as error:  # noqa: BLE001 - whatever kept it from beginning is this wire's end, and its reason
            me.send([Word.ENDED, Shutdown(_vain(error))])
        else:
            me.send(_Settled(outpost, lodging.keeper))

    def _came(self, message: Any) -> ExitReason | None:
        """One message; the reason to end for, if it brings one."""
        match message:
            case [Word.CAME, data, plain]:
                self._hear(data, plain=plain)
            case [Word.ENDED, reason]:
                return self._closing or reason
            case [Word.TOOK, mails, size]:
                self._credit.earn(mails, size)
            case Caller(request=[str() as what, *args]):
                _ = answering(message, self._answer(what, args))  # pyright: ignore[reportUnknownArgumentType] - of whatever
            case [Word.LINE, text]:
                self._line(text)
            case _Settled(outpost, keeper):
                self._outpost = outpost
                monitor(keeper)
                while self._waiting:
                    outpost.send(self._waiting.popleft())
                if self._closing is not None:
                    outpost.send([Word.CLOSE])
            case Down(reason=reason):
                self._ended = reason
            case Exit(pid=pid, reason=reason) if self._outpost is not None and pid == self._outpost.pid:
                return self._closing or reason
            case Exit(reason=reason):
                return self._close(reason)
            case _:
                pass  # whatever else has found its way here
        return None

    def _close(self, reason: ExitReason) -> ExitReason | None:
        """In order, there as well; at once when nothing is there yet."""
        if self._closing is not None:
            return None
        self._closing = reason if isinstance(reason, Shutdown) else Shutdown()
        if self._outpost is None:
            return self._closing
        self._outpost.send([Word.CLOSE])
        self._thank()  # whatever still comes is little, and a peer that does not read is not waited for
        return None

    async def _known(self, reason: ExitReason) -> ExitReason:
        """The same, or how the node's process has ended, which is known a moment after it is out of reach."""
        if not isinstance(reason, NoConnection | NoProcess) or self._closing is not None:
            return Shutdown(ConnectionLost(f"the wire has ended: {reason}")) if reason == NORMAL else reason
        try:
            ended = self._ended or (await receive(lambda message: isinstance(message, Down), timeout=LAST_WORDS)).reason
        except CallTimeout:
            return Shutdown(NodeEnded("cannot be reached any more"))
        lost = getattr(ended, "detail", getattr(ended, "error", None))
        return Shutdown(NodeEnded(str(lost.ending) if isinstance(lost, NodeLost) else f"was stopped ({ended})"))

    # --- what comes

    def _hear(self, data: bytes, *, plain: bool) -> None:
        self._owner.send(Inbound(self.pid, unpack(data, plain=plain)))
        if self._taken.take(len(data)):
            self._thank()

    def _thank(self) -> None:
        """Say that it was taken, as soon as that is so."""
        if unread(self._owner) > UNREAD and self._closing is None:
            if self._looking is None:
                self._looking = asyncio.get_running_loop().call_later(LOOK_AGAIN, self._look_again)
        elif self._outpost is not None:
            self._outpost.send([Word.HEARD, *self._taken.told()])

    def _look_again(self) -> None:
        self._looking = None
        self._thank()

    async def _answer(self, what: str, args: list[Any]) -> Any:
        """Who we are: said here, where the credentials are."""
        route: Any = self._route.route
        credentials: Credentials = route.credentials
        if what == "headers":
            return {_plain(name): _plain(each) for name, each in dict(await credentials.headers()).items()}
        return bool(await credentials.refused(*args))

    def _line(self, text: str) -> None:
        sink = getattr(self._route.route, "sink", None)
        if sink is not None:
            sink(text)


def _plain(text: Any) -> str:
    """What is in it: a text of a user's own class may show something else, and does not travel."""
    if not isinstance(text, str):
        raise TypeError(f"headers are texts, and credentials have given a {type(text).__name__}")
    return str.__str__(text)


def _vain(error: Exception) -> TransportError:
    if isinstance(error, TransportError):
        return error
    root: Any = getattr(error, "reason", None)
    found: Any = getattr(root, "detail", None) or (root.error if isinstance(root, Crash) else None) or error
    kind = "" if isinstance(found, GreenroomError) else f"{type(found).__name__}: "
    failed = ConnectFailed(f"there is no process for the connection: {kind}{found}")
    failed.__cause__ = error
    return failed


# --- The other end of a wire that runs in another process: opens the real one there, says what it is given, and sends back what is heard.
# Two processes of that node, tied to each other: the outpost takes what comes from home, and the ear owns the wire. The ear stops reading when
# too much of what it has sent was not taken at home; then the wire does, as with any owner that does not keep up.

MAILS: Final = 32
"""How many mails may be on their way to home,"""
BYTES: Final = 4 * 1024 * 1024
"""and how much they may weigh: beyond that nothing more is read."""
FAR_OUTPOST_OFTEN: Final = 64
"""After so many messages from home, it is told that they were taken;"""


class Desk:
    """What stayed at home, as a route there sees it: it has the credentials, and reads a program's stderr."""

    def __init__(self, home: Pid) -> None:
        """`home` is the wire that stands for this one there."""
        self._home: Ref[Any] = Ref(home, None)

    def line(self, text: str) -> None:
        """The server has written this to stderr."""
        self._home.send([Word.LINE, text])

    async def headers(self) -> Mapping[str, str]:
        """Who we are, asked for anew each time."""
        said: Mapping[str, str] = await self._home.ask(["headers"])
        return said

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        """The server did not take that."""
        return bool(await self._home.ask(["refused", status, challenge, dict(sent)]))


class Outpost(GenServer):
    """One for each wire."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, home: Pid, ticket: Ticket) -> None:
        """`home` is the wire that stands for this one; the ticket says where the server is."""
        self._home: Ref[Any] = Ref(home)
        self._ticket = ticket
        self._credit = Credit(MAILS, BYTES)
        self._desk = Desk(home)
        self._wire: ClientWire | None = None
        self._ear: Pid
        self._taken = Receipts(FAR_OUTPOST_OFTEN, MUCH)

    async def init(self) -> None:
        """Begin the wire."""
        self.process.await_death(self)
        begun = asyncio.get_running_loop().create_future()
        self._ear = spawn_link(_listen, self._home, self._ticket, self._desk, self._credit, begun)
        self._wire = await begun

    def handle_info(self, message: Any) -> Stop | None:
        """From home; or a linked process has ended."""
        wire = self._wire
        match message:
            case [Word.SAY, frame, id, ordered]:
                if wire is not None:
                    self._say(wire, frame, id, ordered=ordered)
            case [Word.FORGET, id]:
                if wire is not None:
                    wire.forget(id)
            case [Word.AGREED, version]:
                if wire is not None:
                    wire.agreed(version)
            case [Word.HEARD, mails, size]:
                self._credit.earn(mails, size)
            case [Word.CLOSE]:
                if wire is not None:
                    exit(wire.pid, SHUTDOWN)
            case Exit(pid=pid, reason=reason) if pid == self._ear:
                return Stop(reason)
            case _:
                super().handle_info(message)
        return None

    def _say(self, wire: ClientWire, frame: bytes, id: Any, *, ordered: bool) -> None:
        if self._taken.take(len(frame)):
            self._home.send([Word.TOOK, *self._taken.told()])
        try:
            wire.send(frame, id, ordered=ordered)
        except WireFull as full:
            if id is not None:
                self._home.send([Word.CAME, *pack([Lost(id, full, resend=True)])])

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - the ear is told
        """It is gone, with home or without, and takes no more thanks: an ear that waits for some would never hear of it."""
        self._credit.end()


async def _listen(
    home: Ref[Any], ticket: Ticket, desk: Desk, credit: Credit, begun: asyncio.Future[ClientWire | None]
) -> None:
    """The ear."""
    trap_exit()
    try:
        wire = ticket.route(desk).open(self_pid())
    except Exception as error:  # noqa: BLE001 - a route may be a user's code, and this is an attempt in vain
        cause = error if isinstance(error, TransportError) else ConnectFailed(f"{type(error).__name__}: {error}")
        _last(home, Shutdown(cause))
        begun.set_result(None)
        return
    begun.set_result(wire)
    while True:
        message = await receive()
        if isinstance(message, Inbound):
            data, plain = pack(message.heard)
            await credit.wait(len(data))
            home.send([Word.CAME, data, plain])
        elif isinstance(message, Exit):
            if message.pid == wire.pid:
                _last(home, message.reason)
                return
            if isinstance(message.reason, Shutdown | NoConnection):  # home's end, or that of the way there
                exit(wire.pid, SHUTDOWN)
            else:
                kill(wire.pid)


def _last(home: Ref[Any], reason: ExitReason) -> None:
    try:
        home.send([Word.ENDED, reason])
    except CannotTravel:
        home.send([Word.ENDED, Shutdown(ConnectionLost(f"the wire has ended: {reason}"))])


# --- What was heard, packed for the way. Messages travel as the values that the parser there has made of them: what the server has written is
# not read again here.

_KINDS: Final[tuple[type[Any], ...]] = (Response, Notification, Request)
_FAILURE, _OTHER = 3, 4
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


def pack(heard: Sequence[Heard]) -> tuple[bytes, bool]:
    """As bytes, and whether they are plain msgpack: numbers with more than 64 bits are not."""
    items = [_packed(each) for each in heard]
    try:
        return _encode(items), True
    except OverflowError:
        return values.encode(items, ""), False


def unpack(data: bytes, *, plain: bool) -> list[Heard]:
    """What was packed."""
    return [_unpacked(*each) for each in (_decode(data) if plain else values.decode(data))]


def _packed(heard: Heard) -> list[Any]:
    match heard:
        case Response() | Notification() | Request():
            return [_KINDS.index(type(heard)), *msgspec.structs.astuple(heard)]
        case Failure(id=id, error=error):
            return [_FAILURE, id, error.code, error.message, error.data]
        case Broken(error=error):
            error.__traceback__ = None  # it would be formatted for the way
        case _:
            pass
    return [_OTHER, values.encode(heard, "")]


def _unpacked(kind: int, *parts: Any) -> Heard:
    if kind < _FAILURE:
        message: Heard = _KINDS[kind](*parts)
        return message
    if kind == _FAILURE:
        id, code, text, data = parts
        return Failure(id, PeerError(code, text, data))
    other: Heard = values.decode(parts[0])
    return other
