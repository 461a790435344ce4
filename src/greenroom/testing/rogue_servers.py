"""Misbehaving servers: as a program over stdio, or in memory on virtual time.

``python -m greenroom.testing rogue twice`` sends every response twice. A rogue is a small correct server (with the tools `echo` and `count`) and one
misbehaviour, its manner. `RogueServer` is pure: it maps a line to actions, so that the program and the in-memory wire behave the same.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from greenroom.protocol.dialect import LATEST_DIALECT
from greenroom.protocol.errors import ErrorCode, RemoteProtocolError
from greenroom.protocol.jsonrpc import JsonRpcRequest, OversizedMessage, is_object, parse
from greenroom.protocol.sse import LineFramer
from greenroom.supervision import Exit, Quit, Ref, Shutdown, receive, self_pid, send_after, spawn_link, trap_exit
from greenroom.transports.client.errors import ConnectionLost, ProcessDied
from greenroom.transports.client.interfaces import Inbound, InvalidMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import Pid
    from greenroom.transports.client.interfaces import Headers, InboundItem


class WriteBytes(NamedTuple):
    """Write these bytes, which need not be a valid line."""

    data: bytes


class PauseFor(NamedTuple):
    """Pause for so many seconds."""

    seconds: float


class ExitWith(NamedTuple):
    """Exit with this status; a negative one is a signal number."""

    status: int = 0


class WriteForever(NamedTuple):
    """Write these bytes again and again until the reader is gone."""

    data: bytes


RogueAction: TypeAlias = WriteBytes | PauseFor | ExitWith | WriteForever
Json: TypeAlias = dict[str, Any]
Manner: TypeAlias = "Callable[[RogueServer, JsonRpcRequest, bytes], Iterable[RogueAction]]"
"""Maps a request and its correct response to the actions to take instead."""

VERSION: Final = LATEST_DIALECT.version
_TOOLS: Final = [
    {
        "name": "echo",
        "description": "Returns its text.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "count",
        "description": "Returns how often it was called, which shows calls that were made twice.",
        "inputSchema": {"type": "object"},
    },
]


def _line(message: Json) -> bytes:
    return json.dumps(message).encode() + b"\n"


# --- manners


def _log_message(data: str) -> bytes:
    """A log message that no request caused."""
    return _line({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": data}})


def _result(id: RequestId, result: object) -> WriteBytes:
    return WriteBytes(_line({"jsonrpc": "2.0", "id": id, "result": result}))


_SAMPLING_PARAMS: Final = {"messages": [{"role": "user", "content": {"type": "text", "text": "psst"}}], "maxTokens": 5}
_SAMPLING_REQUEST: Final = {
    "jsonrpc": "2.0",
    "id": "undeclared",
    "method": "sampling/createMessage",
    "params": _SAMPLING_PARAMS,
}

MANNERS: Final[dict[str, Manner]] = {
    "well": lambda _, __, answer: [WriteBytes(answer)],
    "garbage": lambda _, __, answer: [WriteBytes(b"Listening on port 3000 ...\n\xff\xfe\x00{]\n"), WriteBytes(answer)],
    "only-garbage": lambda _, __, ___: [WriteBytes(b"\x00\x01 this is no JSON\n")],
    "flood": lambda rogue, _, answer: chain(
        repeat(WriteBytes(_log_message("x" * 100)), rogue.amount), [WriteBytes(answer)]
    ),
    "flood-for-ever": lambda _, __, ___: [WriteForever(_log_message("x"))],
    "twice": lambda _, __, answer: [WriteBytes(answer), WriteBytes(answer)],
    "late": lambda rogue, _, answer: [PauseFor(rogue.seconds), WriteBytes(answer)],
    "other-id": lambda _, request, __: [_result(id, {"content": []}) for id in (1_000_000, f"{request.id}")],
    "silent": lambda _, __, ___: [],
    "half-line": lambda _, __, answer: [WriteBytes(answer[: len(answer) // 2]), ExitWith()],
    "wrong-shape": lambda _, request, __: [_result(request.id, ["no", "object"])],
    "huge": lambda rogue, request, _: [
        _result(request.id, {"content": [{"type": "text", "text": "x" * rogue.amount}]})
    ],
    "endless-line": lambda _, __, ___: [WriteForever(b"x" * 65536)],
    "exits": lambda _, __, ___: [ExitWith(3)],
    "segfaults": lambda _, __, ___: [ExitWith(-signal.SIGSEGV)],
    "asks": lambda _, __, answer: [WriteBytes(_line(_SAMPLING_REQUEST)), WriteBytes(answer)],
}
"""The manners by name."""


@dataclass(slots=True)
class RogueServer:
    """A misbehaving server. The manner applies after `after` correct responses to the method `at`, by default `tools/call`."""

    manner: str = "well"
    at: str = "tools/call"
    after: int = 0
    seconds: float = 1.0
    amount: int = 1000
    version: str = VERSION
    calls: int = 0
    """The number of `tools/call` requests."""
    _matched: int = 0

    def __post_init__(self) -> None:
        if self.manner not in MANNERS:
            raise ValueError(f"there is no manner {self.manner!r}: use one of {', '.join(MANNERS)}")

    def on_line(self, line: bytes) -> Iterator[RogueAction]:
        """The actions for a line from the client."""
        try:
            request = parse(line)
        except RemoteProtocolError:
            return
        if not isinstance(request, JsonRpcRequest):
            return
        result = self._result(request.method, request.params)
        answer = _line({"jsonrpc": "2.0", "id": request.id, **result})
        if request.method != self.at:
            yield WriteBytes(answer)
            return
        self._matched += 1
        yield from MANNERS[self.manner if self._matched > self.after else "well"](self, request, answer)

    def _result(self, method: str, params: Json) -> Json:
        match method:
            case "initialize":
                return {
                    "result": {
                        "protocolVersion": self.version,
                        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                        "serverInfo": {"name": "rogue", "version": "1"},
                    }
                }
            case "ping" | "logging/setLevel":
                return {"result": {}}
            case "tools/list":
                return {"result": {"tools": _TOOLS}}
            case "tools/call":
                self.calls += 1
                text = str(self.calls) if params.get("name") == "count" else str(_text(params.get("arguments")))
                return {"result": {"content": [{"type": "text", "text": text}], "isError": False}}
            case _:
                return {"error": {"code": -32601, "message": f"Method not found: {method}"}}


def _text(arguments: object) -> object:
    return arguments.get("text") if is_object(arguments) else None


# --- in memory


class RogueRoute:
    """``RogueRoute("twice")``: a route to a rogue server in this loop. Each wire has a server of its own; `rogues` lists them."""

    def __init__(self, manner: str = "well", **options: Any) -> None:
        """`options` are those of `RogueServer`."""
        self._make: Callable[[], RogueServer] = lambda: RogueServer(manner, **options)
        self._make()
        self.description = f"rogue {manner}"
        self.rogues: list[RogueServer] = []

    def __repr__(self) -> str:
        return f"RogueRoute({self.description})"

    def open(self, owner: Pid) -> RogueWire:
        """A wire to a new server."""
        rogue = self._make()
        self.rogues.append(rogue)
        return RogueWire(rogue, owner, self.description)


class _ReceivedLine(NamedTuple):
    line: bytes


class _Continue(NamedTuple):
    number: int


class RogueWire:
    """A wire to a rogue server, which runs in the wire's process."""

    def __init__(self, rogue: RogueServer, owner: Pid, description: str) -> None:
        """Made by `RogueRoute.open`, in the owner's process."""
        self.description = description
        self._rogue = rogue
        self._owner: Ref[object] = Ref(owner)
        self._busy: dict[int, deque[RogueAction]] = {}
        self._numbers = count()
        self._lines = LineFramer()
        self.pid: Pid = spawn_link(self._play)
        self._self: Ref[object] = Ref(self.pid)

    is_http = False

    def send(
        self,
        frame: bytes,
        id: RequestId | None = None,  # noqa: ARG002 - a line has no headers, and lines are always in order
        *,
        ordered: bool = False,  # noqa: ARG002 - as above
        mirrored: Headers = (),  # noqa: ARG002 - as above
    ) -> None:
        """Send a line to the server."""
        self._self.send(_ReceivedLine(frame))

    def forget(self, id: RequestId) -> None:
        """A no-op: the server sends what it sends."""

    def on_negotiated(self, version: str) -> None:
        """A no-op: the server ignores the version."""

    async def _play(self) -> None:
        trap_exit()
        while True:
            match await receive():
                case _ReceivedLine(line):
                    number = next(self._numbers)
                    self._busy[number] = deque(self._rogue.on_line(line))
                    self._perform(number)
                case _Continue(number):
                    self._perform(number)
                case Exit(_, reason):
                    raise Quit(reason)
                case _:
                    pass

    def _perform(self, number: int) -> None:
        acts = self._busy[number]
        while acts:
            act = acts.popleft()
            match act:
                case WriteBytes(data):
                    self._write(data)
                case PauseFor(seconds):
                    send_after(seconds, self_pid(), _Continue(number))
                    return
                case ExitWith(status):
                    gone = (
                        ProcessDied(self.description, status)
                        if status
                        else ConnectionLost(f"{self.description} closed the connection")
                    )
                    raise Quit(Shutdown(gone))
                case WriteForever(data):
                    self._write(data)
                    acts.appendleft(act)
                    send_after(0.001, self_pid(), _Continue(number))
                    return
        del self._busy[number]

    def _write(self, data: bytes) -> None:
        items: list[InboundItem] = [_parse_line(line) for line in self._lines.feed(data)]
        if items:
            self._owner.send(Inbound(self.pid, items))


