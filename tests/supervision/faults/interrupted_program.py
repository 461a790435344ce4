"""A program to interrupt: `python interrupted_program.py <runner> <moment>`.

It prints `ready` at that moment, and then everything that happens to it.

"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import greenroom.supervision as sup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BLOCKED = 0.3  # seconds for which the loop is blocked where a test waits for that to end


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - it is what the tests read


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


class Worker(sup.GenServer):
    """Prints what it observes, and how it ends."""

    traps_exit = True

    def __init__(self, moment: str = "") -> None:
        self.moment = moment

    async def init(self) -> None:
        try:
            if self.moment == "init":
                say("ready")
                await forever()
            if self.moment == "blocked init":
                self.block(BLOCKED)
        except BaseException as error:
            say("init saw", type(error).__name__)
            raise

    def block(self, seconds: float) -> None:
        try:
            say("ready")
            time.sleep(seconds)
        except BaseException as error:
            say("handler saw", type(error).__name__)
            raise
        say("slept well")

    def compute(self) -> None:
        say("ready")
        until = time.monotonic() + BLOCKED
        total = 0
        try:
            while time.monotonic() < until:
                total += 1
        except BaseException as error:
            say("handler saw", type(error).__name__)
            raise
        say("computed well")

    async def wait(self) -> None:
        say("ready")
        try:
            await forever()
        except BaseException as error:
            say("handler saw", type(error).__name__)
            raise

    async def terminate(self, reason: sup.ExitReason) -> None:
        if self.moment == "stop":
            say("ready")
            await asyncio.sleep(BLOCKED)
        if self.moment == "endless stop":
            say("ready")
            await forever()
        say("stopped:", reason)


class Quick(Worker):
    """The same, stopped by any exit signal."""

    traps_exit = False


async def moment_of(moment: str) -> None:
    """Reach that moment, and stay."""
    await sup.start(Worker)
    match moment:
        case "idle":
            say("ready")
        case "busy":
            (await sup.start(Quick)).cast(Worker.wait)
        case "computing":
            (await sup.start(Worker)).cast(Worker.compute)
        case "blocked":
            (await sup.start(Worker)).cast(Worker.block, BLOCKED)
        case "blocked for long":
            (await sup.start(Worker)).cast(Worker.block, 60)
        case "init" | "blocked init":
            await sup.start(Worker, moment)
            say("started")
        case "stop" | "endless stop":
            await sup.start(Worker, moment)
            return
        case _:
            raise ValueError(moment)
    await forever()


def main(runner: str, moment: str) -> None:
    """Run with that runner."""
    # A shell starts background jobs with SIGINT ignored, and the node respects that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def inside() -> None:
        async with sup.Node(watchdog=None, stop_grace=60.0):
            await moment_of(moment)

    runners: dict[str, Callable[[], Any]] = {
        "greenroom": lambda: sup.run(lambda: moment_of(moment), watchdog=None, stop_grace=60.0),
        "asyncio": lambda: asyncio.run(inside()),
        "loop": lambda: by_hand(inside),
        "uvloop": lambda: with_uvloop(inside),
    }
    try:
        runners[runner]()
    except BaseException as error:
        say("main saw", type(error).__name__)
        raise
    say("main went on")


def by_hand(inside: Callable[[], Awaitable[None]]) -> None:
    """Run without `asyncio.run`, which handles SIGINT in its own way."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(inside())
    finally:
        loop.close()


def with_uvloop(inside: Callable[[], Any]) -> None:
    """Run on uvloop."""
    import uvloop  # noqa: PLC0415 - an extra

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(inside())


if __name__ == "__main__":
    main(*sys.argv[1:])
