"""The steps with the servers that are tools of daily life: files, a memory, the time, Git, and pages of the web."""

from __future__ import annotations

import asyncio
import json
import subprocess
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .scene import Scene, WrongError, ends, has, refused, same, settles

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from .grid import Opener, Step

GRAPH = "memory://knowledge-graph"


async def _unknown(scene: Scene) -> None:
    """The text wants an error; what is made with the TypeScript SDK of the first line makes a result of it."""
    if scene.client.server_info["name"] in {"secure-filesystem-server", "memory-server"}:
        reply = await scene.client.call_tool("missing")
        same("a tool that there is not", (reply.is_error, "missing not found" in reply.text), (True, True))
    else:
        await refused("a tool that there is not", scene.client.call_tool("missing"), -32602)


async def _nothing_to_read(scene: Scene) -> None:
    """It has resources, it says, and none is there."""
    same("resources", (await scene.client.list_resources(), await scene.client.list_resource_templates()), ([], []))
    await refused("what there is not", scene.client.read_resource("x://y"), -32602)


async def _no_prompts(scene: Scene) -> None:
    same("prompts", await scene.client.list_prompts(), [])


async def _names(scene: Scene, *names: str) -> None:
    has("the tools", {tool.name for tool in await scene.client.list_tools()}, *names)


# --- files


async def files_list(scene: Scene) -> None:
    await _names(scene, "read_text_file", "write_file", "edit_file", "search_files", "directory_tree")


async def files_call(scene: Scene) -> None:
    call, path = scene.client.call, str(scene.folder / "a.txt")
    written = await call("write_file", path=path, content="one\ntwo\n")
    has("written", written["content"], f"wrote to {path}")
    changed = await call("edit_file", path=path, edits=[{"oldText": "one", "newText": "1"}])
    has("changed", changed["content"], "-one", "+1")
    same("on the disk", scene.folder.joinpath("a.txt").read_text(encoding="utf-8"), "1\ntwo\n")
    many = await asyncio.gather(*(call("read_text_file", path=path, head=1) for _ in range(16)))
    same("read, side by side", {one["content"] for one in many}, {"1"})


async def files_structure(scene: Scene) -> None:
    path = str(scene.folder)
    typed = await scene.client.call("list_directory", path=path, into=dict[str, str])
    has("a folder", typed["content"], "[FILE] a.txt")


async def files_failure(scene: Scene) -> None:
    error = await ends("a file of others", scene.client.call("read_text_file", path="/etc/hostname"), "ToolFailed")
    has("why", str(error), "outside allowed directories")
    await _unknown(scene)


async def files_cancel(scene: Scene) -> None:
    await scene.cancelled("directory_tree", {"path": str(scene.folder)})
    found = await scene.client.call("list_directory", path=str(scene.folder))
    has("the next call", found["content"], "a.txt")


async def files_roots(scene: Scene) -> None:
    """Where it may read and write is where we work."""
    other = scene.folder / "other"
    other.mkdir()
    await scene.client.set_roots([other])

    async def may_there() -> bool:
        found = await scene.client.call("list_allowed_directories")
        return bool(found["content"].splitlines()[1:] == [str(other)])

    await settles("where it may", may_there)
    await ends("where we worked", scene.client.call("list_directory", path=str(scene.folder)), "ToolFailed")


FILES: Mapping[str, Step] = {
    "list": files_list, "call": files_call, "structure": files_structure, "failure": files_failure, "cancel": files_cancel,
    "roots": files_roots,
}  # fmt: skip


# --- a memory


@dataclass
class Entity:
    """A person or a thing."""

    name: str
    entityType: str  # noqa: N815 - its name there
    observations: list[str]


def _entities(*names: str) -> dict[str, Any]:
    return {"entities": [{"name": name, "entityType": "person", "observations": ["sings"]} for name in names]}


async def memory_list(scene: Scene) -> None:
    await _names(scene, "create_entities", "read_graph", "search_nodes")


async def memory_call(scene: Scene) -> None:
    same("remembered", await scene.client.call("create_entities", _entities("Ann")), _entities("Ann"))
    found = await scene.client.call("search_nodes", query="sing")
    same("found", found, {**_entities("Ann"), "relations": []})


