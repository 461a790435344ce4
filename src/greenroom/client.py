"""`Client`: the client of one server, which is at a URL, a child process, or in this program.

::

    async with Client("http://127.0.0.1:8000/mcp") as client:      # or Client(Command("uvx", "mcp-server-git")), Client(server)
        days = await client.call("forecast", city="Oslo", into=list[Day])

It is not a process itself. The connection behind it is one: supervised, reconnecting, and in the loop's node, or in a node that is opened for
it. A client is opened and closed from any task, in any order with others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from inspect import unwrap
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from greenroom.actors.client.client_handler import ClientHandler
from greenroom.actors.client.connection_line import ConnectionLine, connection_spec
from greenroom.actors.client.errors import Unavailable
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.client.response_cache import LineCache, cache_of
from greenroom.actors.client.settings import SETTING_HINTS, ClientSettings
from greenroom.actors.client.task_only_tools import call_as_task, is_task_only
from greenroom.actors.offloaded_validation import run_check, run_check_in_thread
from greenroom.protocol.errors import BadAnswer, ErrorCode, PeerError, ToolError
from greenroom.protocol.methods import check_progress
from greenroom.protocol.received_results import ToolReply, read_tool_reply, text_of
from greenroom.protocol.reply_values import OutputSchema, plain_value, typed_value
from greenroom.protocol.serialization import sendable
from greenroom.protocol.type_schemas import typed_schema_of
from greenroom.protocol.validation_errors import STEPS_IN_THREAD, StepsExceeded, too_costly_reason

from .child_runner import ChildRunner
from .client_callbacks import CallbackHandler, call_and_await, check_callbacks, check_roots
from .client_methods import AS_SET, ClientMethods
from .client_targets import InProcessServer, name_of, route_of, server_of
from .errors import GreenroomError, suggests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence

    from greenroom.actors.client.interfaces import Line, Pending, Progress, Status
    from greenroom.actors.client.response_cache import CachedResult, ResponseCache
    from greenroom.auth.client.auth_option import Auth
    from greenroom.protocol.definitions import Tool
    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.protocol.validation_errors import ValidationProblem
    from greenroom.supervision import ChildSpec

    from .client_callbacks import (
        ElicitationCallback,
        LogCallback,
        NotificationCallback,
        Roots,
        SamplingCallback,
        UrlElicitationCallback,
    )
    from .client_targets import Target

# --- The methods for tools: `call` returns a value, `call_tool` the whole reply, `start_tool` a call to await later.
# `call` checks a structured reply against the tool's output schema. The schemas are looked up at the first structured reply, and again when the
# server announces changed tools. A reply is checked against the schema that was known when its call began.

T = TypeVar("T")

_logger: Final = logging.getLogger("greenroom.client")
NO_SCHEMA: Final = OutputSchema(None)


class ToolFailed(ToolError):
    """The tool has reported an error. `reply` is its whole reply."""

    def __init__(self, name: str, reply: ToolReply) -> None:
        """`name` is the tool's."""
        super().__init__(reply.content, dict(reply.meta) if reply.meta else None)
        self.name = name
        self.reply = reply

    def __str__(self) -> str:
        return f"{self.name}: {text_of(self.content) or 'it failed without a message'}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.reply)


class PendingCall:
    """A tool call under way. Await it, or `result()`, for its reply; cancelling the awaiting task cancels the call."""

    def __init__(self, name: str, pending: Pending) -> None:
        """Made by `start_tool`."""
        self.name = name
        self._pending = pending

    def __repr__(self) -> str:
        return f"<PendingCall {self.id} of {self.name}>"

    @property
    def id(self) -> RequestId:
        """The request id on the wire."""
        return self._pending.id

    def __await__(self) -> Generator[Any, None, ToolReply]:
        return self.result().__await__()

    async def result(self) -> ToolReply:
        """The reply, as `call_tool` has it."""
        return read_tool_reply(await self._pending.result())

    def progress(self) -> AsyncIterator[Progress]:
        """Progress until the reply: `async for step in call.progress()`."""
        return self._pending.progress()

    def progress_of_task(self) -> AsyncIterator[Progress]:
        """The same; if the server made a task of the call, until that task has ended."""
        return self._pending.progress(of_task=True)

    def cancel(self, reason: str = "") -> None:
        """Cancel the call: the server is notified, and tasks awaiting it get `RequestCancelled`."""
        self._pending.cancel(reason)


