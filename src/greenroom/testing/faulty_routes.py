"""Routes and networks with faults on demand: messages dropped, delayed, duplicated, garbled or reordered; wires cut or refused.

``faulty = FaultyRoute(route)`` replaces any route: memory, HTTP or a child process. Faults are applied between the connection and the real wire, so that the
same fault means the same for each transport, and everything runs on virtual time.

::

    faulty = FaultyRoute(server)
    faulty.back.delay(2.0, "tools/call", times=1)   # the response to the next call is two seconds late
    faulty.out.drop("notifications/cancelled")      # the server never gets it
    faulty.cut()                                    # the wire dies now; the next one is opened as usual
    faulty.refuse(3)                                # three attempts to open a wire fail
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import socket
import struct
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from greenroom.client_targets import route_of
from greenroom.protocol.errors import ErrorCode, ProtocolError, RemoteProtocolError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, parse
from greenroom.supervision import Exit, Quit, Ref, Shutdown, exit, receive, self_pid, send_after, spawn_link, trap_exit
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, TransportError
from greenroom.transports.client.interfaces import Inbound, InvalidMessage, UnansweredRequest, is_http

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.client_targets import Target
    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import Pid
    from greenroom.transports.client.interfaces import ClientWire, Headers, InboundItem, Route

MessageAction: TypeAlias = "Callable[[InterceptedMessage], object]"
"""The action of a rule on a message."""
MOST_METHODS: Final = 10_000
_GARBAGE: Final = b'{"jsonrpc": "2.0", \xff\x00 and the rest is lost'


@dataclass(slots=True)
class _FaultRule:
    action: MessageAction
    method: str | None
    left: float

    def takes(self, method: str) -> bool:
        if not self.left or self.method not in (None, method):
            return False
        self.left -= 1
        return True


class RouteDirection:
    """One direction. A rule applies to the next `times` messages of `method`, or to all; a response counts as its request's method.

    The first rule that claims a message is the only one applied to it.

    """

    def __init__(self, seed: int) -> None:
        """`seed` determines the order of shuffled messages."""
        self._rules: list[_FaultRule] = []
        self._random = random.Random(seed)  # noqa: S311 - the order must be reproducible
        self._held: list[InterceptedMessage] = []
        self._shuffled: list[InterceptedMessage] = []
        self.matched: int = 0
        """How many messages a rule has claimed."""

    def drop(self, method: str | None = None, *, times: int | None = None) -> None:
        """Drop messages."""
        self._add(lambda _: None, method, times)

    def delay(self, seconds: float, method: str | None = None, *, times: int | None = None) -> None:
        """Delay messages by so many seconds; others overtake them."""
        self._add(lambda message: send_after(seconds, message.wire.pid, _DelayedMessage(message)), method, times)

    def double(self, method: str | None = None, *, times: int | None = None) -> None:
        """Deliver messages twice."""
        self._add(lambda message: (message.arrive(), message.arrive()), method, times)

    def garble(self, method: str | None = None, *, times: int | None = None) -> None:
        """Deliver invalid data instead of messages."""
        self._add(lambda message: message.deliver(True), method, times)  # noqa: FBT003 - positional, like every callback

    def shuffle(self, window: int, method: str | None = None, *, times: int | None = None) -> None:
        """Hold messages until there are `window` of them, and deliver those in random order."""

        def wait(message: InterceptedMessage) -> None:
            self._shuffled.append(message)
            if len(self._shuffled) >= window:
                ready, self._shuffled = self._shuffled, []
                self._random.shuffle(ready)
                for each in ready:
                    each.arrive()

        self._add(wait, method, times)

    def hold(self, method: str | None = None, *, times: int | None = None) -> None:
        """Hold messages until `release`."""
        self._add(self._held.append, method, times)

    def release(self) -> None:
        """Deliver the held and the shuffled messages, and hold no more."""
        self._rules = [rule for rule in self._rules if rule.action != self._held.append]
        ready = [*self._held, *self._shuffled]
        self._held.clear()
        self._shuffled.clear()
        for each in ready:
            each.arrive()

    def clear(self) -> None:
        """Remove all rules, and release what is held."""
        self._rules.clear()
        self.release()

    def _add(self, deed: MessageAction, method: str | None, times: int | None) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: must be 1 or more, or None for always")
        self._rules.append(_FaultRule(deed, method, math.inf if times is None else times))

    def pass_on(self, method: str, message: InterceptedMessage) -> None:
        """Deliver a message, or apply the rule that claims it."""
        rule = next((rule for rule in self._rules if rule.takes(method)), None)
        if rule is None:
            message.arrive()
            return
        self.matched += 1
        rule.action(message)


class InterceptedMessage(NamedTuple):
    """A message on its way."""

    wire: FaultyWire
    deliver: Callable[[bool], object]
    """Delivers it; True delivers garbage instead."""

    def arrive(self) -> None:
        """Deliver it unchanged."""
        self.deliver(False)  # noqa: FBT003 - by position, as any callback


class FaultyRoute:
    """A route with faults. `out` is the direction to the server, `back` the one to the client."""

    def __init__(self, target: Target, *, seed: int = 0) -> None:
        """`target` is anything that a client accepts: a route, a `Server`, a URL, a command. Equal seeds shuffle equally."""
        self.route: Route = route_of(target)
        self.out = RouteDirection(seed)
        self.back = RouteDirection(seed + 1)
        self.opened = 0
        """How many wires were requested, including the refused ones."""
        self._refused: float = 0
        self._refusal: TransportError = ConnectFailed("no server answers: refused on demand")
        self._wires: list[FaultyWire] = []

    @property
    def description(self) -> str:
        """The description of the real route."""
        return self.route.description

    @property
    def is_http(self) -> bool:
        """Whether the real route is HTTP."""
        return is_http(self.route)

    def __repr__(self) -> str:
        return f"RoughRoute({self.description})"

    def open(self, owner: Pid) -> FaultyWire:
        """Open a wire of the route, with the faults."""
        self.opened += 1
        error = self._refusal if self._refused > 0 else None
        self._refused = max(0, self._refused - 1)
        self._wires = [wire for wire in self._wires if not wire.ended]
        wire = FaultyWire(self, owner, error)
        self._wires.append(wire)
        return wire

    def refuse(self, times: int | None = None, error: TransportError | None = None) -> None:
        """Let the next `times` attempts fail, or all until `admit`."""
        self._refused = math.inf if times is None else times
        if error is not None:
            self._refusal = error

    def admit(self) -> None:
        """Let attempts succeed again."""
        self._refused = 0

    def cut(self, error: TransportError | None = None) -> None:
        """End every open wire now."""
        reason = ConnectionLost("cut on demand") if error is None else error
        for wire in tuple(self._wires):
            wire.cut(reason)

    def clear(self) -> None:
        """Remove all faults."""
        self.admit()
        self.out.clear()
        self.back.clear()


class _Cut(NamedTuple):
    error: TransportError


class _DelayedMessage(NamedTuple):
    message: InterceptedMessage


class FaultyWire:
    """A process between a connection and the real wire. If the real wire dies, it dies of the same reason."""

    def __init__(self, rough: FaultyRoute, owner: Pid, refusal: TransportError | None) -> None:
        """Made by `FaultyRoute.open`, in the owner's process."""
        self.description = rough.description
        self.is_http = is_http(rough.route)
        self.ended = False
        self._route = rough
        self._owner = owner
        self._refusal = refusal
        self._inner: ClientWire | None = None
        self._before_open: deque[Callable[[ClientWire], object]] = deque()
        self._methods: dict[RequestId, str] = {}
        self.pid: Pid = spawn_link(self._forward)

    def cut(self, error: TransportError) -> None:
        """End the wire with this error."""
        _send_message(self.pid, _Cut(error))

    # --- called by the connection

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False, mirrored: Headers = ()) -> None:
        """Send a frame, or apply a rule to it."""

        def deliver(garbled: bool) -> None:  # noqa: FBT001 - positional, like every callback
            self.when_open(
                lambda inner: inner.send(_GARBAGE if garbled else frame, id, ordered=ordered, mirrored=mirrored)
            )

        self._route.out.pass_on(self._method_out(frame), InterceptedMessage(self, deliver))

    def forget(self, id: RequestId) -> None:
        """Pass on that the caller no longer waits for that response."""
        self.when_open(lambda wire: wire.forget(id))

    def on_negotiated(self, version: str) -> None:
        """Pass on the agreed protocol version."""
        self.when_open(lambda wire: wire.on_negotiated(version))

    def when_open(self, act: Callable[[ClientWire], object]) -> None:
        """Call `act` with the real wire, now or when it is opened."""
        if self._inner is None:
            self._before_open.append(act)
        elif not self.ended:
            act(self._inner)

    def _method_out(self, frame: bytes) -> str:
        try:
            message = parse(frame)
        except ProtocolError:
            return ""
        match message:
            case JsonRpcRequest(id=id, method=method):
                if len(self._methods) >= MOST_METHODS:
                    del self._methods[next(iter(self._methods))]
                self._methods[id] = method
                return method
            case JsonRpcNotification(method=method):
                return method
            case _:
                return "response"

    # --- the process

    async def _forward(self) -> None:
        trap_exit()
        try:
            if self._refusal is not None:
                raise Quit(Shutdown(self._refusal))
            inner = self._inner = self._route.route.open(self_pid())
            while self._before_open:
                self._before_open.popleft()(inner)
            while True:
                self._on_mail(inner, await receive())
        finally:
            self.ended = True

    def _on_mail(self, inner: ClientWire, message: Any) -> None:
        match message:
            case Inbound(wire=wire, items=items) if wire == inner.pid:
                for each in items:
                    self._route.back.pass_on(
                        self._method_back(each), InterceptedMessage(self, partial(self._tell_owner, each))
                    )
            case Exit(pid, reason) if pid == inner.pid:
                raise Quit(reason)
            case Exit(_, reason):
                exit(inner.pid, reason)
                raise Quit(reason)
            case _Cut(error):
                exit(inner.pid, Shutdown(error))
                raise Quit(Shutdown(error))
            case _DelayedMessage(late):
                late.arrive()
            case _:
                pass

    def _method_back(self, item: InboundItem) -> str:
        match item:
            case JsonRpcRequest(method=method) | JsonRpcNotification(method=method):
                return method
            case JsonRpcResponse(id=id) | JsonRpcError(id=id) | UnansweredRequest(id=id) if id is not None:
                return self._methods.get(id, "response")
            case _:
                return ""

    def _tell_owner(self, item: InboundItem, garbled: bool) -> None:  # noqa: FBT001 - positional, like every callback
        _send_message(self._owner, Inbound(self.pid, [_garbled(item) if garbled else item]))


