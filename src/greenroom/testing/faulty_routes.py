"""A way to a server on which things go wrong to order: cut, refused, held up, dropped, doubled, garbled, out of order.

``rough = RoughRoute(route)`` stands in for any route: memory, HTTP or a child process. Whatever happens on it happens between the
connection and the real wire, so the same fault means the same over each of them, and all of it runs on virtual time.

::

    rough = RoughRoute(server)
    rough.back.delay(2.0, "tools/call", times=1)    # the answer to the next call is two seconds late
    rough.out.drop("notifications/cancelled")       # the server never hears of it
    rough.cut()                                     # the wire is dead now, and the next one is opened as ever
    rough.refuse(3)                                 # three attempts find no server
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
from greenroom.transports.client.interfaces import Inbound, InvalidMessage, UnansweredRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.client_targets import Target
    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import Pid
    from greenroom.transports.client.interfaces import ClientWire, InboundItem, Route

MessageAction: TypeAlias = "Callable[[InterceptedMessage], object]"
"""What becomes of a message."""
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
    """One direction. A rule is for the next `times` messages of `method`, or for all of them; an answer counts as its request's method.

    Of several rules the first that takes a message has it to itself.
    """

    def __init__(self, seed: int) -> None:
        """`seed` decides the order of what is shuffled."""
        self._rules: list[_FaultRule] = []
        self._random = random.Random(seed)  # noqa: S311 - an order that can be had again is the point
        self._held: list[InterceptedMessage] = []
        self._shuffled: list[InterceptedMessage] = []
        self.matched: int = 0
        """How many messages a rule has taken."""

    def drop(self, method: str | None = None, *, times: int | None = None) -> None:
        """They never arrive."""
        self._add(lambda _: None, method, times)

    def delay(self, seconds: float, method: str | None = None, *, times: int | None = None) -> None:
        """They arrive so much later; others overtake them."""
        self._add(lambda message: send_after(seconds, message.wire.pid, _DelayedMessage(message)), method, times)

    def double(self, method: str | None = None, *, times: int | None = None) -> None:
        """They arrive twice."""
        self._add(lambda message: (message.arrive(), message.arrive()), method, times)

    def garble(self, method: str | None = None, *, times: int | None = None) -> None:
        """What arrives in their stead is no message."""
        self._add(lambda message: message.deliver(True), method, times)  # noqa: FBT003 - as above

    def shuffle(self, window: int, method: str | None = None, *, times: int | None = None) -> None:
        """They wait until there are `window` of them, and arrive in any order."""

        def wait(message: InterceptedMessage) -> None:
            self._shuffled.append(message)
            if len(self._shuffled) >= window:
                ready, self._shuffled = self._shuffled, []
                self._random.shuffle(ready)
                for each in ready:
                    each.arrive()

        self._add(wait, method, times)

    def hold(self, method: str | None = None, *, times: int | None = None) -> None:
        """They wait until `release`."""
        self._add(self._held.append, method, times)

    def release(self) -> None:
        """Let go of what is held, or waits to be shuffled, and hold no more."""
        self._rules = [rule for rule in self._rules if rule.action != self._held.append]
        ready = [*self._held, *self._shuffled]
        self._held.clear()
        self._shuffled.clear()
        for each in ready:
            each.arrive()

    def clear(self) -> None:
        """From now on all goes well. What is held is released."""
        self._rules.clear()
        self.release()

    def _add(self, deed: MessageAction, method: str | None, times: int | None) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: how often it happens, 1 or more; None for always")
        self._rules.append(_FaultRule(deed, method, math.inf if times is None else times))

    def pass_on(self, method: str, message: InterceptedMessage) -> None:
        """Have a message arrive, or not."""
        rule = next((rule for rule in self._rules if rule.takes(method)), None)
        if rule is None:
            message.arrive()
            return
        self.matched += 1
        rule.action(message)


class InterceptedMessage(NamedTuple):
    """One message, and what may become of it."""

    wire: FaultyWire
    deliver: Callable[[bool], object]
    """Whether as something else."""

    def arrive(self) -> None:
        """As it should."""
        self.deliver(False)  # noqa: FBT003 - by position, as any callback


class FaultyRoute:
    """Any route, and what goes wrong on it. `out` is the way to the server, `back` the way to us."""

    def __init__(self, target: Target, *, seed: int = 0) -> None:
        """`target` is whatever a client can be made for: a route, a `Server`, a URL, a command. The same seed shuffles in the same order."""
        self.route: Route = route_of(target)
        self.out = RouteDirection(seed)
        self.back = RouteDirection(seed + 1)
        self.opened = 0
        """How many wires were asked for, those that were refused included."""
        self._refused: float = 0
        self._refusal: TransportError = ConnectFailed("nobody answers there: refused to order")
        self._wires: list[FaultyWire] = []

    @property
    def description(self) -> str:
        """As the route's own."""
        return self.route.description

    def __repr__(self) -> str:
        return f"RoughRoute({self.description})"

    def open(self, owner: Pid) -> FaultyWire:
        """A wire of the route, with all that goes wrong on it."""
        self.opened += 1
        error = self._refusal if self._refused > 0 else None
        self._refused = max(0, self._refused - 1)
        self._wires = [wire for wire in self._wires if not wire.ended]
        wire = FaultyWire(self, owner, error)
        self._wires.append(wire)
        return wire

    def refuse(self, times: int | None = None, error: TransportError | None = None) -> None:
        """The next `times` attempts fail, or all of them until `admit`."""
        self._refused = math.inf if times is None else times
        if error is not None:
            self._refusal = error

    def admit(self) -> None:
        """Attempts succeed again."""
        self._refused = 0

    def cut(self, error: TransportError | None = None) -> None:
        """Every wire that is open dies now."""
        reason = ConnectionLost("cut to order") if error is None else error
        for wire in tuple(self._wires):
            wire.cut(reason)

    def clear(self) -> None:
        """From now on all goes well."""
        self.admit()
        self.out.clear()
        self.back.clear()


