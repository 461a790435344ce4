"""Wires that run in another process: that process parses what the server sends, and holds its sockets or its child process.

A `RemoteWire` is the local end. It leases a node (`NodeProvider`), starts a `RemoteWireServer` there, and forwards messages and items; its
owner uses it like any other wire. When the other process dies, the wire ends with `NodeEnded`, which tells how that process ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

import msgspec

from greenroom.protocol.errors import PeerError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
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
from greenroom.supervision.cluster import CannotTravel, NodeLost, launch_on, value_codec
from greenroom.supervision.cluster.flow_control import Credit, Receipts, answer_in_task

from .errors import ConnectFailed, ConnectionLost, NodeEnded, TransportError, WireFull
from .interfaces import (
    Inbound,
    InvalidMessage,
    RelatedRequest,
    UnansweredRequest,
    address_of,
    authorization_of,
    check_portable,
    endpoint_of,
    extensions_of,
    headers_for_request,
    http_version_of,
    is_http,
    portable_route,
    process_of,
    transport_of,
    unread_mails,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import ExitReason, Pid

    from .interfaces import ClientWire, Credentials, Headers, InboundItem, PortableRoute, Route

MAX_QUEUED: Final = 4096
"""How many messages may be queued for the other process,"""
MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
"""and how large they may be together."""
UNREAD: Final = 16
"""With so many of our mails unread in the connection's mailbox, nothing is acknowledged until it has caught up."""
RETRY_DELAY: Final = 0.005
ACK_MAILS: Final = 8
"""Inbound mails are acknowledged to the other end after so many,"""
ACK_BYTES: Final = 1024 * 1024
"""or after so many bytes."""
NODE_END_TIMEOUT: Final = 0.5
"""How long to wait, once the link is broken, for the news how the other process ended."""


class NodeLease(NamedTuple):
    """A place on a node."""

    node: str
    owner: Pid
    """A process that ends with the node's process, and whose exit reason tells how."""


class NodeProvider(Protocol):
    """Leases nodes for wires. A value that is used again for each new wire."""

    async def acquire(self) -> NodeLease:
        """A node for as long as the calling process lives. Raises the error that prevents it from starting."""
        ...


class _RemoteStarted(NamedTuple):
    server: Ref[RemoteWireServer]
    owner: Pid


class WireOp:
    """The protocol between the two ends of a remote wire: lists that begin with one of these.

    ::

        here -> there    SEND frame, id, ordered, mirrored             FORGET id        NEGOTIATED version
                         RECEIVED_ACK mails, bytes    so much of the inbound items was delivered
                         CLOSE                        close in order
        there -> here    SENT_ACK mails, bytes        so much was passed to the server's wire
                         INBOUND packed, plain        items from the server, parsed there, as one mail
                         STDERR_LINE text             a line of the server's stderr
                         NONCE url, nonce             a response named a nonce, for the credentials
                         ENDED reason                 the last one

    Authentication headers are asked for by a call: the credentials stay in the home process.
    """

    SEND: Final = 1
    FORGET: Final = 2
    NEGOTIATED: Final = 3
    RECEIVED_ACK: Final = 4
    CLOSE: Final = 6
    INBOUND: Final = 11
    STDERR_LINE: Final = 13
    ENDED: Final = 14
    NONCE: Final = 16
    SENT_ACK: Final = 15


