"""Servers that fail in every way, and a neighbour that must not be affected."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from greenroom.supervision import ActorError, CrashReport, GenServer, Leaked, Unexpected, stop
from greenroom.supervision.behaviours.refs import process_of
from greenroom.supervision.kernel.process import DOZING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from greenroom.supervision import Node, Ref, Report

Making: TypeAlias = "Callable[[], BaseException]"


class Odd(BaseException):
    """An exception that Python does not know."""


ERRORS: list[Making] = [
    lambda: SystemExit(3),
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    lambda: ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
    lambda: BaseExceptionGroup("worse", [SystemExit(4), KeyboardInterrupt()]),
    StopIteration,
    StopAsyncIteration,
    lambda: ValueError("a plain one"),
    lambda: RecursionError("deep"),
    MemoryError,
    Odd,
]
NAMES = [type(make()).__name__ for make in ERRORS]


class Calm(GenServer):
    """A counter without relations to other processes."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    async def add_slowly(self) -> int:
        await asyncio.sleep(0.01)
        return self.add()


class Breaks(GenServer):
    """Raises on demand, in each kind of callback."""

    def do(self, function: Callable[[], Any]) -> Any:
        return function()

    async def do_async(self, function: Callable[[], Any]) -> Any:
        return await function()

    def handle_call(self, request: Any, caller: Any) -> Any:
        return request()

    def handle_cast(self, request: Any) -> Any:
        return request()

    def handle_info(self, message: Any) -> Any:
        return message() if callable(message) else None

    def handle_continue(self, token: Any) -> Any:
        return token()


def raises(error: BaseException) -> Callable[[], Any]:
    """A function that raises `error`."""

    def function() -> Any:
        raise error

    return function


def raises_later(error: BaseException, turns: int = 1) -> Callable[[], Any]:
    """An async function that raises `error` after some loop iterations."""

    async def function() -> Any:
        for _ in range(turns):
            await asyncio.sleep(0)
        raise error

    return function


async def forever() -> None:
    """Wait for ever."""
    await asyncio.get_running_loop().create_future()


async def turns(count: int = 20) -> None:
    """Run the loop until everything that is ready is done."""
    for _ in range(count):
        await asyncio.sleep(0)


async def quiet(ref: Ref[Any]) -> None:
    """Wait until a process is idle, without sending it a message."""
    process = process_of(ref)
    for _ in range(1000):
        if process is None or process.activity <= DOZING or process.life:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{process} is still at it")


class Witness:
    """Collect all reports of a node."""

    def __init__(self, node: Node) -> None:
        self.reports: list[Report] = []
        node.reports.subscribe(self.reports.append)

    def crashes(self) -> list[CrashReport]:
        return [report for report in self.reports if isinstance(report, CrashReport)]

    def leaks(self) -> list[Leaked]:
        return [report for report in self.reports if isinstance(report, Leaked)]

    def unexpected(self) -> list[Unexpected]:
        return [report for report in self.reports if isinstance(report, Unexpected)]


def flat(error: BaseException) -> Iterator[BaseException]:
    """An exception with the members of its groups and all its causes."""
    yield error
    several: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    for each in several:
        yield from flat(each)
    if error.__cause__ is not None:
        yield from flat(error.__cause__)


async def stop_quietly(ref: Ref[Any]) -> None:
    """Stop a process, if it stops within a second."""
    with suppress(ActorError):
        await stop(ref, timeout=1.0)