class _Cut(NamedTuple):
    error: TransportError


class _DelayedMessage(NamedTuple):
    message: InterceptedMessage


class FaultyWire:
    """A wire between the connection and the real one."""

    def __init__(self, rough: FaultyRoute, owner: Pid, refusal: TransportError | None) -> None:
        """Made by `FaultyRoute.open`, in the owner's process."""
        self.description = rough.description
        self.ended = False
        self._route = rough
        self._owner = owner
        self._refusal = refusal
        self._inner: ClientWire | None = None
        self._before_open: deque[Callable[[ClientWire], object]] = deque()
        self._methods: dict[RequestId, str] = {}
        self.pid: Pid = spawn_link(self._forward)

    def cut(self, error: TransportError) -> None:
        """It dies of that."""
        _send_message(self.pid, _Cut(error))

    # --- what the connection does

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False) -> None:
        """Send it, unless a rule has something else in mind."""

        def deliver(garbled: bool) -> None:  # noqa: FBT001 - as a message calls it
            self.when_open(lambda inner: inner.send(_GARBAGE if garbled else frame, id, ordered=ordered))

        self._route.out.pass_on(self._method_out(frame), InterceptedMessage(self, deliver))

    def forget(self, id: RequestId) -> None:
        """The caller does not wait for that answer any more."""
        self.when_open(lambda wire: wire.forget(id))

    def on_negotiated(self, version: str) -> None:
        """The handshake is over."""
        self.when_open(lambda wire: wire.on_negotiated(version))

    def when_open(self, act: Callable[[ClientWire], object]) -> None:
        """Do it with the real wire, now or as soon as there is one."""
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

    def _method_back(self, heard: InboundItem) -> str:
        match heard:
            case JsonRpcRequest(method=method) | JsonRpcNotification(method=method):
                return method
            case JsonRpcResponse(id=id) | JsonRpcError(id=id) | UnansweredRequest(id=id) if id is not None:
                return self._methods.get(id, "response")
            case _:
                return ""

    def _tell_owner(self, heard: InboundItem, garbled: bool) -> None:  # noqa: FBT001 - as a message calls it
        _send_message(self._owner, Inbound(self.pid, [_garbled(heard) if garbled else heard]))


