"""`McpServer`: a server as a class, with decorated methods and overridden callbacks.

::

    class Notes(McpServer):
        name = "notes"

        async def init(self, arg):                   # once for each session: its result is ctx.state
            return await open_notebook(arg)

        @tool
        async def add(self, ctx: Context, text: str) -> int: ...

        async def read_resource(self, uri, ctx): ...  # every URI without a decorated method

    Notes.server("~/notes").run()

Each server has one instance, for all callers. Features that are neither decorated nor overridden do not exist for clients.
"""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, cast

from greenroom.actors.catalogue import LISTINGS, RegistrationError, may_use, reached_entries, wire_of
from greenroom.actors.settings import Settings
from greenroom.actors.subscriptions import Subscriptions
from greenroom.actors.worker import METHOD_ANSWERS
from greenroom.actors.worker_interfaces import Hooks
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.handler_results import completion_result, prompt_result, resource_contents, tool_result

from .decorators import Decorators
from .server import Server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from greenroom.actors.catalogue import Listing
    from greenroom.actors.company import Company
    from greenroom.actors.context import Context
    from greenroom.actors.extensions import Extension
    from greenroom.actors.task_store import TaskStore
    from greenroom.actors.worker_interfaces import Job, MethodHandler, SessionFacts
    from greenroom.auth.auth_info import AuthProvider

    _Undecorated: TypeAlias = "Callable[[McpServer, Mapping[str, Any], Context], Awaitable[dict[str, Any]]]"

ListingPage: TypeAlias = "Sequence[Any] | tuple[Sequence[Any], str | None]"
"""Some items, or the items and the cursor of the next page."""

_REGISTRATIONS = "__greenroom_offers__"


