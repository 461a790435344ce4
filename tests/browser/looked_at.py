"""The program that the browser looks at: the demonstration with callers inside it, and with names and texts that no page should believe.

`python -m tests.browser.looked_at` serves on free ports, prints the link to its observer on stderr, and runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from examples.demo.demo_server import server
from examples.demo.upstreams import host, library

from greenroom import Context, program_runner
from greenroom.observe import Admin
from greenroom.supervision import spawn
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MARK: Final = "zzmark"
"""The name of an element and of a function that no page may have."""
TEXTS: Final = (
    f"<script>{MARK}()</script><{MARK}>",
    f'"><img src=x onerror="{MARK}()">',
    "{{7*7}} {% raw %} ${7*7}",
    f"javascript:{MARK}()",
    "\u202eedoc ni \u2066dlrow\u2069",
    "x" * 10_000,
)
_CALLS: Final[tuple[tuple[str, Mapping[str, Any], float], ...]] = (
    ("add", {"a": 40, "b": 2}, 0.12),
    ("grind", {"seconds": 0.2}, 1.1),
    ("stream", {"steps": 8}, 3.0),
    ("library__find", {"title": "erlang"}, 0.3),
    ("clock__now", {}, 0.7),
    ("shaky__count", {"to": 2}, 1.5),
    ("fail", {}, 2.9),
    ("crash", {}, 4.1),
    ("leave", {}, 7.0),
    ("segfault", {}, 5.3),
    ("hostile", {"text": TEXTS[0], "password": "a secret of the caller"}, 2.3),
    ("wait", {"seconds": 60}, 0.5),
)
"""What is called again and again, and the pause after each answer."""


@dataclass
class Room:
    """The answer to a question."""

    day: str
    guests: int = 2


@server.tool(description=f"Echoes what no page should believe: {TEXTS[0]} {TEXTS[2]} {TEXTS[4]}", title=TEXTS[1])
async def hostile(text: str, password: str = "") -> str:
    """Its description stands in the decorator."""
    raise RuntimeError(f"{text} {TEXTS[1]} {TEXTS[3]} {TEXTS[5]} {len(password)}")


@server.tool
async def book_room(ctx: Context) -> str:
    """Asks its user, who takes a while to answer."""
    await ctx.elicit(f"Which day should the green room be yours? {TEXTS[0]}", Room, timeout=600)
    return "booked"


@server.tool(task_support="optional")
async def paint_set(ctx: Context, walls: int = 40) -> str:
    """Takes minutes, so it runs as a task."""
    for wall in range(walls):
        await ctx.progress(wall, walls, f"wall {wall + 1}")
        await asyncio.sleep(3)
    return f"{walls} walls"


def _answers(call: object, message: Mapping[str, Any]) -> bool:
    return message.get("id") == call and "method" not in message


async def _call_again_and_again(probe: WireProbe, tool: str, arguments: Mapping[str, Any], pause: float) -> None:
    luck = random.Random(tool)  # the same each time
    params = {"name": tool, "arguments": dict(arguments), "_meta": {"progressToken": tool}}
    while True:
        call = await probe.ask("tools/call", params)
        await probe.wait_for(partial(_answers, call), within=120.0, what=tool)
        probe.received.clear()
        await asyncio.sleep(pause * luck.uniform(0.6, 1.4))


async def _play() -> None:
    """Callers with a session each, one of which has a hostile name; a user who never answers; a task."""
    able: dict[str, Any] = {"elicitation": {"form": {}}}
    never: dict[str, Callable[[dict[str, Any]], Any]] = {"elicitation/create": lambda _: asyncio.Event().wait()}
    async with contextlib.AsyncExitStack() as callers, asyncio.TaskGroup() as group:
        for tool, arguments, pause in _CALLS:
            probe = await callers.enter_async_context(WireProbe(server.company))
            group.create_task(_call_again_and_again(probe, tool, arguments, pause))
        named = await callers.enter_async_context(WireProbe(server.company, greet=False))
        info = {"name": TEXTS[1] + TEXTS[4] + TEXTS[5], "version": TEXTS[0]}
        await named.request("initialize", {"protocolVersion": named.version, "capabilities": {}, "clientInfo": info})
        asking = await callers.enter_async_context(WireProbe(server.company, capabilities=able, answers=never))
        await asking.ask("tools/call", {"name": "book_room", "arguments": {}})
        working = await callers.enter_async_context(WireProbe(server.company))
        await working.request("tools/call", {"name": "paint_set", "arguments": {}, "task": {"ttl": 600_000}})


def main() -> int:
    """Serve until the process is told to stop."""
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)  # its tools die all the time
    logging.getLogger("greenroom.transports").setLevel(logging.ERROR)  # a page that could not be made is no tool
    admin = Admin(port=0, acts=True, faults=True, capture=True)
    spec = server.child_spec("http", host="127.0.0.1", port=0, admin=admin)

    async def until(_: Callable[[], None]) -> None:
        await host.catalogue()
        spawn(_play)
        await asyncio.Event().wait()

    program_runner.run(lambda: [library.child_spec(), host.child_spec(), spec], until)
    return 0


if __name__ == "__main__":
    sys.exit(main())
