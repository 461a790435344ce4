"""The play: what a client of any make has to get from the playhouse, step by step, value by value.

It runs in the environments of other people's clients, so it imports nothing but the standard library. A client takes part
through a `Player`, which turns the client's own objects into what was on the wire; whatever the server says out of turn the
player puts into the `Ears`. Each step prints one line; the first wrong value ends the play.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

SECONDS = 20
"""For each step; none needs one of them."""

EXTRAS = 60
DIAL = "play://dial"


class Wrong(Exception):
    """A value is not what it has to be."""


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        """The message of the error."""
        super().__init__(code, message)
        self.code, self.message, self.data = code, message, data


@dataclass(frozen=True)
class Hello:
    """The server's part of the handshake."""

    name: str
    version: str
    instructions: str
    protocol: str
    capabilities: dict[str, Any]


@dataclass
class Ears:
    """The server's notifications and questions, and the answers to these."""

    logs: list[tuple[str, str | None, Any]] = field(default_factory=list)
    updates: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    troubles: list[Exception] = field(default_factory=list)
    """The messages that the client could not read."""
    done: list[str] = field(default_factory=list)
    """The pages that users are known to have done with."""
    form: dict[str, Any] = field(default_factory=dict)
    """The next answer to an elicitation, as it goes over the wire."""

    def sampled(self, params: dict[str, Any]) -> dict[str, Any]:
        """Play the model."""
        self.asked.append(params)
        said = params["messages"][-1]["content"]
        block = said[0] if isinstance(said, list) else said
        if params.get("toolChoice", {}).get("mode") == "required":
            seats = int("".join(letter for letter in block["text"] if letter.isdigit()))
            use = {"type": "tool_use", "id": "u1", "name": params["tools"][0]["name"], "input": {"seats": seats}}
            thought = {"type": "text", "text": "Let me see."}
            return {"role": "assistant", "model": "parrot", "stopReason": "toolUse", "content": [thought, use]}
        words = block["content"][0]["text"] if block["type"] == "tool_result" else block["text"]
        content = {"type": "text", "text": words.upper()}
        return {"role": "assistant", "model": "parrot", "stopReason": "endTurn", "content": content}

    def elicited(self, params: dict[str, Any]) -> dict[str, Any]:
        """Play the user."""
        self.asked.append(params)
        return self.form


class Player(Protocol):
    """A client in its own words. Every dictionary is what was on the wire."""

    ears: Ears
    revision: str
    """The revision to negotiate with the server."""

    async def hello(self) -> Hello: ...
    async def ping(self) -> None: ...
    async def tools(self, cursor: str | None) -> dict[str, Any]: ...
    async def call(
        self, name: str, arguments: dict[str, Any], progress: Callable[[Any, Any, Any], None] | None = None
    ) -> dict[str, Any]: ...
    async def abandon(self, name: str, arguments: dict[str, Any], begun: asyncio.Event) -> None:
        """Call a tool that reports progress, set `begun` when it does, and cancel the call; return when it is cancelled."""

    async def resources(self) -> dict[str, Any]: ...
    async def templates(self) -> dict[str, Any]: ...
    async def read(self, uri: str) -> dict[str, Any]: ...
    async def subscribe(self, uri: str) -> None: ...
    async def unsubscribe(self, uri: str) -> None: ...
    async def prompts(self) -> dict[str, Any]: ...
    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]: ...
    async def complete(self, prompt: str, argument: str, value: str) -> dict[str, Any]: ...
    async def level(self, level: str) -> None: ...


def same(what: str, got: Any, want: Any) -> None:
    """Go on only when it is the right value."""
    if got != want:
        raise Wrong(f"{what}: got {got!r}, not {want!r}")


async def becomes(what: str, look: Callable[[], Any], want: Any) -> None:
    """Notifications come when they come: wait until the value is right, as long as the step may last."""
    try:
        async with asyncio.timeout(SECONDS / 2):
            while look() != want:  # noqa: ASYNC110 - what is looked at is anything
                await asyncio.sleep(0.01)
    except TimeoutError:
        same(what, look(), want)


async def refused(what: str, asking: Awaitable[Any], code: int) -> Refused:
    """It has to be an error, and this one."""
    try:
        got = await asking
    except Refused as error:
        same(f"{what}, code of {error.message!r}", error.code, code)
        return error
    raise Wrong(f"{what}: got {got!r}, not an error {code}")


def words(result: dict[str, Any]) -> str:
    """All that a result says."""
    return "".join(block["text"] for block in result["content"] if block["type"] == "text")