async def memory_structure(scene: Scene) -> None:
    found = await scene.client.call("open_nodes", names=["Ann"], into=dict[str, list[Entity]])
    same("typed", found["entities"], [Entity("Ann", "person", ["sings"])])


async def memory_failure(scene: Scene) -> None:
    error = await ends("wrong arguments", scene.client.call("create_entities", entities="Ann"), "ToolFailed")
    has("why", str(error), "expected array")
    await _unknown(scene)


async def memory_cancel(scene: Scene) -> None:
    await scene.cancelled("read_graph", {})
    same("the next call", await scene.client.call("read_graph"), {**_entities("Ann"), "relations": []})


async def memory_read(scene: Scene) -> None:
    same("the resources", [one.uri for one in await scene.client.list_resources()], [GRAPH])
    same(
        "what is in it",
        json.loads((await scene.client.read_resource(GRAPH)).text),
        {**_entities("Ann"), "relations": []},
    )
    await refused("what there is not", scene.client.read_resource("x://y"), -32602)


async def memory_subscribe(scene: Scene) -> None:
    await scene.updated(GRAPH, lambda: scene.client.call("create_entities", _entities("Bob")))


MEMORY: Mapping[str, Step] = {
    "list": memory_list, "call": memory_call, "structure": memory_structure, "failure": memory_failure, "cancel": memory_cancel,
    "read": memory_read, "subscribe": memory_subscribe,
}  # fmt: skip


# --- the time

TOKYO = {"source_timezone": "UTC", "time": "16:30", "target_timezone": "Asia/Tokyo"}


@dataclass
class Moment:
    """The time in a time zone."""

    timezone: str
    datetime: datetime
    is_dst: bool


async def time_list(scene: Scene) -> None:
    same("the tools", {tool.name for tool in await scene.client.list_tools()}, {"get_current_time", "convert_time"})


async def time_call(scene: Scene) -> None:
    found = await asyncio.gather(*(scene.client.call("convert_time", TOKYO) for _ in range(16)))
    same("the difference", {one["time_difference"] for one in found}, {"+9.0h"})
    has("the time there", found[0]["target"]["datetime"], "T01:30:00+09:00")


async def time_structure(scene: Scene) -> None:
    moment = await scene.client.call("get_current_time", timezone="UTC", into=Moment)
    same("where", (moment.timezone, moment.is_dst), ("UTC", False))
    if abs((datetime.now(UTC) - moment.datetime).total_seconds()) > 60:
        raise WrongError(f"it is not {moment.datetime}")


async def time_failure(scene: Scene) -> None:
    error = await ends(
        "a place that there is not", scene.client.call("get_current_time", timezone="Mars"), "ToolFailed"
    )
    has("why", str(error), "Invalid timezone")
    await _unknown(scene)


async def time_cancel(scene: Scene) -> None:
    await scene.cancelled("convert_time", TOKYO)
    same("the next call", (await scene.client.call("convert_time", TOKYO))["time_difference"], "+9.0h")


TIME: Mapping[str, Step] = {
    "list": time_list, "call": time_call, "structure": time_structure, "failure": time_failure, "cancel": time_cancel,
    "read": _nothing_to_read, "prompt": _no_prompts,
}  # fmt: skip


# --- Git


def repository(folder: Path) -> None:
    """One commit, and a change that is none yet."""
    commands = ("init -q -b main", "add .", "-c user.name=Ann -c user.email=ann@example.org commit -q -m first")
    folder.joinpath("a.txt").write_text("one\n", encoding="utf-8")
    for command in commands:
        subprocess.run(["git", *command.split()], cwd=folder, check=True)
    folder.joinpath("a.txt").write_text("two\n", encoding="utf-8")


async def git_list(scene: Scene) -> None:
    await _names(scene, "git_status", "git_log", "git_diff_unstaged", "git_commit")


