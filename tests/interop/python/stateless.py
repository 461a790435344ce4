"""The play of the era without a handshake: what a client of any make gets from the playhouse at revision 2026-07-28.

Most steps are those of `play`. Those with their own name here say what this era does in another way: each request names its log level, the server's questions are
results of the call that asks them, and a change is told to a listen that asked for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import play
from play import DIAL, becomes, refused, same, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

REVISION = "2026-07-28"


@dataclass
class Listening:
    """One listen: the part of its filter that the server has acknowledged, and the changes it was told of."""

    honoured: dict[str, Any]
    heard: list[str] = field(default_factory=list)
    """`tools` for a change of that list, or the URI of an updated resource."""


class Player(play.Player, Protocol):
    """A client in its own words, at the revision without a handshake."""

    talkative: bool
    """Whether it asks for log messages of every level where a call names none."""

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        progress: Callable[[Any, Any, Any], None] | None = None,
        level: str | None = None,
    ) -> dict[str, Any]:
        """`level` is the log level of this call alone."""

    def listen(self, *, tools: bool = False, uris: Sequence[str] = ()) -> AbstractAsyncContextManager[Listening]: ...


async def discover(player: Player) -> None:
    hello = await player.hello()
    same("name", (hello.name, hello.version), ("playhouse", "1.0"))
    same("instructions", hello.instructions, "Break a leg.")
    same("revision", hello.protocol, REVISION)
    for feature, flag in (("tools", "listChanged"), ("resources", "subscribe"), ("prompts", "listChanged")):
        same(f"capability {feature}.{flag}", hello.capabilities.get(feature, {}).get(flag), True)
    for feature in ("logging", "completions"):
        same(f"capability {feature}", hello.capabilities.get(feature), {})
    same("tasks are an extension", hello.capabilities.get("tasks"), None)


async def cursors(player: Player) -> None:
    """An empty cursor is a cursor, and none of ours."""
    await refused("an empty cursor", player.tools(""), -32602)


async def logging(player: Player) -> None:
    player.ears.logs.clear()
    loud = ("error", "play", {"said": "loud"})
    told = [("debug", "play", "whispered"), ("info", "play", "said"), loud]
    default = told if player.talkative else []
    same("without a level", words(await player.call("narrate", {})), "told")
    await player.call("narrate", {}, None, "warning")
    await becomes("without a level, then at warning", lambda: player.ears.logs, [*default, loud])
    player.ears.logs.clear()
    await player.call("narrate", {}, None, "debug")
    await becomes("at debug", lambda: player.ears.logs, told)
    player.ears.logs.clear()
    await player.call("narrate", {}, None, "emergency")
    await player.call("narrate", {})
    await player.call("narrate", {}, None, "error")
    await becomes("no level is remembered", lambda: player.ears.logs, [*default, loud])
    await refused("an unknown level", player.call("narrate", {}, None, "shrill"), -32602)


async def questions(player: Player) -> None:
    """Several questions at once are one round with a key for each; the tool goes on where it has stopped."""
    player.ears.asked.clear()
    player.ears.form = {"action": "accept", "content": {"name": "Ada", "seats": 3}}
    result = words(await player.call("ask_all", {"question": "who"}))
    same("three answers", result, "Ada takes 3, parrot says WHO, file:///stage")
    same("each was asked once", sorted("message" in asked for asked in player.ears.asked), [False, True])
    same("and then another", words(await player.call("ask_twice", {})), "Ada takes 3, then Ada takes 3; begun 1")


async def asking(player: Player) -> None:
    """Prompts and resources ask as well."""
    player.ears.form = {"action": "accept", "content": {"name": "Ada", "seats": 1}}
    said = (await player.prompt("invite", {}))["messages"]
    same("a prompt", [(m["role"], m["content"]["text"]) for m in said], [("user", "Invite Ada.")])
    (guests,) = (await player.read("play://guests"))["contents"]
    same("a resource", guests["text"], "Ada")


async def pages(player: Player) -> None:
    """A page to open has no id on the wire, and no notification when the user has done with it."""
    player.ears.asked.clear()
    player.ears.done.clear()
    player.ears.form = {"action": "accept"}
    same("accepted", words(await player.call("pay", {})), "paid")
    (asked,) = player.ears.asked
    same("the page", (asked["mode"], asked["message"], asked.get("elicitationId")), ("url", "Please pay.", None))
    same("its address", asked["url"].startswith("https://box.example/pay?e="), True)
    player.ears.form = {"action": "decline"}
    same("declined", words(await player.call("pay", {})), "decline")
    same("no notification of it", player.ears.done, [])


async def listening(player: Player) -> None:
    """Each listen has a filter of its own, and is told of what it asked for."""
    async with player.listen(uris=[DIAL]) as dial, player.listen(tools=True) as tools:
        same("the filter of one", dial.honoured, {"resourceSubscriptions": [DIAL]})
        same("the filter of the other", tools.honoured, {"toolsListChanged": True})
        await player.call("turn", {"value": 7})
        await becomes("an update", lambda: dial.heard, [DIAL])
        same("the dial", (await player.read(DIAL))["contents"][0]["text"], "7")
        same("a new tool", words(await player.call("grow", {})), "grown")
        await becomes("told of it", lambda: tools.heard[:1], ["tools"])
        same("calling it", words(await player.call("grown", {})), "I am new.")
        await player.call("shrink", {})
        await becomes("told of its end", lambda: tools.heard, ["tools", "tools"])
        await refused("calling it then", player.call("grown", {}), -32602)
        same("nothing of the other's", dial.heard, [DIAL])
    await player.call("turn", {"value": 8})
    async with player.listen(tools=True, uris=[DIAL]) as both:
        same("both in one", both.honoured, {"toolsListChanged": True, "resourceSubscriptions": [DIAL]})
        await player.call("turn", {"value": 9})
        await becomes("updates, none from before it began", lambda: both.heard, [DIAL])
    same("the dial at last", (await player.read(DIAL))["contents"][0]["text"], "9")


async def mirrored(player: Player) -> None:
    """A tool whose arguments are headers of the HTTP request as well: plain, numeric, and as what needs encoding."""
    await player.tools(None)
    for section, row in (("stalls", 4), ("Größe", 0), (" edge ", -1), ("=?base64?QQ==?=", 2**53 - 1)):
        result = words(await player.call("seat", {"section": section, "row": row}))
        same("a seat", result, f"{section} {row}")
    same("an argument that is left out", words(await player.call("seat", {"section": "box"})), "box 1")


STEPS = (
    discover, play.listing, cursors, play.calling, play.structure, play.errors, play.progress, logging, play.sampling,
    play.haggling, play.elicitation, questions, asking, pages, play.roots, play.resources, play.prompts, listening,
    play.cancellation, mirrored, play.quiet,
)  # fmt: skip
"""The steps of every client."""


async def perform(player: Player) -> bool:
    """Every step of this era, as `play.perform` does it."""
    return await play.perform(player, STEPS)
