"""A counter server whose methods answer in every possible way."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, NoReturn

from greenroom.supervision import (
    NORMAL,
    Caller,
    Continue,
    GenServer,
    NoReply,
    Reject,
    Reply,
    Stop,
    later,
    replying,
    stopping,
)


class Counter(GenServer):
    """A counter whose methods answer in every possible way."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.kept: list[Caller[int]] = []

    def add(self, number: int, *, times: int = 1) -> int:
        self.count += number * times
        return self.count

    async def add_slowly(self, number: int) -> int:
        await asyncio.sleep(0.01)
        return self.add(number)

    def keep(self) -> int:
        self.kept.append(self.caller)
        answer: int = later()
        return answer

    async def keep_slowly(self) -> int:
        await asyncio.sleep(0)
        return self.keep()

    def release(self, number: int) -> list[bool]:
        return [caller.reply(number) for caller in self.kept]

    def divide(self, by: int) -> float:
        if by == 0:
            raise Reject(ZeroDivisionError("not by 0"))
        return self.count / by

    async def divide_slowly(self, by: int) -> float:
        await asyncio.sleep(0)
        return self.divide(by)

    def last(self) -> int:
        return stopping(self.count)

    def go_on(self) -> int:
        return replying(self.count, then=Continue("add"))

    def handle_continue(self, token: object) -> None:
        self.count += 100

    def reply_early(self) -> int:
        self.caller.reply(-1)
        return 1

    def reply_and_break(self) -> int:
        self.caller.reply(-1)
        raise ValueError("after the answer")

    def broken_type(self) -> None:
        _ = 1 + "2"  # type: ignore[operator]

    def broken_call(self) -> NoReturn:
        self.add()  # type: ignore[call-arg]
        raise AssertionError

    def nothing(self) -> None: ...

    @functools.lru_cache  # noqa: B019 - a method that is no plain function
    def cached(self, number: int) -> int:
        return number

    def handle_call(self, request: Any, caller: Caller[Any]) -> Reply | NoReply | Stop:
        match request:
            case "stop":
                return Stop(NORMAL, "stopped")
            case "later":
                asyncio.get_running_loop().call_later(1.0, caller.reply, "late")
                return NoReply()
            case Exception():
                raise Reject(request)
            case _:
                return Reply(request)


class Twice(Counter):
    """Overrides methods that callers name by the base class."""

    def add(self, number: int, *, times: int = 1) -> int:
        return super().add(number, times=2 * times)
