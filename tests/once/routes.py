"""The routes of calls, each disturbed in its own way: over HTTP to two servers behind a load balancer, to workers, to a program, through a gateway."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from greenroom import Client, ClientSettings, Command, GreenroomError
from greenroom.supervision import Backoff

from .balancer import Balancer
from .ledger import DEADLINE, Books, Load

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from greenroom.client import ClientTools

    Shot: TypeAlias = Callable[[], Awaitable[None]]

PROGRAMS: Final = Path(__file__).parent / "programs"
COUNTING: Final = str(PROGRAMS / "counting.py")
FRONT: Final = str(PROGRAMS / "front.py")
SETTINGS: Final = ClientSettings(request_timeout=DEADLINE, backoff=Backoff(first=0.02, longest=0.3))
RATE: Final = 0.12
SESSION: Final = "_session"
CALLERS: Final = 16
_URL: Final = re.compile(rb"serves on http://127\.0\.0\.1:(\d+)/")
_STARTS_WITHIN: Final = 60.0
_ENDS_WITHIN: Final = 30.0
_STOPPED: Final = (0.05, 0.4)
"""The shortest and the longest time for which a process is stopped, in seconds."""


class Seen:
    """The processes that were seen, all of which must have ended at the end."""

    def __init__(self) -> None:
        """No process was seen yet."""
        self._pids: dict[int, str] = {}

    def add(self, pid: int) -> None:
        """Add a process, by its id and its start time: ids are reused."""
        began = _began(pid)
        if began is not None:
            self._pids[pid] = began

    async def left(self) -> list[int]:
        """Wait for the processes to end. Kills and returns those that do not."""
        until = time.monotonic() + _ENDS_WITHIN
        while (left := [pid for pid, began in self._pids.items() if _began(pid) == began]) and time.monotonic() < until:  # noqa: ASYNC110 - no event reports the end of these processes
            await asyncio.sleep(0.05)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left


def _began(pid: int) -> str | None:
    """The start time of a process; None if it has ended (a zombie has)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


class Program:
    """A server program over HTTP, which can be restarted, each time on another port."""

    def __init__(self, seen: Seen, *command: str) -> None:
        """`command` is a Python program and its arguments."""
        self.port = 0
        self._seen = seen
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._log: asyncio.Task[None] | None = None
        self.tail = b""

    @property
    def pid(self) -> int:
        """The id of the process, while it runs."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start the program, and wait until it reports its port."""
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, *self._command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        self._seen.add(process.pid)
        assert process.stderr is not None
        async with asyncio.timeout(_STARTS_WITHIN):
            while (found := _URL.search(line := await process.stderr.readline())) is None:
                self.tail = (self.tail + line)[-2000:]
                if not line:
                    raise RuntimeError(f"{self._command} has ended: {self.tail.decode(errors='replace')}")
        self.port = int(found[1])
        self._log = asyncio.ensure_future(self._read(process.stderr))

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(2**14):
            self.tail = (self.tail + data)[-2000:]

    async def end(self, number: signal.Signals) -> None:
        """End the program with this signal, and with SIGKILL if it does not end in time."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            async with asyncio.timeout(_ENDS_WITHIN):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._log is not None:
            await self._log

    async def again(self) -> None:
        """Kill the program, and start it again."""
        await self.end(signal.SIGKILL)
        await self.start()


class Leg:
    """One route, with its ledger, its load and the faults of its processes."""

    def __init__(self, name: str, folder: Path, seed: int, seen: Seen) -> None:
        """`seed` decides which faults happen, and when."""
        self.name = name
        self.settings = replace(SETTINGS, mode="legacy" if name.endswith(SESSION) else "auto")
        self.seen = seen
        self.books = Books(name, folder / name)
        self.chance = Random(f"{seed}/{name}")
        self.seed = seed
        self.balancers: list[Balancer] = []
        self.shots: Counter[str] = Counter()

    @asynccontextmanager
    async def program(self, *command: str) -> AsyncGenerator[Program]:
        """A program that runs during the block."""
        one = Program(self.seen, *command)
        await one.start()
        try:
            yield one
        finally:
            await one.end(signal.SIGTERM)

    @asynccontextmanager
    async def balancer(self, *programs: Program, rate: float = RATE) -> AsyncGenerator[Balancer]:
        """A load balancer in front of these programs."""
        ports = [each.port for each in programs]
        async with Balancer(self.seed + len(self.balancers), rate, ports) as one:
            self.balancers.append(one)
            yield one

    async def stop(self, pid: int) -> None:
        """Stop a process for a moment."""
        began = _began(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(self.chance.uniform(*_STOPPED))
            finally:
                if _began(pid) == began:
                    os.kill(pid, signal.SIGCONT)

    async def run(
        self, words: ClientTools, tools: Sequence[str], calls: int, shots: dict[str, Shot], each: int
    ) -> None:
        """Make the calls. About every `each` calls, one of the shots is fired, in an order that the seed decides."""
        load = Load(words, tools, self.books, calls, self.chance)
        running = asyncio.ensure_future(load.run(CALLERS))
        try:
            begun = 0
            while True:
                begun += int(each * self.chance.uniform(0.5, 1.5))
                waiting = asyncio.ensure_future(load.until(begun))
                await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if running.done() or load.over:
                    break
                name = self.chance.choice(sorted(shots))
                try:
                    await shots[name]()
                except GreenroomError:  # the server did not answer the call for its process id
                    self.shots[f"{name}: missed"] += 1
                else:
                    self.shots[name] += 1
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def pid_of(self, words: ClientTools, tool: str) -> int:
        """The id of the process that serves a tool."""
        pid: int = int((await words.call_tool(tool, idempotent=True)).text)
        self.seen.add(pid)
        return pid

    def at(self, words: ClientTools, tool: str, number: signal.Signals) -> Shot:
        """A shot: a signal to the process that serves a tool."""

        async def shot() -> None:
            pid = await self.pid_of(words, tool)
            if number is signal.SIGSTOP:
                await self.stop(pid)
            else:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

        return shot


async def web(leg: Leg, calls: int) -> None:
    """Two servers behind a load balancer that fails over."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(leg.program(COUNTING, "one", "1"))
        other = await stack.enter_async_context(leg.program(COUNTING, "other", "1"))
        balancer = await stack.enter_async_context(leg.balancer(one, other))
        client = await stack.enter_async_context(Client(balancer.url, settings=leg.settings, patient=True))

        def kill(which: int, program: Program) -> Shot:
            async def shot() -> None:
                await program.end(signal.SIGKILL)
                await program.start()
                balancer.targets[which] = program.port

            return shot

        async def switch() -> None:
            balancer.active = 1 - balancer.active

        async def stop() -> None:
            await leg.stop((one, other)[balancer.active].pid)

        await leg.run(
            client,
            ["book", "book", "told", "apart"],
            calls,
            {
                "SIGKILL of one server": kill(0, one),
                "SIGKILL of the other": kill(1, other),
                "SIGSTOP of the server": stop,
                "the balancer changes its mind": switch,
                "SIGKILL of an isolated process": leg.at(client, "pid_apart", signal.SIGKILL),
                "SIGSTOP of an isolated process": leg.at(client, "pid_apart", signal.SIGSTOP),
            },
            60,
        )


