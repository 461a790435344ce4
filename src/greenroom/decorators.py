"""The decorators `@server.tool`, `@server.resource` …, which return functions unchanged, and the registry behind them.

A decorator refuses a name that is taken, since two functions of one name in one program are a mistake; `server.registry` replaces.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, TypeVar, cast, overload

from greenroom.actors.apps import APP_SCHEME, APP_TYPE, App, document_of
from greenroom.actors.catalogue import RegistrationError
from greenroom.actors.catalogue_entries import CatalogueEntry, completion_entry
from greenroom.actors.handler_options import (
    CompletionOptions,
    PromptOptions,
    ResourceOptions,
    TemplateOptions,
    ToolOptions,
)
from greenroom.actors.server_registry import RegistrationMethods, checked_options, put_all

from .errors import unknown_option

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from os import PathLike
    from typing import Unpack

    from greenroom.actors.apps import AppView
    from greenroom.actors.catalogue import Catalogue, CatalogueRef, Kind
    from greenroom.actors.handler_options import Isolation, TaskSupport
    from greenroom.protocol.cache_hints import Cache

F = TypeVar("F", bound="Callable[..., Any]")
NameOrFunction = TypeVar(
    "NameOrFunction", ToolOptions, ResourceOptions, TemplateOptions, PromptOptions, CompletionOptions
)


class Decorators:
    """The decorators of a class that has a registry."""

    registry: Registrations

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, name: str | None = None, **options: Unpack[ToolKeywords]) -> Callable[[F], F]: ...
    def tool(self, name: Any = None, **options: Any) -> Any:
        """Offer a function as a tool: ``@server.tool``, ``@server.tool("name", title=…)``.

        The type hints give the schema of the arguments, the docstring the description, and the function's name the default name.
        """
        if callable(name):
            return self.tool(**options)(name)
        _check_name("tool", name)
        return _registering(self.registry.register_tool, name, options_of(ToolOptions, "a tool", options))

    def resource(self, uri: str, name: str | None = None, **options: Unpack[ResourceKeywords]) -> Callable[[F], F]:
        """Offer a function's result as a resource: ``@server.resource("config://app")``.

        A URI with variables is a template, whose variables are the function's parameters: ``@server.resource("weather://{city}")``.
        """
        _check_uri(uri)
        _check_name(f'resource("{uri}")', name)
        words: Any = {**options}
        if "{" in uri:
            _refuse(words, "size", f"{uri} is a template, whose resources differ in size")
            _refuse(words, "view", f"{uri} is a template, and the document of an app has a URI without variables")
            given_options = options_of(TemplateOptions, "a resource", {"uri_template": uri, **words})
            return _registering(self.registry.register_resource_template, name, given_options)
        _refuse(words, "segments", f"{uri} has no variables")
        exact = options_of(ResourceOptions, "a resource", {"uri": uri, **words})
        return _registering(self.registry.register_resource, name, exact)

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, name: str | None = None, **options: Unpack[PromptKeywords]) -> Callable[[F], F]: ...
    def prompt(self, name: Any = None, **options: Any) -> Any:
        """Offer a function as a prompt: its parameters are the arguments, it returns the text or the messages."""
        if callable(name):
            return self.prompt(**options)(name)
        _check_name("prompt", name)
        return _registering(self.registry.register_prompt, name, options_of(PromptOptions, "a prompt", options))

    def app(
        self,
        uri: str,
        html: str | PathLike[str] | Callable[..., Any],
        name: str | None = None,
        **options: Unpack[ResourceKeywords],
    ) -> App:
        """Register the document of an app, and return the app for tools: ``board = server.app("ui://board", Path("board.html"))``.

        `html` is the document's text, its file, which is read at each request, or a function that returns the text, as for a resource. ``view=AppView(…)``
        says which origins it may reach, and how a host shows it.
        """
        made = App(uri)
        _refuse(options, "mime_type", f"the document of an app is {APP_TYPE}")  # type: ignore[arg-type]
        self.resource(uri, name or uri.removeprefix(APP_SCHEME), **options)(document_of(uri, html))
        return made

    def completion(
        self,
        argument: str,
        /,
        *,
        prompt: str | None = None,
        template: str | None = None,
        **options: Unpack[CompletionKeywords],
    ) -> Callable[[F], F]:
        """Complete an argument: ``@server.completion("city", prompt="pack_for")``, or with ``template="weather://{city}"``.

        The function gets the text typed so far, and returns suggestions.
        """
        reference = reference_of(argument, prompt, template)
        given_options = options_of(CompletionOptions, "a completion", dict(options))
        return _registering(self.registry.register_completion, reference, given_options)


def _registering(register: Callable[..., None], name: Any, given_options: object) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        register(name_of(name, function), function, given_options, replace=False)
        return function

    return decorate


def options_of(kind: type[NameOrFunction], what: str, words: Mapping[str, Any]) -> NameOrFunction:
    """Check the names of options and make the options. Raises `ConfigError`."""
    known = [each.name for each in fields(kind) if each.name not in ("uri", "uri_template")]
    for word in words.keys() - {each.name for each in fields(kind)}:
        raise RegistrationError(unknown_option(what, word, known, _OTHER_LIBRARIES_OPTIONS))
    return kind(**words)


_OTHER_LIBRARIES_OPTIONS: Final = {
    "replace": "a decorator refuses a name that is taken; server.registry has register_tool(name, function) and its like, which replace",
    "tags": "tags are not supported; put data for clients into meta={…}",
    "enabled": "register it later; server.registry.unregister_tool(name) removes it",
    "exclude_args": "leave them out of the function: bind them with functools.partial, or take them from ctx",
    "structured_output": "the return hint decides: one that is data is sent as structured content",
    "auth": "give the required scopes with scopes=[…], and the authentication with Server(auth=…)",
    "task": 'write task_support="optional" or "required"',
}
"""Options of other libraries, and their equivalents here."""


def _check_name(what: str, name: Any) -> None:
    if name is not None and not isinstance(name, str):
        written = f"write @server.{what}" if what.endswith(")") else f'write @server.{what}, or @server.{what}("name")'
        raise RegistrationError(f"{name!r} is neither a function nor a name: {written}")


def name_of(name: str | None, function: Any) -> str:
    """The given name, or the function's name."""
    if name is not None:
        return name
    own: Any = getattr(function, "__name__", None)
    if not isinstance(own, str) or own == "<lambda>":
        raise RegistrationError(f'{function!r} has no name: give it one, as in server.tool("its_name")(…)')
    return own