class OutputSchemas:
    """The output schemas of one server's tools, looked up when they are first needed."""

    def __init__(self) -> None:
        self._known: dict[str, OutputSchema] | None = None
        self._generation = -1
        self._listed: dict[str, OutputSchema] = {}
        """From a list that the program itself requested; a tool missing there is looked up all the same."""
        self._listed_by = -1
        self._lock = asyncio.Lock()
        self.changes = 0
        """How often the server has announced changed tools."""

    def forget(self) -> None:
        """Forget all schemas: the server's tools have changed."""
        self._known = None
        self._listed = {}
        self.changes += 1

    def begin(self, name: str, words: ClientMethods) -> Callable[[], Awaitable[tuple[OutputSchema, bool]]]:
        """Called when a call begins: returns a function that gives the schema of that moment, to be awaited after the reply.

        The flag is False if the tools changed before the schema was ever looked up, so that it may not be the one of the call.
        """
        line = words.line
        generation, changes = line.status.generation, self.changes
        known = self._listed.get(name) if self._listed_by == generation else None
        if known is None and self._known is not None and self._generation == generation:
            known = self._known.get(name, NO_SCHEMA)

        async def promised() -> tuple[OutputSchema, bool]:
            if known is not None and line.status.generation == generation:
                return known, True
            return await self.of(name, words), self.changes == changes

        return promised

    def learn(self, changes: int, generation: int, tools: Sequence[Tool]) -> None:
        """Take the schemas from a list that was requested in this `generation`, after that many `changes`."""
        if changes == self.changes:
            self._listed, self._listed_by = {tool.name: OutputSchema(tool.output_schema) for tool in tools}, generation

    async def of(self, name: str, words: ClientMethods) -> OutputSchema:
        """The output schema of a tool; none if the server cannot list its tools."""
        generation = words.line.status.generation
        known = self._known
        if known is None or self._generation != generation:
            async with self._lock:
                known = self._known
                if known is None or self._generation != generation:
                    known = await self._look_up(words, generation)
        return known.get(name, NO_SCHEMA)

    async def _look_up(self, words: ClientMethods, generation: int) -> dict[str, OutputSchema]:
        """Fetch the schemas. They are kept unless the tools changed meanwhile, or the server did not answer."""
        changes = self.changes
        answered = True
        try:
            found = {tool.name: OutputSchema(tool.output_schema) for tool in await words.list_tools()}
        except GreenroomError as error:
            _logger.warning("the output schemas of %s are not known: %s", words.line.name, error)
            found = {}
            answered = isinstance(error, PeerError)
        if answered and changes == self.changes:
            self._known, self._generation = found, generation
        return found


takes_one_dict: Final = suggests(
    "call_tool()", otherwise="a tool's arguments are one dict: call_tool(name, {{'{0}': …}}), or call(name, {0}=…)"
)


