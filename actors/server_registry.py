"""The registry of a company: register and look up tools, resources, prompts and completions by name.

Reading is immediate: it looks at the current catalogue. Writing goes through the registrar, one write after the
other, and waits until that process is ready. Before the company runs, `declare` writes to the catalogue directly.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from contextvars import Context
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypeVar, cast

from greenroom.errors import GreenroomError
from greenroom.supervision import ActorError, Crash, Exit, child, spawn_link, whereis
from greenroom.supervision.statem import (
    END,
    POSTPONE,
    Call,
    Cast,
    Event,
    Fail,
    GenStatem,
    Info,
    Keep,
    Next,
    Reply,
    Result,
    Stop,
    event,
    state,
)

from .catalogue import RegistrationError
from .catalogue_entries import completion_entry, prompt_entry, resource_entry, template_entry, tool_entry
from .handler_options import CompletionOptions, PromptOptions, ResourceOptions, TemplateOptions, ToolOptions
from .local_calls import call_locally
from .subscriptions import announce_list_changed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence

    from greenroom.supervision import ChildSpec, ExitReason, Pid, Ref

    from .catalogue import Catalogue, CatalogueRef, Kind
    from .catalogue_entries import CatalogueEntry
    from .subscriptions import Subscriptions, SubscriptionTable
    from .worker_interfaces import WorkerServices

PutReturn = TypeVar("PutReturn")
DropReturn = TypeVar("DropReturn")
Options = TypeVar("Options")


def checked_options(options: Options | None, kind: type[Options]) -> Options:
    """The options, or default ones. Raises `RegistrationError` for a dict of them."""
    if options is None:
        return kind()
    if not isinstance(options, kind):
        raise RegistrationError(f"options must be {kind.__name__}(title=…), not {options!r}")
    return options


class RegistrationMethods(Generic[PutReturn, DropReturn]):
    """`register_tool` and its like, for classes that write to a catalogue at once, and for those that send the write to the registrar."""

    def put(self, *entries: CatalogueEntry, replace: bool = True) -> PutReturn:
        """Register all of these, or none."""
        raise NotImplementedError

    def _drop(self, kind: Kind, name: Hashable) -> DropReturn:
        raise NotImplementedError

    def register_tool(
        self, name: str, function: Callable[..., Any], options: ToolOptions | None = None, *, replace: bool = True
    ) -> PutReturn:
        """Register a tool. It replaces one of that name unless `replace` is False. Raises `RegistrationError`."""
        return self.put(tool_entry(name, function, checked_options(options, ToolOptions)), replace=replace)

    def register_resource(
        self, name: str, function: Callable[..., Any], options: ResourceOptions, *, replace: bool = True
    ) -> PutReturn:
        """Register a resource, at `options.uri`."""
        return self.put(resource_entry(name, function, checked_options(options, ResourceOptions)), replace=replace)

    def register_resource_template(
        self, name: str, function: Callable[..., Any], options: TemplateOptions, *, replace: bool = True
    ) -> PutReturn:
        """Register all resources that `options.uri_template` matches."""
        return self.put(template_entry(name, function, checked_options(options, TemplateOptions)), replace=replace)

    def register_prompt(
        self, name: str, function: Callable[..., Any], options: PromptOptions | None = None, *, replace: bool = True
    ) -> PutReturn:
        """Register a prompt."""
        return self.put(prompt_entry(name, function, checked_options(options, PromptOptions)), replace=replace)

    def unregister_tool(self, name: str) -> DropReturn:
        """Remove a tool. Whether it was registered."""
        return self._drop("tool", name)

    def unregister_resource(self, name: str) -> DropReturn:
        """Remove a resource. Whether it was registered."""
        return self._drop("resource", name)

    def unregister_resource_template(self, name: str) -> DropReturn:
        """Remove a resource template. Whether it was registered."""
        return self._drop("resource_template", name)

    def unregister_prompt(self, name: str) -> DropReturn:
        """Remove a prompt. Whether it was registered."""
        return self._drop("prompt", name)


class ServerRegistry(RegistrationMethods[Coroutine[Any, Any, None], Coroutine[Any, Any, bool]]):
    """A handle on the registry; any number of them may exist for one company."""

    def __init__(self, services: WorkerServices, registrar: Ref[CatalogueRegistrar]) -> None:
        """`registrar` is by name, so that a restarted one is found again."""
        self._services = services
        self._registrar = registrar.within(None)

    def __repr__(self) -> str:
        return f"<ServerRegistry, version {self._services.catalogue_ref.current.version}>"

    async def ready(self, timeout: float | None = 5.0) -> None:
        """Wait until the registrar is ready.

        Raises `CallTimeout` after so many seconds, `NotRegistered` when the company does not run.
        """
        await self._registrar.within(timeout).call(CatalogueRegistrar.ready)

    # --- writing

    async def put(self, *entries: CatalogueEntry, replace: bool = True) -> None:
        """Register all of these, or none. No peer sees only some of them."""
        await self._registrar.call(CatalogueRegistrar.put, entries, replace=replace)

    def declare(self, *entries: CatalogueEntry, replace: bool = False) -> None:
        """As `put`, without waiting: at once while the company does not run, else through its registrar, in order.

        Raises `RegistrationError` for an entry that cannot be registered now.
        """
        put_entries = partial(put_all, entries, replace=replace)
        put_entries(
            self._services.catalogue_ref.current
        )  # a trial run: its error goes to the caller, and not to the registrar
        try:
            taken = self._registrar.cast(CatalogueRegistrar.put, entries, replace=replace)
        except ActorError:  # no node runs here
            taken = False
        if not taken:
            self._services.catalogue_ref.write(put_entries)

    async def register_completion(
        self,
        name: tuple[str, str, str],
        function: Callable[..., Any],
        options: CompletionOptions | None = None,
        *,
        replace: bool = True,
    ) -> None:
        """Register the completion of `("prompt", its name, an argument)` or `("resource_template", its URI template, a variable)`."""
        await self.put(completion_entry(name, function, checked_options(options, CompletionOptions)), replace=replace)

    async def _drop(self, kind: Kind, name: Hashable) -> bool:
        return await self.unregister(kind, name)

    async def unregister(self, kind: Kind, name: Hashable) -> bool:
        """Remove an entry. Whether it was registered. Calls in flight go on."""
        return await self._registrar.call(CatalogueRegistrar.drop, kind, name)

    async def unregister_completion(self, name: tuple[str, str, str]) -> bool:
        """Remove a completion. Whether it was registered."""
        return await self.unregister("completion", name)

    # --- reading

    def find(self, name: Hashable, kind: Kind = "tool") -> CatalogueEntry | None:
        """The entry of that name."""
        return self._services.catalogue_ref.current.find(kind, name)

    def all(self, kind: Kind = "tool") -> list[tuple[str, Mapping[str, Any]]]:
        """The entries of a kind, sorted by name, each as clients see it."""
        entries: Any = self._services.catalogue_ref.current.all(kind)
        return [(name, entries[name].wire) for name in sorted(entries)]

    def list_tools(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The tools."""
        return self.all("tool")

    def list_resources(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The resources."""
        return self.all("resource")

    def list_resource_templates(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The resource templates."""
        return self.all("resource_template")

    def list_prompts(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The prompts."""
        return self.all("prompt")

    # --- calling without a session

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """The return value of the tool's function.

        Raises what it raises, `NotFound`, and `ProcessExited` when it ended its own process.
        """
        return await call_locally(self._services, "tool", name, arguments)

    async def read_resource(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """The return value of the resource's function. Raises what it raises."""
        return await call_locally(self._services, "resource", name, arguments)

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """The return value of the prompt's function. Raises what it raises."""
        return await call_locally(self._services, "prompt", name, arguments)

    # --- announcements

    def notify_resource_updated(self, uri: str, extra: Mapping[str, Any] | None = None) -> None:
        """Notify the sessions that have subscribed to that resource. Several changes at once become one notification."""
        self._services.updated(uri, extra or {})

    def notify_list_changed(self, kind: Kind) -> None:
        """Notify all sessions of a changed list. Registering does so by itself."""
        self._services.list_changed(kind)

    # --- short names

    async def reg(self, name: str, function: Callable[..., Any], options: ToolOptions | None = None) -> None:
        """Short for `register_tool`."""
        await self.register_tool(name, function, options)

    async def unreg(self, name: str) -> bool:
        """Short for `unregister_tool`."""
        return await self.unregister_tool(name)

    async def run(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Short for `call_tool`."""
        return await self.call_tool(name, arguments)


__all__ = ["RegistrationError", "ServerRegistry"]


# --- The registrar: the only process that writes the catalogue. Its callers wait until `wait_for` is there.
# Writes are serialized, and each is atomic: a new catalogue, published by one assignment. Its death loses nothing,
# since the catalogue belongs to the company; a caller that waits asks its successor, by name. It tells the
# subscriptions' process which lists have changed.


class RegistrarState(Enum):
    """Whether the registrar answers."""

    NOT_READY = "not ready"
    READY = "ready"


class _ReadinessReached:
    """Sent by the waiting process: `wait_for` is there."""


class CatalogueRegistrar(GenStatem[RegistrarState]):
    """The registrar of a company. Other processes use `ServerRegistry`."""

    traps_exit: ClassVar[bool] = True

    def __init__(
        self,
        catalogue_ref: CatalogueRef,
        readiness: Readiness,
        subscriptions: Ref[Subscriptions],
        table: SubscriptionTable,
    ) -> None:
        """All arguments belong to the company, and are the same for every successor."""
        self._catalogue_ref = catalogue_ref
        self._readiness = readiness
        self._subscriptions = subscriptions
        self._table = table
        self._waiter: Pid | None = None

    def init(self) -> Next[RegistrarState]:
        """Start a process that waits, if there is something to wait for."""
        if self._readiness.passed:
            return Next(RegistrarState.READY)
        self._waiter = spawn_link(_wait_process, self._readiness, self.ref())
        return Next(RegistrarState.NOT_READY)

    # --- requests

    @event
    def ready(self) -> None:
        """Replies when the registrar is ready."""
        raise NotImplementedError

    @event
    def put(self, entries: Sequence[CatalogueEntry], *, replace: bool = True) -> None:
        """Register all of these, or none. Raises `RegistrationError`."""
        raise NotImplementedError

    @event
    def drop(self, kind: Kind, name: Hashable) -> bool:
        """Remove an entry. Whether it was registered."""
        raise NotImplementedError

    # --- states

    @state(RegistrarState.NOT_READY, to=(RegistrarState.READY, END))
    def not_ready(self, event: Event) -> Result[RegistrarState]:
        """Postpone every request."""
        match event:
            case Info(_ReadinessReached()):
                return Next(RegistrarState.READY)
            case Info(Exit(pid=self._waiter, reason=reason)):
                return Stop(
                    reason
                )  # it did not send `_ReadinessReached`: the awaited thing failed, or the process was killed
            case Call() | Cast():
                return Keep(POSTPONE)
            case _:
                return self.unexpected(event)

    @state(RegistrarState.READY, to=())
    def is_ready(self, event: Event) -> Result[RegistrarState]:
        """Handle one write after the other."""
        match event:
            case Call(CatalogueRegistrar.ready, caller=caller):
                return Keep(Reply(caller))
            case Call(CatalogueRegistrar.put, (entries,), kwargs) | Cast(CatalogueRegistrar.put, (entries,), kwargs):
                kinds: set[Kind] = {entry.kind for entry in entries}
                try:
                    self._write(kinds, partial(put_all, entries, **kwargs))
                except RegistrationError as error:
                    if isinstance(event, Call):
                        return Keep(Fail(event.caller, error))
                    self.report_unexpected("registration", str(error))
                done = None
            case Call(CatalogueRegistrar.drop, (kind, name)) | Cast(CatalogueRegistrar.drop, (kind, name)):
                done = self._write({kind}, lambda catalogue: catalogue.drop(kind, name))
            case Info(Exit(pid=self._waiter)):
                return Keep()
            case _:
                return self.unexpected(event)
        return Keep(Reply(event.caller, done)) if isinstance(event, Call) else Keep()

    def terminate(self, reason: ExitReason) -> None:
        """Stop waiting for `wait_for`, unless a crash ended this registrar: then its successor needs it."""
        if not isinstance(reason, Crash):
            self._readiness.abandon()

    def _write(self, kinds: set[Kind], change: Callable[[Catalogue], Catalogue]) -> bool:
        """Publish a change, and announce it."""
        changed = self._catalogue_ref.write(change)
        if changed:
            for kind in kinds:
                announce_list_changed(self._subscriptions, self._table, kind)
        return changed


def put_all(entries: Sequence[CatalogueEntry], catalogue: Catalogue, *, replace: bool) -> Catalogue:
    """A catalogue with all of these entries. Raises `RegistrationError` for one that is taken."""
    for entry in entries:
        catalogue = catalogue.put(entry, replace=replace)
    return catalogue


async def _wait_process(readiness: Readiness, registrar: Ref[Any]) -> None:
    """A process of its own waits, so that the registrar stays responsive."""
    await readiness.wait()
    registrar.send(_ReadinessReached())


def registrar_child(
    name: Hashable,
    catalogue_ref: CatalogueRef,
    readiness: Readiness,
    subscriptions: Ref[Subscriptions],
    table: SubscriptionTable,
) -> ChildSpec[Ref[CatalogueRegistrar]]:
    """The child spec of the registrar."""
    return child(CatalogueRegistrar, catalogue_ref, readiness, subscriptions, table).but(id="registry", name=name)


# --- `wait_for`: the name of a process, an event, or anything awaitable.
# It is made once for a company, and every registrar waits for the same one. A coroutine can run only once, so it runs
# in a task of its own, which a registrar's crash does not end.

NAME_POLL_SECONDS: Final = 0.1
"""How often a name is looked up."""

WaitFor: TypeAlias = "Hashable | Awaitable[object] | Callable[[], Awaitable[object]] | None"
"""A name, an object with an async `wait()`, an awaitable, or a function that makes one for each registrar; None for nothing."""


class NeverReady(GreenroomError):
    """The thing that the registry waited for has failed, so the registry will never be ready."""


class Readiness:
    """Waits for `wait_for`. Once it is there, `passed` is set, and later registrars do not wait."""

    def __init__(self, wait_for: WaitFor) -> None:
        self.passed = wait_for is None
        self._task: asyncio.Task[None] | None = None
        self._wait: Callable[[], Awaitable[object]] = _wait_function(wait_for, self)

    async def wait(self) -> None:
        """Wait until it is there."""
        if not self.passed:
            await self._wait()
            self.passed = True

    def abandon(self) -> None:
        """Stop waiting: no registrar will need it."""
        if self._task is not None:
            self._task.cancel()

    async def once(self, awaitable: Awaitable[object]) -> None:
        """Await an awaitable that can be awaited only once, for any number of registrars."""
        if self._task is None:
            # In an empty context: a task started in the first registrar's context would end with that registrar.
            self._task = asyncio.get_running_loop().create_task(_await_contained(awaitable), context=Context())
        await asyncio.shield(self._task)


async def _await_contained(awaitable: Awaitable[object]) -> None:
    try:
        await awaitable
    except (SystemExit, KeyboardInterrupt) as error:  # outside of any process these would end the whole loop
        raise NeverReady(f"what the registry waited for raised {error!r}") from error


def _wait_function(wait_for: Any, readiness: Readiness) -> Callable[[], Awaitable[object]]:
    """The function that waits for `wait_for`. Raises `TypeError` for a value that cannot be waited for."""
    if inspect.isawaitable(wait_for):
        awaitable = cast("Awaitable[object]", wait_for)
        return lambda: readiness.once(awaitable)
    wait: Any = getattr(wait_for, "wait", None)
    if wait is not None:
        if not inspect.iscoroutinefunction(wait):
            raise TypeError(
                f"wait_for: {wait_for!r} has a wait() that blocks: give an asyncio.Event, or an async function"
            )
        return cast("Callable[[], Awaitable[object]]", wait)
    if callable(wait_for):
        return cast("Callable[[], Awaitable[object]]", wait_for)
    hash(wait_for)
    return lambda: _wait_registered(wait_for)


async def _wait_registered(name: Hashable) -> None:
    while whereis(name) is None:  # noqa: ASYNC110 - names have no notification
        await asyncio.sleep(NAME_POLL_SECONDS)