async def git_call(scene: Scene) -> None:
    where = str(scene.folder)
    many = await asyncio.gather(*(scene.client.call("git_log", repo_path=where) for _ in range(16)))
    for log in many:
        has("the log", log, "Author: Ann", "Message: first")
    has("what is changed", await scene.client.call("git_diff_unstaged", repo_path=where), "-one", "+two")
    has("on which branch", await scene.client.call("git_status", repo_path=where), "On branch main")


async def git_failure(scene: Scene) -> None:
    error = await ends("another folder", scene.client.call("git_status", repo_path="/"), "ToolFailed")
    has("why", str(error), "outside the allowed repository")
    await _unknown(scene)


async def git_cancel(scene: Scene) -> None:
    await scene.cancelled("git_log", {"repo_path": str(scene.folder)})
    has(
        "the next call",
        await scene.client.call("git_branch", repo_path=str(scene.folder), branch_type="local"),
        "* main",
    )


GIT: Mapping[str, Step] = {
    "list": git_list, "call": git_call, "failure": git_failure, "cancel": git_cancel, "read": _nothing_to_read,
    "prompt": _no_prompts,
}  # fmt: skip


# --- pages


class Site:
    """A site of three pages on this machine: one that all may read, one that robots are kept from, one that is never done."""

    def __init__(self) -> None:
        """No client has come yet."""
        self.url = ""
        self.waiting = asyncio.Event()
        self.left = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        if path == b"/slow":
            self.waiting.set()
            await reader.read()  # until the client has left
            self.left.set()
        else:
            kind, body = (
                b"text/html",
                b"<html><head><title>T</title></head><body><h1>Otters</h1><p>They swim.</p></body></html>",
            )
            if path == b"/robots.txt":
                kind, body = b"text/plain", b"User-agent: *\nDisallow: /secret\n"
            head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (
                kind,
                len(body),
            )
            writer.write(head + body)
        writer.close()


def with_site(opened: Opener) -> Opener:
    """The same server, and a site that it can fetch pages from; where that is stands in the folder."""

    @asynccontextmanager
    async def both(folder: Path) -> AsyncGenerator[Any]:
        site = SITES[folder] = Site()
        served = await asyncio.start_server(site.answer, "127.0.0.1", 0)
        async with served, opened(folder) as target:
            site.url = f"http://127.0.0.1:{served.sockets[0].getsockname()[1]}"
            yield target

    return both


SITES: dict[Path, Site] = {}


async def fetch_list(scene: Scene) -> None:
    same("the tools", [tool.name for tool in await scene.client.list_tools()], ["fetch"])


async def fetch_call(scene: Scene) -> None:
    url = SITES[scene.folder].url
    has("a page as Markdown", await scene.client.call("fetch", url=f"{url}/page"), "Otters", "They swim.")
    has("a page as it is", await scene.client.call("fetch", url=f"{url}/page", raw=True), "<h1>Otters</h1>")


async def fetch_failure(scene: Scene) -> None:
    site = SITES[scene.folder]
    error = await ends(
        "a page that robots are kept from", scene.client.call("fetch", url=f"{site.url}/secret"), "ToolFailed"
    )
    has("why", str(error), "robots.txt")
    await _unknown(scene)


async def fetch_cancel(scene: Scene) -> None:
    """A page that never comes: it is left when the call is taken back."""
    site = SITES[scene.folder]
    await scene.cancelled("fetch", {"url": f"{site.url}/slow"}, site.waiting.wait())
    async with asyncio.timeout(5):
        await site.left.wait()
    has("the next call", await scene.client.call("fetch", url=f"{site.url}/page"), "Otters")


async def fetch_prompt(scene: Scene) -> None:
    same("the prompts", [one.name for one in await scene.client.list_prompts()], ["fetch"])
    reply = await scene.client.get_prompt("fetch", url=f"{SITES[scene.folder].url}/page")
    content: Any = reply.messages[0].content
    has("a page in a message", content.text, "Otters")


FETCH: Mapping[str, Step] = {
    "list": fetch_list, "call": fetch_call, "failure": fetch_failure, "cancel": fetch_cancel, "read": _nothing_to_read,
    "prompt": fetch_prompt,
}  # fmt: skip