class McpServer:
    """A server as a class. Derive from it, and set `name` and any other of these attributes."""

    name: ClassVar[str] = ""
    """The default is the class's name in lower case."""
    version: ClassVar[str | None] = None
    title: ClassVar[str | None] = None
    instructions: ClassVar[str | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _check_names(cls)
        for name in CALLBACKS:
            if not inspect.iscoroutinefunction(getattr(cls, name)):
                raise RegistrationError(f"{cls.__name__}.{name} answers requests, so it must be `async def`")

    @classmethod
    def server(  # noqa: PLR0913 - as for `Server`
        cls,
        init_arg: Any = None,
        *,
        settings: Settings | None = None,
        hooks: Hooks | None = None,
        task_store: TaskStore | None = None,
        auth: AuthProvider | Sequence[AuthProvider] | None = None,
        required_scopes: Collection[str] = (),
        extensions: Sequence[Extension] = (),
    ) -> Server:
        """A server with an instance of this class. `init_arg` is passed to each session's `init`; the rest is as in `Server`.

        Raises `RegistrationError` for hooks that the class overrides too.
        """
        instance = cls()
        settings = settings or Settings()
        server = Server(
            cls.name or cls.__name__.lower(),
            version=cls.version,
            title=cls.title,
            instructions=cls.instructions,
            settings=replace(settings, capabilities={**_features(instance), **settings.capabilities}),
            hooks=_hooks(instance, init_arg, hooks or Hooks()),
            task_store=task_store,
            auth=auth,
            required_scopes=required_scopes,
            extensions=extensions,
        )
        for attribute, offer in _registrations_of(cls):
            register = getattr(server.registry, f"register_{offer.kind}")
            register(offer.name, getattr(instance, attribute), offer.options, replace=False)
        return server

    # --- to be overridden

    async def init(self, arg: Any) -> Any:
        """Make a session's state (`ctx.state`). If it raises, the session is refused and the client gets an error."""

    async def list_tools(self, cursor: str | None, ctx: Context) -> ListingPage:
        """The tools besides the decorated ones: `Tool`s, or objects in wire form."""
        raise NotImplementedError

    async def call_tool(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        """Call a tool that is not decorated; its arguments are not checked. Returns and raises what a tool may."""
        raise NotImplementedError

    async def list_resources(self, cursor: str | None, ctx: Context) -> ListingPage:
        """The resources besides the decorated ones."""
        raise NotImplementedError

    async def list_resource_templates(self, cursor: str | None, ctx: Context) -> ListingPage:
        """The templates besides the decorated ones."""
        raise NotImplementedError

    async def read_resource(self, uri: str, ctx: Context) -> Any:
        """Read a resource without a decorated method. Returns what a resource may."""
        raise NotImplementedError

    async def subscribe_resource(self, uri: str, ctx: Context) -> None:
        """Subscribe a client to updates of a resource; raise to refuse."""
        raise NotImplementedError

    async def unsubscribe_resource(self, uri: str, ctx: Context) -> None:
        """End a client's subscription to a resource."""
        raise NotImplementedError

    async def list_prompts(self, cursor: str | None, ctx: Context) -> ListingPage:
        """The prompts besides the decorated ones."""
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: dict[str, str], ctx: Context) -> Any:
        """Render a prompt that is not decorated. Returns what a prompt may."""
        raise NotImplementedError

    async def complete(self, ref: dict[str, Any], argument: dict[str, str], ctx: Context) -> Any:
        """Complete an argument without a decorated method. Returns the values."""
        raise NotImplementedError

    async def set_log_level(self, level: str) -> None:
        """Set a client's log level; raise to refuse."""
        raise NotImplementedError

    def overrides(self, *names: str) -> bool:
        """Whether the class overrides one of these methods."""
        return any(getattr(type(self), name) is not getattr(McpServer, name) for name in names)


CALLBACKS = tuple(name for name, value in vars(McpServer).items() if inspect.iscoroutinefunction(value))


def _hooks(instance: McpServer, init_arg: Any, given: Hooks) -> Hooks:
    async def init(facts: SessionFacts) -> Any:  # noqa: ARG001 - the facts of a session are in ctx later
        return await instance.init(init_arg)

    async def level(level: str, facts: SessionFacts) -> None:  # noqa: ARG001 - as above
        await instance.set_log_level(level)

    own: dict[str, Any] = {}
    if instance.overrides("init"):
        own["init"] = init
    if instance.overrides("set_log_level"):
        own["level"] = level
    answers = class_handlers_of(instance)
    twice = [
        *(name for name in own if getattr(given, name) is not None),
        *(name for name in answers if name in given.answers),
    ]
    if twice:
        which = f"{type(instance).__name__} overrides {', '.join(twice)}"
        raise RegistrationError(f"{which}: leave that out of the hooks, or out of the class")
    return replace(given, **own, answers={**given.answers, **answers})


def _features(instance: McpServer) -> dict[str, Any]:
    """The declared capabilities: features without a method are off."""
    kinds = {offer.kind for _, offer in _registrations_of(type(instance))}
    tools = "tool" in kinds or instance.overrides("list_tools", "call_tool")
    prompts = "prompt" in kinds or instance.overrides("list_prompts", "get_prompt")
    resources = kinds & {"resource", "resource_template"} or instance.overrides(
        "list_resources", "list_resource_templates", "read_resource", "subscribe_resource"
    )
    return {
        "tools": {"listChanged": True} if tools else None,
        "prompts": {"listChanged": True} if prompts else None,
        "resources": {"subscribe": True, "listChanged": True} if resources else None,
        "completions": {} if "completion" in kinds or instance.overrides("complete") else None,
    }


# --- the decorators of methods


class _Registration(NamedTuple):
    """One registration, made for each instance with its bound method."""

    kind: str
    name: Any
    options: Any


class _RecordingRegistry:
    """A registry that only records registrations, on the function itself."""

    def __getattr__(self, word: str) -> Callable[..., None]:
        kind = word.removeprefix("register_")

        def note(name: Any, function: Any, options: Any, *, replace: bool) -> None:  # noqa: ARG001 - the signature of the registry
            setattr(
                function, _REGISTRATIONS, [*getattr(function, _REGISTRATIONS, ()), _Registration(kind, name, options)]
            )

        return note


# The same decorators as a server's, on a registry that records: in a class body there is no server yet. A second set of decorators would have to
# repeat all options.
_for_methods = Decorators()
_for_methods.registry = _RecordingRegistry()  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]

tool = _for_methods.tool
resource = _for_methods.resource
prompt = _for_methods.prompt
completion = _for_methods.completion


def _registrations_of(cls: type) -> list[tuple[str, _Registration]]:
    """The registrations of a class's methods, by attribute."""
    found: list[tuple[str, _Registration]] = []
    seen: dict[str, None] = {}
    for each in reversed(cls.__mro__):
        seen.update(dict.fromkeys(vars(each)))
    for attribute in seen:
        offers: Sequence[_Registration] = getattr(inspect.getattr_static(cls, attribute), _REGISTRATIONS, ())
        found += [(attribute, offer) for offer in offers]
    return found


def _check_names(cls: type) -> None:
    counted = Counter((offer.kind, offer.name) for _, offer in _registrations_of(cls))
    twice: dict[str, list[str]] = {}
    for (kind, name), count in counted.items():
        if count > 1:
            twice.setdefault(kind.replace("_", " "), []).append(str(name))
    for kind, names in twice.items():
        raise RegistrationError(f"{cls.__name__}: duplicate {kind} name(s): {', '.join(names)}: give each its own")