class ClientTools(ClientMethods):
    """All methods of a client, those for tools included."""

    on_progress: Callable[[Progress], Any] | None = None
    """Called with the progress of every call that has no function of its own."""
    check_output = True
    """Whether `call` checks replies against the output schemas of their tools."""
    output_schemas: OutputSchemas

    async def list_tools(self) -> list[Tool]:
        """All tools, from all pages."""
        promises, generation = self.output_schemas, self.line.status.generation
        changes = promises.changes
        tools = await super().list_tools()
        promises.learn(changes, generation, tools)
        return tools

    @overload
    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = ..., /, *, into: type[T], **more: Any
    ) -> T: ...

    @overload
    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = ..., /, *, into: Any = ..., **more: Any
    ) -> Any: ...

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, /, *, into: Any = None, **more: Any
    ) -> Any:
        """Call a tool, and return its value: its structured data, or else its text. `into=T` converts it to a T.

        Raises `ToolFailed` (a `ToolError`) when the tool reports an error, and `BadAnswer`, with all problems, when the reply does not match
        its output schema, or is no T. A single block that is not text is returned as it is; an empty reply is None.
        """
        if into is not None:
            typed_schema_of(into)  # a type without a schema raises before anything is sent
        # The name is read now: a host's server may be removed before the reply.
        promised, server = self.output_schemas.begin(name, self), self.line.name
        reply: ToolReply = await _call_tool(self, name, {**(arguments or {}), **more})
        if reply.is_error:
            raise ToolFailed(name, reply)
        promise = NO_SCHEMA
        if reply.is_structured:
            promise, held_then = await promised()
            if self.check_output or not held_then:
                try:
                    problems = promise.problems(reply)
                except StepsExceeded:
                    problems = await _long_check(promise, reply, server)
                if problems and held_then:
                    described = "; ".join(map(str, problems))
                    raise BadAnswer(f"the reply of {name} does not match its output schema: {described}", problems)
                if problems:
                    promise = NO_SCHEMA
        if into is None:
            return plain_value(reply, promise.schema)
        try:
            return await run_check(lambda meter: typed_value(reply, into, promise.schema, name, meter=meter), server)
        except StepsExceeded:
            raise BadAnswer(
                f"the reply of {name} is too large to be converted to {into}", [too_costly_reason(STEPS_IN_THREAD)]
            ) from None

    @takes_one_dict
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[Progress], Any] | None = None,
        task: bool | float = False,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool = False,
    ) -> ToolReply:
        """Call a tool, and return the whole reply: `.content`, `.structured_content`, `.is_error`, `.text`, `.task`, `.raw`.

        With `task` the server may start a task instead (`.task`), and keep it for that many seconds if it is a number. A tool that can only be
        called as a task is called as one, and its result awaited. In the stateless era the server alone decides which calls become tasks, and how long
        it keeps them; without `task` their results are awaited. Only an `idempotent` call is sent again when its reply was lost.
        """
        tell = on_progress or self.on_progress
        if task is not False or not self._is_task_only(name):
            try:
                params = _params(name, arguments, meta)
                pending = self._begin(params, progress=tell is not None, task=task, idempotent=idempotent)
                if tell is None:
                    return read_tool_reply(await pending.result())
                return await _result_with_progress(PendingCall(name, pending), tell)
            except PeerError as error:
                if task is not False or error.code != ErrorCode.METHOD_NOT_FOUND or await self._is_stateless():
                    raise
                if not await self._is_said_to_be_task_only(name):
                    raise
            # the server refused the plain call, so nothing was done yet
        seconds = self._call_timeout() if self._timeout is AS_SET else self._timeout
        return read_tool_reply(await call_as_task(self.line, _params(name, arguments, meta), timeout=seconds))

    def _is_task_only(self, name: str) -> bool | None:  # noqa: ARG002 - for subclasses that know
        """Whether this tool can only be called as a task; None if that is not known."""
        return None

    async def _is_said_to_be_task_only(self, name: str) -> bool:
        """The same; lists the server's tools if it is not known."""
        known = self._is_task_only(name)
        if known is not None:
            return known
        return any(is_task_only(tool.to_wire()) for tool in await self.list_tools() if tool.name == name)

    def _call_timeout(self) -> float | None:
        """The default timeout of tool calls."""
        settings: Any = getattr(self.line, "settings", None)
        return None if settings is None else settings.request_timeout

    def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: bool = True,
        task: bool | float = False,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool = False,
    ) -> PendingCall:
        """Start a call, to be awaited, followed or cancelled later. Errors of the request are raised by the call, not here."""
        check_progress(progress)
        params = _params(name, arguments, meta)
        return PendingCall(name, self._begin(params, progress=progress, task=task, idempotent=idempotent))

    def _begin(self, params: dict[str, Any], *, progress: bool, task: bool | float, idempotent: bool) -> Pending:
        as_task = task is not False
        if as_task:
            params["task"] = {} if task is True else {"ttl": round(task * 1000)}
        again = True if idempotent else None
        return self.line.begin(
            "tools/call", params, timeout=self._timeout, progress=progress, idempotent=again, as_task=as_task
        )


_call_tool: Final[Any] = unwrap(ClientTools.call_tool)
"""`call_tool` without the check for misspelled options, which `call` does not need."""


