"""The other side of the property: processes of the real engine that play the roles of a plan.

They do what the plan says of them and enter into the `Book` what happens to them; nothing here knows what is expected.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.supervision import (
    IGNORE,
    NORMAL,
    SHUTDOWN,
    Backoff,
    ChildSpec,
    Continue,
    DynamicSupervisor,
    ExitReason,
    GenServer,
    Pid,
    Quit,
    Shutdown,
    Stop,
    Supervisor,
    child,
    later,
    link,
    stopping,
    template,
    unlink,
)

from .book import Book, Boom
from .plan import QUIET, SETTLING, TERMINATE_GRACE, Team, Worker, backoff, blueprint, exact, is_named, patience

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Player(GenServer):
    """A worker with the habits of its blueprint."""

    terminate_grace: ClassVar[float | None] = TERMINATE_GRACE

    def __init__(self, book: Book, role: str) -> None:
        """Enter the stage."""
        self.book = book
        self.role = role
        plan = blueprint(book.plan.tree, role)
        assert isinstance(plan, Worker)
        self.plan = plan
        self.number = book.born(self._otp_process, role)

    def init(self) -> Any:
        """Succeed, or fail as this start of it should."""
        failure = self.plan.failures.get(self.number)
        if self.book.overrun:
            failure = "hang"
        if self.plan.init or failure == "hang":
            return self._slow_init(failure)
        return self._begin_well(failure)

    async def _slow_init(self, failure: str | None) -> Any:
        await self._pause(None if failure == "hang" else exact(self.plan.init, self.role, "init"))
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
                self.book.ready(self._otp_process)
                return settle(self)

    async def handle_continue(self, token: float) -> None:
        """Rest."""
        await self.book.wake(self.book.node.loop.time() + token)

    def terminate(self, reason: ExitReason) -> Awaitable[None] | None:
        """Take as long as it takes, and perhaps fail."""
        if self.plan.terminate:
            return self._slow_terminate()
        if self.plan.terminate_raises:
            raise Boom("terminate")
        return None

    async def _slow_terminate(self) -> None:
        await self._pause(exact(self.plan.terminate, self.role, "terminate"))
        if self.plan.terminate_raises:
            raise Boom("terminate")

    def handle_info(self, message: Any) -> None:
        """Exit signals of strangers are nothing to it."""

    async def _pause(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + seconds
        while not self.book.over and (until is None or loop.time() < until):
            try:
                await self.book.wake(until)
            except asyncio.CancelledError:
                if not self.plan.stubborn:
                    raise

    # --- calls

    def echo(self, token: str, seconds: float) -> str:
        """Answer at once."""
        return token

    async def work(self, token: str, seconds: float) -> str:
        """Answer after a while, doing nothing else meanwhile."""
        await self._pause(seconds)
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

    # --- troubles

    def trouble(self, kind: str, after: float, other: Pid | None) -> Any:
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
                assert self._otp_process.parent is not None
                unlink(self._otp_process.parent.pid)
            case "hang":
                return self._pause(None)
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


class TrappingPlayer(Player):
    """A worker that is told when it has to stop."""

    traps_exit: ClassVar[bool] = True


class Troupe(Supervisor):
    """A supervisor of the plan."""

    def __init__(self, book: Book, role: str) -> None:
        """Enter the stage."""
        self.book = book
        book.born(self._otp_process, role)
        plan = blueprint(book.plan.tree, role)
        assert isinstance(plan, Team)
        assert plan.strategy != "dynamic"
        super().__init__(
            [spec(book, f"{role}.{index}", index) for index in range(len(plan.children))],
            strategy=plan.strategy,
            intensity=plan.intensity,
            period=plan.period,
            auto_shutdown=plan.auto_shutdown,
            backoff=waiting(role, plan),
        )

    async def init(self) -> Any:
        """Start the children."""
        outcome = await super().init()
        if outcome is None:
            self.book.ready(self._otp_process)
            return settle(self)
        return outcome

    async def handle_continue(self, token: float) -> None:
        """Rest."""
        await self.book.wake(self.book.node.loop.time() + token)


class Agency(DynamicSupervisor):
    """A dynamic supervisor of the plan."""

    def __init__(self, book: Book, role: str) -> None:
        """Enter the stage."""
        self.book = book
        book.born(self._otp_process, role)
        plan = blueprint(book.plan.tree, role)
        assert isinstance(plan, Team)
        pattern = template(server(book, f"{role}.0"), book) if plan.template else None
        super().__init__(
            None if pattern is None else as_planned(pattern, book, f"{role}.0"),
            intensity=plan.intensity,
            period=plan.period,
            backoff=waiting(role, plan),
        )

    def init(self) -> Any:
        """Nobody is there yet."""
        self.book.ready(self._otp_process)
        return super().init()


def settle(who: Player | Troupe) -> Continue | None:
    """Rest, before turning to what came during a long init."""
    process = who._otp_process
    return Continue(exact(SETTLING, who.book.name(process.pid), "settle")) if process.mailbox else None


def waiting(role: str, plan: Team) -> Backoff | None:
    """How long its restarts wait; no two waits are ever the same by chance here, so they need no jitter."""
    if not plan.backoff:
        return None
    first, longest = backoff(role, plan.backoff)
    return Backoff(first=first, longest=longest, jitter=0.0, quiet=QUIET)


def server(book: Book, role: str) -> Any:
    """The class that plays that role."""
    plan = blueprint(book.plan.tree, role)
    if isinstance(plan, Team):
        return Agency if plan.strategy == "dynamic" else Troupe
    return TrappingPlayer if plan.traps else Player


def spec(book: Book, role: str, index: int) -> ChildSpec[Any]:
    """The child spec of that role."""
    made = as_planned(child(server(book, role), book, role), book, role).but(id=index)
    return made.but(name=role) if is_named(book.plan.tree, role) else made


def as_planned(made: ChildSpec[Any], book: Book, role: str) -> ChildSpec[Any]:
    """With what the blueprint of that role says."""
    plan = blueprint(book.plan.tree, role)
    return made.but(restart=plan.restart, significant=plan.significant, shutdown=patience(book.plan.tree, role))