class RemoteRoute:
    """A route whose wires run in another process."""

    def __init__(self, route: Route, provider: NodeProvider) -> None:
        """Raises `ConfigError` for a route that works in this process only."""
        check_portable(route)
        self.route = route
        self.provider = provider

    def __repr__(self) -> str:
        return f"RemoteRoute({self.route!r})"

    @property
    def description(self) -> str:
        return self.route.description

    @property
    def is_http(self) -> bool:
        return is_http(self.route)

    @property
    def transport_name(self) -> str:
        """The name of the transport."""
        return transport_of(self.route)

    @property
    def http_version(self) -> str:
        """The version of HTTP, if it is known before a response."""
        return http_version_of(self.route)

    @property
    def peer_address(self) -> str:
        """Host and port of the server."""
        return address_of(self.route)

    @property
    def endpoint(self) -> str:
        """The identity of the server."""
        return endpoint_of(self.route)

    @property
    def authorization(self) -> Hashable:
        """By what requests are authorized now."""
        return authorization_of(self.route)

    @property
    def extensions(self) -> Sequence[str]:
        """The extensions that the route uses."""
        return extensions_of(self.route)

    def open(self, owner: Pid) -> RemoteWire:
        """Start a wire for the calling process."""
        return RemoteWire(self, owner)


