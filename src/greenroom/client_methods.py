"""`ClientMethods`: a client's methods for lists, resources, prompts, completions and tasks; `ClientTools` in `client` adds those for tools.

Subclasses have a `line`. Every method raises `PeerError` when the server answers with an error, a `ClientError` when it does not answer, and
`BadAnswer` when its answer is invalid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from greenroom.actors.client.errors import NotInRevision, NotReady, TooManyPages
from greenroom.protocol.definitions import Prompt, Resource, ResourceTemplate, Tool
from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.handler_results import json_text
from greenroom.protocol.received_results import (
    Page,
    PromptReply,
    RemoteTask,
    ResourceReply,
    ToolReply,
    read_completion,
    read_contents,
    read_detailed_task,
    read_page,
    read_prompt,
    read_task,
    read_tasks,
    read_tool_reply,
)
from greenroom.protocol.serialization import is_object, sendable
from greenroom.protocol.wire_shapes import LOG_LEVELS, LogLevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from greenroom.actors.client.interfaces import Line, ServerWelcome, Status, Updates
    from greenroom.actors.client.response_cache import LineCache
    from greenroom.protocol.handler_results import Completion

_logger: Final = logging.getLogger("greenroom.client")
T = TypeVar("T")

_SOON, _SELDOM = 0.05, 60.0
"""The shortest and the longest pause between two `tasks/get`, whatever the server asks for."""
_OFTEN_ENOUGH: Final = 1.0
AS_SET: Final[Any] = ...


class ClientMethods:
    """The methods. `request` and `notify` send anything that has no method of its own."""

    _timeout: float | None = AS_SET
    _most_pages = 1000

    @property
    def line(self) -> Line:
        """The handle for requests to the server, as actors use it."""
        raise NotImplementedError

    @property
    def timeout(self) -> float | None:
        """The timeout of each request of this view; see `within`."""
        return None if self._timeout is AS_SET else self._timeout

    @property
    def _line_cache(self) -> LineCache | None:
        return getattr(self.line, "cache", None)

    # --- status

    @property
    def status(self) -> Status:
        """The connection's present status. Never blocks."""
        return self.line.status

    @property
    def welcome(self) -> ServerWelcome:
        """The server's description of itself from the last opening of the connection. Raises `NotReady` before."""
        found = self.line.welcome
        if found is None:
            raise NotReady(f"{self.line.name} is not connected yet: open the client first, with `async with client:`")
        return found

    @property
    def server_info(self) -> Mapping[str, Any]:
        """The server's `name` and `version`, and perhaps more."""
        return self.welcome.server_info

    @property
    def server_capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the server declares."""
        return self.welcome.capabilities

    @property
    def protocol_version(self) -> str:
        """The negotiated protocol revision."""
        return self.welcome.version

    @property
    def instructions(self) -> str | None:
        """The server's instructions for a model that uses it."""
        return self.welcome.instructions

    # --- any request

    def options(self) -> dict[str, Any]:
        """The options of every request of this view."""
        return {} if self._timeout is AS_SET else {"timeout": self._timeout}

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send any request. Returns the result as it came."""
        return await self.line.request(
            method, None if params is None else sendable(f"the params of {method}", params), **self.options()
        )

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send any notification."""
        await self.line.notify(method, None if params is None else sendable(f"the params of {method}", params))

    async def ping(self) -> float:
        """Ping the server. Returns the seconds until its answer."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        await self.request("ping")
        return loop.time() - before

    async def set_log_level(self, level: LogLevel) -> None:
        """Set the lowest level of log messages to receive. It is set again after a reconnect."""
        if level not in LOG_LEVELS:
            raise ValueError(f"level is one of {', '.join(get_args(LogLevel))}, not {level!r}")
        keep: Any = getattr(self.line, "set_level", None)
        if keep is None:
            await self.request("logging/setLevel", {"level": level})
        else:
            await keep(level, **self.options())

    async def notify_roots_list_changed(self) -> None:
        """Notify the server that your roots have changed; it asks for them when it needs them."""
        await self.notify("notifications/roots/list_changed")

    def subscribe(self, uri: str) -> Updates:
        """Updates of a resource: ``async with client.subscribe(uri) as updates: async for update in updates``.

        After a reconnect the subscription is renewed, and an update with `gap` says that some may have been missed.
        """
        return self.line.subscribe(uri)

    def listen(self, *methods: str) -> Updates:
        """Notifications with these methods, or all; used as `subscribe` is."""
        return self.line.listen(*methods)

    # --- lists

    async def list_tools(self) -> list[Tool]:
        """All tools, from all pages."""
        return await self._all(self.list_tools_page)

    async def list_tools_page(self, cursor: str | None = None) -> Page[Tool]:
        """One page of the tools; its `next_cursor` asks for the next."""
        return self._log_problems(read_page(Tool, await self.request("tools/list", _cursor_params(cursor))))

    async def list_resources(self) -> list[Resource]:
        """All resources, from all pages."""
        return await self._all(self.list_resources_page)

    async def list_resources_page(self, cursor: str | None = None) -> Page[Resource]:
        """One page of the resources."""
        return self._log_problems(read_page(Resource, await self.request("resources/list", _cursor_params(cursor))))

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """All resource templates, from all pages."""
        return await self._all(self.list_resource_templates_page)

    async def list_resource_templates_page(self, cursor: str | None = None) -> Page[ResourceTemplate]:
        """One page of the resource templates."""
        return self._log_problems(
            read_page(ResourceTemplate, await self.request("resources/templates/list", _cursor_params(cursor)))
        )

    async def list_prompts(self) -> list[Prompt]:
        """All prompts, from all pages."""
        return await self._all(self.list_prompts_page)

    async def list_prompts_page(self, cursor: str | None = None) -> Page[Prompt]:
        """One page of the prompts."""
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
                raise TooManyPages(f"{self.line.name} lists in a circle: it has given the cursor {cursor[:64]!r} twice")
            seen.add(cursor)
        raise TooManyPages(f"{self.line.name} has more than {self._most_pages} pages in one list")

    def _log_problems(self, page: Page[T]) -> Page[T]:
        for problem in page.problems:
            _logger.warning("%s lists an invalid entry, which is left out: %s", self.line.name, problem)
        return page

    # --- resources, prompts, completions

    async def read_resource(self, uri: str) -> ResourceReply:
        """Read a resource: `.text`, `.blob`, or all `.contents`."""
        return read_contents(await self.request("resources/read", {"uri": uri}))

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> PromptReply:
        """Get a prompt with these arguments. Prompt arguments are texts; other values are sent as JSON."""
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
        """Completions of `value` for an argument of a prompt, or a variable of a resource template.

        `of` is the definition, a prompt's name, or a template's URI. `known` are the arguments that have values already.
        """
        params: dict[str, Any] = {"ref": _reference(of), "argument": {"name": argument, "value": value}}
        if known:
            params["context"] = {"arguments": dict(known)}
        return read_completion(await self.request("completion/complete", params))

    # --- tasks

    async def tasks_list(self) -> list[RemoteTask]:
        """All tasks that the server keeps for this client. Raises `NotInRevision` in the stateless era, where tasks are not listed."""
        return await self._all(self.tasks_list_page)

    async def tasks_list_page(self, cursor: str | None = None) -> Page[RemoteTask]:
        """One page of the tasks."""
        if await self._is_stateless():
            raise NotInRevision(
                "tasks/list", self.protocol_version, "keep the ids of the tasks that you want to see again"
            )
        return read_tasks(await self.request("tasks/list", _cursor_params(cursor)))

    async def tasks_get(self, task: RemoteTask | str) -> RemoteTask:
        """The state of a task; in the stateless era with its questions, its result or its error."""
        id = _id(task)
        result = await self.request("tasks/get", {"taskId": id})
        return read_detailed_task(result, id) if self.welcome.is_stateless else read_task(result)

    async def tasks_cancel(self, task: RemoteTask | str) -> RemoteTask:
        """Cancel a task, and return its state. Raises `PeerError` (-32602) when it has ended already, except in the stateless era.

        There a server may take its time to cancel a task, or complete it all the same.
        """
        id = _id(task)
        result = await self.request("tasks/cancel", {"taskId": id})
        if not self.welcome.is_stateless:
            return read_task(result, "tasks/cancel")
        try:
            return await self.tasks_get(id)
        except PeerError as error:
            if error.code != ErrorCode.INVALID_PARAMS:
                raise
            return RemoteTask(id, "cancelled")  # the server has acknowledged it, and deleted the task

    async def tasks_update(self, task: RemoteTask | str, answers: Mapping[str, Any]) -> None:
        """Answer questions of a task yourself: ``await client.tasks_update(task, {"who": {"action": "accept", "content": {"name": "Ada"}}})``.

        `tasks_get` has the open questions in `input_requests`, by key. `tasks_wait` and `tasks_result` answer by the client's functions, and call
        results that are awaited do, too. Raises `NotInRevision` in the handshake era, where the server sends its questions as requests.
        """
        if not await self._is_stateless():
            raise NotInRevision(
                "tasks/update", self.protocol_version, "pass functions that answer, such as elicitation=…"
            )
        params = {"taskId": _id(task), "inputResponses": sendable("the answers to a task", answers)}
        await self.request("tasks/update", params)

    async def tasks_result(self, task: RemoteTask | str) -> ToolReply:
        """The result of a task, as soon as it has ended. Questions that the server has meanwhile are answered by the client's functions."""
        return read_tool_reply(await self.request("tasks/result", {"taskId": _id(task)}))

    async def tasks_wait(self, task: RemoteTask | str) -> RemoteTask:
        """Wait until a task has ended, without a time limit. It polls as often as the server asks for, and on each status notification.

        In the stateless era questions are answered as in `tasks_result`.
        """
        if await self._is_stateless():
            ended = self.line.begin("tasks/result", {"taskId": _id(task)}, timeout=None, as_task=True)
            return read_task(await ended.result())
        async with self.listen("notifications/tasks/status") as updates:
            notifications = aiter(updates)
            next_status: asyncio.Future[Any] | None = None
            try:
                while not (state := await self.tasks_get(task)).over:
                    pause = min(max(state.poll_interval or _OFTEN_ENOUGH, _SOON), _SELDOM)
                    if next_status is None:
                        next_status = asyncio.ensure_future(anext(notifications))
                    done, _ = await asyncio.wait((next_status,), timeout=pause)
                    if done:
                        next_status = None
                return state
            finally:
                if next_status is not None:
                    next_status.cancel()
                    with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                        await next_status

    async def _is_stateless(self) -> bool:
        """Whether requests stand alone. Waits for the connection where that is not known yet."""
        welcome = self.line.welcome
        return (await self.line.ready() if welcome is None else welcome).is_stateless


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