async def workers(leg: Leg, calls: int) -> None:
    """A server on two workers, behind a load balancer that cuts connections and answers in place of the server."""
    async with AsyncExitStack() as stack:
        program = await stack.enter_async_context(leg.program(COUNTING, "crew", "2"))
        balancer = await stack.enter_async_context(leg.balancer(program))
        client = await stack.enter_async_context(Client(balancer.url, settings=leg.settings, patient=True))

        async def stop() -> None:
            await leg.stop(program.pid)

        await leg.run(
            client,
            ["book", "book", "told", "apart"],
            calls,
            {
                "SIGKILL of a worker": leg.at(client, "pid", signal.SIGKILL),
                "SIGSTOP of a worker": leg.at(client, "pid", signal.SIGSTOP),
                "SIGSTOP of the program": stop,
                "SIGKILL of an isolated process": leg.at(client, "pid_apart", signal.SIGKILL),
            },
            150,
        )


async def stdio(leg: Leg, calls: int) -> None:
    """A program on stdio, started by the client."""
    command = Command(sys.executable, COUNTING)
    async with Client(command, settings=leg.settings, patient=True) as client:
        await leg.pid_of(client, "pid")
        await leg.run(
            client,
            ["book", "book", "told", "apart"],
            calls,
            {
                "SIGKILL of the program": leg.at(client, "pid", signal.SIGKILL),
                "SIGTERM of the program": leg.at(client, "pid", signal.SIGTERM),
                "SIGSTOP of the program": leg.at(client, "pid", signal.SIGSTOP),
                "SIGKILL of an isolated process": leg.at(client, "pid_apart", signal.SIGKILL),
            },
            80,
        )


async def gateway(leg: Leg, calls: int) -> None:
    """A gateway in front of a server over HTTP and a program, with load balancers on both sides of the gateway."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(leg.program(COUNTING, "far", "1"))
        inner = await stack.enter_async_context(leg.balancer(server))
        front = await stack.enter_async_context(leg.program(FRONT, inner.url, sys.executable, COUNTING))
        outer = await stack.enter_async_context(leg.balancer(front))
        client = await stack.enter_async_context(Client(outer.url, settings=leg.settings, patient=True))

        async def kill_front() -> None:
            await front.again()
            outer.targets[0] = front.port

        async def kill_server() -> None:
            await server.again()
            inner.targets[0] = server.port

        async def stop() -> None:
            await leg.stop(front.pid)

        await leg.run(
            client,
            ["far__book", "far__told", "child__book", "child__apart"],
            calls,
            {
                "SIGKILL of the gateway": kill_front,
                "SIGKILL of the server behind it": kill_server,
                "SIGKILL of the program behind it": leg.at(client, "child__pid", signal.SIGKILL),
                "SIGSTOP of the gateway": stop,
                "SIGSTOP of the program behind it": leg.at(client, "child__pid", signal.SIGSTOP),
            },
            100,
        )


_ROUTES: Final = {"http": web, "workers": workers, "stdio": stdio, "gateway": gateway}
LEGS: Final = {**_ROUTES, **{f"{name}{SESSION}": route for name, route in _ROUTES.items()}}
"""Each route in either era: as the client and its server agree, which is 2026-07-28, and in a session."""