class RemoteWire:
    """The local end of a remote wire."""

    def __init__(self, route: RemoteRoute, owner: Pid) -> None:
        """Made by `RemoteRoute.open`, in the owner's process."""
        self.description = route.description
        self.is_http = is_http(route.route)
        self._route = route
        self._owner = process_of(owner)
        self._server: Ref[RemoteWireServer] | None = None
        self._ended: ExitReason | None = None
        """Why the owner of the other process ended."""
        self._waiting: deque[list[Any]] = deque()
        self._credit = Credit(MAX_QUEUED, MAX_QUEUED_BYTES)
        self._closing: ExitReason | None = None
        self._receipts = Receipts(ACK_MAILS, ACK_BYTES)
        self._ack_timer: asyncio.TimerHandle | None = None
        self.pid: Pid = spawn_link(self._run)

    def __repr__(self) -> str:
        return f"<RemoteWire {self.description}, {'on a node' if self._server else 'not there yet'}>"

    # --- the ClientWire interface

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False, mirrored: Headers = ()) -> None:
        """Queue a message for the other end. Raises `WireFull`."""
        credit = self._credit
        if not credit.has_room(len(frame)):
            raise WireFull(
                f"{credit.events} messages, {credit.size:,} bytes, are queued for the process that sends them"
            )
        credit.spend(len(frame))
        self._send_op([WireOp.SEND, frame, id, ordered, mirrored])

    def forget(self, id: RequestId) -> None:
        self._send_op([WireOp.FORGET, id])

    def on_negotiated(self, version: str) -> None:
        self._send_op([WireOp.NEGOTIATED, version])

    def _send_op(self, word: list[Any]) -> None:
        if self._server is None:
            self._waiting.append(word)
        else:
            self._server.send(word)

    # --- the process

    async def _run(self) -> None:
        trap_exit()
        _ = asyncio.get_running_loop().create_task(
            self._start_server()
        )  # the process keeps a reference to its tasks, and they end with it
        try:
            over: ExitReason | None = None
            while over is None:
                over = self._on_message(await receive())
            reason = await self._end_reason(over)
        finally:
            self._waiting.clear()
            if self._ack_timer is not None:
                self._ack_timer.cancel()
        raise Quit(reason)

    async def _start_server(self) -> None:
        """Lease a node and start the server's end there."""
        me = Ref[Any](self.pid)
        try:
            portable = portable_route(self._route.route)
            lease = await self._route.provider.acquire()
            options = Options(label=f"wire of {current_node().name}")
            server = await launch_on(lease.node, options, RemoteWireServer, (self.pid, portable), link=True)
        except Exception as error:  # noqa: BLE001 - any error here ends the wire, as its reason
            me.send([WireOp.ENDED, Shutdown(_start_error(error))])
        else:
            me.send(_RemoteStarted(server, lease.owner))

    def _on_message(self, message: Any) -> ExitReason | None:
        """Process one message; returns the reason to end, if it is one."""
        match message:
            case [WireOp.INBOUND, data, plain]:
                self._on_items(data, plain=plain)
            case [WireOp.ENDED, reason]:
                return self._closing or reason
            case [WireOp.SENT_ACK, mails, size]:
                self._credit.earn(mails, size)
            case Caller(request=[str() as what, *args]):
                _ = answer_in_task(message, self._ask_credentials(what, args))  # pyright: ignore[reportUnknownArgumentType] - the arguments are of any type
            case [WireOp.STDERR_LINE, text]:
                self._on_stderr_line(text)
            case [WireOp.NONCE, url, nonce]:
                self._on_nonce(url, nonce)
            case _RemoteStarted(server, owner):
                self._server = server
                monitor(owner)
                while self._waiting:
                    server.send(self._waiting.popleft())
                if self._closing is not None:
                    server.send([WireOp.CLOSE])
            case Down(reason=reason):
                self._ended = reason
            case Exit(pid=pid, reason=reason) if self._server is not None and pid == self._server.pid:
                return self._closing or reason
            case Exit(reason=reason):
                return self._close(reason)
            case _:
                pass  # unexpected messages are ignored
        return None

    def _close(self, reason: ExitReason) -> ExitReason | None:
        """Close in order at the other end, too; at once if that does not exist yet."""
        if self._closing is not None:
            return None
        self._closing = reason if isinstance(reason, Shutdown) else Shutdown()
        if self._server is None:
            return self._closing
        self._server.send([WireOp.CLOSE])
        self._acknowledge()  # little can follow, and a connection that does not read is not waited for
        return None

    async def _end_reason(self, reason: ExitReason) -> ExitReason:
        """The reason to report. How a node's process ended is known a moment after the link to it broke."""
        if not isinstance(reason, NoConnection | NoProcess) or self._closing is not None:
            return Shutdown(ConnectionLost(f"the wire has ended: {reason}")) if reason == NORMAL else reason
        try:
            ended = (
                self._ended
                or (await receive(lambda message: isinstance(message, Down), timeout=NODE_END_TIMEOUT)).reason
            )
        except CallTimeout:
            return Shutdown(NodeEnded("cannot be reached any more"))
        lost = getattr(ended, "detail", getattr(ended, "error", None))
        return Shutdown(NodeEnded(str(lost.ending) if isinstance(lost, NodeLost) else f"was stopped ({ended})"))

    # --- inbound

    def _on_items(self, data: bytes, *, plain: bool) -> None:
        self._owner.send(Inbound(self.pid, unpack(data, plain=plain)))
        if self._receipts.take(len(data)):
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Acknowledge delivered mails once the connection has read enough of them."""
        if unread_mails(self._owner) > UNREAD and self._closing is None:
            if self._ack_timer is None:
                self._ack_timer = asyncio.get_running_loop().call_later(RETRY_DELAY, self._acknowledge_later)
        elif self._server is not None:
            self._server.send([WireOp.RECEIVED_ACK, *self._receipts.drain()])

    def _acknowledge_later(self) -> None:
        self._ack_timer = None
        self._acknowledge()

    async def _ask_credentials(self, what: str, args: list[Any]) -> Any:
        """Ask the credentials, which are in this process."""
        route: Any = self._route.route
        credentials: Credentials = route.credentials
        if what == "headers":
            found = await (headers_for_request(credentials, *args) if args else credentials.headers())
            return {_plain_text(name): _plain_text(each) for name, each in dict(found).items()}
        return bool(await credentials.refused(*args))

    def _on_nonce(self, url: str, nonce: str) -> None:
        route: Any = self._route.route
        note = getattr(route.credentials, "on_nonce", None)
        if note is not None:
            note(url, nonce)

    def _on_stderr_line(self, text: str) -> None:
        sink = getattr(self._route.route, "sink", None)
        if sink is not None:
            sink(text)


def _plain_text(text: Any) -> str:
    """The plain string: an instance of a subclass of str may behave differently, and cannot be sent."""
    if not isinstance(text, str):
        raise TypeError(f"headers must be str, and the credentials returned a {type(text).__name__}")
    return str.__str__(text)


def _start_error(error: Exception) -> TransportError:
    if isinstance(error, TransportError):
        return error
    root: Any = getattr(error, "reason", None)
    found: Any = getattr(root, "detail", None) or (root.error if isinstance(root, Crash) else None) or error
    kind = "" if isinstance(found, GreenroomError) else f"{type(found).__name__}: "
    failed = ConnectFailed(f"there is no process for the connection: {kind}{found}")
    failed.__cause__ = error
    return failed


# --- The server's end, in the other process: it opens the real wire, sends messages on it, and returns its items.
# Two linked processes there: `RemoteWireServer` receives messages from home, and another one owns the real wire. The owner stops reading
# when too many of its mails are unacknowledged; then the wire pauses, as with any owner that does not keep up.

UNACKED_MAILS: Final = 32
"""How many mails may be unacknowledged,"""
UNACKED_BYTES: Final = 4 * 1024 * 1024
"""and how large they may be together; beyond that nothing more is read."""
REMOTE_ACK_MAILS: Final = 64
"""Messages from home are acknowledged after so many."""


class HomeCallbacks:
    """Access to the home process for a route: credentials, and the callback for stderr lines."""

    def __init__(self, home: Pid) -> None:
        """`home` is the local end of the wire."""
        self._home: Ref[Any] = Ref(home, None)

    def line(self, text: str) -> None:
        """Report a line of the server's stderr."""
        self._home.send([WireOp.STDERR_LINE, text])

    async def headers(self) -> Mapping[str, str]:
        """Ask for the authentication headers of no request in particular."""
        said: Mapping[str, str] = await self._home.ask(["headers"])
        return said

    async def headers_for(self, method: str, url: str) -> Mapping[str, str]:
        """Ask for the authentication headers, for each request anew."""
        said: Mapping[str, str] = await self._home.ask(["headers", method, url])
        return said

    def on_nonce(self, url: str, nonce: str) -> None:
        """Report the nonce of a response."""
        self._home.send([WireOp.NONCE, url, nonce])

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        """Report that the server refused these headers."""
        return bool(await self._home.ask(["refused", status, challenge, dict(sent)]))