async def _long_check(promise: OutputSchema, reply: ToolReply, server: str) -> Sequence[ValidationProblem]:
    """The problems of a reply whose check takes too long for the event loop, checked in a thread."""
    try:
        return await run_check_in_thread(lambda meter: promise.problems(reply, meter), server)
    except StepsExceeded:
        return [too_costly_reason(STEPS_IN_THREAD)]


_following: Final[set[asyncio.Future[None]]] = set()
"""Followers of tasks whose calls have returned. The event loop holds its tasks weakly, so this set keeps them alive."""


def _params(name: str, arguments: Mapping[str, Any] | None, meta: Mapping[str, Any] | None) -> dict[str, Any]:
    params: dict[str, Any] = {"name": name, "arguments": sendable(f"the arguments of {name!r}", arguments or {})}
    return {**params, "_meta": sendable("meta", meta)} if meta else params


async def _result_with_progress(call: PendingCall, tell: Callable[[Progress], Any]) -> ToolReply:
    """The reply, after its progress was passed to the function. Exceptions of the function are logged, and the call goes on.

    If the reply is a task, its progress is passed on until the task, or the connection, has ended.
    """
    following = asyncio.ensure_future(_follow(call, tell))
    lasts = False
    try:
        reply = await call.result()
        lasts = reply.task is not None
        if lasts:
            _following.add(following)
            following.add_done_callback(_following.discard)
        else:
            await asyncio.wait((following,))
    finally:
        if not following.done() and not lasts:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
    return reply


async def _follow(call: PendingCall, tell: Callable[[Progress], Any]) -> None:
    async for step in call.progress_of_task():
        try:
            await call_and_await(tell, step)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # also SystemExit: a task that raises it would end the event loop, and the program
            _logger.exception("the function for the progress of %s failed", call.name)