def structured(player: Player) -> bool:
    """Whether results may be values besides being content."""
    return player.revision >= "2025-06-18"


def stateless(player: Player) -> bool:
    """Whether the revision has no handshake and no session."""
    return player.revision >= "2026-07-28"


async def initialize(player: Player) -> None:
    hello = await player.hello()
    same("name", (hello.name, hello.version), ("playhouse", "1.0"))
    same("instructions", hello.instructions, "Break a leg.")
    same("revision", hello.protocol, player.revision)
    for feature, flag in (("tools", "listChanged"), ("resources", "subscribe"), ("prompts", "listChanged")):
        same(f"capability {feature}.{flag}", hello.capabilities.get(feature, {}).get(flag), True)
    for feature in ("logging", "completions")[: 2 if player.revision >= "2025-03-26" else 1]:
        same(f"capability {feature}", hello.capabilities.get(feature), {})
    await player.ping()


async def listing(player: Player) -> None:
    tools: list[dict[str, Any]] = []
    pages, cursor = 0, None
    while pages == 0 or cursor:
        page = await player.tools(cursor)
        tools += page["tools"]
        pages, cursor = pages + 1, page.get("nextCursor")
    names = [tool["name"] for tool in tools]
    same("more than one page", pages > 1, True)
    same("each tool once", len(names), len(set(names)))
    same(
        "extras",
        [name for name in sorted(names) if name.startswith("extra_")],
        [f"extra_{n:02}" for n in range(EXTRAS)],
    )
    forecast = next(tool for tool in tools if tool["name"] == "forecast")
    same("description", forecast["description"], "Forecast the weather of a city.")
    same("required arguments", forecast["inputSchema"]["required"], ["city"])
    same("default of days", forecast["inputSchema"]["properties"]["days"]["default"], 2)
    results = forecast.get("outputSchema", {}).get("type")
    same("kind of result", results, "object" if structured(player) else None)
    await refused("an unknown cursor", player.tools("nonsense"), -32602)


async def calling(player: Player) -> None:
    five = await player.call("add", {"a": 2, "b": 3})
    same("2 + 3", (words(five), five.get("isError", False)), ("5", False))
    value = 5 if stateless(player) else {"result": 5} if structured(player) else None
    same("the same as a value", five.get("structuredContent"), value)
    sums = await asyncio.gather(*(player.call("add", {"a": n, "b": n}) for n in range(20)))
    same("twenty at once", [words(each) for each in sums], [str(2 * n) for n in range(20)])
    picture = (await player.call("picture", {}))["content"]
    same(
        "a picture",
        [(block["type"], block["mimeType"], block["data"]) for block in picture],
        [("image", "image/png", "iVBORw0KGgo=")],
    )


async def structure(player: Player) -> None:
    result = await player.call("forecast", {"city": "Oslo"})
    days = [{"high": 20.5, "sky": "clear"}, {"high": 21.5, "sky": "rain"}]
    same("as text", json.loads(words(result)), {"city": "Oslo", "days": days})
    same("as a value", result.get("structuredContent"), {"city": "Oslo", "days": days} if structured(player) else None)


async def errors(player: Player) -> None:
    failed = await player.call("fail", {})
    same("a tool that failed", (failed["isError"], words(failed)), (True, "The prop broke."))
    crashed = await player.call("crash", {})
    same("a tool that crashed", (crashed["isError"], "secret" in words(crashed)), (True, False))
    refusal = await refused("a tool that refused", player.call("refuse", {}), 1050)
    same("the refusal", (refusal.message, refusal.data), ("Not tonight.", {"until": "tomorrow"}))
    await refused("a tool that is not there", player.call("missing", {}), -32602)
    misled = await player.call("add", {"a": "two", "b": 3})
    same("wrong arguments", (misled["isError"], "a" in words(misled)), (True, True))
    nowhere = "play://nowhere"
    unread = await refused("an unknown resource", player.read(nowhere), -32602 if stateless(player) else -32002)
    same("its address", unread.data, {"uri": nowhere})
    await refused("a prompt that is not there", player.prompt("missing", {}), -32602)
    await refused("a prompt without its argument", player.prompt("greet", {}), -32602)
    same("and it goes on", words(await player.call("add", {"a": 1, "b": 1})), "2")


async def progress(player: Player) -> None:
    heard: list[tuple[float, float | None, str | None]] = []
    result = await player.call("count", {"to": 3}, lambda *said: heard.append(said))
    same("the end", words(result), "counted to 3")
    worded = player.revision >= "2025-03-26"
    want = [(number, 3, f"{number} of 3" if worded else None) for number in (1, 2, 3)]
    await becomes("progress", lambda: heard, want)


