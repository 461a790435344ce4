"""A client for programs without an event loop: the same words, and each waits for its answer.

::

    with SyncClient("http://127.0.0.1:8000/mcp") as client:
        days = client.call("forecast", city="Oslo", into=list[Day])

Everything runs in a node behind a thread of its own, in which functions for sampling, elicitation and the like are called, too (a plain `def` in yet
another thread). Any number of threads may use one client.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from greenroom.actors.client.errors import ClientClosed
from greenroom.supervision import ActorError, BackgroundNode

from .client import Client
from .errors import suggests

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
    from types import TracebackType

    from greenroom.actors.client.seam import Progress, Status, Told, Updates
    from greenroom.protocol.definitions import Prompt, Resource, ResourceTemplate, Tool
    from greenroom.protocol.received import PromptReply, RemoteTask, ResourceReply, ToolReply
    from greenroom.protocol.results import Completion
    from greenroom.protocol.shapes import Level

    from .client import ClientTools, PendingCall
    from .targets import Target

P = ParamSpec("P")
T = TypeVar("T")


class SyncWords:
    """The words of a client, for code that blocks."""

    def __init__(self, words: ClientTools, node: BackgroundNode) -> None:
        """`words` are a client's in that node."""
        self._words = words
        self._node = node

    # --- tools

    @overload
    def call(self, name: str, arguments: Mapping[str, Any] | None = ..., /, *, into: type[T], **more: Any) -> T: ...

    @overload
    def call(self, name: str, arguments: Mapping[str, Any] | None = ..., /, *, into: Any = ..., **more: Any) -> Any: ...

    def call(self, name: str, arguments: Mapping[str, Any] | None = None, /, *, into: Any = None, **more: Any) -> Any:
        """Call a tool for its value. Raises `ToolFailed` and `BadAnswer`."""
        return self._node.run(self._words.call, name, arguments, into=into, **more)

    @suggests(
        "call_tool()", otherwise="a tool's arguments are one dict: call_tool(name, {{'{0}': …}}), or call(name, {0}=…)"
    )
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[Progress], Any] | None = None,
        task: bool | float = False,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool = False,
    ) -> ToolReply:
        """Call a tool, and have all that it answered. `on_progress` is called in the node's thread."""
        return self._node.run(
            self._words.call_tool,
            name,
            arguments,
            on_progress=on_progress,
            task=task,
            meta=meta,
            idempotent=idempotent,
        )

    def start_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, idempotent: bool = False
    ) -> SyncCall:
        """Begin a call, to be waited for, followed or cancelled later, from any thread."""

        async def begin() -> PendingCall:
            return self._words.start_tool(name, arguments, idempotent=idempotent)

        return SyncCall(self._node.run(begin), self._node)

    # --- lists, resources, prompts, completions

    def list_tools(self) -> list[Tool]:
        """All tools, from all pages."""
        return self._node.run(self._words.list_tools)

    def list_resources(self) -> list[Resource]:
        """All resources, from all pages."""
        return self._node.run(self._words.list_resources)

    def list_resource_templates(self) -> list[ResourceTemplate]:
        """All resource templates, from all pages."""
        return self._node.run(self._words.list_resource_templates)

    def list_prompts(self) -> list[Prompt]:
        """All prompts, from all pages."""
        return self._node.run(self._words.list_prompts)

    def read_resource(self, uri: str) -> ResourceReply:
        """What is in a resource."""
        return self._node.run(self._words.read_resource, uri)

    def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> PromptReply:
        """A prompt with these arguments."""
        return self._node.run(self._words.get_prompt, name, arguments, **more)

    def complete(
        self,
        of: Prompt | ResourceTemplate | str | Mapping[str, Any],
        argument: str,
        value: str = "",
        known: Mapping[str, str] | None = None,
    ) -> Completion:
        """How an argument could go on."""
        return self._node.run(self._words.complete, of, argument, value, known)

    # --- the server

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask anything: the result as it came."""
        return self._node.run(self._words.request, method, params)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell anything."""
        self._node.run(self._words.notify, method, params)

    def ping(self) -> float:
        """Whether it answers: after how many seconds."""
        return self._node.run(self._words.ping)

    def set_log_level(self, level: Level) -> None:
        """Which log messages are wanted."""
        self._node.run(self._words.set_log_level, level)

    @property
    def status(self) -> Status:
        """How the connection is."""
        return self._words.status

    @property
    def server_info(self) -> Mapping[str, Any]:
        """Who the server says it is."""
        return self._words.server_info

    @property
    def server_capabilities(self) -> Mapping[str, Any]:
        """What the server says it can do."""
        return self._words.server_capabilities

    @property
    def protocol_version(self) -> str:
        """The revision that was agreed on."""
        return self._words.protocol_version

    @property
    def instructions(self) -> str | None:
        """What the server says for a model that uses it."""
        return self._words.instructions

    @contextmanager
    def subscribe(self, uri: str) -> Generator[Iterator[Told]]:
        """Updates of a resource: ``with client.subscribe(uri) as updates: for told in updates``."""
        with self._reading(lambda: self._words.subscribe(uri)) as updates:
            yield updates

    @contextmanager
    def listen(self, *methods: str) -> Generator[Iterator[Told]]:
        """Notifications of these methods, or of all."""
        with self._reading(lambda: self._words.listen(*methods)) as updates:
            yield updates

    @contextmanager
    def _reading(self, open: Callable[[], Updates]) -> Generator[Iterator[Told]]:  # noqa: A002 - it is what it does
        async def enter() -> Updates:
            return await open().__aenter__()

        async def leave() -> None:
            await updates.__aexit__(None, None, None)

        updates = self._node.run(enter)
        try:
            yield self._each(updates)
        finally:
            with suppress(
                ActorError, ClientClosed
            ):  # the client was closed meanwhile, and all that it had open with it
                self._node.run(leave)

    def _each(self, updates: Updates) -> Iterator[Told]:
        news = aiter(updates)

        async def following() -> Told | None:
            return await anext(news, None)

        while (told := self._node.run(following)) is not None:
            yield told

    # --- tasks

    def tasks_list(self) -> list[RemoteTask]:
        """All tasks that the server keeps for us."""
        return self._node.run(self._words.tasks_list)

    def tasks_get(self, task: RemoteTask | str) -> RemoteTask:
        """How a task stands."""
        return self._node.run(self._words.tasks_get, task)

    def tasks_cancel(self, task: RemoteTask | str) -> RemoteTask:
        """Have it stopped."""
        return self._node.run(self._words.tasks_cancel, task)

    def tasks_wait(self, task: RemoteTask | str) -> RemoteTask:
        """Wait until it is over."""
        return self._node.run(self._words.tasks_wait, task)

    def tasks_result(self, task: RemoteTask | str) -> ToolReply:
        """What came of it, as soon as it is over."""
        return self._node.run(self._words.tasks_result, task)


