"""A way to a server on which things go wrong to order: cut, refused, held up, dropped, doubled, garbled, out of order.

``rough = RoughRoute(route)`` stands in for any route: memory, HTTP or a child process. Whatever happens on it happens between the
connection and the real wire, so the same fault means the same over each of them, and all of it runs on virtual time.

::

    rough = RoughRoute(server)
    rough.back.delay(2.0, "tools/call", times=1)    # the answer to the next call is two seconds late
    rough.out.drop("notifications/cancelled")       # the server never hears of it
    rough.cut()                                     # the wire is dead now, and the next one is opened as ever
    rough.refuse(3)                                 # three attempts find nobody
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from greenroom.protocol.errors import ErrorCode, ProtocolError, RemoteProtocolError
from greenroom.protocol.messages import Failure, Notification, Request, Response, parse
from greenroom.supervision import Exit, Quit, Ref, Shutdown, exit, receive, self_pid, send_after, spawn_link, trap_exit
from greenroom.targets import route_of
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, TransportError
from greenroom.transports.client.seam import Broken, Inbound, Lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.protocol.messages import RequestId
    from greenroom.supervision import Pid
    from greenroom.targets import Target
    from greenroom.transports.client.seam import Heard, Route, Wire

Deed: TypeAlias = Literal["drop", "delay", "double", "garble", "hold", "shuffle"]
MOST_REMEMBERED: Final = 10_000
_RUBBISH: Final = b'{"jsonrpc": "2.0", \xff\x00 and the rest is lost'


@dataclass(slots=True)
class _Rule:
    deed: Deed
    method: str | None
    left: int | None
    seconds: float = 0.0
    window: int = 0

    def takes(self, method: str) -> bool:
        if self.left == 0 or (self.method is not None and self.method != method):
            return False
        if self.left is not None:
            self.left -= 1
        return True


class Way:
    """One direction. A rule is for the next `times` messages of `method`, or for all of them; an answer counts as its request's method.

    Of several rules the first that takes a message has it to itself.
    """

    def __init__(self, seed: int) -> None:
        """`seed` decides the order of what is shuffled."""
        self._rules: list[_Rule] = []
        self._random = random.Random(seed)  # noqa: S311 - an order that can be had again is the point
        self._held: list[Callable[[], object]] = []
        self._shuffled: list[Callable[[], object]] = []
        self.met: int = 0
        """How many messages a rule has taken."""

    def drop(self, method: str | None = None, *, times: int | None = None) -> None:
        """They never arrive."""
        self._add("drop", method, times)

    def delay(self, seconds: float, method: str | None = None, *, times: int | None = None) -> None:
        """They arrive so much later; others overtake them."""
        self._add("delay", method, times, seconds=seconds)

    def double(self, method: str | None = None, *, times: int | None = None) -> None:
        """They arrive twice."""
        self._add("double", method, times)

    def garble(self, method: str | None = None, *, times: int | None = None) -> None:
        """What arrives in their stead is no message."""
        self._add("garble", method, times)

    def shuffle(self, window: int, method: str | None = None, *, times: int | None = None) -> None:
        """They wait until there are `window` of them, and arrive in any order."""
        self._add("shuffle", method, times, window=window)

    def hold(self, method: str | None = None, *, times: int | None = None) -> None:
        """They wait until `release`."""
        self._add("hold", method, times)

    def release(self) -> None:
        """Let go of what is held, or waits to be shuffled, and hold no more."""
        self._rules = [rule for rule in self._rules if rule.deed != "hold"]
        held, self._held, self._shuffled = [*self._held, *self._shuffled], [], []
        for arrive in held:
            arrive()

    def clear(self) -> None:
        """From now on all goes well. What is held is released."""
        self._rules.clear()
        self.release()

    def _add(self, deed: Deed, method: str | None, times: int | None, **more: Any) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: how often it happens, 1 or more; None for always")
        self._rules.append(_Rule(deed, method, times, **more))

    def pass_on(self, method: str, message: Message) -> None:
        """Have a message arrive, or not."""
        rule = next((rule for rule in self._rules if rule.takes(method)), None)
        if rule is None:
            message.arrive()
            return
        self.met += 1
        match rule.deed:
            case "drop":
                pass
            case "delay":
                message.arrive_later(rule.seconds)
            case "double":
                message.arrive()
                message.arrive()
            case "garble":
                message.arrive_garbled()
            case "hold":
                self._held.append(message.arrive)
            case "shuffle":
                self._shuffled.append(message.arrive)
                if len(self._shuffled) >= rule.window:
                    ready, self._shuffled = self._shuffled, []
                    self._random.shuffle(ready)
                    for arrive in ready:
                        arrive()


class Message(Protocol):
    """One message, and what may become of it."""

    def arrive(self) -> None:
        """As it should."""

    def arrive_garbled(self) -> None:
        """As something else."""

    def arrive_later(self, seconds: float) -> None:
        """So much later."""


class RoughRoute:
    """Any route, and what goes wrong on it. `out` is the way to the server, `back` the way to us."""

    def __init__(self, target: Target, *, seed: int = 0) -> None:
        """`target` is whatever a client can be made for: a route, a `Server`, a URL, a command. The same seed shuffles in the same order."""
        self.route: Route = route_of(target)
        self.out = Way(seed)
        self.back = Way(seed + 1)
        self.opened = 0
        """How many wires were asked for, those that were refused included."""
        self._refused: int | None = 0
        self._refusal: TransportError = ConnectFailed("nobody answers there: refused to order")
        self._wires: list[RoughWire] = []

    @property
    def description(self) -> str:
        """As the route's own."""
        return self.route.description

    def __repr__(self) -> str:
        return f"RoughRoute({self.description})"

    def open(self, owner: Pid) -> RoughWire:
        """A wire of the route, with all that goes wrong on it."""
        self.opened += 1
        error: TransportError | None = None
        if self._refused is None or self._refused > 0:
            error = self._refusal
            if self._refused is not None:
                self._refused -= 1
        self._wires = [wire for wire in self._wires if not wire.ended]
        wire = RoughWire(self, owner, error)
        self._wires.append(wire)
        return wire

    def refuse(self, times: int | None = None, error: TransportError | None = None) -> None:
        """The next `times` attempts fail, or all of them until `admit`."""
        self._refused = times
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


