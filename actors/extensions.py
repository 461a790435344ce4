"""Extensions of the protocol: an identifier with settings, and the request methods and notifications that come with it.

::

    notes = Extension("com.example/notes", settings={"search": True})

    @notes.method("notes/list")
    async def list_notes(query: NotesQuery, ctx: Context) -> dict[str, Any]: ...

    server = Server("notebook", extensions=[notes])

The catalogue has them. Sessions and exchanges look there for methods that the protocol itself does not have (`admitted_method`). Their handlers run in
workers, with the limits, timeouts and isolation of any other handler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast, get_origin

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.extension_ids import extension_not_declared, id_problem, is_extension_declared
from greenroom.protocol.function_parameters import MISSING, BadHint, parameters_of
from greenroom.protocol.handler_results import in_json
from greenroom.protocol.jsonrpc import encode
from greenroom.protocol.methods import (
    METHODS,
    TASKS_EXTENSION,
    MessageDirection,
    Method,
    check_params,
    unsupported_error,
)
from greenroom.protocol.type_schemas import convert_json, typed_schema_of
from greenroom.protocol.validation_errors import Mismatch

from .catalogue import MissingScopes, RegistrationError, may_use, quota_key_of_job
from .catalogue_entries import scopes_of
from .context import SendOutcome
from .handler_options import ExecutionMode, ListedOptions, handler_of
from .worker import call_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .catalogue import Catalogue
    from .context import Context
    from .handler_options import Handler, Isolation
    from .server_registry import RegistrationMethods
    from .worker_interfaces import Job, SessionFacts

F = TypeVar("F", bound="Callable[..., Any]")

_METHOD_NAME: Final = re.compile(r"(?=.{3,128}\Z)[A-Za-z][A-Za-z0-9_.$-]*(?:/[A-Za-z0-9_.$-]+)+")
_NOTIFICATION_NAME: Final = re.compile(r"(?=.{3,160}\Z)notifications(?:/[A-Za-z0-9_.$-]+)+")
_OWN_PREFIXES: Final = ("notifications/", "tasks/", "server/", "subscriptions/", "rpc.")
"""Names that belong to the protocol, also where it has no method of the name yet."""
_PROTOCOL_MEMBERS: Final = frozenset({"_meta", "inputResponses", "requestState"})
"""Members of params that belong to the protocol, and are no part of the method's own params."""
_UNSHAPED: Final = (dict, Mapping, Any, MISSING)


@dataclass(frozen=True, slots=True)
class ExtensionMethod:
    """A request method of an extension."""

    kind: ClassVar = "method"
    name: str
    extension_id: str
    handler: Handler
    parameter: str | None
    """The parameter that gets the params."""
    shape: Any
    """The type of the params; None for a dict of any members."""
    requires_client: bool
    """Whether only clients may call it that have declared the extension."""
    scopes: tuple[str, ...]
    line: Method
    """The method as a row of the protocol's table, by which its params are checked."""

    async def answer(self, job: Job, ctx: Context) -> dict[str, Any]:
        """Run the handler. Raises `McpError` for params that do not fit, and whatever the handler raises."""
        ctx.name = self.name
        given = {name: value for name, value in job.params.items() if name not in _PROTOCOL_MEMBERS}
        arguments: dict[str, Any] = {}
        if self.parameter is not None:
            arguments[self.parameter] = given if self.shape is None else self._shaped(given)
        services, key = job.services, ("method", self.name)
        value = await call_handler(self.handler, ctx, arguments, services.bulkheads, key, quota_key_of_job(job))
        result = in_json({} if value is None else value)
        if not isinstance(result, dict):
            raise TypeError(
                f"the handler of {self.name} has to return a dict, or None for an empty one, not {type(value).__qualname__}"
            )
        return cast("dict[str, Any]", result)

    def _shaped(self, given: dict[str, Any]) -> Any:
        try:
            return convert_json(self.shape, given)
        except Mismatch as error:
            raise McpError(ErrorCode.INVALID_PARAMS, f"Invalid params for {self.name}: {error}") from None