class RemoteWireServer(GenServer):
    """The server's end of one remote wire."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, home: Pid, portable: PortableRoute) -> None:
        """`home` is the local end; `portable` is the route to the server."""
        self._home: Ref[Any] = Ref(home)
        self._portable = portable
        self._credit = Credit(UNACKED_MAILS, UNACKED_BYTES)
        self._callbacks = HomeCallbacks(home)
        self._wire: ClientWire | None = None
        self._wire_owner: Pid
        self._receipts = Receipts(REMOTE_ACK_MAILS, ACK_BYTES)

    async def init(self) -> None:
        """Open the real wire."""
        self.process.add_exit_waiter(self)
        begun = asyncio.get_running_loop().create_future()
        self._wire_owner = spawn_link(_own_wire, self._home, self._portable, self._callbacks, self._credit, begun)
        self._wire = await begun

    def handle_info(self, message: Any) -> Stop | None:
        """Handle a message from home, or the exit of a linked process."""
        wire = self._wire
        match message:
            case [WireOp.SEND, frame, id, ordered, mirrored]:
                if wire is not None:
                    self._send_message(wire, frame, id, ordered=ordered, mirrored=mirrored)
            case [WireOp.FORGET, id]:
                if wire is not None:
                    wire.forget(id)
            case [WireOp.NEGOTIATED, version]:
                if wire is not None:
                    wire.on_negotiated(version)
            case [WireOp.RECEIVED_ACK, mails, size]:
                self._credit.earn(mails, size)
            case [WireOp.CLOSE]:
                if wire is not None:
                    exit(wire.pid, SHUTDOWN)
            case Exit(pid=pid, reason=reason) if pid == self._wire_owner:
                return Stop(reason)
            case _:
                super().handle_info(message)
        return None

    def _send_message(self, wire: ClientWire, frame: bytes, id: Any, *, ordered: bool, mirrored: Headers) -> None:
        if self._receipts.take(len(frame)):
            self._home.send([WireOp.SENT_ACK, *self._receipts.drain()])
        try:
            wire.send(frame, id, ordered=ordered, mirrored=tuple((name, value) for name, value in mirrored))
        except WireFull as full:
            if id is not None:
                self._home.send([WireOp.INBOUND, *pack([UnansweredRequest(id, full, resend=True)])])

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - the owner of the wire is linked, and told the reason
        """Wake the owner of the wire, which may wait for acknowledgements that will not come any more."""
        self._credit.end()


async def _own_wire(
    home: Ref[Any],
    portable: PortableRoute,
    callbacks: HomeCallbacks,
    credit: Credit,
    begun: asyncio.Future[ClientWire | None],
) -> None:
    """The process that owns the real wire."""
    trap_exit()
    try:
        wire = portable.route(callbacks).open(self_pid())
    except Exception as error:  # noqa: BLE001 - a route may be user code; an error in it is a failed attempt
        cause = error if isinstance(error, TransportError) else ConnectFailed(f"{type(error).__name__}: {error}")
        _send_end(home, Shutdown(cause))
        begun.set_result(None)
        return
    begun.set_result(wire)
    while True:
        message = await receive()
        if isinstance(message, Inbound):
            data, plain = pack(message.items)
            await credit.wait(len(data))
            home.send([WireOp.INBOUND, data, plain])
        elif isinstance(message, Exit):
            if message.pid == wire.pid:
                _send_end(home, message.reason)
                return
            if isinstance(message.reason, Shutdown | NoConnection):  # the local end has closed, or the link to it broke
                exit(wire.pid, SHUTDOWN)
            else:
                kill(wire.pid)


def _send_end(home: Ref[Any], reason: ExitReason) -> None:
    try:
        home.send([WireOp.ENDED, reason])
    except CannotTravel:
        home.send([WireOp.ENDED, Shutdown(ConnectionLost(f"the wire has ended: {reason}"))])


# --- Packing items. Messages are sent as the values that the parser in the other process produced; they are not parsed again here.

_KINDS: Final[tuple[type[Any], ...]] = (JsonRpcResponse, JsonRpcNotification, JsonRpcRequest, RelatedRequest)
_FAILURE, _OTHER = len(_KINDS), len(_KINDS) + 1
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


def pack(items: Sequence[InboundItem]) -> tuple[bytes, bool]:
    """Pack items; the second value tells whether they are plain msgpack, which has no integers over 64 bits."""
    packed = [_packed(each) for each in items]
    try:
        return _encode(packed), True
    except OverflowError:
        return value_codec.encode(packed, ""), False


def unpack(data: bytes, *, plain: bool) -> list[InboundItem]:
    """Unpack items."""
    return [_unpacked(*each) for each in (_decode(data) if plain else value_codec.decode(data))]


def _packed(items: InboundItem) -> list[Any]:
    match items:
        case JsonRpcResponse() | JsonRpcNotification() | JsonRpcRequest():
            return [_KINDS.index(type(items)), *msgspec.structs.astuple(items)]
        case JsonRpcError(id=id, error=error):
            return [_FAILURE, id, error.code, error.message, error.data]
        case InvalidMessage(error=error):
            error.__traceback__ = None  # it would be formatted for sending
        case _:
            pass
    return [_OTHER, value_codec.encode(items, "")]


def _unpacked(kind: int, *parts: Any) -> InboundItem:
    if kind < _FAILURE:
        message: InboundItem = _KINDS[kind](*parts)
        return message
    if kind == _FAILURE:
        id, code, text, data = parts
        return JsonRpcError(id, PeerError(code, text, data))
    other: InboundItem = value_codec.decode(parts[0])
    return other
