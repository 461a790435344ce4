"""All servers in one `Host`: one set of tools, called by name and by a model, while one of them is killed and another one leaves."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from greenroom import Host

from .programs import SITES
from .scene import Ears, becomes, has, same
from .stage import living

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from greenroom import ElicitationRequest, SamplingRequest, UrlElicitationRequest

    from .grid import Row

    Checks: TypeAlias = Mapping[str, Callable[["Company"], Awaitable[None]]]

TIME = {"source_timezone": "UTC", "time": "16:30", "target_timezone": "Asia/Tokyo"}


class Company:
    """The host, and what has to be known of its servers."""

    def __init__(
        self, host: Host, place: Path, folders: Mapping[str, Path], tools: Mapping[str, int], asked: Counter[str]
    ) -> None:
        """`place` is where the user works, `tools` how many tools each of them has when it is alone, `asked` how often each asked the model."""
        self.host, self.place, self.folders, self.tools, self.asked = host, place, folders, tools, asked

    async def called(self, id: str, tool: str, arguments: Mapping[str, Any], wanted: str) -> None:
        """A call, and what has to be in the answer."""
        has(f"the answer of {id}", (await self.host.call_tool(f"{id}:{tool}", arguments)).text, wanted)

    def states(self) -> dict[str, str]:
        """The status of all servers."""
        return {id: standing.state.value for id, standing in self.host.status().items()}


def calls(company: Company) -> dict[str, tuple[str, dict[str, Any], str]]:
    """A tool of each server, its arguments, and what has to be in the answer."""
    found: dict[str, tuple[str, dict[str, Any], str]] = {}
    for id, folder in company.folders.items():
        match id.partition(" ")[0]:
            case "server-everything":
                found[id] = "echo", {"message": "hello"}, "Echo: hello"
            case "server-filesystem":
                found[id] = "list_directory", {"path": str(company.place)}, "[DIR]"
            case "server-memory":
                found[id] = "search_nodes", {"query": "x"}, "relations"
            case "mcp-server-time":
                found[id] = "convert_time", TIME, "+9.0h"
            case "mcp-server-git":
                found[id] = "git_log", {"repo_path": str(folder)}, "Message: first"
            case "mcp-server-fetch":
                found[id] = "fetch", {"url": f"{SITES[folder].url}/page"}, "They swim."
            case _:
                found[id] = "add", {"a": 2, "b": 3}, "5"
    return found


async def all_ready(company: Company) -> None:
    """They all come up, and all their tools are there."""
    await becomes("how they are", lambda: set(company.states().values()), {"ready"})
    catalogue = await company.host.tools()
    count = {id: sum(1 for tool in catalogue if tool.name.startswith(f"{id}:")) for id in company.tools}
    same("how many tools each has", count, dict(company.tools))
    for offered in (await company.host.to_anthropic(), [one["function"] for one in await company.host.to_openai()]):
        names = [one["name"] for one in offered]
        same("names for a model", (len(set(names)), len(names)), (sum(company.tools.values()),) * 2)
        same(
            "those that no provider takes",
            [name for name in names if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", name)],
            [],
        )


async def by_name(company: Company) -> None:
    """A call of each, side by side, four times."""
    await asyncio.gather(*(company.called(id, *each) for _ in range(4) for id, each in calls(company).items()))


async def by_a_model(company: Company) -> None:
    """The same in a provider's words; a call that lacks required arguments is refused by the schema, before its server is asked."""
    names = [tool.name for tool in await company.host.tools()]
    offered = dict(zip(names, await company.host.to_anthropic(), strict=True))
    for id, (tool, given, wanted) in calls(company).items():
        use = {"type": "tool_use", "id": "u1", "name": offered[f"{id}:{tool}"]["name"], "input": given}
        answer = await company.host.run(use)
        same(f"whose answer that of {id} is", (answer["tool_use_id"], answer.get("is_error", False)), ("u1", False))
        has(f"the answer of {id}", str(answer["content"]), wanted)
        if offered[f"{id}:{tool}"]["input_schema"].get("required"):
            answer = await company.host.run({**use, "input": {}})
            same(f"whether {id}:{tool} was refused", answer.get("is_error"), True)


