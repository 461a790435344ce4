"""Servers that are called, killed and delayed in the tests of histories and faults."""

from __future__ import annotations

from typing import Any, ClassVar

from greenroom.supervision import Caller, GenServer, later


class Box(GenServer):
    """Stores things."""

    def __init__(self) -> None:
        self.things: list[str] = []
        self.waiting: list[Caller[Any]] = []

    def put(self, thing: str) -> int:
        self.things.append(thing)
        return len(self.things)

    def look(self) -> list[str]:
        return list(self.things)

    def wait(self) -> str:
        self.waiting.append(self.caller)
        return later()  # type: ignore[no-any-return]

    def answer_last_first(self) -> None:
        while self.waiting:
            self.waiting.pop().reply("now")

    def handle_info(self, message: Any) -> None:
        self.things.append(message)


class StubbornBox(Box):
    """Traps exits."""

    traps_exit: ClassVar[bool] = True