async def logging(player: Player) -> None:
    await player.level("warning")
    await player.call("narrate", {})
    await player.level("debug")
    await player.call("narrate", {})
    loud = ("error", "play", {"said": "loud"})
    told = [("debug", "play", "whispered"), ("info", "play", "said"), loud]
    await becomes("what was logged", lambda: player.ears.logs, [loud, *told])
    await player.level("emergency")
    await refused("a level that is none", player.level("shrill"), -32602)


async def sampling(player: Player) -> None:
    player.ears.asked.clear()
    same("the model's words", words(await player.call("ask_model", {"question": "who"})), "parrot says WHO")
    (asked,) = player.ears.asked
    same("what it was asked", (asked["maxTokens"], asked.get("systemPrompt")), (50, "Be brief."))


async def haggling(player: Player) -> None:
    player.ears.asked.clear()
    if player.revision < "2025-11-25":  # a model could use no tools
        await refused("tools for the model", player.call("haggle", {"seats": 3}), -32600)
        return
    same("the model's price", words(await player.call("haggle", {"seats": 3})), "toolUse: 36 CROWNS")
    first, last = player.ears.asked
    same("its tools", [tool["name"] for tool in first["tools"]], ["price"])
    same("what it may", (first["toolChoice"], last["toolChoice"]), ({"mode": "required"}, {"mode": "none"}))
    same("who spoke", [message["role"] for message in last["messages"]], ["user", "assistant", "user"])
    (result,) = last["messages"][2]["content"]
    same("the result of its tool", (result["toolUseId"], result["content"][0]["text"]), ("u1", "36 crowns"))


async def elicitation(player: Player) -> None:
    player.ears.asked.clear()
    if player.revision < "2025-06-18":  # there were no forms to fill in
        await refused("a form", player.call("ask_user", {}), -32600)
        return
    player.ears.form = {"action": "accept", "content": {"name": "Ada", "seats": 3}}
    same("accepted", words(await player.call("ask_user", {})), "Ada takes 3")
    form = player.ears.asked[0]["requestedSchema"]
    same("the question", player.ears.asked[0]["message"], "Who comes?")
    same("the form", (form["type"], form["required"], form["properties"]["seats"]["default"]), ("object", ["name"], 2))
    player.ears.form = {"action": "accept", "content": {"name": "Ada", "seats": 2}}
    same("accepted again", words(await player.call("ask_user", {})), "Ada takes 2")
    player.ears.form = {"action": "decline"}
    same("declined", words(await player.call("ask_user", {})), "decline")
    player.ears.form = {"action": "cancel"}
    same("dismissed", words(await player.call("ask_user", {})), "cancel")


async def pages(player: Player) -> None:
    player.ears.asked.clear()
    player.ears.done.clear()
    player.ears.form = {"action": "accept"}
    if player.revision < "2025-11-25":  # users were not sent to pages yet
        await refused("a page", player.call("pay", {}), -32600)
        await refused("a page first", player.call("backstage", {}), -32600)
        return
    same("accepted", words(await player.call("pay", {})), "paid")
    (asked,) = player.ears.asked
    id = asked["elicitationId"]
    want = ("url", "Please pay.", f"https://box.example/pay?e={id}")
    same("the page", (asked["mode"], asked["message"], asked["url"]), want)
    await becomes("told that it is done", lambda: player.ears.done, [id])
    player.ears.form = {"action": "decline"}
    same("declined", words(await player.call("pay", {})), "decline")
    required = await refused("a page first", player.call("backstage", {}), -32042)
    (page,) = required.data["elicitations"]
    door = page["elicitationId"]
    want = ("url", "Who are you?", f"https://box.example/door?e={door}")
    same("the page that is first", (page["mode"], page["message"], page["url"]), want)
    same("the user goes there", words(await player.call("door", {"id": door})), "seen")
    await becomes("told of that, too", lambda: player.ears.done, [id, door])
    same("and the call goes through", words(await player.call("backstage", {})), "welcome")


async def roots(player: Player) -> None:
    same("roots", words(await player.call("where", {})), "file:///stage (stage)")


