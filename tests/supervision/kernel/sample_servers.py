"""Sample servers for the kernel tests, and helpers that observe a node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from greenroom.supervision import SHUTDOWN, GenServer, Node, Report, exit, monitor
from greenroom.supervision.behaviours.refs import process_of
from greenroom.supervision.kernel.process import DOZING
from greenroom.supervision.testing import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import Ref


class Log(GenServer):
    """Records the messages it gets, and can be kept busy."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def handle_info(self, message: Any) -> None:
        self.seen.append(message)

    def handle_cast(self, request: Any) -> None:
        self.seen.append(request)

    def note(self, what: Any) -> None:
        self.seen.append(what)

    async def note_slowly(self, what: Any) -> None:
        await asyncio.sleep(0)
        self.seen.append(what)

    def read(self) -> list[Any]:
        return list(self.seen)

    async def wait(self, gate: asyncio.Event) -> None:
        await gate.wait()

    def do(self, function: Callable[[], Any]) -> Any:
        return function()

    async def do_async(self, function: Callable[[], Any]) -> Any:
        return await function()

    def watch(self, who: Any) -> None:
        monitor(who)


class Trapping(Log):
    """The same, trapping exits from the start."""

    traps_exit = True


async def forever() -> None:
    """Wait for ever."""
    await asyncio.get_running_loop().create_future()


def shut_down(who: object) -> None:
    """Send a shutdown signal."""
    exit(who, SHUTDOWN)


def alone(main: Any) -> Any:
    """Run on virtual time in a loop that has no node yet."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def quiet(name: str = "node", **options: Any) -> Node:
    return Node(name, watchdog=None, **options)


async def turns(count: int = 20) -> None:
    """Let the loop turn until all ready callbacks are done."""
    for _ in range(count):
        await asyncio.sleep(0)


async def seen_by(ref: Ref[Any]) -> list[Any]:
    """The records of a log once it is idle, without sending it a message."""
    process = process_of(ref)
    assert process is not None
    for _ in range(1000):
        if process.activity <= DOZING:
            break
        await asyncio.sleep(0)
    assert process.activity <= DOZING, f"{process} is still at it"
    server = process.behaviour
    assert isinstance(server, Log)
    return server.seen


def reports_of(node: Node, kind: type[Report] = Report) -> list[Any]:
    """A list of all reports of that kind from now on."""
    found: list[Any] = []
    node.reports.subscribe(lambda report: found.append(report) if isinstance(report, kind) else None)
    return found
