"""A route to a program whose answers kill the process that reads them, as a bug in a parser would."""

from __future__ import annotations

import ctypes
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from greenroom.protocol.jsonrpc import JsonRpcResponse
from greenroom.transports.client.command_wire import CommandWire
from greenroom.transports.client.server_command import Command

if TYPE_CHECKING:
    from greenroom.supervision import Pid
    from greenroom.transports.client.interfaces import InboundItem

MARK = "GREENROOM_TEST_MARK"


@dataclass(frozen=True)
class Poisoned:
    """The route: a value, so it can travel to another node."""

    words: tuple[str, ...]
    mark: str = ""
    """A mark in the environment of its processes, by which they are found."""

    @property
    def description(self) -> str:
        return "poisoned"

    def open(self, owner: Pid) -> PoisonedWire:
        return PoisonedWire(Command(*self.words, env={MARK: self.mark}), owner)


class PoisonedWire(CommandWire):
    """Reads an answer, and does what it demands."""

    def _deliver(self, items: list[InboundItem]) -> None:
        for each in items:
            if isinstance(each, JsonRpcResponse):
                for block in each.result.get("content", ()):
                    _swallow(block.get("text", ""))
        super()._deliver(items)


def _swallow(text: str) -> None:
    match text:
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "bug":
            raise RuntimeError("a bug in a parser")
        case "spin":
            while True:
                pass
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "memory":
            kept: list[Any] = []
            while True:
                kept.append(bytearray(16 * 1024 * 1024))
        case _:
            pass
