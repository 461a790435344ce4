"""A server's tools in Python's own words: `call` for a value, `call_tool` for all of the answer, `start_tool` for a call to hold on to.

What `call` gives is what the tool's output schema says: it is looked up once, when the first structured answer comes, and again when the server
says that its tools are others. The answer is held against it, so that what comes out is what was promised.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from greenroom.protocol.errors import BadAnswer, PeerError, ToolError
from greenroom.protocol.received import ToolReply, read_tool_reply, text_of
from greenroom.protocol.reply_values import Promise, plain_value, typed_value
from greenroom.protocol.schemas import kind_of
from greenroom.protocol.wire import sendable

from .answering import told
from .client_words import ClientWords
from .errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping

    from greenroom.actors.client.seam import Pending, Progress
    from greenroom.protocol.messages import RequestId

T = TypeVar("T")

_logger: Final = logging.getLogger("greenroom.client")
_NO_PROMISE: Final = Promise(None)


class ToolFailed(ToolError):
    """A tool of the server's has failed, and says why. `reply` is all of its answer."""

    def __init__(self, name: str, reply: ToolReply) -> None:
        """`name` is the tool's."""
        super().__init__(reply.content, dict(reply.meta) if reply.meta else None)
        self.name = name
        self.reply = reply

    def __str__(self) -> str:
        return f"{self.name}: {text_of(self.content) or 'it failed, and does not say why'}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.reply)


class PendingCall:
    """A call of a tool that is under way. Await it, or `result()`, for its reply; whoever is cancelled meanwhile cancels the call."""

    def __init__(self, name: str, pending: Pending) -> None:
        """Made by `start_tool`."""
        self.name = name
        self._pending = pending

    def __repr__(self) -> str:
        return f"<PendingCall {self.id} of {self.name}>"

    @property
    def id(self) -> RequestId:
        """What the server knows the request as."""
        return self._pending.id

    def __await__(self) -> Generator[Any, None, ToolReply]:
        return self.result().__await__()

    async def result(self) -> ToolReply:
        """The reply, as `call_tool` has it."""
        return read_tool_reply(await self._pending.result())

    def progress(self) -> AsyncIterator[Progress]:
        """How it goes, until it is over: `async for step in call.progress()`."""
        return self._pending.progress()

    def cancel(self, reason: str = "") -> None:
        """Nobody wants it any more: the server is told, and whoever awaits it gets `RequestCancelled`."""
        self._pending.cancel(reason)


class Promises:
    """The output schemas of one server's tools, looked up when they are first needed."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: dict[str, Promise] | None = None
        self._generation = -1
        self._turn = asyncio.Lock()
        self._changes = 0

    def forget(self) -> None:
        """The server has other tools now."""
        self._known = None
        self._changes += 1

    async def of(self, name: str, words: ClientWords) -> Promise:
        """What the tool promises. A server that does not list its tools promises nothing."""
        generation = words.line.status.generation
        known = self._known
        if known is None or self._generation != generation:
            async with self._turn:
                known = self._known
                if known is None or self._generation != generation:
                    known = await self._look_up(words, generation)
        return known.get(name, _NO_PROMISE)

    async def _look_up(self, words: ClientWords, generation: int) -> dict[str, Promise]:
        """What was found. It is kept, unless the tools have become others meanwhile, or the server was not there to say."""
        changes = self._changes
        answered = True
        try:
            found = {tool.name: Promise(tool.output_schema) for tool in await words.list_tools()}
        except GreenroomError as error:
            _logger.warning("what the tools of %s promise is not known: %s", words.line.name, error)
            found = {}
            answered = isinstance(error, PeerError)
        if answered and changes == self._changes:
            self._known, self._generation = found, generation
        return found


class ClientTools(ClientWords):
    """The words for tools, on top of all the others."""

    on_progress: Callable[[Progress], Any] | None = None
    """Told of the progress of every call that has no function of its own."""
    check_output = True
    """Whether `call` holds answers against the output schemas of their tools."""
    promises: Promises

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
        """Call a tool for its value: its data, or else its text. `into=T` makes a T of it.

        Raises `ToolFailed` (a `ToolError`) when the tool says that it failed, and `BadAnswer`, with all problems, when the answer is not
        what its output schema promised, or no T. A single block that is no text comes as it is; nothing is None.
        """
        if into is not None:
            kind_of(into)  # what has no schema is refused before anything is done
        reply = await self.call_tool(name, {**(arguments or {}), **more})
        if reply.is_error:
            raise ToolFailed(name, reply)
        promise = _NO_PROMISE
        if reply.structured_content is not None:
            promise = await self.promises.of(name, self)
            if self.check_output and (problems := promise.problems(reply)):
                said = "; ".join(map(str, problems))
                raise BadAnswer(f"what {name} answered is not what its output schema promises: {said}", problems)
        return plain_value(reply, promise.schema) if into is None else typed_value(reply, into, promise.schema, name)

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
        """Call a tool, and have all that it answered: `.content`, `.structured_content`, `.is_error`, `.text`, `.task`, `.raw`.

        With `task`, the server may begin a task instead (`.task`), and keeps it for so many seconds if it is a number. Nobody calls twice
        what may have been done: only an `idempotent` call is made again when its answer was lost on the way.
        """
        tell = on_progress or self.on_progress
        wanted = tell is not None
        call = self.start_tool(name, arguments, progress=wanted, task=task, meta=meta, idempotent=idempotent)
        if tell is None:
            return await call.result()
        return await _telling(call, tell)

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
        """Begin a call, to be awaited, followed or cancelled later. Never raises for what happens on the way: the call tells."""
        params: dict[str, Any] = {"name": name, "arguments": sendable(f"the arguments of {name!r}", arguments or {})}
        if task is not False:
            params["task"] = {} if task is True else {"ttl": round(task * 1000)}
        if meta:
            params["_meta"] = sendable("meta", meta)
        again = True if idempotent else None
        return PendingCall(
            name,
            self.line.begin("tools/call", params, progress=progress, idempotent=again, **self.options()),
        )


async def _telling(call: PendingCall, tell: Callable[[Progress], Any]) -> ToolReply:
    """The reply, after all that was told of it on the way was passed on; what the function raises is logged, and the call goes on."""
    following = asyncio.ensure_future(_follow(call, tell))
    try:
        reply = await call.result()
        await asyncio.wait((following,))
    finally:
        if not following.done():
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
    return reply


async def _follow(call: PendingCall, tell: Callable[[Progress], Any]) -> None:
    async for step in call.progress():
        try:
            await told(tell, step)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # asyncio would end the loop, and with it the program, for a `sys.exit()`
            _logger.exception("the function for the progress of %s failed", call.name)
