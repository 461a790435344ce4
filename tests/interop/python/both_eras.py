"""Two clients of the Python SDK 2.x, of two eras, in one play at the same moment: `both_eras.py URL`, or `both_eras.py COMMAND ARGUMENT…`.

A program on stdio has one input and one output. The clients share them here, as two conversations behind one relay do: what each of them chooses (ids, progress
tokens) has a name in front. What names neither comes from the session, and goes to its client.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import play
import stateless
from mcp.shared.message import SessionMessage
from play import DIAL, becomes, same, words
from sdk2 import Sdk2, client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOGETHER = {"logging", "subscription", "changing", "listening"}
"""The steps about what both clients see: the dial, the list of tools, and log messages, which name no request on stdio."""
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
HANDSHAKE, STATELESS = "handshake", "stateless"


class Relay:
    """One program, whose input and output two clients share."""

    def __init__(self, program: asyncio.subprocess.Process) -> None:
        self._program = program
        self._inboxes: dict[str, Any] = {}
        self._chosen: dict[str, Any] = {}
        """What the clients have chosen, by what the program sees of it."""

    @asynccontextmanager
    async def client_end(self, name: str) -> AsyncIterator[Any]:
        """The transport of one client."""
        to_client, inbox = anyio.create_memory_object_stream[Any](1000)
        outbox, from_client = anyio.create_memory_object_stream[Any](1000)
        self._inboxes[name] = to_client
        writing = asyncio.create_task(self._write(name, from_client))
        try:
            yield inbox, outbox
        finally:
            writing.cancel()
            await to_client.aclose()

    async def _write(self, name: str, messages: Any) -> None:
        assert self._program.stdin is not None
        async for each in messages:
            message = each.message.model_dump(by_alias=True, exclude_unset=True, mode="json")
            if "method" in message:  # the ids of answers are the program's own
                params = message.get("params") or {}
                meta = params.get("_meta") or {}
                for holder, key in ((message, "id"), (params, "requestId"), (meta, "progressToken")):
                    if key in holder:
                        holder[key] = self._seen(name, holder[key])
            self._program.stdin.write(json.dumps(message).encode() + b"\n")
            await self._program.stdin.drain()

    def _seen(self, name: str, chosen: Any) -> str:
        seen = f"{name} {chosen!r}"
        self._chosen[seen] = chosen
        return seen

    async def read(self) -> None:
        """Give each message to its client, until the program ends."""
        assert self._program.stdout is not None
        async for line in self._program.stdout:
            message = json.loads(line)
            params, result = message.get("params") or {}, message.get("result") or {}
            holders = [(params, "requestId"), (params, "progressToken")]
            holders += [((each.get("_meta") or {}), SUBSCRIPTION) for each in (params, result)]
            if "method" not in message:
                holders.append((message, "id"))
            name = HANDSHAKE
            for holder, key in holders:
                if key in holder:
                    name = holder[key].partition(" ")[0]
                    holder[key] = self._chosen[holder[key]]
            await self._inboxes[name].send(SessionMessage(types.jsonrpc_message_adapter.validate_python(message)))


async def together(old: Sdk2, new: Sdk2) -> None:
    """A change is told to both, whichever has made it; what a client asks for in one era is nothing to the other."""
    for ears in (old.ears, new.ears):
        for heard in (ears.updates, ears.changes, ears.logs):
            heard.clear()
    await old.subscribe(DIAL)
    async with new.listen(tools=True, uris=[DIAL]) as listening:
        for count, player in enumerate((old, new), 1):
            await player.call("turn", {"value": count})
            await becomes("the session's updates", lambda: old.ears.updates, [DIAL] * count)
            await becomes("the listen's updates", lambda: listening.heard, [DIAL] * count)
        await new.call("grow", {})
        await becomes("the session's changes", lambda: old.ears.changes, ["tools"])
        await becomes("the listen's changes", lambda: listening.heard, [DIAL, DIAL, "tools"])
        same("calling it", words(await old.call("grown", {})), "I am new.")
        await old.call("shrink", {})
        await becomes("its end", lambda: old.ears.changes, ["tools", "tools"])
        await becomes("its end to the listen", lambda: listening.heard[3:], ["tools"])
    await old.unsubscribe(DIAL)
    await old.level("debug")
    await new.call("narrate", {}, None, "error")
    await becomes(
        "one level for one call", lambda: old.ears.logs + new.ears.logs, [("error", "play", {"said": "loud"})]
    )


async def perform(old: Sdk2, new: Sdk2) -> bool:
    """Both plays at once, and then what both see."""
    own = [step for step in play.STEPS if step.__name__ not in TOGETHER]
    other = [step for step in stateless.STEPS if step.__name__ not in TOGETHER]
    first: list[str] = []
    second: list[str] = []
    right = await asyncio.gather(play.perform(old, own, first.append), play.perform(new, other, second.append))
    for line in (*first, *second):
        play.say(line)

    async def shared(_: Any) -> None:
        await together(old, new)

    return all(right) and await play.perform(old, [shared])


async def main(where: list[str]) -> bool:
    """`URL` or `COMMAND ARGUMENT…`."""
    old, new = Sdk2(), Sdk2(stateless.REVISION)
    async with AsyncExitStack() as stack:
        if where[0].startswith("http"):
            old_end = new_end = where[0]
        else:
            program = await asyncio.create_subprocess_exec(
                *where, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=2**24
            )
            stack.push_async_callback(program.wait)
            relay = Relay(program)
            reading = asyncio.create_task(relay.read())
            stack.callback(reading.cancel)
            assert program.stdin is not None
            stack.callback(program.stdin.close)
            old_end, new_end = relay.client_end(HANDSHAKE), relay.client_end(STATELESS)
        old.client = await stack.enter_async_context(client(old, "legacy", old_end))
        new.client = await stack.enter_async_context(client(new, stateless.REVISION, new_end))
        return await perform(old, new)


if __name__ == "__main__":
    sys.exit(play.run(main))