class _OwnNode(BackgroundNode):
    """A client's own: who asks it while it is closed, asks a client that is closed, and knows of no node."""

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._thread is None:
            raise ClientClosed("the client is closed: use it inside its `with` block")
        return super().run(function, *args, **kwargs)


class SyncClient(SyncWords):
    """A client behind a thread: ``with SyncClient(url) as client``."""

    def __init__(self, target: Target, *, node: BackgroundNode | None = None, **options: Any) -> None:
        """The options are `Client`'s. Clients that are given the same open `node` share its thread."""
        self._client = Client(target, **options)
        self._shared = node is not None
        self._leaving = ExitStack()
        super().__init__(self._client, _OwnNode(handle_sigint=False) if node is None else node)

    def __repr__(self) -> str:
        return f"<SyncClient of {self._client.name}>"

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect. Raises why not."""
        with ExitStack() as stack:
            if not self._shared:
                stack.enter_context(self._node)
            self._node.run(self._client.open)
            stack.callback(self._node.run, self._client.close)
            self._leaving = stack.pop_all()

    def close(self) -> None:
        """Let go of it. Again is no error."""
        self._leaving.close()

    def within(self, seconds: float | None) -> SyncWords:
        """The same words with another deadline: `client.within(5).call("forecast")`. None waits for ever."""
        return SyncWords(self._client.within(seconds), self._node)


class SyncCall:
    """A call of a tool that is under way, for code that blocks."""

    def __init__(self, call: PendingCall, node: BackgroundNode) -> None:
        """Made by `start_tool`."""
        self._call = call
        self._node = node

    def result(self) -> ToolReply:
        """The reply, as `call_tool` has it."""
        return self._node.run(self._call.result)

    def progress(self) -> Iterator[Progress]:
        """How it goes, until it is over."""
        steps = aiter(self._call.progress())

        async def following() -> Progress | None:
            return await anext(steps, None)

        while (step := self._node.run(following)) is not None:
            yield step

    def cancel(self, reason: str = "") -> None:
        """Nobody wants it any more."""

        async def cancel() -> None:
            self._call.cancel(reason)

        self._node.run(cancel)
