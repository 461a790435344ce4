"""The Python SDK 2.x at a gateway, with upstreams of both eras behind it: `through_gateway.py MODE URL`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import play
import stateless
from play import SECONDS, Refused, Wrong, becomes, same, words
from sdk2 import Sdk2, client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

UPSTREAMS = ("old", "new")
YES = {"action": "accept", "content": {"yes": True}}


async def call(player: Sdk2, up: str) -> None:
    same("a call", words(await player.call(f"{up}__add", {"a": 1, "b": 2})), "3")
    read = await player.read(f"upstream://{up}/note://one")
    same("a resource", read["contents"][0]["text"], "a note")


async def progress(player: Sdk2, up: str) -> None:
    seen: list[Any] = []
    player.ears.logs.clear()
    if player.revision != stateless.REVISION:
        await player.level("info")
    level = "info" if player.revision == stateless.REVISION else None
    result = await player.call(f"{up}__steps", {"to": 3}, lambda *step: seen.append(step), level)
    same("its result", words(result), "3")
    await becomes("progress", lambda: seen, [(n, 3, f"step {n}") for n in (1, 2, 3)])
    await becomes("a log message", lambda: player.ears.logs, [("warning", f"{up}.steps", "counting")])


async def cancel(player: Sdk2, up: str) -> None:
    waiting = asyncio.create_task(player.client.call_tool(f"{up}__wait", {}))
    await asyncio.sleep(0.3)
    waiting.cancel()
    await asyncio.wait([waiting])
    same("ended there", words(await player.call(f"{up}__ended", {})), "true")


async def elicit(player: Sdk2, up: str) -> None:
    player.ears.asked.clear()
    player.ears.form = YES
    same("a form", words(await player.call(f"{up}__confirm", {})), "accept True")
    same("asked once", [each["message"] for each in player.ears.asked], ["Sure?"])


async def sample(player: Sdk2, up: str) -> None:
    same("the model's words", words(await player.call(f"{up}__think", {})), "WHAT NOW?")


async def roots(player: Sdk2, up: str) -> None:
    result = await player.call(f"{up}__places", {})
    same("the roots", "file:///stage" in str(result["content"]), True)


async def changes(player: Sdk2, up: str) -> None:
    """A changed list, and a changed resource."""
    note = f"upstream://{up}/note://one"
    if player.revision == stateless.REVISION:
        async with player.listen(tools=True, uris=[note]) as listening:
            same("honoured", listening.honoured, {"toolsListChanged": True, "resourceSubscriptions": [note]})
            await player.call(f"{up}__turn", {})
            await becomes("an update", lambda: note in listening.heard, True)
            grown = words(await player.call(f"{up}__grow", {}))
            await becomes("a changed list", lambda: "tools" in listening.heard, True)
            await listed(player, f"{up}__{grown}")
    else:
        player.ears.updates.clear()
        player.ears.changes.clear()
        await player.subscribe(note)
        await player.call(f"{up}__turn", {})
        await becomes("an update", lambda: player.ears.updates[:1], [note])
        await player.unsubscribe(note)
        grown = words(await player.call(f"{up}__grow", {}))
        await becomes("a changed list", lambda: player.ears.changes[:1], ["tools"])
        await listed(player, f"{up}__{grown}")
    same("the new tool", words(await player.call(f"{up}__{grown}", {})), "new")


async def listed(player: Sdk2, name: str) -> None:
    """A change that was told may be an earlier one of another server: the list has the tool soon."""
    async with asyncio.timeout(SECONDS / 2):
        while name not in [tool["name"] for tool in (await player.tools(None))["tools"]]:  # noqa: ASYNC110 - any change may be the one
            await asyncio.sleep(0.01)


async def death(player: Sdk2, up: str) -> None:
    before = await pid(player, up)
    try:
        await player.call(f"frail_{up}__die", {})
    except Refused as error:
        reason = "stream_lost" if up == "new" else "lost"
        same("why", (error.data["reason"], error.data["maybeDone"]), (reason, True))
    else:
        raise Wrong("a call of a program that has died was answered")
    same("another one", await pid(player, up) != before, True)


async def pid(player: Sdk2, up: str) -> str:
    """The id of the program, as soon as it runs again."""
    async with asyncio.timeout(play.SECONDS / 2):
        while True:
            try:
                return words(await player.call(f"frail_{up}__pid", {}))
            except Refused as error:
                same("why", error.data["reason"], "unavailable")
                await asyncio.sleep(0.2)


def at(up: str, step: Callable[[Sdk2, str], Awaitable[None]]) -> Callable[[Sdk2], Awaitable[None]]:
    """The step at that upstream, under a name of its own."""

    async def here(player: Sdk2) -> None:
        await step(player, up)

    here.__name__ = f"{step.__name__}_{up}"
    return here


STEPS = [at(up, step) for step in (call, progress, cancel, elicit, sample, roots, changes, death) for up in UPSTREAMS]


async def main(arguments: list[str]) -> bool:
    """`MODE URL`."""
    mode, url = arguments
    player = Sdk2() if mode == "legacy" else Sdk2(stateless.REVISION)
    async with client(player, mode, url) as player.client:
        await player.tools(None)
        return await play.perform(player, STEPS)


if __name__ == "__main__":
    sys.exit(play.run(main))