class _Late(NamedTuple):
    message: Message


@dataclass(frozen=True, slots=True)
class _Frame:
    """On its way out."""

    wire: RoughWire
    frame: bytes
    id: RequestId | None
    ordered: bool

    def arrive(self) -> None:
        self.wire.when_open(lambda inner: inner.send(self.frame, self.id, ordered=self.ordered))

    def arrive_garbled(self) -> None:
        self.wire.when_open(lambda inner: inner.send(_RUBBISH, self.id, ordered=self.ordered))

    def arrive_later(self, seconds: float) -> None:
        send_after(seconds, self.wire.pid, _Late(self))


@dataclass(frozen=True, slots=True)
class _Word:
    """On its way back."""

    wire: RoughWire
    heard: Heard

    def arrive(self) -> None:
        self.wire.tell_owner(self.heard)

    def arrive_garbled(self) -> None:
        self.wire.tell_owner(_garbled(self.heard))

    def arrive_later(self, seconds: float) -> None:
        send_after(seconds, self.wire.pid, _Late(self))


class RoughWire:
    """A wire between the connection and the real one."""

    def __init__(self, rough: RoughRoute, owner: Pid, refusal: TransportError | None) -> None:
        """Made by `RoughRoute.open`, in the owner's process."""
        self.description = rough.description
        self.ended = False
        self._rough = rough
        self._owner = owner
        self._refusal = refusal
        self._inner: Wire | None = None
        self._early: deque[Callable[[Wire], object]] = deque()
        self._methods: dict[RequestId, str] = {}
        self.pid: Pid = spawn_link(self._carry)

    def cut(self, error: TransportError) -> None:
        """It dies of that."""
        _tell(self.pid, _Cut(error))

    # --- what the connection does

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False) -> None:
        """Send it, unless a rule has something else in mind."""
        self._rough.out.pass_on(self._method_out(frame), _Frame(self, frame, id, ordered))

    def forget(self, id: RequestId) -> None:
        """Nobody waits for that answer."""
        self.when_open(lambda wire: wire.forget(id))

    def agreed(self, version: str) -> None:
        """The handshake is over."""
        self.when_open(lambda wire: wire.agreed(version))

    def when_open(self, act: Callable[[Wire], object]) -> None:
        """Do it with the real wire, now or as soon as there is one."""
        if self._inner is None:
            self._early.append(act)
        elif not self.ended:
            act(self._inner)

    def _method_out(self, frame: bytes) -> str:
        try:
            message = parse(frame)
        except ProtocolError:
            return ""
        match message:
            case Request(id=id, method=method):
                if len(self._methods) >= MOST_REMEMBERED:
                    del self._methods[next(iter(self._methods))]
                self._methods[id] = method
                return method
            case Notification(method=method):
                return method
            case _:
                return "response"

    # --- the process

    async def _carry(self) -> None:
        trap_exit()
        try:
            if self._refusal is not None:
                raise Quit(Shutdown(self._refusal))
            inner = self._inner = self._rough.route.open(self_pid())
            while self._early:
                self._early.popleft()(inner)
            while True:
                self._take(inner, await receive())
        finally:
            self.ended = True

    def _take(self, inner: Wire, message: Any) -> None:
        match message:
            case Inbound(wire=wire, heard=heard) if wire == inner.pid:
                for each in heard:
                    self._rough.back.pass_on(self._method_back(each), _Word(self, each))
            case Exit(pid, reason) if pid == inner.pid:
                raise Quit(reason)
            case Exit(_, reason):
                exit(inner.pid, reason)
                raise Quit(reason)
            case _Cut(error):
                exit(inner.pid, Shutdown(error))
                raise Quit(Shutdown(error))
            case _Late(late):
                late.arrive()
            case _:
                pass

    def _method_back(self, heard: Heard) -> str:
        match heard:
            case Request(method=method) | Notification(method=method):
                return method
            case Response(id=id) | Failure(id=id) | Lost(id=id) if id is not None:
                return self._methods.get(id, "response")
            case _:
                return ""

    def tell_owner(self, heard: Heard) -> None:
        """The connection hears it."""
        _tell(self._owner, Inbound(self.pid, [heard]))


def _tell(pid: Pid, message: object) -> None:
    ref: Ref[object] = Ref(pid)
    ref.send(message)


def _garbled(heard: Heard) -> Heard:
    """What a wire makes of an answer that is none any more: it may still know whose it would have been."""
    sample = _RUBBISH.decode(errors="replace")
    error = RemoteProtocolError(ErrorCode.PARSE_ERROR, "garbled to order")
    if isinstance(heard, Response | Failure):
        error.answers = heard.id
    return Broken(error, sample)