def _send_message(pid: Pid, message: object) -> None:
    ref: Ref[object] = Ref(pid)
    ref.send(message)


def _garbled(heard: InboundItem) -> InboundItem:
    """What a wire makes of an answer that is none any more: it may still know whose it would have been."""
    sample = _GARBAGE.decode(errors="replace")
    error = RemoteProtocolError(ErrorCode.PARSE_ERROR, "garbled to order")
    if isinstance(heard, JsonRpcResponse | JsonRpcError):
        error.answers = heard.id
    return InvalidMessage(error, sample)


# --- A stretch of network on which things go wrong to order: bytes are cut off, held up, garbled, or trickle.
# ``async with RoughNet(port) as net`` listens on 127.0.0.1 and passes on to the port that it was given; a client that is sent to `net.port`
# meets whatever is ordered. It knows nothing of HTTP or of messages: what it breaks is broken in the middle of anything.

_LINGER_ZERO: Final = struct.pack("ii", 1, 0)
_LOOPBACK: Final = "127.0.0.1"
_CHUNK: Final = 1 << 16


class NetworkDirection:
    """What happens to the bytes that go one way."""

    def __init__(self) -> None:
        """All goes well."""
        self.passed = 0
        """How many bytes have arrived, over all connections."""
        self._cut_after: int | None = None
        self._garbled = 0

    def cut_after(self, bytes_more: int) -> None:
        """Once so many more have arrived, the connection that brought the last one is cut, in the middle of whatever it says."""
        self._cut_after = self.passed + bytes_more

    def garble(self, bytes_more: int) -> None:
        """The next so many arrive as others."""
        self._garbled = bytes_more

    def clear(self) -> None:
        """All goes well again."""
        self._cut_after, self._garbled = None, 0

    def take(self, data: bytes) -> tuple[bytes, bool]:
        """What arrives of it, and whether the connection ends there."""
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
    """The stretch. `out` is the way to the server, `back` the way to the client."""

    def __init__(self, to: int | str, *, host: str = _LOOPBACK) -> None:
        """`to` is the server's port, or its URL."""
        self._url = urlsplit(to) if isinstance(to, str) else None
        to_port = to if isinstance(to, int) else urlsplit(to).port
        if to_port is None:
            raise ValueError(f"{to!r} names no port")
        self._target = (host if self._url is None else self._url.hostname or host, to_port)
        self.out = NetworkDirection()
        self.back = NetworkDirection()
        self.port = 0
        """Where it listens, once it is entered; it stays the same, also while it refuses."""
        self.accepted = 0
        """How many connections have come."""
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._bridges: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def url(self) -> str:
        """The server's URL, by way of this."""
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

    # --- what goes wrong

    def cut(self) -> None:
        """Every connection is reset, now: what was under way is lost in the middle."""
        for end in tuple(self._ends):
            _reset(end)

    def stall(self) -> None:
        """Nothing passes any more, and neither end is told: a cable that was pulled."""
        self._flowing.clear()

    def resume(self) -> None:
        """Everything that was held up passes."""
        self._flowing.set()

    async def refuse(self) -> None:
        """Stop listening; connections that are open stay."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def admit(self) -> None:
        """Listen again, on the same port."""
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
        """Pass on what one end says, until it says no more; the other half may still have something to say then."""
        try:
            while data := await reader.read(_CHUNK):
                await self._flowing.wait()
                data, cut = way.take(data)
                sink.write(data)
                if cut:  # what was passed on still arrives; then both ends are gone
                    sink.close()
                    _reset(source)
                    return
                await sink.drain()
            await self._flowing.wait()
            if sink.can_write_eof() and not sink.is_closing():
                sink.write_eof()
        except OSError:  # one end was lost: the other is told all that was passed on, and hears no more
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