@suggests("a client", SETTING_HINTS | {"protocol_version": "write mode=…"})
class Client(ClientTools):
    """A client of one server."""

    def __init__(  # noqa: PLR0913 - the target, the settings, and a callback for each kind of server message
        self,
        target: Target,
        *,
        name: str | None = None,
        sampling: SamplingCallback | None = None,
        elicitation: ElicitationCallback | None = None,
        url_elicitation: UrlElicitationCallback | None = None,
        roots: Roots | None = None,
        on_log: LogCallback | None = None,
        on_progress: Callable[[Progress], Any] | None = None,
        on_notification: NotificationCallback | None = None,
        handler: ClientHandler | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Auth | None = None,
        timeout: float | None = AS_SET,
        client_info: Mapping[str, Any] | None = None,
        settings: ClientSettings | None = None,
        mode: str | None = None,
        cache: ResponseCache | bool = True,
        patient: bool = False,
        check_output: bool = True,
    ) -> None:
        """`target` is a URL, a `Command(…)` or its words in a list, a `Server`, or a route.

        `auth` is a bearer token, `OAuth(…)`, or another way to sign in; opening then waits for the user as well.

        `sampling`, `elicitation`, `url_elicitation` and `roots` answer requests of the server, `on_log`, `on_progress` and `on_notification`
        receive its notifications, and `handler` gets the rest. `timeout` (of requests), `client_info` and `mode` (which protocol is spoken: by
        default the server is asked) override those of `settings`.
        A `patient` client waits for an unreachable server for `init_timeout`; others raise at the first failed attempt.
        Lists and resources are kept for as long as the server allows, by each client for itself, or by clients with the same `cache` together.
        """
        given: dict[str, Any] = {} if client_info is None else {"client_info": client_info}
        if mode is not None:
            given["mode"] = mode
        if timeout is not AS_SET:
            given["request_timeout"] = timeout
        self.settings = replace(settings or ClientSettings(), **given)
        patience: float = getattr(auth, "patience", 0.0)
        if patience:  # the handshake may wait for a user who has to sign in
            self.settings = replace(self.settings, init_timeout=self.settings.init_timeout + patience)
        functions: dict[str, Any] = {
            "sampling": sampling,
            "elicitation": elicitation,
            "url_elicitation": url_elicitation,
            "on_log": on_log,
            "on_notification": on_notification,
        }
        called = {**functions, "on_progress": on_progress, "roots": roots if callable(roots) else None}
        check_callbacks(called)
        rest = ClientHandler() if handler is None else handler
        self._callbacks = CallbackHandler(**functions, roots=check_roots(roots), rest=rest)
        declared: Any = self.settings.declared(self._callbacks.capabilities()).get("sampling")
        self._callbacks.model_uses_tools = isinstance(declared, dict) and "tools" in declared
        self.output_schemas = OutputSchemas()
        self.on_progress = on_progress
        self.check_output = check_output
        self._most_pages = self.settings.max_pages
        self._patient = patient
        self._route = route_of(target, headers, auth)
        self._line = ConnectionLine(name or name_of(target, self._route), self.settings)
        self._line.tools_changed = self.output_schemas.forget
        self.cache = cache_of(cache)
        """Lists and resources that the server lets clients keep; None without a cache."""
        if self.cache is not None:
            self._line.use_cache(LineCache(self.cache, self._route, self._line.key))
        self._runner = ChildRunner(self.child_spec)
        self._server = server_of(target)
        self._in_process: list[InProcessServer] = []

    def __repr__(self) -> str:
        return f"<Client of {self._line.name}, {self._line.status.phase.value}>"

    @property
    def line(self) -> Line:
        """The handle for requests to the server, as actors use it."""
        return self._line

    @property
    def name(self) -> str:
        """The server's name in this program."""
        return self._line.name

    def cached(self) -> list[CachedResult]:
        """The lists and resources of this server that are kept now, without their content, oldest first."""
        cache = self._line.cache
        return [] if cache is None else cache.results(asyncio.get_running_loop().time())

    # --- open and close

    def child_spec(self) -> ChildSpec[Any]:
        """The connection as a child of any supervisor: the client then works for as long as that child runs, without `async with`."""
        return connection_spec(self._route, self._callbacks, line=self._line)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect. Raises a `TransportError` or a `ClientError`. Each `open` needs a `close`."""
        guest = None if self._server is None else InProcessServer(self._server)
        async with AsyncExitStack() as undone:
            if guest is not None:
                await guest.enter()
                undone.push_async_callback(guest.leave)
            await self._runner.acquire()
            undone.push_async_callback(self._runner.release)
            await self._connected()
            undone.pop_all()
        if guest is not None:
            self._in_process.append(guest)

    async def _connected(self) -> None:
        if self._patient:
            await self._line.ready()
            return
        async with aclosing(self._line.watch()) as statuses:
            async for status in statuses:
                if status.phase is Phase.READY:
                    return
                if status.phase in (Phase.BACKOFF, Phase.PARKED, Phase.CLOSED):
                    raise self._why_not(status)

    def _why_not(self, status: Status) -> Exception:
        return status.cause or Unavailable(self._line.name)

    async def close(self) -> None:
        """Undo one `open`; the last one closes the connection, and requests under way fail with `ClientClosed`."""
        try:
            await self._runner.release()
        finally:
            if self._in_process:
                await self._in_process.pop().leave()

    async def set_roots(self, roots: Roots) -> None:
        """Change the roots, and notify the server. Only for a client that was made with roots."""
        if self._callbacks.roots is None:
            raise ValueError("this client has not declared roots: pass some when you make it, Client(…, roots=[])")
        self._callbacks.roots = check_roots(roots)
        await self.notify_roots_list_changed()

    def within(self, seconds: float | None) -> ClientTools:
        """The same client with another timeout for each request: `await client.within(5).call("forecast")`. None is no limit."""
        return ClientWithTimeout(self, seconds)


class ClientWithTimeout(ClientTools):
    """A view of a client with another timeout."""

    def __init__(self, client: Client, seconds: float | None) -> None:
        """`seconds` is the timeout of each request."""
        self._client = client
        self._timeout = seconds
        self.output_schemas = client.output_schemas
        self.on_progress = client.on_progress
        self.check_output = client.check_output
        self._most_pages = client._most_pages  # noqa: SLF001 - a view of the same client

    def __repr__(self) -> str:
        return f"{self._client!r}.within({self.timeout})"

    @property
    def line(self) -> Line:
        """The handle for requests to the server."""
        return self._client.line
