"""The steps with the reference server that has everything."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

from greenroom import Embedded, Image, ResourceLink, Text

from .scene import Scene, WrongError, becomes, ends, has, refused, same, settles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .grid import Step

DOCUMENT = "demo://resource/static/document/features.md"
TEXT, BLOB = "demo://resource/dynamic/text/{resourceId}", "demo://resource/dynamic/blob/{resourceId}"
WEATHER = {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
PNG = b"\x89PNG\r\n"


async def listing(scene: Scene) -> None:
    tools = {tool.name: tool for tool in await scene.client.list_tools()}
    has(
        "the tools",
        tools,
        "echo",
        "get-sum",
        "trigger-sampling-request",
        "trigger-elicitation-request",
        "get-roots-list",
    )
    has("those for clients that can be sent to a page", tools, "trigger-url-elicitation")
    same("who it is", scene.client.server_info["name"], "mcp-servers/everything")


async def calling(scene: Scene) -> None:
    call = scene.client.call
    same("an echo", await call("echo", message="hello"), "Echo: hello")
    said = await asyncio.gather(*(call("get-sum", a=number, b=1) for number in range(16)))
    same("sums, side by side", said, [f"The sum of {number} and 1 is {number + 1}." for number in range(16)])
    before, picture, after = (await scene.client.call_tool("get-tiny-image")).content
    same("a picture between two texts", (type(before), type(picture), type(after)), (Text, Image, Text))
    assert isinstance(picture, Image)
    same("the picture", (picture.mime_type, picture.data[: len(PNG)]), ("image/png", PNG))
    noted: Any = (await scene.client.call_tool("get-annotated-message", {"messageType": "error"})).content[0]
    same("a note", (noted.text, noted.annotations["priority"]), ("Error: Operation failed", 1))
    links = (await scene.client.call_tool("get-resource-links", {"count": 2})).content[1:]
    named = [link.uri for link in links if isinstance(link, ResourceLink)]
    same("links", named, [BLOB.replace("{resourceId}", "1"), TEXT.replace("{resourceId}", "2")])
    asked = {"resourceType": "Blob", "resourceId": 2}
    inside = (await scene.client.call_tool("get-resource-reference", asked)).content[1]
    assert isinstance(inside, Embedded)
    has("a resource inside", inside.resource.blob or b"", b"Resource 2")


async def structure(scene: Scene) -> None:
    same("the weather", await scene.client.call("get-structured-content", location="Chicago"), WEATHER)
    typed = await scene.client.call("get-structured-content", location="Chicago", into=dict[str, int | str])
    same("the weather, typed", typed, WEATHER)


async def failure(scene: Scene) -> None:
    error = await ends("wrong arguments", scene.client.call("get-sum", a="x"), "ToolFailed")
    has("why", str(error), "expected number")
    reply = await scene.client.call_tool("missing")
    same("a tool that there is not", (reply.is_error, "missing not found" in reply.text), (True, True))


async def progress(scene: Scene) -> None:
    heard, reply = await scene.progress("trigger-long-running-operation", {"duration": 0.3, "steps": 3})
    same("the steps", [(step.progress, step.total) for step in heard], [(1, 3), (2, 3), (3, 3)])
    has("the reply", reply.text, "Steps: 3")


async def cancel(scene: Scene) -> None:
    call = scene.client.start_tool("trigger-long-running-operation", {"duration": 60, "steps": 600})
    async for _ in call.progress():
        break
    call.cancel("enough")
    await ends("the cancelled call", call.result(), "RequestCancelled")
    if scene.aside.get("goes_on"):
        said = scene.ears.said
        await becomes("it says all the same how it goes", lambda: said["notifications/progress"] > 2, True)
    late = scene.client.within(0.3).call_tool("trigger-long-running-operation", {"duration": 20, "steps": 2})
    await ends("a deadline", late, "RequestTimeout")
    same("the next call", await scene.client.call("echo", message="still here"), "Echo: still here")


async def logging(scene: Scene) -> None:
    """It logs who subscribes, at the level `info`."""
    logs = scene.ears.logs
    for level, count in (("debug", 1), ("error", 0)):
        await scene.client.set_log_level("debug" if level == "debug" else "error")
        logs.clear()
        async with scene.client.subscribe(DOCUMENT):
            await scene.client.ping()
            await becomes(
                "what is logged", lambda: len([log for log in logs if "Received Subscribe" in str(log)]), count
            )
            same("at which level", {log.level for log in logs} - {"info"}, set())


async def reading(scene: Scene) -> None:
    has("the resources", [one.uri for one in await scene.client.list_resources()], DOCUMENT)
    same("the templates", [one.uri_template for one in await scene.client.list_resource_templates()], [TEXT, BLOB])
    document = await scene.client.read_resource(DOCUMENT)
    same(
        "a document",
        (document.text.startswith("# Everything Server"), document.contents[0].mime_type),
        (True, "text/markdown"),
    )
    has(
        "a text",
        (await scene.client.read_resource(TEXT.replace("{resourceId}", "3"))).text,
        "Resource 3: This is a plaintext",
    )
    has(
        "bytes",
        (await scene.client.read_resource(BLOB.replace("{resourceId}", "4"))).contents[0].blob or b"",
        b"Resource 4",
    )
    await refused("what there is not", scene.client.read_resource("demo://nothing"), -32602)


async def subscribe(scene: Scene) -> None:
    toggle = "toggle-subscriber-updates"
    await scene.updated(DOCUMENT, lambda: scene.client.call_tool(toggle))
    has("no more of it", (await scene.client.call_tool(toggle)).text, "Stopped")


async def prompt(scene: Scene) -> None:
    found = {one.name: [argument.name for argument in one.arguments or ()] for one in await scene.client.list_prompts()}
    same("its arguments", found["args-prompt"], ["city", "state"])
    content: Any = (await scene.client.get_prompt("args-prompt", city="Oslo")).messages[0].content
    same("the message", content.text, "What's weather in Oslo?")
    inside: Any = (
        (await scene.client.get_prompt("resource-prompt", resourceType="Text", resourceId=1)).messages[1].content
    )
    same("a resource inside", inside.resource.uri, TEXT.replace("{resourceId}", "1"))
    await refused("a prompt that there is not", scene.client.get_prompt("missing"), -32602)


async def complete(scene: Scene) -> None:
    complete = scene.client.complete
    same("departments", list((await complete("completable-prompt", "department", "E")).values), ["Engineering"])
    people = await complete("completable-prompt", "name", "", {"department": "Sales"})
    same("who is in one", (list(people.values), people.total, people.has_more), (["David", "Eve", "Frank"], 3, False))


async def changes(scene: Scene) -> None:
    """A file becomes a resource of the session."""
    async with scene.client.listen("notifications/resources/list_changed") as updates:
        packed = await scene.client.call_tool(
            "gzip-file-as-resource", {"name": "a.gz", "data": "data:text/plain;base64,aGVsbG8="}
        )
        async for told in updates:
            same("what is told", told.method, "notifications/resources/list_changed")
            break
    link = packed.content[0]
    assert isinstance(link, ResourceLink)
    has("the resources", [one.uri for one in await scene.client.list_resources()], link.uri)
    same(
        "what is in it", gzip.decompress((await scene.client.read_resource(link.uri)).contents[0].blob or b""), b"hello"
    )


async def sampling(scene: Scene) -> None:
    said = (await scene.client.call_tool("trigger-sampling-request", {"prompt": "why?"})).text
    whole = json.loads(said.partition("\n")[2])
    same("who said it", (whole["model"], whole["role"]), ("parrot", "assistant"))
    has("what was said", whole["content"]["text"], "WHY?")


async def elicitation(scene: Scene) -> None:
    scene.ears.form = {"name": "Ann", "check": True}
    said = (await scene.client.call_tool("trigger-elicitation-request")).text
    whole = json.loads(said.partition("Raw result: ")[2])
    same("what was filled in, and by default", (whole["content"]["name"], whole["content"]["integer"]), ("Ann", 42))
    scene.ears.form = None
    has("a form that is declined", (await scene.client.call_tool("trigger-elicitation-request")).text, "declined")


async def url(scene: Scene) -> None:
    there = {"url": "https://box.example/pay", "elicitationId": "e1"}
    has("a page", (await scene.client.call_tool("trigger-url-elicitation", there)).text, "User completed", "e1")
    same("where the user was sent", scene.ears.visits, [there["url"]])
    asking = scene.client.call_tool("trigger-url-elicitation", {**there, "elicitationId": "e2", "errorPath": True})
    error: Any = await refused("a page that is wanted first", asking, -32042)
    same("which", [one["mode"] for one in error.data["elicitations"]], ["url"])


async def roots(scene: Scene) -> None:
    has("where we work", (await scene.client.call_tool("get-roots-list")).text, scene.folder.as_uri())
    asked = scene.ears.asked["roots"]
    other = scene.folder / "other"
    scene.ears.roots = [other]
    await scene.client.notify_roots_list_changed()
    await becomes("it asks again", lambda: scene.ears.asked["roots"] > asked, True)

    async def knows() -> bool:
        return other.as_uri() in (await scene.client.call_tool("get-roots-list")).text

    await settles("where we work now", knows)


async def tasks(scene: Scene) -> None:
    """Two of them at once, since one takes four seconds: one that asks, and one that is stopped."""
    client, tool = scene.client, "simulate-research-query"
    scene.ears.form = {"interpretation": "technical"}
    begun = (await client.call_tool(tool, {"topic": "otters", "ambiguous": True}, task=60)).task
    other = (await client.call_tool(tool, {"topic": "owls"}, task=60)).task
    if begun is None or other is None:
        raise WrongError("no task was begun")
    same("how it begins", begun.status, "working")
    has("all tasks", [one.id for one in await client.tasks_list()], begun.id, other.id)
    same("one that is stopped", (await client.tasks_cancel(other)).status, "cancelled")
    await refused("stopped again", client.tasks_cancel(other), -32602)
    asked = scene.ears.asked["elicitation"]
    has("what came of it", (await client.tasks_result(begun)).text, "otters", "technical")
    same("it asked", scene.ears.asked["elicitation"], asked + 1)
    same("how it ended", (await client.tasks_wait(begun)).status, "completed")
    reply = await client.call_tool(tool, {"topic": "owls"})
    same("a call that is no task", reply.is_error, True)


STEPS: Mapping[str, Step] = {
    "list": listing, "call": calling, "structure": structure, "failure": failure, "progress": progress, "cancel": cancel,
    "logging": logging, "read": reading, "subscribe": subscribe, "prompt": prompt, "complete": complete, "changes": changes,
    "sampling": sampling, "elicitation": elicitation, "url": url, "roots": roots, "tasks": tasks,
}  # fmt: skip
