"""Two nodes with a link between them: one in the test's own loop, the other in a thread, as separate as another program's."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from greenroom.supervision import GenServer, Reply, current_node, later, start, stop
from greenroom.supervision.background_node import BackgroundNode
from greenroom.supervision.cluster.peers import Peering, Peers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from greenroom.supervision import Ref

P = ParamSpec("P")
R = TypeVar("R")

KEY = b"0123456789abcdef" * 2
PATIENCE = 10.0


class Counter(GenServer):
    """A server with everything that the tests ask of one."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.heard: list[Any] = []
        self.owed: Callable[[], object] = list

    def add(self, by: int = 1) -> int:
        """Count."""
        self.count += by
        return self.count

    async def add_later(self, by: int = 1) -> int:
        """Count, in a task."""
        await asyncio.sleep(0)
        return self.add(by)

    async def add_when_told(self) -> int:
        """Count once `go` has come; other calls are answered in between."""
        caller = self.caller
        self.owed = lambda: caller.reply(self.add())
        return later()  # type: ignore[no-any-return]  # stands for the number that comes later

    def go(self) -> None:
        """Now."""
        self.owed()

    def echo(self, value: Any) -> Any:
        """The arguments of its start."""
        return value

    def all_heard(self) -> list[Any]:
        """The messages that it got."""
        return self.heard

    def fail(self, error: BaseException) -> None:
        """Crash."""
        raise error

    async def hold(self) -> None:
        """Never reply."""
        await asyncio.Event().wait()

    def handle_call(self, request: Any, caller: Any) -> Any:
        """Reply with the caller and the request."""
        return Reply(("asked", request, caller.pid))

    def handle_cast(self, request: Any) -> None:
        """Record the request."""
        self.heard.append(("told", request))

    def handle_info(self, message: Any) -> None:
        """Record the message."""
        self.heard.append(message)


class Trapper(Counter):
    """A process that survives the processes it is linked to."""

    traps_exit: ClassVar[bool] = True


class Far:
    """A node in a thread."""

    def __init__(self, name: str, key: bytes = KEY, *, peers: type[Peers] = Peers, **options: Any) -> None:
        self.background = BackgroundNode(name=name, handle_sigint=False, log=False)
        self.peers = peers(self.background.node, key, **options)
        self.name = name
        self.peering: Ref[Peering]

    async def do(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run something on its thread, outside of any process."""
        call = contextvars.Context().run(
            asyncio.run_coroutine_threadsafe, function(*args, **kwargs), self.background.node.loop
        )
        async with asyncio.timeout(PATIENCE):
            return await asyncio.wrap_future(call)

    async def start(self, server: Callable[..., Any], *args: Any) -> Ref[Any]:
        """Start something in it."""
        return await self.do(start, server, *args)

    def freeze(self) -> threading.Event:
        """Block its loop until the event is set."""
        gate, frozen = threading.Event(), threading.Event()

        def wait() -> None:
            frozen.set()
            gate.wait(PATIENCE)

        self.background.node.loop.call_soon_threadsafe(wait)
        assert frozen.wait(PATIENCE)
        return gate


@asynccontextmanager
async def other_node(name: str = "two", key: bytes = KEY, **options: Any) -> AsyncGenerator[Far]:
    """A node in a thread, with peers that are open."""
    made = Far(name, key, **options)
    with made.background:
        made.peering = await made.start(Peering, made.peers)
        try:
            yield made
        finally:
            await made.do(_stopped, made.peering)


@asynccontextmanager
async def here(key: bytes = KEY, **options: Any) -> AsyncGenerator[Peers]:
    """The test's own node, with peers that are open."""
    peers = Peers(current_node(), key, **options)
    peering = await start(Peering, peers)
    try:
        yield peers
    finally:
        await _stopped(peering)


async def _stopped(peering: Ref[Peering]) -> None:
    if current_node().process(peering.pid) is not None:
        await stop(peering)


@asynccontextmanager
async def pair(**options: Any) -> AsyncGenerator[tuple[Peers, Far]]:
    """Both nodes, connected."""
    async with here(**options) as peers, other_node(**options) as two:
        await peers.connect(two.peers.addresses)
        await two.do(two.peers.wait_for, peers.node.name)
        yield peers, two


async def until(condition: Callable[[], bool]) -> None:
    """Yield to the loop until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for is another thread's
            await asyncio.sleep(0)
