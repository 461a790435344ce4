"""The steps in a playhouse: the same small server, written with each of the SDKs; `python/` has those of others, ours is the clients' (tests/interop)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .scene import WITHIN, Scene, WrongError, becomes, ends, has, refused, same

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .grid import Step

DIAL = "play://dial"
TOOLS = {
    "add", "forecast", "fail", "count", "narrate", "ask_model", "ask_user", "pay", "where", "wait", "stopped", "turn",
}  # fmt: skip


@dataclass
class Day:
    """The weather of one day."""

    high: float
    sky: str


@dataclass
class Forecast:
    """The weather of the coming days in a city."""

    city: str
    days: list[Day]


async def listing(scene: Scene) -> None:
    tools = {tool.name: tool for tool in await scene.client.list_tools()}
    same("tools that are missing", TOOLS - set(tools), set())
    has("the schema of add", tools["add"].input_schema["properties"], "a", "b")
    same("who it is", scene.client.server_info["name"], "playhouse")
    same("what it says for models", scene.client.instructions, "Break a leg.")


async def calling(scene: Scene) -> None:
    same("a sum", await scene.client.call("add", a=2, b=3), 5)
    sums = await asyncio.gather(*(scene.client.call("add", a=number, b=1) for number in range(16)))
    same("sums, side by side", sums, list(range(1, 17)))


async def structure(scene: Scene) -> None:
    days = [Day(20.5, "clear"), Day(21.5, "rain")]
    same("a value", await scene.client.call("forecast", city="Oslo", into=Forecast), Forecast("Oslo", days))
    reply = await scene.client.call_tool("forecast", {"city": "Oslo", "days": 1})
    same("as it came", reply.structured_content, {"city": "Oslo", "days": [{"high": 20.5, "sky": "clear"}]})


async def failure(scene: Scene) -> None:
    error = await ends("a tool that fails", scene.client.call("fail"), "ToolFailed")
    has("why", str(error), "The prop broke.")
    reply = await scene.client.call_tool("add", {"a": "x", "b": 1})
    same("wrong arguments", reply.is_error, True)
    await _unknown(scene)


async def _unknown(scene: Scene) -> None:
    """The specification wants a protocol error; before 2.0 the Python SDK made a result of it."""
    if scene.aside.get("unknown_is_result"):
        reply = await scene.client.call_tool("missing")
        same("a tool that there is not", (reply.is_error, "missing" in reply.text), (True, True))
    else:
        await refused("a tool that there is not", scene.client.call_tool("missing"), -32602)


async def progress(scene: Scene) -> None:
    heard, reply = await scene.progress("count", {"to": 3})
    same(
        "the steps",
        [(each.progress, each.total, each.message) for each in heard],
        [(n, 3, f"{n} of 3") for n in (1, 2, 3)],
    )
    same("the reply", reply.text, "counted to 3")


async def cancel(scene: Scene) -> None:
    call = scene.client.start_tool("wait", {"key": "k1"})
    async for step in call.progress():
        same("it has begun", step.message, "waiting")
        break
    call.cancel("enough")
    await ends("the cancelled call", call.result(), "RequestCancelled")
    same("the tool was stopped", (await scene.client.call_tool("stopped", {"key": "k1"})).text, "stopped")
    late = scene.client.within(1.0).call_tool("wait", {"key": "k2"})
    await ends("a deadline", late, "RequestTimeout")
    same("and then as well", (await scene.client.call_tool("stopped", {"key": "k2"})).text, "stopped")


async def cancel_alone(scene: Scene) -> None:
    """Where each request stands alone, the server cannot be told; the waiting caller is told all the same, and the next call is answered."""
    begun = scene.client.start_tool("wait", {"key": "k1"}, progress=False)
    begun.cancel("enough")
    await ends("the cancelled call", begun.result(), "RequestCancelled")
    late = scene.client.within(0.3).call_tool("wait", {"key": "k2"})
    await ends("a deadline", late, "RequestTimeout")
    same("the next call", await scene.client.call("add", a=2, b=3), 5)


async def logging(scene: Scene) -> None:
    logs = scene.ears.logs
    for level, wanted in (("debug", ["debug", "info", "error"]), ("error", ["error"])):
        await scene.client.set_log_level("debug" if level == "debug" else "error")
        logs.clear()
        same("the call", (await scene.client.call_tool("narrate")).text, "told")
        await becomes("the levels", lambda: [log.level for log in logs], wanted)
    same("the last", (logs[-1].logger, logs[-1].data), ("play", scene.aside.get("log", {"said": "loud"})))


async def reading(scene: Scene) -> None:
    has("the resources", [one.uri for one in await scene.client.list_resources()], DIAL)
    has(
        "the templates",
        [one.uri_template for one in await scene.client.list_resource_templates()],
        "play://scene/{number}",
    )
    await scene.client.call_tool("turn", {"value": 3})
    same("the dial", (await scene.client.read_resource(DIAL)).text, "3")
    reply = await scene.client.read_resource("play://scene/4")
    same("a scene", (reply.text, reply.contents[0].uri), ("Scene 4", "play://scene/4"))
    await refused(
        "what there is not", scene.client.read_resource("play://nothing"), scene.aside.get("no_resource", -32002)
    )


async def subscribe(scene: Scene) -> None:
    await scene.updated(DIAL, lambda: scene.client.call_tool("turn", {"value": 7}))
    same("the dial", (await scene.client.read_resource(DIAL)).text, "7")
    before = scene.ears.said["notifications/resources/updated"]
    await scene.client.call_tool("turn", {"value": 8})
    await scene.client.ping()
    same("updates after unsubscribing", scene.ears.said["notifications/resources/updated"], before)


async def prompt(scene: Scene) -> None:
    found = {one.name: [argument.name for argument in one.arguments or ()] for one in await scene.client.list_prompts()}
    same("its arguments", found["greet"], ["who", "mood"])
    reply = await scene.client.get_prompt("greet", who="Ann", mood="cross")
    content: Any = reply.messages[0].content
    same("the message", (reply.messages[0].role, content.text), ("user", "Greet Ann, cross."))


async def complete(scene: Scene) -> None:
    same("moods", list((await scene.client.complete("greet", "mood", "c")).values), ["calm", "cheerful", "cross"])
    same("one mood", list((await scene.client.complete("greet", "mood", "ch")).values), ["cheerful"])


async def changes(scene: Scene) -> None:
    async with scene.client.listen("notifications/tools/list_changed") as updates:
        await scene.client.call_tool("grow")
        async for told in updates:
            same("what is told", told.method, "notifications/tools/list_changed")
            break
    has("the tools", [tool.name for tool in await scene.client.list_tools()], "grown")
    same("the new one", await scene.client.call("grown"), "I am new.")
    await scene.client.call_tool("shrink")


async def sampling(scene: Scene) -> None:
    same(
        "what the model said",
        (await scene.client.call_tool("ask_model", {"question": "why?"})).text,
        "parrot says WHY?",
    )


async def elicitation(scene: Scene) -> None:
    scene.ears.form = {"name": "Ann"}
    same("a form, its default filled in", (await scene.client.call_tool("ask_user")).text, "Ann takes 2")
    same("what was asked", scene.ears.forms[-1].message, "Who comes?")
    scene.ears.form = None
    same("a form that is declined", (await scene.client.call_tool("ask_user")).text, "decline")


async def url(scene: Scene) -> None:
    same("a page", (await scene.client.call_tool("pay")).text, "paid")
    if not scene.ears.visits[-1].startswith("https://box.example/pay"):
        raise WrongError(f"the user was sent to {scene.ears.visits[-1]}")


async def roots(scene: Scene) -> None:
    uri = scene.folder.as_uri()
    has("where we work", (await scene.client.call_tool("where")).text, uri)
    other = scene.folder / "other"
    await scene.client.set_roots([other])
    has("where we work now", (await scene.client.call_tool("where")).text, other.as_uri())


async def tasks(scene: Scene) -> None:
    begun = await scene.client.call_tool("rehearse", {"lines": 3}, task=60)
    task = begun.task
    if task is None:
        raise WrongError(f"no task was begun: {begun}")
    has("all tasks", [one.id for one in await scene.client.tasks_list()], task.id)
    same("how it ends", (await scene.client.tasks_wait(task)).status, "completed")
    same("what came of it", (await scene.client.tasks_result(task)).text, "rehearsed 3")
    endless = (await scene.client.call_tool("rehearse", {"lines": 0}, task=True)).task
    assert endless is not None
    same("one that is stopped", (await scene.client.tasks_cancel(endless)).status, "cancelled")
    await refused("stopped again", scene.client.tasks_cancel(endless), -32602)


async def tasks_of_calls(scene: Scene) -> None:
    """The extension: the server decides which call becomes a task."""
    client = scene.client
    same("a call that the server made a task", (await client.call_tool("rehearse", {"lines": 3})).text, "rehearsed 3")
    scene.ears.form = {"name": "Ann"}
    same("a task that asks", (await client.call_tool("cast_part")).text, "Ann plays")
    scene.ears.form = None
    endless = (await client.call_tool("rehearse", {"lines": 0}, task=True)).task
    if endless is None:
        raise WrongError("no task was begun")
    same("how it is", (await client.tasks_get(endless)).status, "working")
    await client.tasks_cancel(endless)
    same("one that is stopped", (await client.tasks_wait(endless)).status, "cancelled")


async def rounds(scene: Scene) -> None:
    """Questions to the user, the model and the client at once; and one after the other."""
    scene.ears.form = {"name": "Ann"}
    said = (await scene.client.call_tool("ask_all", {"question": "why?"})).text
    same("three at once", said, f"Ann takes 2, parrot says WHY?, {(scene.folder / 'other').as_uri()}")
    said = (await scene.client.call_tool("ask_twice")).text
    same("two, one after the other", said.partition(";")[0], "Ann takes 2, then Ann takes 2")
    scene.ears.form = None


async def headers(scene: Scene) -> None:
    """Arguments that HTTP repeats in headers, one of which no header may hold as it is."""
    said = (await scene.client.call_tool("seat", {"section": "Süd ", "row": 7})).text
    same("the seat", said.partition(",")[0], "Süd  7")
    has("the headers", said, scene.aside.get("mirrored", ""))
    same("without a row", (await scene.client.call_tool("seat", {"section": "A"})).text.partition(",")[0], "A 1")


async def no_progress(scene: Scene) -> None:
    heard, reply = await scene.progress("count", {"to": 2})
    same("the reply, and what was heard", (reply.text, heard), ("counted to 2", []))


async def no_logging(scene: Scene) -> None:
    await scene.client.set_log_level("debug")
    same("the reply", (await scene.client.call_tool("narrate")).text, "told")
    same("what was heard", scene.ears.logs, [])


async def no_updates(scene: Scene) -> None:
    async with scene.client.subscribe(DIAL):
        same("the reply", (await scene.client.call_tool("turn", {"value": 3})).text, "turned")
        same("what was heard", scene.ears.said.total(), 0)


def no_question(tool: str, arguments: Mapping[str, Any]) -> Step:
    """A tool that asks ends in the way of its SDK, be it that it never ends; and the next call is answered."""

    async def ends_so(scene: Scene) -> None:
        how = scene.aside["asking"]
        patience = 0.5 if how == "RequestTimeout" else WITHIN
        await ends(f"{tool}, which asks", scene.client.within(patience).call(tool, arguments), how)
        same("the next call", await scene.client.call("add", a=2, b=3), 5)

    return ends_so


TALKS: Mapping[str, Step] = {
    "progress": progress, "cancel": cancel, "logging": logging, "subscribe": subscribe,
    "sampling": sampling, "elicitation": elicitation, "url": url, "roots": roots,
}  # fmt: skip
"""The steps that need requests from the server."""
ASKS: Mapping[str, Step] = {
    "list": listing, "call": calling, "structure": structure, "failure": failure, "read": reading, "prompt": prompt,
    "complete": complete,
}  # fmt: skip
"""The steps that are only requests and replies."""
SILENT: Mapping[str, Step] = {
    "progress": no_progress, "logging": no_logging, "subscribe": no_updates, "url": no_question("pay", {}),
    "sampling": no_question("ask_model", {"question": "why?"}), "elicitation": no_question("ask_user", {}),
    "roots": no_question("where", {}),
}  # fmt: skip
"""The same where there is no way back: nothing comes, and nothing breaks."""
ALONE: Mapping[str, Step] = {**ASKS, **SILENT, "cancel": cancel_alone}


async def no_listen(scene: Scene) -> None:
    await refused("a listen", scene.client.subscribe(DIAL).__aenter__(), -32600)
    same("the next call", await scene.client.call("add", a=2, b=3), 5)


async def no_change(scene: Scene) -> None:
    """A list is read again, since nothing tells that it has changed."""
    await scene.client.call_tool("grow")
    has("the tools", [tool.name for tool in await scene.client.list_tools()], "grown")
    await scene.client.call_tool("shrink")


UNSAID: Mapping[str, Step] = {"progress": no_progress, "logging": no_logging, "cancel": cancel_alone}
"""The steps of the stateless era where an answer is one JSON object."""
UNHEARD: Mapping[str, Step] = {**UNSAID, "subscribe": no_listen, "changes": no_change}
"""The same where there is no stream at all."""
STEPS: Mapping[str, Step] = {**ASKS, **TALKS}
IN_SESSIONS: Mapping[str, Step] = {**STEPS, "changes": changes, "rounds": rounds}
OURS_IN_SESSIONS: Mapping[str, Step] = {**IN_SESSIONS, "tasks": tasks}
STATELESS: Mapping[str, Step] = {**IN_SESSIONS, "headers": headers}
OURS: Mapping[str, Step] = {**STATELESS, "tasks": tasks_of_calls}