def _send_message(pid: Pid, message: object) -> None:
    ref: Ref[object] = Ref(pid)
    ref.send(message)


def _garbled(item: InboundItem) -> InboundItem:
    """The garbled form of a message: a wire may still know which request an invalid response answers."""
    sample = _GARBAGE.decode(errors="replace")
    error = RemoteProtocolError(ErrorCode.PARSE_ERROR, "garbled on demand")
    if isinstance(item, JsonRpcResponse | JsonRpcError):
        error.response_to = item.id
    return InvalidMessage(error, sample)


# --- A faulty network: a TCP proxy that cuts, stalls, garbles or refuses connections on demand.
# ``async with FaultyNetwork(port) as net`` listens on 127.0.0.1 and forwards to the given port; clients connect to `net.port`. It knows neither HTTP nor
# messages, so a fault may hit in the middle of anything.

_LINGER_ZERO: Final = struct.pack("ii", 1, 0)
_LOOPBACK: Final = "127.0.0.1"
_CHUNK: Final = 1 << 16


class NetworkDirection:
    """The faults for the bytes in one direction."""

    def __init__(self) -> None:
        """No faults yet."""
        self.passed = 0
        """How many bytes were forwarded, over all connections."""
        self._cut_after: int | None = None
        self._garbled = 0

    def cut_after(self, bytes_more: int) -> None:
        """Cut the connection that forwards the last of the next `bytes_more` bytes, in the middle of whatever it sends."""
        self._cut_after = self.passed + bytes_more

    def garble(self, bytes_more: int) -> None:
        """Garble the next so many bytes."""
        self._garbled = bytes_more

    def clear(self) -> None:
        """Remove the faults."""
        self._cut_after, self._garbled = None, 0

    def take(self, data: bytes) -> tuple[bytes, bool]:
        """The bytes to forward, and whether to cut the connection after them."""
        cut = self._cut_after is not None and self.passed + len(data) >= self._cut_after
        if self._cut_after is not None and cut:
            data, self._cut_after = data[: self._cut_after - self.passed], None
        if self._garbled:
            bad = data[: self._garbled]
            self._garbled -= len(bad)
            data = bytes(byte ^ 0x55 for byte in bad) + data[len(bad) :]
        self.passed += len(data)
        return data, cut


