"""Requests without a session (revision 2026-07-28) by layers, as `serving.layers` has them with one, and calls that are parked.

A parked call has asked its user something, and waits for the request that brings the answer. What it holds meanwhile is counted in parts: its process, the frames of the
coroutines from the process to the question (most of them the handler's way, as in a session), the request's own values, and the bookkeeping, which is the rest.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from contextlib import asynccontextmanager
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from greenroom import Context, Server, Settings
from greenroom.protocol.jsonrpc import JsonRpcRequest, parse
from greenroom.supervision import TaskSupervisor, current_node
from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http_engine import HttpEngine
from greenroom.transports.interfaces import EncodedReply, Peer

from .benchmark_types import Run, benchmark
from .serving import layers
from .serving.sessions import FIRST, SESSIONLESS_VERSION, enveloped

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from greenroom.actors.company import Company
    from greenroom.supervision import ExitReason, Pid

MORE: Final = 1.25
"""How much more processor time a request may take than in a session."""
BOOKKEEPING: Final = 3 * 1024
"""Bytes that a parked call may take beside its process, its coroutines and its request."""
AT_A_TIME: Final = 200
PEER: Final = Peer("http", "127.0.0.1:50000")
PARAMS: Final[dict[str, Any]] = {"name": "book", "arguments": {"day": "monday"}}


def call(number: int) -> bytes:
    """The body of a call."""
    return enveloped(FIRST + number, "tools/call", {"name": "echo", "arguments": {"text": layers.TEXT}})


def headers(method: str, name: str, body: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of a request in ASGI's form."""
    return [
        (b"host", b"127.0.0.1:9090"),
        (b"accept", b"application/json, text/event-stream"),
        (b"mcp-protocol-version", SESSIONLESS_VERSION.encode()),
        (b"mcp-method", method.encode()),
        (b"mcp-name", name.encode()),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]


@asynccontextmanager
async def serving(**settings: Any) -> AsyncGenerator[Company]:
    """A running company with a tool that echoes, and one that asks."""
    server = Server("echo", settings=Settings(**settings))

    @server.tool
    async def echo(text: str) -> str:  # pyright: ignore[reportUnusedFunction] - called over the wire
        return text

    @server.tool
    async def book(ctx: Context, day: str) -> str:  # pyright: ignore[reportUnusedFunction] - same
        return f"{day} {(await ctx.elicit('Who?', str, key='who')).action}"

    async with server.started() as company:
        yield company


async def exchanged(company: Company, bodies: Sequence[bytes]) -> list[bytes]:
    """The replies to requests, one after another."""
    replies: list[bytes] = []
    for body in bodies:
        request = parse(body)
        assert isinstance(request, JsonRpcRequest)
        reply = await company.exchange(PEER, request)
        assert isinstance(reply, EncodedReply)
        replies.append(reply.body)
    return replies


@benchmark("modern: exchange, worker", count=5_000, floor=layers.through_the_door, target=MORE)
async def through_an_exchange(run: Run) -> None:
    """A parsed call becomes an exchange, a process starts, runs the echo, and encodes the answer."""
    async with serving() as company:
        messages = [parse(call(number)) for number in range(run.count)]
        with run.measured():
            for message in messages:
                assert isinstance(message, JsonRpcRequest)
                assert isinstance(await company.exchange(PEER, message), EncodedReply)


@benchmark("modern: + engine", count=5_000, floor=layers.through_the_engine, target=MORE)
async def through_the_engine(run: Run) -> None:
    """The same with the HTTP engine's checks of the headers, the parsing and the reply."""
    async with serving() as company:
        engine = HttpEngine(company)
        bodies = [call(number) for number in range(run.count)]
        with run.measured():
            for body in bodies:
                sink = layers.Sink()
                named = headers("tools/call", "echo", body)
                await engine.handle("POST", "/mcp", named, body, sink, address="127.0.0.1:50000")
                assert sink.status == 200  # noqa: PLR2004 - HTTP's own


@benchmark("modern: + ASGI", count=5_000, floor=layers.through_asgi, target=MORE)
async def through_asgi(run: Run) -> None:
    """The same with the ASGI application: a whole call except for the HTTP server."""
    async with serving() as company:
        endpoint = AsgiEndpoint(HttpEngine(company))
        bodies = [call(number) for number in range(run.count)]
        with run.measured():
            for body in bodies:
                await layers.deliver(endpoint, headers("tools/call", "echo", body), body)


@benchmark("modern: discover", count=5_000)
async def discover(run: Run) -> None:
    """A `server/discover`, parsed and answered without a process."""
    async with serving() as company:
        bodies = [enveloped(FIRST + number, "server/discover", {}) for number in range(run.count)]
        with run.measured():
            await exchanged(company, bodies)