def _parse_line(line: bytes | OversizedMessage) -> InboundItem:
    if isinstance(line, OversizedMessage):
        return InvalidMessage(
            RemoteProtocolError(ErrorCode.PARSE_ERROR, "a line without an end"), line.head.decode(errors="replace")
        )
    try:
        return parse(line)
    except RemoteProtocolError as error:
        return InvalidMessage(error, line[:120].decode(errors="replace"))


# --- as a program


def main(arguments: Sequence[str]) -> int:
    """Serve on standard input and output. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m greenroom.testing rogue", description="A server that misbehaves on demand."
    )
    parser.add_argument("manner", choices=sorted(MANNERS))
    parser.add_argument("--at", default="tools/call", help="the method that triggers it (tools/call)")
    parser.add_argument("--after", type=int, default=0, help="the number of correct responses before it (0)")
    parser.add_argument("--seconds", type=float, default=1.0, help="the delay of a late response (1)")
    parser.add_argument(
        "--amount", type=int, default=1000, help="the messages of a flood, or the bytes of a huge response (1000)"
    )
    given = parser.parse_args(arguments)
    rogue = RogueServer(given.manner, given.at, given.after, given.seconds, given.amount)
    output = sys.stdout.buffer
    try:
        for line in sys.stdin.buffer:
            for act in rogue.on_line(line):
                match act:
                    case WriteBytes(data):
                        output.write(data)
                        output.flush()
                    case PauseFor(seconds):
                        time.sleep(seconds)
                    case ExitWith(status) if status < 0:
                        os.kill(os.getpid(), -status)
                    case ExitWith(status):
                        return status
                    case WriteForever(data):
                        while True:
                            output.write(data)
                            output.flush()
    except BrokenPipeError:
        # The reader is gone. Stdout is redirected to /dev/null, since the interpreter flushes its buffer at exit and would fail with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