async def resources(player: Player) -> None:
    listed = {each["uri"]: each for each in (await player.resources())["resources"]}
    same("resources", sorted(listed), [DIAL, "play://guests", "play://poster"])
    same("kind of poster", listed["play://poster"]["mimeType"], "image/png")
    (template,) = (await player.templates())["resourceTemplates"]
    same("template", template["uriTemplate"], "play://scene/{number}")
    same(
        "scene",
        [(c["uri"], c["text"]) for c in (await player.read("play://scene/4"))["contents"]],
        [("play://scene/4", "Scene 4")],
    )
    (poster,) = (await player.read("play://poster"))["contents"]
    same("poster", (poster["mimeType"], poster["blob"]), ("image/png", "iVBORw0KGgo="))


async def prompts(player: Player) -> None:
    greet, invite = (await player.prompts())["prompts"]
    arguments = [(each["name"], each.get("required", False)) for each in greet["arguments"]]
    same("prompt", (greet["name"], arguments), ("greet", [("who", True), ("mood", False)]))
    same("the one that asks", (invite["name"], invite.get("arguments", [])), ("invite", []))
    said = (await player.prompt("greet", {"who": "Ada", "mood": "calm"}))["messages"]
    same("messages", [(m["role"], m["content"]["text"]) for m in said], [("user", "Greet Ada, calm.")])
    found = (await player.complete("greet", "mood", "c"))["completion"]
    same("completion", found["values"], ["calm", "cheerful", "cross"])


async def subscription(player: Player) -> None:
    player.ears.updates.clear()
    await player.subscribe(DIAL)
    await player.call("turn", {"value": 7})
    await becomes("updates", lambda: player.ears.updates, [DIAL])
    same("the dial", (await player.read(DIAL))["contents"][0]["text"], "7")
    await player.unsubscribe(DIAL)
    await player.call("turn", {"value": 8})
    await asyncio.sleep(0.05)  # a client that subscribes in the same moment may well be told
    await player.subscribe(DIAL)
    await player.call("turn", {"value": 9})
    await becomes("updates, none while not subscribed", lambda: player.ears.updates, [DIAL, DIAL])
    same("the dial at last", (await player.read(DIAL))["contents"][0]["text"], "9")
    await player.unsubscribe(DIAL)


async def changing(player: Player) -> None:
    player.ears.changes.clear()
    same("a new tool", words(await player.call("grow", {})), "grown")
    await becomes("told of it", lambda: player.ears.changes[:1], ["tools"])
    same("calling it", words(await player.call("grown", {})), "I am new.")
    await player.call("shrink", {})
    await becomes("told of its end", lambda: player.ears.changes, ["tools", "tools"])
    await refused("calling it then", player.call("grown", {}), -32602)


async def cancellation(player: Player) -> None:
    key = f"{id(player)}-{asyncio.get_running_loop().time()}"
    begun = asyncio.Event()
    await player.abandon("wait", {"key": key}, begun)
    same("it had begun", begun.is_set(), True)
    same("the tool was stopped", words(await player.call("stopped", {"key": key})), "stopped")
    same("and it goes on", words(await player.call("add", {"a": 1, "b": 1})), "2")


async def resumption(player: Player) -> None:
    """The server closes the stream of a call in its middle, and the client comes back for the answer."""
    same("after a break", words(await player.call("blink", {})), "still here")


async def quiet(player: Player) -> None:
    """In all of this the client met nothing that it could not make sense of."""
    same("troubles", [repr(each) for each in player.ears.troubles], [])


STEPS = (
    initialize, listing, calling, structure, errors, progress, logging, sampling, haggling, elicitation, pages, roots,
    resources, prompts, subscription, changing, cancellation, resumption, quiet,
)  # fmt: skip


def say(line: str) -> None:
    """Print it at once."""
    print(line, flush=True)


async def perform(
    player: Player, steps: Sequence[Callable[[Any], Awaitable[None]]] = STEPS, say: Callable[[str], object] = say
) -> bool:
    """Every step, one line each, until one is wrong; whether none was. With PLAY_ON set, those after a wrong one as well."""
    right = True
    for step in steps:
        if not right and "PLAY_ON" not in os.environ:
            break
        try:
            async with asyncio.timeout(SECONDS):
                await step(player)
        except Exception as error:  # noqa: BLE001 - a client may raise whatever it likes, and wrong it is
            right = False
            say(f"WRONG {step.__name__}: {error or type(error).__name__}")
            if not isinstance(error, Wrong):
                traceback.print_exc()
        else:
            say(f"ok {step.__name__}")
    return right


def run(playing: Callable[[list[str]], Coroutine[Any, Any, bool]]) -> int:
    """The whole script, `SCRIPT MODE URL` or `SCRIPT MODE COMMAND ARGUMENT…`: what it exits with."""
    return 0 if asyncio.run(playing(sys.argv[1:])) else 1
