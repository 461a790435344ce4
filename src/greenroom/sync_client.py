"""`SyncClient`: a client for programs without an event loop, with the same methods, which block until the answer.

::

    with SyncClient("http://127.0.0.1:8000/mcp") as client:
        days = client.call("forecast", city="Oslo", into=list[Day])

The connection runs in a node in a thread of its own, which also calls the functions for sampling, elicitation and so on (a plain `def` in
another thread). Any number of threads may use one client.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, overload

from greenroom.actors.client.errors import ClientClosed
from greenroom.supervision import ActorError, BackgroundNode

from .client import Client, ClientTools

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Coroutine, Generator, Iterator, Mapping

    from greenroom.actors.client.interfaces import Progress, ServerNotification, Status, Updates
    from greenroom.protocol.received_results import ToolReply

    from .client import PendingCall
    from .client_targets import Target

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    word: Callable[Concatenate[ClientTools, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncMethods, P], T]:
    """The blocking version of an async method, with its signature and docstring."""
    name = word.__name__

    @wraps(word)
    def waiting(self: SyncMethods, /, *args: P.args, **kwargs: P.kwargs) -> T:
        method: Callable[P, Coroutine[Any, Any, T]] = getattr(self._methods, name)
        return self._node.run(method, *args, **kwargs)

    return waiting


def _iterate(stream: AsyncIterable[T], node: BackgroundNode) -> Iterator[T]:
    items = aiter(stream)

    async def following() -> T | None:
        return await anext(items, None)

    while (one := node.run(following)) is not None:
        yield one


class SyncMethods:
    """The blocking methods of a client."""

    def __init__(self, words: ClientTools, node: BackgroundNode) -> None:
        """`words` is the async client, which runs in that node."""
        self._methods = words
        self._node = node

    # --- tools

    @overload
    def call(self, name: str, arguments: Mapping[str, Any] | None = ..., /, *, into: type[T], **more: Any) -> T: ...

    @overload
    def call(self, name: str, arguments: Mapping[str, Any] | None = ..., /, *, into: Any = ..., **more: Any) -> Any: ...

    def call(self, name: str, arguments: Mapping[str, Any] | None = None, /, *, into: Any = None, **more: Any) -> Any:
        """Call a tool, and return its value. Raises `ToolFailed` and `BadAnswer`."""
        return self._node.run(self._methods.call, name, arguments, into=into, **more)

    call_tool = _blocking(ClientTools.call_tool)

    def start_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, idempotent: bool = False
    ) -> SyncCall:
        """Start a call, to be awaited, followed or cancelled later, from any thread."""

        async def begin() -> PendingCall:
            return self._methods.start_tool(name, arguments, idempotent=idempotent)

        return SyncCall(self._node.run(begin), self._node)

    # --- lists, resources, prompts, completions

    list_tools = _blocking(ClientTools.list_tools)
    list_resources = _blocking(ClientTools.list_resources)
    list_resource_templates = _blocking(ClientTools.list_resource_templates)
    list_prompts = _blocking(ClientTools.list_prompts)
    read_resource = _blocking(ClientTools.read_resource)
    get_prompt = _blocking(ClientTools.get_prompt)
    complete = _blocking(ClientTools.complete)

    # --- the server

    request = _blocking(ClientTools.request)
    notify = _blocking(ClientTools.notify)
    ping = _blocking(ClientTools.ping)
    set_log_level = _blocking(ClientTools.set_log_level)

    @property
    def status(self) -> Status:
        """The connection's present status."""
        return self._methods.status

    @property
    def server_info(self) -> Mapping[str, Any]:
        """The server's `name` and `version`, and perhaps more."""
        return self._methods.server_info

    @property
    def server_capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the server declares."""
        return self._methods.server_capabilities

    @property
    def protocol_version(self) -> str:
        """The negotiated protocol revision."""
        return self._methods.protocol_version

    @property
    def instructions(self) -> str | None:
        """The server's instructions for a model that uses it."""
        return self._methods.instructions

    @contextmanager
    def subscribe(self, uri: str) -> Generator[Iterator[ServerNotification]]:
        """Updates of a resource: ``with client.subscribe(uri) as updates: for update in updates``."""
        with self._reading(lambda: self._methods.subscribe(uri)) as updates:
            yield updates

    @contextmanager
    def listen(self, *methods: str) -> Generator[Iterator[ServerNotification]]:
        """Notifications with these methods, or all."""
        with self._reading(lambda: self._methods.listen(*methods)) as updates:
            yield updates

    @contextmanager
    def _reading(self, open: Callable[[], Updates]) -> Generator[Iterator[ServerNotification]]:  # noqa: A002 - the name says what it does
        async def enter() -> Updates:
            return await open().__aenter__()

        async def leave() -> None:
            await updates.__aexit__(None, None, None)

        updates = self._node.run(enter)
        try:
            yield _iterate(updates, self._node)
        finally:
            with suppress(ActorError, ClientClosed):  # the client was closed meanwhile, and its streams with it
                self._node.run(leave)

    # --- tasks

    tasks_list = _blocking(ClientTools.tasks_list)
    tasks_get = _blocking(ClientTools.tasks_get)
    tasks_cancel = _blocking(ClientTools.tasks_cancel)
    tasks_update = _blocking(ClientTools.tasks_update)
    tasks_wait = _blocking(ClientTools.tasks_wait)
    tasks_result = _blocking(ClientTools.tasks_result)


class _OwnNode(BackgroundNode):
    """A client's own node, which raises `ClientClosed` instead of an error about nodes when it is closed."""

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._thread is None:
            raise ClientClosed("the client is closed: use it inside its `with` block")
        return super().run(function, *args, **kwargs)


class SyncClient(SyncMethods):
    """A blocking client: ``with SyncClient(url) as client``."""

    def __init__(self, target: Target, *, node: BackgroundNode | None = None, **options: Any) -> None:
        """The options are those of `Client`. Clients with the same open `node` share its thread."""
        self._client = Client(target, **options)
        self._shared = node is not None
        self._leaving = ExitStack()
        super().__init__(self._client, _OwnNode(handle_sigint=False) if node is None else node)

    def __repr__(self) -> str:
        return f"<SyncClient of {self._client.name}>"

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect. Raises a `TransportError` or a `ClientError`."""
        with ExitStack() as stack:
            if not self._shared:
                stack.enter_context(self._node)
            self._node.run(self._client.open)
            stack.callback(self._node.run, self._client.close)
            self._leaving = stack.pop_all()

    def close(self) -> None:
        """Close the connection. Closing twice is a no-op."""
        self._leaving.close()

    def within(self, seconds: float | None) -> SyncMethods:
        """The same client with another timeout for each request: `client.within(5).call("forecast")`. None is no limit."""
        return SyncMethods(self._client.within(seconds), self._node)


class SyncCall:
    """A tool call under way, for blocking code."""

    def __init__(self, call: PendingCall, node: BackgroundNode) -> None:
        """Made by `start_tool`."""
        self._call = call
        self._node = node

    def result(self) -> ToolReply:
        """The reply, as `call_tool` has it."""
        return self._node.run(self._call.result)

    def progress(self) -> Iterator[Progress]:
        """Progress until the reply."""
        return _iterate(self._call.progress(), self._node)

    def cancel(self, reason: str = "") -> None:
        """Cancel the call: the server is notified."""

        async def cancel() -> None:
            self._call.cancel(reason)

        self._node.run(cancel)
