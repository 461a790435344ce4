"""Clients on raw sockets, honest and hostile ones, and the attacked server: a program whose memory can be measured."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.free_ports import free_port

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

TARGET_PROGRAM = Path(__file__).parent / "programs" / "target_server.py"
VERSION = "2025-11-25"
Message = dict[str, Any]
_SO_ATTACH_FILTER = 26


class ConnectionCut(Exception):
    """The server has closed the connection."""


class RawResponse:
    """A response."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def messages(self) -> list[Message]:
        """Its messages, as JSON or on a stream."""
        if self.headers.get("content-type") != "text/event-stream":
            return [json.loads(self.body)] if self.body else []
        return [json.loads(line[6:]) for line in self.body.splitlines() if line.startswith(b"data: ") and line[6:]]


class RawCaller:
    """One connection, and a session on it once entered."""

    def __init__(self, port: int, *, session: str = "", buffer: int | None = None, source: str = "127.0.0.1") -> None:
        """`buffer` is how much the kernel buffers for us while we do not read; `source` is our address."""
        self.port = port
        self.session = session
        self.count = 0
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.bind((source, 0))
        self.socket.settimeout(60.0)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""

    def send(self, verb: str, body: bytes = b"", **headers: str) -> None:
        """Send a request; underscores in header names are dashes."""
        said = {"host": "127.0.0.1", "accept": "application/json, text/event-stream", "mcp-protocol-version": VERSION}
        if self.session:
            said["mcp-session-id"] = self.session
        if verb == "POST":
            said |= {"content-type": "application/json", "content-length": str(len(body))}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{verb} /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in said.items()), "", ""]
        self.socket.sendall("\r\n".join(lines).encode() + body)

    def hear(self) -> RawResponse:
        """Read a whole response. Raises `ConnectionCut`."""
        status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self._line(), 16):
                body += self._exactly(size)
                self._exactly(2)
            self._exactly(2)
        else:
            body = self._exactly(int(headers.get("content-length", "0")))
        return RawResponse(status, headers, body)

    def hear_chunks(self, until: bytes | None = None) -> bytes:
        """Read a stream after its head: to its proper end, or to that text."""
        body = b""
        while until is None or until not in body:
            size = int(self._line(), 16)
            body += self._exactly(size)
            self._exactly(2)
            if not size:
                break
        return body

    def head(self) -> tuple[int, dict[str, str]]:
        """Read the head of a response."""
        line = self._line()
        assert line.startswith(b"HTTP/1.1 "), line + b" | " + self._data
        status = int(line.split(b" ")[1])
        headers: dict[str, str] = {}
        while line := self._line():
            name, _, value = line.decode("latin-1").partition(": ")
            headers[name.lower()] = value
        return status, headers

    def _line(self) -> bytes:
        while b"\r\n" not in self._data:
            self._more()
        line, _, self._data = self._data.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._data) < size:
            self._more()
        data, self._data = self._data[:size], self._data[size:]
        return data

    def _more(self) -> None:
        more = self.socket.recv(1 << 16)
        if not more:
            raise ConnectionCut
        self._data += more

    def post(self, message: Message) -> RawResponse:
        """Send a message; returns the response."""
        self.send("POST", json.dumps({"jsonrpc": "2.0", **message}).encode())
        return self.hear()

    def hello(self) -> RawResponse:
        """Ask for a session."""
        info = {"name": "crowd", "version": "1"}
        params: Message = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info}
        return self.post({"id": 0, "method": "initialize", "params": params})

    def enter(self) -> RawCaller:
        """Start a session."""
        heard = self.hello()
        assert heard.status == 200, heard.body
        self.session = heard.headers["mcp-session-id"]
        assert self.post({"method": "notifications/initialized"}).status == 202
        return self

    def begin(self, tool: str, **arguments: Any) -> int:
        """Send a call without waiting for it."""
        self.count += 1
        params: Message = {"name": tool, "arguments": arguments}
        message: Message = {"jsonrpc": "2.0", "id": self.count, "method": "tools/call", "params": params}
        self.send("POST", json.dumps(message).encode())
        return self.count

    def call(self, tool: str, **arguments: Any) -> Any:
        """The result of a tool."""
        self.begin(tool, **arguments)
        (answer,) = [each for each in self.hear().messages if each.get("id") == self.count]
        result = answer["result"]
        assert not result.get("isError"), result
        return result.get("structuredContent") or result["content"][0]["text"]

    @property
    def cut(self) -> bool:
        """Whether the server has closed the connection, as far as that shows without reading."""
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    def deafen(self) -> None:
        """Vanish like a machine without power: the kernel drops everything that arrives."""
        drop = ctypes.create_string_buffer(
            bytes([6, 0, 0, 0, 0, 0, 0, 0])
        )  # the packet filter's "return 0": keep nothing
        program = struct.pack("@HP", 1, ctypes.addressof(drop))
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


