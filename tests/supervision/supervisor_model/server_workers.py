"""The workers of a plan on the real engine: the behaviour common to all kinds, and those that are servers.

They do what the plan says and log what happens to them; nothing here knows what is expected.

"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.supervision import (
    IGNORE,
    NORMAL,
    SHUTDOWN,
    Continue,
    ExitReason,
    GenServer,
    Pid,
    Quit,
    Shutdown,
    Stop,
    later,
    link,
    stopping,
    unlink,
)
from greenroom.supervision.kernel.process_lookup import current_process

from .example_plan import SETTLING, TERMINATE_GRACE, Worker, blueprint, exact
from .run_log import Book, Boom

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from greenroom.supervision.kernel.process import Process


class Habits:
    """The habits of a blueprint, for every kind of worker."""

    terminate_grace: ClassVar[float | None] = TERMINATE_GRACE

    def __init__(self, book: Book, role: str) -> None:
        """Enter the stage."""
        self.own_process = current_process("play a role")
        self.book = book
        self.role = role
        plan = blueprint(book.plan.tree, role)
        assert isinstance(plan, Worker)
        self.plan = plan
        self.number = book.born(self.own_process, role)

    def init(self) -> Any:
        """Succeed, or fail as this start of it should."""
        failure = self.plan.failures.get(self.number)
        if self.book.overrun:
            failure = "hang"
        if self.plan.init or failure == "hang":
            return self._slow_init(failure)
        return self._begin_well(failure)

    async def _slow_init(self, failure: str | None) -> Any:
        await self.pause(None if failure == "hang" else exact(self.plan.init, self.role, "init"))
        return self._begin_well(failure)

    def _begin_well(self, failure: str | None) -> Any:
        match failure:
            case "raise":
                raise Boom("init")
            case "exit":
                raise SystemExit("init")
            case "stop":
                return Stop(Shutdown("init"))
            case "ignore":
                return IGNORE
            case _:
                self.book.ready(self.own_process)
                self.book.enlist(self.own_process)
                return self.first(settling(self.book, self.own_process))

    def first(self, seconds: float) -> Any:
        """Rest for so long, if at all, before turning to any message: as `init` says it."""
        raise NotImplementedError

    async def rest(self, seconds: float) -> None:
        """Nothing for a while."""
        await self.book.wake(self.book.node.loop.time() + seconds)

    def terminate(self, reason: ExitReason) -> Awaitable[None] | None:
        """Take as long as it takes, and perhaps fail."""
        if self.plan.terminate:
            return self._slow_terminate()
        if self.plan.terminate_raises:
            raise Boom("terminate")
        return None

    async def _slow_terminate(self) -> None:
        await self.pause(exact(self.plan.terminate, self.role, "terminate"))
        if self.plan.terminate_raises:
            raise Boom("terminate")

    async def pause(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + seconds
        while not self.book.over and (until is None or loop.time() < until):
            try:
                await self.book.wake(until)
            except asyncio.CancelledError:
                if not self.plan.stubborn:
                    raise

    def suffer(self, kind: str, after: float, other: Pid | None) -> Any:
        """Do it to itself."""
        match kind:
            case "raise":
                raise Boom("raise")
            case "exit":
                raise SystemExit("exit")
            case "interrupt":
                raise KeyboardInterrupt("interrupt")
            case "cancel":
                raise asyncio.CancelledError("cancel")
            case "group":
                raise BaseExceptionGroup("group", [SystemExit("exit")])
            case "task_exit":
                self.task = asyncio.get_running_loop().create_task(self._fall_over(after))
            case "straggle":
                return self._leave_behind()
            case "link":
                link(other)
            case "quit_normal":
                raise Quit(NORMAL)
            case "quit_shutdown":
                return Stop(SHUTDOWN)
            case "unlink":
                assert self.own_process.parent is not None
                unlink(self.own_process.parent.pid)
            case "hang":
                return self.pause(None)
            case _:
                raise AssertionError(kind)
        return None

    async def _leave_behind(self) -> None:
        begun = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._straggle(begun))
        await begun.wait()

    async def _straggle(self, begun: asyncio.Event) -> None:
        begun.set()
        while not self.book.over:
            with suppress(asyncio.CancelledError):
                await self.book.wake(None)

    async def _fall_over(self, after: float) -> None:
        await asyncio.sleep(after)
        raise SystemExit("exit")


class Player(Habits, GenServer):
    """A worker that is a server."""

    def first(self, seconds: float) -> Any:
        """Go on in `handle_continue`."""
        return Continue(seconds) if seconds else None

    async def handle_continue(self, token: float) -> None:
        """Rest."""
        await self.rest(token)

    def handle_info(self, message: Any) -> None:
        """Exit signals of strangers are nothing to it."""

    # --- calls

    def echo(self, token: str, seconds: float) -> str:
        """Answer at once."""
        return token

    async def work(self, token: str, seconds: float) -> str:
        """Answer after a while, doing nothing else meanwhile."""
        await self.pause(seconds)
        return token

    def later(self, token: str, seconds: float) -> str:
        """Answer after a while, doing other things meanwhile."""
        if not seconds:
            return token
        self.book.node.loop.call_later(seconds, self.caller.reply, token)
        return later()  # type: ignore[no-any-return]

    def never(self, token: str, seconds: float) -> str:
        """Never answer."""
        return later()  # type: ignore[no-any-return]

    def crash(self, token: str, seconds: float) -> str:
        """Crash instead."""
        raise Boom("call")

    def farewell(self, token: str, seconds: float) -> str:
        """Answer, and stop."""
        return stopping(token, NORMAL)

    def trouble(self, kind: str, after: float, other: Pid | None) -> Any:
        """Do it to itself."""
        return self.suffer(kind, after, other)


class TrappingPlayer(Player):
    """One that is told when it has to stop."""

    traps_exit: ClassVar[bool] = True


def settling(book: Book, process: Process) -> float:
    """How long to rest before turning to what came during a long init; not at all if nothing did."""
    return exact(SETTLING, book.name(process.pid), "settle") if process.mailbox else 0.0