def reference_of(argument: str, prompt: str | None, template: str | None) -> tuple[str, str, str]:
    """The reference of a completion."""
    if not isinstance(cast("object", argument), str):
        raise RegistrationError(
            f'{argument!r} is no argument\'s name: write @server.completion("city", prompt="its name"), or template="its URI"'
        )
    if (prompt is None) == (template is None):
        raise RegistrationError(
            f"the completion of {argument!r} needs its target: give either prompt=… (its name) or template=… (its URI)"
        )
    return ("prompt", prompt, argument) if prompt is not None else ("resource_template", str(template), argument)


def _check_uri(uri: Any) -> None:
    if not isinstance(uri, str):
        raise RegistrationError('a resource needs a URI: write @server.resource("config://app"), with the parentheses')


def _refuse(words: dict[str, Any], word: str, why: str) -> None:
    if words.pop(word, None) not in (None, False):
        raise RegistrationError(f"{word} is not an option here: {why}")


# --- Registration without decorators: `server.registry.register_tool(name, function, ToolOptions(…))`, at any time, from any thread.
# A registration enters the catalogue that all companies of the server share, atomically; running companies are told that a list has changed, and
# notify their peers. The decorators make these same calls, except that they refuse a name that is taken.

CompletionReference: TypeAlias = tuple[str, str, str]
"""The target of a completion: `("prompt", name, argument)` or `("resource_template", URI template, variable)`."""


class Registrations(RegistrationMethods[None, bool]):
    """The registry of a server: adds and removes catalogue entries."""

    def __init__(self, catalogue: CatalogueRef, changed: Callable[[Kind], None]) -> None:
        """`changed` is called after each change, with the kind of entry."""
        self._catalogue = catalogue
        self._changed = changed

    @property
    def catalogue(self) -> Catalogue:
        """An immutable snapshot of everything registered now."""
        return self._catalogue.current

    def register_completion(
        self,
        reference: CompletionReference,
        function: Callable[..., Any],
        options: CompletionOptions | None = None,
        *,
        replace: bool = True,
    ) -> None:
        """Register the function that completes an argument of a prompt, or a variable of a template."""
        self.put(completion_entry(reference, function, checked_options(options, CompletionOptions)), replace=replace)

    def unregister_completion(self, reference: CompletionReference) -> bool:
        """Remove a completion. Returns whether it was registered."""
        return self._drop("completion", reference)

    def put(self, *entries: CatalogueEntry, replace: bool = True) -> None:
        """Register all of these, or none. No peer sees only some of them."""
        self._catalogue.write(lambda catalogue: put_all(entries, catalogue, replace=replace))
        kinds: dict[Kind, None] = dict.fromkeys(entry.kind for entry in entries)
        for kind in kinds:
            self._changed(kind)

    def _drop(self, kind: Kind, name: Hashable) -> bool:
        dropped = self._catalogue.write(lambda catalogue: catalogue.drop(kind, name))
        if dropped:
            self._changed(kind)
        return dropped


# --- The keyword arguments of decorators, for type checkers: the option fields of `greenroom.actors.handler_options`, which a test compares.


class ExecutionKeywords(TypedDict, total=False):
    """Keywords for how a function runs."""

    isolation: Isolation | None
    timeout: float | None
    threads: int | None


class ListingKeywords(ExecutionKeywords, total=False):
    """Keywords that clients see in lists."""

    title: str | None
    description: str | None
    icons: Sequence[Any]
    meta: Mapping[str, Any]
    scopes: Sequence[str]


class ToolKeywords(ListingKeywords, total=False):
    """Keywords of a tool."""

    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None
    annotations: Any
    validate_input: bool | None
    validate_output: bool | None
    long_running: bool
    task_support: TaskSupport | None
    app: App | str | None
    defer_task: bool


class ResourceKeywords(ListingKeywords, total=False):
    """Keywords of a resource or a template; `size` and `view` only for a resource, `segments` only for a template."""

    mime_type: str | None
    annotations: Any
    size: int | None
    view: AppView | None
    segments: bool
    cache: Cache | None


class PromptKeywords(ListingKeywords, total=False):
    """Keywords of a prompt."""

    arguments: Sequence[Any] | None


class CompletionKeywords(ExecutionKeywords, total=False):
    """Keywords of a completion."""