class TargetServer:
    """The running server."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, kept: contextlib.ExitStack) -> None:
        self.process = process
        self.port = port
        self._kept = kept
        self._watcher: RawCaller | None = None

    def caller(self, **how: Any) -> RawCaller:
        """A connected client."""
        caller = RawCaller(self.port, **how)
        self._kept.callback(caller.close)
        return caller

    def entered(self, **how: Any) -> RawCaller:
        """A client with a session."""
        return self.caller(**how).enter()

    def memory(self) -> int:
        """The memory of the process, in bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize()

    def cost(self) -> dict[str, int]:
        """The same, and the number of everything in it, as the server itself reports."""
        if self._watcher is None:
            self._watcher = self.entered()
        found: dict[str, int] = self._watcher.call("cost")
        return found

    def forget(self) -> None:
        """The watching client has another session the next time: this one is not kept open."""
        self._watcher = None

    def processor(self) -> float:
        """The processor time of the server, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def target_server(config: Message | None = None, settings: Message | None = None) -> Generator[TargetServer]:
    """A server of our own; afterwards all clients have disconnected, and it has ended in order."""
    port = free_port()
    command = [sys.executable, str(TARGET_PROGRAM), str(port), json.dumps(config or {}), json.dumps(settings or {})]
    with (
        many_files(),
        contextlib.ExitStack() as kept,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process,
    ):
        try:
            assert process.stderr is not None
            assert b"serves on" in process.stderr.readline()
            yield TargetServer(process, port, kept)
            process.terminate()
            assert process.wait(30.0) == 0
        finally:
            process.kill()


@contextlib.contextmanager
def many_files() -> Generator[None]:
    """Raise the limit of open files as far as this machine allows; the server inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16_384)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def until_cut(callers: Sequence[RawCaller], within: float) -> list[float]:
    """When each connection was closed by the server, in seconds from now; others are left out."""
    began = time.perf_counter()
    poll = select.poll()
    for each in callers:
        poll.register(each.socket, select.POLLRDHUP)
    found: list[float] = []
    while len(found) < len(callers) and (left := within - (time.perf_counter() - began)) > 0:
        for descriptor, _ in poll.poll(left * 1000):
            poll.unregister(descriptor)
            found.append(time.perf_counter() - began)
    return found


def until_dropped(port: int, callers: Sequence[RawCaller], within: float) -> list[float]:
    """When the server's end of each connection was gone, in seconds from now; others are left out.

    This is not what the clients see: their kernels ignore a reset outside of a full window, and they would wait for ever.
    """
    began = time.perf_counter()
    waiting = {each.socket.getsockname()[1] for each in callers}
    found: list[float] = []
    while waiting and (now := time.perf_counter() - began) < within:
        gone = waiting - _established(port)
        found += [now] * len(gone)
        waiting -= gone
        time.sleep(0.05)
    return found


def _established(port: int) -> set[int]:
    """The peers of the connections to a local port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    ports = ((int(here[-4:], 16), int(there[-4:], 16)) for _, here, there, state, *_ in lines if state == "01")
    return {there for here, there in ports if here == port}