class Extension:
    """An extension of the protocol that a server offers: `Server(extensions=[…])`.

    Derive a class from it for an extension that brings tools or resources too.
    """

    def __init__(
        self,
        id: str,
        *,
        settings: Mapping[str, Any] | None = None,
        notifications: Iterable[str] = (),
        requires_client: bool = True,
    ) -> None:
        """`id` has a prefix, a domain of yours in reverse: `com.example/notes`. `settings` are declared to clients.

        `notifications` are the names of the extension's own notifications, which `notify` sends to clients that have declared the extension, and to no
        others. With `requires_client=False` also clients that have not declared the extension may call its methods.
        """
        if problem := id_problem(id):
            raise RegistrationError(f"extension {id!r:.80}: {problem}")
        if id == TASKS_EXTENSION:
            raise RegistrationError(
                f"extension {id!r}: the server has it already: register a tool with task_support, or long_running=True"
            )
        self.id = id
        self.settings = _checked_settings(id, settings)
        if isinstance(notifications, str):
            raise RegistrationError(f"extension {id!r}: notifications is a list of names, not {notifications!r}")
        self.notifications = frozenset(notifications)
        for name in self.notifications:
            _check_notification(id, name)
        self.requires_client = requires_client
        self.methods: dict[str, ExtensionMethod] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def method(
        self,
        name: str,
        *,
        timeout: float | None = None,
        isolation: Isolation | None = None,
        threads: int | None = None,
        scopes: Sequence[str] = (),
        requires_client: bool | None = None,
    ) -> Callable[[F], F]:
        """Answer requests of this method: ``@extension.method("notes/list")`` on a function of the params and the context.

        The function returns the result as a dict. It gets the params as a dict, or as the dataclass, `TypedDict` or model that its hint names, and then
        params of another shape are refused. `timeout`, `isolation`, `threads` and `scopes` are as for a tool, except that it does not run in another process.
        """
        what = f"method {name!r}"
        _check_method_name(what, name)
        if name in self.methods:
            raise RegistrationError(f"{what}: {self.id} has it already: give this one another name")
        options = ListedOptions(timeout=timeout, isolation=isolation, threads=threads, scopes=scopes)

        def decorate(function: F) -> F:
            handler = handler_of(what, function, options)
            if handler.mode is ExecutionMode.PROCESS:
                raise RegistrationError(f'{what}: a method runs in this process: isolation is "loop", "thread" or None')
            parameter, shape = _params_of(what, function, handler)
            self.methods[name] = ExtensionMethod(
                name,
                self.id,
                handler,
                parameter,
                shape,
                self.requires_client if requires_client is None else requires_client,
                scopes_of(what, options),
                Method(name, MessageDirection.TO_SERVER, until=None),
            )
            return function

        return decorate

    def notify(self, ctx: Context, method: str, params: Mapping[str, Any] | None = None) -> SendOutcome:
        """Send one of the extension's notifications with the replies to this call, if its client has declared the extension."""
        if method not in self.notifications:
            known = ", ".join(sorted(self.notifications)) or "none"
            raise ValueError(
                f"{self.id} has no notification {method!r}: it has {known}; name it in Extension(notifications=[…])"
            )
        if self.id not in ctx.client_extensions:
            return SendOutcome(accepted=False)
        return ctx.notify(method, params)

    def attach(self, registry: RegistrationMethods[Any, Any]) -> None:
        """Register the tools and resources that come with the extension. The server calls it once, when it gets the extension."""


def admitted_method(
    catalogue: Catalogue, name: str, params: dict[str, Any], facts: SessionFacts
) -> ExtensionMethod | None:
    """The extension's method of that name, if this request may call it; None if no extension has one.

    Raises `McpError` when its params are no params, or the client has not declared the extension, and `MissingScopes`.
    """
    method = catalogue.method(name)
    if method is None:
        return None
    check_params(method.line, params)
    if method.requires_client and not is_extension_declared(facts.client_capabilities, method.extension_id):
        if facts.dialect.is_stateless:
            raise extension_not_declared(name, method.extension_id)
        if facts.client_info:  # else there was no handshake, and its client may have the extension all the same
            raise unsupported_error(
                f"{name} needs the extension {method.extension_id}, which the client has not declared"
            )
    if not may_use(method, facts.peer):
        raise MissingScopes(method.scopes)
    return method


def _params_of(what: str, function: Callable[..., Any], handler: Handler) -> tuple[str | None, Any]:
    """The parameter of a handler that gets the params, and their type if it is no plain dict."""
    try:
        found = parameters_of(function, () if handler.context is None else (handler.context,))
        needed = [each for each in found if each.required]
        if len(needed) > 1 or (not needed and len(found) > 1):
            names = ", ".join(each.name for each in found)
            raise RegistrationError(
                f"{what}: its function takes {names}: it gets the params as one value, and the context as ctx; give the params a dataclass or TypedDict"
            )
        if not found:
            return None, None
        only = (needed or found)[0]
        if only.hint in _UNSHAPED or get_origin(only.hint) in _UNSHAPED:
            return only.name, None
        if typed_schema_of(only.hint).schema.get("type") != "object":
            raise RegistrationError(
                f"{what}: the params are an object, so {only.name} must be a dict, a dataclass, a TypedDict or a model"
            )
    except BadHint as error:
        raise RegistrationError(f"{what}: {error}") from error
    return only.name, only.hint


def _check_method_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not _METHOD_NAME.fullmatch(name):
        raise RegistrationError(
            f'{what}: a method has a name of letters, digits, "_", "-" and "." with a slash in it, as "notes/list"'
        )
    if name in METHODS or name.startswith(_OWN_PREFIXES):
        raise RegistrationError(f"{what}: the protocol has this name itself: give the method another one")


def _check_notification(id: str, name: object) -> None:
    if not isinstance(name, str) or not _NOTIFICATION_NAME.fullmatch(name) or name in METHODS:
        raise RegistrationError(
            f'extension {id!r}: {name!r} is no name for a notification of its own: write "notifications/notes/changed"'
        )


def _checked_settings(id: str, settings: Any) -> Mapping[str, Any]:
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise RegistrationError(f"extension {id!r}: settings is a dict, not {settings!r:.200}")
    try:
        written = in_json(dict(cast("Mapping[str, Any]", settings)))
        encode(written)
    except Exception as error:
        raise RegistrationError(f"extension {id!r}: its settings cannot be written as JSON: {error}") from error
    return cast("dict[str, Any]", written)