@benchmark("modern: tools/list", count=5_000)
async def list_tools(run: Run) -> None:
    """A `tools/list`, parsed and answered without a process."""
    async with serving() as company:
        bodies = [enveloped(FIRST + number, "tools/list", {}) for number in range(run.count)]
        with run.measured():
            await exchanged(company, bodies)


class _Owner:
    """The owner of an idle job."""

    def started(self, worker: Pid) -> None:
        """Nothing is noted."""

    def on_exit(self, reason: ExitReason) -> None:
        """Nothing is noted."""


class Footprint:
    """The traced bytes of many things, and the parts of one parked call."""

    def __init__(self, company: Company, count: int) -> None:
        self.company = company
        self.count = count

    async def park(self, count: int) -> None:
        """Have so many calls ask, and wait until all are parked."""
        parked = self.company.exchanges.parked
        for first in range(0, count, AT_A_TIME):
            numbers = range(first, min(first + AT_A_TIME, count))
            bodies = [enveloped(FIRST + number, "tools/call", PARAMS) for number in numbers]
            await asyncio.gather(*(exchanged(self.company, [body]) for body in bodies))
        assert self.company.exchanges.parked == parked + count

    async def forget(self) -> None:
        """Wait until no call is parked any more, nor its process there."""
        while self.company.exchanges.parked or len(current_node().processes) > AT_A_TIME:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.1)

    @staticmethod
    def traced() -> int:
        """All traced bytes that are in use."""
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    def request(self) -> float:
        """The bytes of a parsed request."""
        body = enveloped(FIRST, "tools/call", PARAMS)
        before = self.traced()
        kept = [parse(body) for _ in range(self.count)]
        return (self.traced() - before) / len(kept)

    async def process(self) -> float:
        """The bytes of a process that waits, without its own coroutine and what it waits for."""
        waiting: list[asyncio.Future[None]] = []

        async def wait() -> None:
            waiting.append(asyncio.get_running_loop().create_future())
            await waiting[-1]

        supervisor, owner = self.company.exchanges.supervisor, _Owner()
        before = self.traced()
        for number in range(self.count):
            supervisor.now(TaskSupervisor.begin_job, wait, (), (), "temporary", owner)
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
        while len(waiting) < self.count:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        found = (self.traced() - before) / self.count
        frame = wait()
        own = sys.getsizeof(frame) + sys.getsizeof(waiting[0]) + sys.getsizeof(waiting) / self.count
        frame.close()
        for each in waiting:
            each.set_result(None)
        await self.forget()
        return found - own


def _frames(count: int) -> float:
    """The bytes of the coroutines of each parked call, from its process to its question; not those of the worker's task."""
    task = ("WorkerTasks._work", "WorkerTasks._finish")
    every: list[CoroutineType[Any, Any, Any]] = [
        each for each in gc.get_objects() if type(each) is CoroutineType and each.__qualname__ not in task
    ]
    return sum(map(sys.getsizeof, every)) / count


@benchmark("modern: bookkeeping of a parked call", count=10_000, unit="bytes", target=BOOKKEEPING, repeats=1)
async def parked(run: Run) -> None:
    """The traced bytes of a call that waits for an answer, without its process, its coroutines and its request. Asides: these, all bytes, and what is left of each when its time is over."""
    most, timeout = max(run.count, AT_A_TIME), 1 + run.count / 400  # longer than it takes to park them all
    limits = {"max_parked": most, "max_parked_per_principal": most, "parked_timeout": timeout, "cancel_grace": 0.0}
    async with serving(**limits) as company:
        footprint = Footprint(company, run.count)
        tracemalloc.start()
        try:
            await footprint.park(AT_A_TIME)  # one-time costs
            await footprint.forget()
            request, process = footprint.request(), await footprint.process()
            before, begun = footprint.traced(), current_node().now()
            await footprint.park(run.count)
            whole, frames = (footprint.traced() - before) / run.count, _frames(run.count)
            assert current_node().now() - begun < timeout, "the first ones were over before the last had begun"
            await footprint.forget()
            left = (footprint.traced() - before) / run.count
        finally:
            tracemalloc.stop()
    run.record(whole - frames - process - request)
    run.asides.update(whole=whole, process=process, coroutines=frames, request=request, left=left)


@benchmark("modern: park a call and resume it", count=2_000)
async def park_and_resume(run: Run) -> None:
    """A call asks, is parked, and ends with the request that brings the answer: both requests, parsed."""
    async with serving() as company:
        answer = {"who": {"action": "accept", "content": {"value": "Ada"}}}
        with run.measured():
            for number in range(run.count):
                (asked,) = await exchanged(company, [enveloped(FIRST + number, "tools/call", PARAMS)])
                state = asked.partition(b'"requestState":"')[2].partition(b'"')[0].decode()
                retry = {**PARAMS, "inputResponses": answer, "requestState": state}
                (ended,) = await exchanged(company, [enveloped(FIRST + number, "tools/call", retry)])
                assert b"monday accept" in ended