class FaultyNetwork:
    """A TCP proxy with faults. `out` is the direction to the server, `back` the one to the client."""

    def __init__(self, to: int | str, *, host: str = _LOOPBACK) -> None:
        """`to` is the server's port or URL."""
        self._url = urlsplit(to) if isinstance(to, str) else None
        to_port = to if isinstance(to, int) else urlsplit(to).port
        if to_port is None:
            raise ValueError(f"{to!r} names no port")
        self._target = (host if self._url is None else self._url.hostname or host, to_port)
        self.out = NetworkDirection()
        self.back = NetworkDirection()
        self.port = 0
        """The port on which it listens, also after `refuse` and `admit`."""
        self.accepted = 0
        """How many connections were accepted."""
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._bridges: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def url(self) -> str:
        """The server's URL through this proxy."""
        if self._url is None:
            return f"http://{_LOOPBACK}:{self.port}"
        return urlunsplit(self._url._replace(netloc=f"{_LOOPBACK}:{self.port}"))

    async def __aenter__(self) -> Self:
        await self.admit()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()
        self.cut()
        for joint in tuple(self._bridges):
            joint.cancel()
        await asyncio.gather(*self._bridges, return_exceptions=True)

    # --- faults

    def cut(self) -> None:
        """Reset every connection now, in the middle of what it transfers."""
        for end in tuple(self._ends):
            _reset(end)

    def stall(self) -> None:
        """Stop forwarding without closing a connection, as if a cable were pulled."""
        self._flowing.clear()

    def resume(self) -> None:
        """Forward again, including what was held up."""
        self._flowing.set()

    async def refuse(self) -> None:
        """Stop listening; open connections stay."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def admit(self) -> None:
        """Listen again on the same port."""
        if self._server is None:
            self._server = await asyncio.start_server(self._on_connection, _LOOPBACK, self.port, reuse_address=True)
            self.port = self._server.sockets[0].getsockname()[1]

    # --- connections

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._ends.add(writer)
        joint = asyncio.ensure_future(self._bridge(reader, writer))
        self._bridges.add(joint)
        joint.add_done_callback(self._bridges.discard)

    async def _bridge(self, from_client: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        ends = [client]
        try:
            from_server, server = await asyncio.open_connection(*self._target)
            ends.append(server)
            self._ends.add(server)
            await asyncio.gather(
                self._forward(from_client, client, server, self.out),
                self._forward(from_server, server, client, self.back),
            )
        except OSError:
            _reset(client)
        finally:
            await asyncio.gather(*map(_closed, ends), return_exceptions=True)
            self._ends.difference_update(ends)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        source: asyncio.StreamWriter,
        sink: asyncio.StreamWriter,
        way: NetworkDirection,
    ) -> None:
        """Forward bytes until end of file; the other direction may continue after that."""
        try:
            while data := await reader.read(_CHUNK):
                await self._flowing.wait()
                data, cut = way.take(data)
                sink.write(data)
                if cut:  # what was forwarded still arrives; then both ends are closed
                    sink.close()
                    _reset(source)
                    return
                await sink.drain()
            await self._flowing.wait()
            if sink.can_write_eof() and not sink.is_closing():
                sink.write_eof()
        except OSError:  # one end is lost: the other gets all that was forwarded, then end of file
            await self._flowing.wait()
            source.close()
            sink.close()


async def _closed(end: asyncio.StreamWriter) -> None:
    end.close()
    await end.wait_closed()


def _reset(end: asyncio.StreamWriter) -> None:
    raw: socket.socket | None = end.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):  # it is closed already
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    end.transport.abort()