async def asked_back(company: Company) -> None:
    """Those that ask the model all do it at once, and each is answered for itself."""
    playhouses = [id for id, (tool, _, _) in calls(company).items() if tool == "add"]
    company.asked.clear()
    await asyncio.gather(
        *(company.called(id, "ask_model", {"question": id}, f"parrot says {id.upper()}") for id in playhouses)
    )
    same("who asked", company.asked, Counter(playhouses))


async def killed(company: Company) -> None:
    """One of them is killed with -9: the others answer meanwhile, and it is there again."""
    victim = next(id for id in company.tools if id.startswith("mcp-server-time"))
    before = set(living(str(company.folders[victim])))
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    for id, each in calls(company).items():
        if id != victim:
            await company.called(id, *each)
    again = await company.host.server(victim).within(20).call("convert_time", TIME)
    same("the answer of the one that was killed", again["time_difference"], "+9.0h")
    after = set(living(str(company.folders[victim])))
    same(
        "its programs, and those that were there before",
        (bool(before), bool(after), before & after),
        (True, True, set()),
    )


async def removed(company: Company) -> None:
    """One leaves: its tools are gone, and so is its program."""
    id = next(id for id in company.tools if id.startswith("server-memory"))
    await company.host.remove(id)
    same("its tools", [tool.name for tool in await company.host.tools() if tool.name.startswith(id)], [])
    await becomes("its program", lambda: living(str(company.folders[id])), [])


CHECKS: Checks = {
    "all are ready": all_ready, "called by name": by_name, "called by a model": by_a_model, "the model is asked": asked_back,
    "one is killed": killed, "one leaves": removed,
}  # fmt: skip
LAST = "closed, with no process left"


def answers(asked: Counter[str], place: Path) -> dict[str, Any]:
    """The host's answers to the servers' questions."""
    ears = Ears(roots=[place])

    async def sampled(id: str, request: SamplingRequest) -> Any:
        asked[id] += 1
        return await ears.samples(request)

    async def elicited(_id: str, request: ElicitationRequest) -> Any:
        return await ears.elicits(request)

    async def visited(_id: str, request: UrlElicitationRequest) -> Any:
        return await ears.visits_page(request)

    async def places(_id: str) -> Any:
        return await ears.places()

    return {"sampling": sampled, "elicitation": elicited, "url_elicitation": visited, "roots": places}


async def together(rows: list[Row], tools: Mapping[str, int], folder: Path) -> dict[str, str]:
    """The errors by check; none for a check that passed."""
    found: dict[str, str] = {}
    name = next(iter(CHECKS))
    try:
        async with AsyncExitStack() as stack:
            company = await _company(rows, tools, folder, stack)
            for name, check in CHECKS.items():
                try:
                    async with asyncio.timeout(40):
                        await check(company)
                except Exception as error:  # noqa: BLE001 - whatever it was, it is what the verdict is about
                    found[name] = f"{type(error).__name__}: {error}"
            name = LAST
    except Exception as error:  # noqa: BLE001 - the same
        found[name] = f"{type(error).__name__}: {error}"
    return found


async def _company(rows: list[Row], tools: Mapping[str, int], folder: Path, stack: AsyncExitStack) -> Company:
    """The host, and all servers that are not its own to start; they end with the stack."""
    asked: Counter[str] = Counter()
    folders = {row.id: folder / f"together{number}" for number, row in enumerate(rows)}
    targets: dict[str, Any] = {}
    for row in rows:
        folders[row.id].mkdir()
        if row.prepare is not None:
            row.prepare(folders[row.id])
        targets[row.id] = await stack.enter_async_context(row.open(folders[row.id]))
    host = await stack.enter_async_context(Host(targets, **answers(asked, folder)))
    return Company(host, folder, folders, tools, asked)