# --- Overridden methods as request handlers: decorated methods take precedence.


def class_handlers_of(instance: McpServer) -> dict[str, MethodHandler]:
    """The handlers of the class, by protocol method."""
    answers: dict[str, MethodHandler] = {
        listing.method: _listing(getattr(instance, f"list_{listing.kind}s"), listing)
        for listing in LISTINGS
        if instance.overrides(f"list_{listing.kind}s")
    }
    for callback, (method, own) in _UNDECORATED.items():
        if instance.overrides(callback):
            answers[method] = _unless_decorated(instance, own)
    if instance.overrides("subscribe_resource"):
        answers["resources/subscribe"] = _subscribing(instance.subscribe_resource, Subscriptions.subscribe)
    if instance.overrides("unsubscribe_resource"):
        answers["resources/unsubscribe"] = _subscribing(instance.unsubscribe_resource, Subscriptions.unsubscribe)
    return answers


def _listing(callback: Callable[[str | None, Context], Awaitable[Any]], listing: Listing) -> MethodHandler:
    """A handler of a list: the decorated entries are on the first page, since the cursors belong to the callback."""

    async def answer(job: Job, ctx: Context) -> dict[str, Any]:
        cursor: str | None = job.params.get("cursor")
        page: Any = await callback(cursor, ctx)
        items, following = cast("tuple[Any, Any]", page) if isinstance(page, tuple) else (page, None)
        entries: Any = job.services.catalogue_ref.current.all(listing.kind) if cursor is None else {}
        own = [wire_of(each, job.facts.dialect) for each in entries.values() if may_use(each, job.facts.peer)]
        result: dict[str, Any] = {listing.member: [*own, *map(_wire, items)]}
        if following is not None:
            result["nextCursor"] = following
        return result

    return answer


def _wire(item: Any) -> Any:
    return item.to_wire() if hasattr(item, "to_wire") else item


def _unless_decorated(instance: McpServer, own: _Undecorated) -> MethodHandler:
    async def answer(job: Job, ctx: Context) -> dict[str, Any]:
        if _is_decorated(job):
            decorated: Any = METHOD_ANSWERS[job.method][1]
            result: dict[str, Any] = await decorated(job, ctx)
            return result
        return await own(instance, job.params, ctx)

    return answer


def _is_decorated(job: Job) -> bool:
    """Whether a decorated method handles the request."""
    catalogue = job.services.catalogue_ref.current
    if job.method != "completion/complete":
        return bool(reached_entries(job.method, job.params, catalogue, job.facts.peer))
    ref, argument = job.params["ref"], job.params["argument"]["name"]
    kind, member = ("prompt", "name") if ref["type"] == "ref/prompt" else ("resource_template", "uri")
    return catalogue.completion(kind, ref.get(member), argument) is not None


async def _call_tool(instance: McpServer, params: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
    ctx.name = name = params["name"]
    return tool_result(await instance.call_tool(name, dict(params.get("arguments") or {}), ctx))


async def _read_resource(instance: McpServer, params: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
    ctx.uri = uri = params["uri"]
    return resource_contents(await instance.read_resource(uri, ctx), uri)


async def _get_prompt(instance: McpServer, params: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
    ctx.name = name = params["name"]
    return prompt_result(await instance.get_prompt(name, dict(params.get("arguments") or {}), ctx))


async def _complete(instance: McpServer, params: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
    return completion_result(await instance.complete(params["ref"], params["argument"], ctx))


_UNDECORATED: Final[Mapping[str, tuple[str, _Undecorated]]] = {
    "call_tool": ("tools/call", _call_tool),
    "read_resource": ("resources/read", _read_resource),
    "get_prompt": ("prompts/get", _get_prompt),
    "complete": ("completion/complete", _complete),
}
"""The protocol method of each callback, and its handler."""


def _subscribing(callback: Callable[[str, Context], Awaitable[None]], then: Any) -> MethodHandler:
    async def answer(job: Job, ctx: Context) -> dict[str, Any]:
        uri = job.params["uri"]
        await callback(uri, ctx)
        company = cast("Company", job.services)
        session = company.peers.whereis(job.facts.session_id)
        if session is None:
            raise McpError(ErrorCode.INVALID_REQUEST, "There is no session to subscribe for")
        await company.subscriptions.call(then, session, uri)
        return {}

    return answer
