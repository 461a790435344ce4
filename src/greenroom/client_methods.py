"""What a server may be asked, in Python's own words: lists, resources, prompts, completions, tasks; `client_tools` has the tools.

Derive from `ClientMethods` what has a `line`. Every word raises `PeerError` when the server answers with an error, a `ClientError` when there is
no answer of its, and `BadAnswer` when the answer is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from greenroom.actors.client.errors import NotReady, TooManyPages
from greenroom.protocol.definitions import Prompt, Resource, ResourceTemplate, Tool
from greenroom.protocol.handler_results import json_text
from greenroom.protocol.serialization import is_object, sendable
from greenroom.protocol.server_replies import (
    Page,
    PromptReply,
    RemoteTask,
    ResourceReply,
    ToolReply,
    read_completion,
    read_contents,
    read_page,
    read_prompt,
    read_task,
    read_tasks,
    read_tool_reply,
)
from greenroom.protocol.wire_shapes import LOG_LEVELS, LogLevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from greenroom.actors.client.interfaces import Line, ServerWelcome, Status, Updates
    from greenroom.protocol.handler_results import Completion

_logger: Final = logging.getLogger("greenroom.client")
T = TypeVar("T")

_SOON, _SELDOM = 0.05, 60.0
"""How often a task is asked for, at most and at least, whatever the server would like."""
_OFTEN_ENOUGH: Final = 1.0
AS_SET: Final[Any] = ...


class ClientMethods:
    """The words. Beneath are `request` and `notify`, for what there is no word for."""

    _timeout: float | None = AS_SET
    _most_pages = 1000

    @property
    def line(self) -> Line:
        """The way to the server, as actors use it."""
        raise NotImplementedError

    @property
    def timeout(self) -> float | None:
        """How long each request of this view may take; see `within`."""
        return None if self._timeout is AS_SET else self._timeout

    # --- how it is

    @property
    def status(self) -> Status:
        """How the connection is. Never blocks."""
        return self.line.status

    @property
    def welcome(self) -> ServerWelcome:
        """All that the server last said of itself. Raises `NotReady` before that."""
        found = self.line.welcome
        if found is None:
            raise NotReady(
                f"{self.line.name} has not said anything of itself yet: open the client first: `async with client:`"
            )
        return found

    @property
    def server_info(self) -> Mapping[str, Any]:
        """Who the server says it is: `name`, `version`, and perhaps more."""
        return self.welcome.server_info

    @property
    def server_capabilities(self) -> Mapping[str, Any]:
        """What the server says it can do."""
        return self.welcome.capabilities

    @property
    def protocol_version(self) -> str:
        """The revision that was agreed on."""
        return self.welcome.version

    @property
    def instructions(self) -> str | None:
        """What the server says for a model that uses it."""
        return self.welcome.instructions

    # --- anything

    def options(self) -> dict[str, Any]:
        """What every request of this view is sent with."""
        return {} if self._timeout is AS_SET else {"timeout": self._timeout}

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask anything: the result as it came."""
        return await self.line.request(
            method, None if params is None else sendable(f"the params of {method}", params), **self.options()
        )

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell anything."""
        await self.line.notify(method, None if params is None else sendable(f"the params of {method}", params))

    async def ping(self) -> float:
        """Whether it answers: after how many seconds."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        await self.request("ping")
        return loop.time() - before

    async def set_log_level(self, level: LogLevel) -> None:
        """Which log messages are wanted: of that level, and graver ones. It is said again after a reconnect."""
        if level not in LOG_LEVELS:
            raise ValueError(f"level is one of {', '.join(get_args(LogLevel))}, not {level!r}")
        keep: Any = getattr(self.line, "set_level", None)
        if keep is None:
            await self.request("logging/setLevel", {"level": level})
        else:
            await keep(level, **self.options())

    async def notify_roots_list_changed(self) -> None:
        """Tell the server that your roots are others now; it asks for them when it wants to know."""
        await self.notify("notifications/roots/list_changed")

    def subscribe(self, uri: str) -> Updates:
        """Updates of a resource: ``async with client.subscribe(uri) as updates: async for told in updates``.

        After a reconnect it is subscribed to again, and `told.gap` says that something may have been missed.
        """
        return self.line.subscribe(uri)

    def listen(self, *methods: str) -> Updates:
        """Notifications of these methods, or of all, as `subscribe` has those of one resource."""
        return self.line.listen(*methods)

    # --- lists

    async def list_tools(self) -> list[Tool]:
        """All tools, from all pages."""
        return await self._all(self.list_tools_page)

    async def list_tools_page(self, cursor: str | None = None) -> Page[Tool]:
        """One page of them; its `next_cursor` asks for the next."""
        return self._log_problems(read_page(Tool, await self.request("tools/list", _cursor_params(cursor))))

    async def list_resources(self) -> list[Resource]:
        """All resources, from all pages."""
        return await self._all(self.list_resources_page)

    async def list_resources_page(self, cursor: str | None = None) -> Page[Resource]:
        """One page of them."""
        return self._log_problems(read_page(Resource, await self.request("resources/list", _cursor_params(cursor))))

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """All resource templates, from all pages."""
        return await self._all(self.list_resource_templates_page)

    async def list_resource_templates_page(self, cursor: str | None = None) -> Page[ResourceTemplate]:
        """One page of them."""
        return self._log_problems(
            read_page(ResourceTemplate, await self.request("resources/templates/list", _cursor_params(cursor)))
        )

    async def list_prompts(self) -> list[Prompt]:
        """All prompts, from all pages."""
        return await self._all(self.list_prompts_page)

    async def list_prompts_page(self, cursor: str | None = None) -> Page[Prompt]:
        """One page of them."""
        return self._log_problems(read_page(Prompt, await self.request("prompts/list", _cursor_params(cursor))))

    async def _all(self, fetch: Callable[[str | None], Awaitable[Page[T]]]) -> list[T]:
        found: list[T] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(self._most_pages):
            page = await fetch(cursor)
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found
            if cursor in seen:
                raise TooManyPages(
                    f"{self.line.name} goes round in circles: it has given the cursor {cursor[:64]!r} twice"
                )
            seen.add(cursor)
        raise TooManyPages(f"{self.line.name} has more than {self._most_pages} pages of it")

    def _log_problems(self, page: Page[T]) -> Page[T]:
        for problem in page.problems:
            _logger.warning("%s lists what cannot be read, and is left out: %s", self.line.name, problem)
        return page

    # --- resources, prompts, completions

    async def read_resource(self, uri: str) -> ResourceReply:
        """What is in a resource: `.text`, `.blob`, or one contents after the other."""
        return read_contents(await self.request("resources/read", {"uri": uri}))

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> PromptReply:
        """A prompt with these arguments. Arguments of prompts are texts: what is none travels as its JSON."""
        given = {**(arguments or {}), **more}
        texts = {key: json_text(value) for key, value in given.items() if value is not None}
        return read_prompt(await self.request("prompts/get", {"name": name} | ({"arguments": texts} if texts else {})))

    async def complete(
        self,
        of: Prompt | ResourceTemplate | str | Mapping[str, Any],
        argument: str,
        value: str = "",
        known: Mapping[str, str] | None = None,
    ) -> Completion:
        """How an argument of a prompt, or a variable of a resource template, could go on from `value`.

        `of` is the definition, a prompt's name, or a template's URI. `known` are the arguments that are filled in already.
        """
        params: dict[str, Any] = {"ref": _reference(of), "argument": {"name": argument, "value": value}}
        if known:
            params["context"] = {"arguments": dict(known)}
        return read_completion(await self.request("completion/complete", params))

    # --- tasks

    async def tasks_list(self) -> list[RemoteTask]:
        """All tasks that the server keeps for us."""
        return await self._all(self.tasks_list_page)

    async def tasks_list_page(self, cursor: str | None = None) -> Page[RemoteTask]:
        """One page of them."""
        return read_tasks(await self.request("tasks/list", _cursor_params(cursor)))

    async def tasks_get(self, task: RemoteTask | str) -> RemoteTask:
        """How a task stands."""
        return read_task(await self.request("tasks/get", {"taskId": _id(task)}))

    async def tasks_cancel(self, task: RemoteTask | str) -> RemoteTask:
        """Have it stopped. Raises `PeerError` (-32602) when it is over already."""
        return read_task(await self.request("tasks/cancel", {"taskId": _id(task)}), "tasks/cancel")

    async def tasks_result(self, task: RemoteTask | str) -> ToolReply:
        """What came of it, as soon as it is over: the server keeps the answer back until then, and may ask things meanwhile."""
        return read_tool_reply(await self.request("tasks/result", {"taskId": _id(task)}))

    async def tasks_wait(self, task: RemoteTask | str) -> RemoteTask:
        """Wait until it is over, however long that takes; it is asked for as often as the server likes, and as it says that it has moved."""
        async with self.listen("notifications/tasks/status") as updates:
            news = aiter(updates)
            heard: asyncio.Future[Any] | None = None
            try:
                while not (state := await self.tasks_get(task)).over:
                    pause = min(max(state.poll_interval or _OFTEN_ENOUGH, _SOON), _SELDOM)
                    if heard is None:
                        heard = asyncio.ensure_future(anext(news))
                    done, _ = await asyncio.wait((heard,), timeout=pause)
                    if done:
                        heard = None
                return state
            finally:
                if heard is not None:
                    heard.cancel()
                    with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                        await heard


def _cursor_params(cursor: str | None) -> dict[str, Any] | None:
    return None if cursor is None else {"cursor": cursor}


def _id(task: RemoteTask | str) -> str:
    return task if isinstance(task, str) else task.id


def _reference(of: Prompt | ResourceTemplate | str | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(of, Prompt):
        return {"type": "ref/prompt", "name": of.name}
    if isinstance(of, ResourceTemplate):
        return {"type": "ref/resource", "uri": of.uri_template}
    if is_object(of):
        return dict(of)
    return {"type": "ref/resource", "uri": of} if "://" in of or "{" in of else {"type": "ref/prompt", "name": of}
