"""Tasks on a complete server, from the bytes of a channel: each request is answered once, and every task ends.

In an input, `$T` stands for the id of the task that was begun last, and `$U` for that of the first.
"""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.fuzz.fuzz_target import Target, is_object, numbers, pieces, seeded
from tests.fuzz.fuzzed_server import NAMES, PersistentServer
from tests.fuzz.targets.channels import BEGIN, ChannelPeer, ask, cancel, lines
from tests.fuzz.targets.channels import WORDS as OTHERS

from greenroom.protocol.jsonrpc import OversizedMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from greenroom.actors.company import Company
    from greenroom.transports.session_channel import MemoryPeer

STATUSES = {"working", "input_required", "completed", "failed", "cancelled"}
_PAUSE = 0.3
"""The seconds after each line, in which tasks begin and end."""


def task(name: str, id: object = 1, ttl: object = None, **arguments: object) -> dict[str, Any]:
    wish = {} if ttl is None else {"ttl": ttl}
    return ask("tools/call", id, name=name, arguments=arguments, task=wish)


def get(word: str, id: object = 50, which: str = "$T") -> dict[str, object]:
    return ask(f"tasks/{word}", id, taskId=which)


def texts() -> Iterable[bytes]:
    for name in NAMES:
        yield lines(
            *BEGIN, task(name, 1, seconds=1, count=2, a=1, text="x"), get("get"), get("result", 51), get("get", 52)
        )
        yield lines(
            *BEGIN, task(name, 1, 1000), get("result", 51), get("cancel", 52), get("get", 53), ask("tasks/list", 54)
        )
    yield lines(
        *BEGIN, task("slow", 1), task("slow", 2), get("result", 3), get("result", 4, "$U"), get("result", 5), cancel(3)
    )
    yield lines(
        *BEGIN, task("slow", 1, 0), get("get"), task("slow", 2, -1), task("slow", 3, 1e308), task("slow", 4, "x")
    )
    yield lines(
        *BEGIN, task("ask", 1), get("result", 51), {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}, get("get")
    )
    yield lines(
        *BEGIN, task("forever"), get("cancel"), get("cancel", 51), get("result", 52), ask("tasks/list", 53, cursor="x")
    )
    yield lines(
        *BEGIN, ask("tools/call", 1, name="forever"), get("get"), ask("tools/call", 2, name="endless"), get("result")
    )
    yield lines(BEGIN[0], get("get"), task("slow"), get("list"), ask("tasks/get", 5, taskId=5), ask("tasks/nothing", 6))
    yield lines(
        *BEGIN, {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": {"taskId": "$T", "status": "x"}}
    )


WORDS = (
    *OTHERS,
    *(b"$T", b"$U", b'"taskId":"$T"', b'"ttl":1', b'"ttl":0', b'"task":{"ttl":5}', b'"cursor":', b'"status":"working"'),
    *(f'"tasks/{name}"'.encode() for name in ("get", "list", "result", "cancel")),
    *(b'"notifications/tasks/status"', b'"io.modelcontextprotocol/related-task"', b'"endless"'),
)


class TaskPeer(ChannelPeer):
    """A peer that creates tasks."""

    def __init__(self, company: Company) -> None:
        """Begin without tasks."""
        super().__init__(company)
        self._tasks: list[str] = []

    async def _say(self, wire: MemoryPeer, line: bytes | OversizedMessage) -> None:
        if not isinstance(line, OversizedMessage) and self._tasks:
            line = line.replace(b"$T", self._tasks[-1].encode()).replace(b"$U", self._tasks[0].encode())
        await super()._say(wire, line)
        await asyncio.sleep(_PAUSE)

    def hear(self, frame: bytes) -> None:
        """Also record tasks and their states."""
        super().hear(frame)
        message: dict[str, Any] = json.loads(frame)
        result: Any = message.get("result")
        told: list[Any] = [result, message.get("params")]
        if is_object(result):
            told.append(result.get("task"))
        for each in told:
            if is_object(each) and "taskId" in each and "status" in each:
                assert each["status"] in STATUSES, each
                if each["taskId"] not in self._tasks:
                    self._tasks.append(each["taskId"])


@cache
def standing() -> PersistentServer:
    return PersistentServer()


def check(data: bytes) -> None:
    front, sent = numbers(data, 3)

    async def scene(company: Company) -> None:
        await TaskPeer(company).hold(pieces(sent, front))
        assert not company.tasks.store.list(), "a task has outlived its owner"

    standing().play(scene)


TARGET = Target("tasks", check, lambda: seeded(texts(), b"\xff\xff\xff", b"\x05\x40\x09"), WORDS, longest=3000)
