"""The entries of the catalogue: a handler with everything derived from it, built and checked once, at registration.

Five kinds, five constructors. Each raises `RegistrationError` that says what is wrong and what to write instead. An
entry that was built can be called, listed and encoded.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeGuard, cast, get_args

import msgspec

from greenroom.auth.auth_info import OFFLINE_ACCESS
from greenroom.protocol import docstrings
from greenroom.protocol.cache_hints import BadCache, check_cache
from greenroom.protocol.definitions import Prompt, PromptArgument, Resource, ResourceTemplate, Tool
from greenroom.protocol.function_parameters import BadHint, docstring_of
from greenroom.protocol.handler_results import return_schema_of, schema_under_result
from greenroom.protocol.jsonrpc import encode, is_object
from greenroom.protocol.methods import explain
from greenroom.protocol.mirrored_headers import BadHeaderAnnotation, header_plan_of
from greenroom.protocol.type_schemas import schema_of
from greenroom.protocol.uri_templates import BadTemplate, UriTemplate

from .apps import APP_SCHEME, APP_TYPE, AppView, app_of
from .argument_binders import Binder, DictBinder, TextBinder, binder_of, function_parameters, text_binder_of
from .catalogue import RegistrationError
from .handler_options import (
    CompletionOptions,
    Handler,
    PromptOptions,
    ResourceOptions,
    TaskSupport,
    TemplateOptions,
    ToolOptions,
    handler_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.protocol.function_parameters import Parameter
    from greenroom.protocol.handler_results import ReturnSchema
    from greenroom.protocol.mirrored_headers import HeaderPlan
    from greenroom.protocol.validation import Validator

    from .apps import App
    from .catalogue import Kind
    from .handler_options import ListedOptions

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """A tool."""

    kind: ClassVar[Kind] = "tool"
    name: str
    handler: Handler
    options: ToolOptions
    definition: Tool
    wire: Mapping[str, Any]
    binder: Binder
    check_input: Validator | None
    """Validates arguments against a handwritten schema. For one from type hints, the binder does it."""
    returns: ReturnSchema | None
    """The return hint, where no output schema was written."""
    check_output: Validator | None
    as_task: TaskSupport
    scopes: tuple[str, ...] = ()
    app: App | None = None
    bare_output: Mapping[str, Any] | None = None
    """The output schema of the stateless era, where it differs: of the value itself, and of a long-running tool, too."""
    wraps_output: bool = False
    """Whether the handwritten output schema is of any type, so that handshake revisions have the value under `result`."""
    header_plan: HeaderPlan | None = None
    """The parameters that HTTP headers repeat; None for a tool without any."""

    @property
    def long_running(self) -> bool:
        """Whether its calls in a session become tasks unasked."""
        return self.options.long_running

    @property
    def defer_task(self) -> bool:
        """Whether its handler decides that the call becomes a task."""
        return self.options.defer_task

    @property
    def task_timeout(self) -> float | None:
        """How long it may run as a task; None for no limit of its own."""
        return self.handler.timeout

    @property
    def wraps_result(self) -> bool:
        """Whether handshake revisions have its structured results under `result`."""
        return self.wraps_output or (self.returns is not None and self.returns.wrapped)

    @property
    def may_run_again(self) -> bool:
        """Whether a call may be carried out twice: it is declared idempotent, or changes nothing."""
        return may_run_again(self.wire)


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """A resource."""

    kind: ClassVar[Kind] = "resource"
    name: str
    handler: Handler
    uri: str
    mime_type: str | None
    wire: Mapping[str, Any]
    whole: str | None
    """The parameter that gets the request's params as one dict, if the function has one."""
    scopes: tuple[str, ...] = ()
    contents_meta: Mapping[str, Any] | None = None
    """The `_meta` of all its contents."""
    cache: Mapping[str, Any] | None = None
    """The cache hints of what is read, as members of the result."""

    def listed_as(self, wire: Mapping[str, Any]) -> ResourceEntry:
        """The same entry, shown in lists as this."""
        return replace(self, wire=wire)


@dataclass(frozen=True, slots=True)
class TemplateEntry:
    """A resource template."""

    kind: ClassVar[Kind] = "resource_template"
    name: str
    handler: Handler
    uri_template: str
    template: UriTemplate
    mime_type: str | None
    wire: Mapping[str, Any]
    binder: TextBinder | DictBinder
    scopes: tuple[str, ...] = ()
    cache: Mapping[str, Any] | None = None
    """The cache hints of what is read, as members of the result."""


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """A prompt."""

    kind: ClassVar[Kind] = "prompt"
    name: str
    handler: Handler
    wire: Mapping[str, Any]
    binder: TextBinder | DictBinder
    required: Sequence[str]
    description: str | None
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletionEntry:
    """The completion of one argument of a prompt, or of a resource template."""

    kind: ClassVar[Kind] = "completion"
    name: tuple[str, str, str]
    handler: Handler
    value: str | None
    """The parameter that gets the text typed so far."""


def may_run_again(tool: Mapping[str, Any]) -> bool:
    """Whether a call of the tool with this definition may be carried out twice."""
    annotations: Any = tool.get("annotations")
    return is_object(annotations) and (
        annotations.get("idempotentHint") is True or annotations.get("readOnlyHint") is True
    )


CatalogueEntry: TypeAlias = ToolEntry | ResourceEntry | TemplateEntry | PromptEntry | CompletionEntry
"""Any entry: it has a kind, a name that is unique in its kind, and a handler."""


def _suggested_name(name: Any) -> str:
    """A valid tool name that is close to this one."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode() if isinstance(name, str) else ""
    return re.sub(r"[^A-Za-z0-9_./-]+", "_", plain).strip("_")[:64] or "its_name"


def tool_entry(name: Any, function: Callable[..., Any], options: ToolOptions | None = None) -> ToolEntry:
    """Build the entry of a tool."""
    options = ToolOptions() if options is None else options
    what = f"tool {name!r}"
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise RegistrationError(
            f"{what}: a tool's name is 1 to 128 letters (a to z, A to Z), digits, '_', '-', '.' or '/', as every client accepts: "
            f'give it one, as in @server.tool("{_suggested_name(name)}")'
        )
    if options.as_task not in get_args(TaskSupport):
        supports = ", ".join(get_args(TaskSupport))
        raise RegistrationError(f"{what}: task_support is one of {supports}, not {options.as_task!r}")
    if options.long_running and options.as_task == "forbidden":
        raise RegistrationError(f"{what}: a long_running tool answers with a task, but task_support forbids tasks")
    for word in ("validate_input", "validate_output", "long_running", "defer_task"):
        value: Any = getattr(options, word)
        if not isinstance(value, bool) and (value is not None or word in ("long_running", "defer_task")):
            raise RegistrationError(f"{what}: {word} must be True or False, not {value!r}")
    handler = handler_of(what, function, options)
    if options.defer_task and (options.as_task == "forbidden" or handler.context is None or handler.pool is not None):
        raise RegistrationError(
            f'{what}: with defer_task its handler starts the task: give it task_support="optional" or "required", a parameter ctx '
            'for ctx.start_task(), and no isolation="process"'
        )
    try:
        by_hand = None if options.input_schema is None else _checked_schema(what, "input_schema", options.input_schema)
        binder = binder_of(function, handler.context, by_hand)
        returns = None if options.output_schema is not None else return_schema_of(function)
    except BadHint as error:
        raise RegistrationError(f"{what}: {error}") from error
    written = options.output_schema
    output = None if written is None else _checked_schema(what, "output_schema", written, root_object=False)
    # Structured content is an object in the handshake revisions: any other value stands under `result`.
    is_bare = output is not None and output.get("type") != "object"
    wrapped = (
        returns.schema
        if returns is not None
        else schema_under_result(dict(output))
        if is_bare and output is not None
        else output
    )
    bare = returns.bare_schema if returns is not None else output
    try:
        header_plan = header_plan_of(binder.schema, ours=True)
    except BadHeaderAnnotation as error:
        raise RegistrationError(f"{what}: {error}") from error
    app = app_of(what, options.app)
    definition = Tool(
        name=name,
        input_schema=binder.schema,
        # A long-running tool may answer with a task where none was asked for, and that result does not match the
        # output schema.
        output_schema=None if options.long_running else wrapped,
        annotations=options.annotations,
        execution=None if options.as_task == "forbidden" else {"taskSupport": options.as_task},
        **_listed_fields(what, function, options, None if app is None else app.to_wire()),
    )
    return ToolEntry(
        name=name,
        handler=handler,
        options=options,
        definition=definition,
        wire=listed_form(what, definition),
        binder=binder,
        check_input=None if by_hand is None or options.validate_input is False else _validator(by_hand),
        returns=returns,
        check_output=None if output is None or options.validate_output is False else _validator(output),
        bare_output=bare if options.long_running or is_bare or (returns is not None and returns.wrapped) else None,
        wraps_output=is_bare,
        as_task=options.as_task,
        scopes=scopes_of(what, options),
        app=app,
        header_plan=header_plan,
    )


def resource_entry(name: Any, function: Callable[..., Any], options: ResourceOptions) -> ResourceEntry:
    """Build the entry of a resource."""
    what = f"resource {name!r}"
    _check_name(what, name)
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s{}]*$", options.uri):
        raise RegistrationError(
            f"{what}: {options.uri!r} is not a URI: write it with a scheme, like config://app; one with {{variables}} is a template"
        )
    handler = handler_of(what, function, options)
    parameters = function_parameters(function, handler.context)
    binder = text_binder_of(what, function, handler.context)
    whole = next(iter(parameters), None) if isinstance(binder, DictBinder) else None
    needed = [each.name for each in parameters.values() if each.default is each.empty and each.name != whole]
    if needed:
        raise RegistrationError(
            f"{what}: its function needs {', '.join(needed)}, and a resource has no arguments: "
            "make it a template, with these in its URI, or take the context (ctx)"
        )
    mime_type, shown = _view_of(what, options, handler)
    definition = Resource(
        uri=options.uri,
        name=name,
        mime_type=mime_type,
        size=options.size,
        annotations=options.annotations,
        **_listed_fields(what, function, options, shown),
    )
    wire, scopes = listed_form(what, definition), scopes_of(what, options)
    meta = None if shown is None else {"ui": shown}
    cache = _cache_of(what, options.cache, scopes)
    return ResourceEntry(name, handler, options.uri, mime_type, wire, whole, scopes, meta, cache)


def _view_of(what: str, options: ResourceOptions, handler: Handler) -> tuple[str | None, dict[str, Any] | None]:
    """The MIME type of a resource, and how a host shows it if it is the document of an app."""
    if options.view is None:
        is_document = options.mime_type is None and options.uri.startswith(APP_SCHEME)
        return (APP_TYPE if is_document else options.mime_type), None
    if not isinstance(cast("object", options.view), AppView):
        raise RegistrationError(f"{what}: view must be AppView(csp=…, prefers_border=…), not {options.view!r}")
    if not options.uri.startswith(APP_SCHEME):
        raise RegistrationError(f"{what}: only the document of an app has a view, and its URI begins with {APP_SCHEME}")
    if options.mime_type not in (None, APP_TYPE):
        raise RegistrationError(f"{what}: the document of an app is {APP_TYPE}: leave out mime_type")
    if handler.pool is not None:
        raise RegistrationError(f"{what}: a resource with a view runs in this process: leave out isolation")
    return APP_TYPE, options.view.to_wire()


def _cache_of(what: str, cache: object, scopes: Sequence[str]) -> Mapping[str, Any] | None:
    """The cache hints of a resource, as members of its result."""
    try:
        hint = check_cache(f"{what}: cache", cache, scopes)
    except BadCache as error:
        raise RegistrationError(str(error)) from None
    return None if hint is None else hint.to_wire()


def template_entry(name: Any, function: Callable[..., Any], options: TemplateOptions) -> TemplateEntry:
    """Build the entry of a resource template."""
    what = f"resource template {name!r}"
    _check_name(what, name)
    try:
        template = UriTemplate(options.uri_template, segments=options.segments)
    except BadTemplate as error:
        raise RegistrationError(f"{what}: {error}") from error
    handler = handler_of(what, function, options)
    binder = text_binder_of(what, function, handler.context)
    if isinstance(binder, TextBinder):
        variables = set(template.names)
        missing = [each.wire for each in binder.parameters.values() if each.required and each.wire not in variables]
        if missing:
            raise RegistrationError(
                f"{what}: its function needs {', '.join(missing)}, which {options.uri_template} does not have: "
                "put it into the template, or give it a default"
            )
        unused = sorted(variables - binder.parameters.keys())
        if unused:
            raise RegistrationError(
                f"{what}: its function does not take {', '.join(unused)}, which {options.uri_template} has: "
                "add the parameter, or take all of them in one dict called `args`"
            )
    definition = ResourceTemplate(
        uri_template=options.uri_template,
        name=name,
        mime_type=options.mime_type,
        annotations=options.annotations,
        **_listed_fields(what, function, options),
    )
    wire, scopes = listed_form(what, definition), scopes_of(what, options)
    cache = _cache_of(what, options.cache, scopes)
    return TemplateEntry(name, handler, options.uri_template, template, options.mime_type, wire, binder, scopes, cache)


def prompt_entry(name: Any, function: Callable[..., Any], options: PromptOptions | None = None) -> PromptEntry:
    """Build the entry of a prompt."""
    options = PromptOptions() if options is None else options
    what = f"prompt {name!r}"
    _check_name(what, name)
    handler = handler_of(what, function, options)
    binder = text_binder_of(what, function, handler.context)
    arguments = _prompt_arguments(what, binder, options)
    definition = Prompt(name=name, arguments=arguments, **_listed_fields(what, function, options))
    required = tuple(each.name for each in arguments if each.required)
    wire, scopes = listed_form(what, definition), scopes_of(what, options)
    return PromptEntry(name, handler, wire, binder, required, definition.description, scopes)


def completion_entry(
    name: Any, function: Callable[..., Any], options: CompletionOptions | None = None
) -> CompletionEntry:
    """Build the entry of a completion: `("prompt", name, argument)` or `("resource_template", uri_template, argument)`."""
    options = CompletionOptions() if options is None else options
    what = f"completion {name!r}"
    if not _is_completion_name(name):
        raise RegistrationError(
            f'{what}: a completion is for ("prompt", its name, an argument) '
            'or ("resource_template", its URI template, a variable)'
        )
    handler = handler_of(what, function, options)
    parameters = function_parameters(function, handler.context)
    needed = [each.name for each in parameters.values() if each.default is each.empty]
    if len(needed) > 1:
        raise RegistrationError(
            f"{what}: its function needs {', '.join(needed)}, but a completion gets only the text typed so far: "
            "the other arguments are in ctx.variables"
        )
    value = next(iter(parameters), None)
    if value is not None and parameters[value].kind is parameters[value].POSITIONAL_ONLY:
        raise RegistrationError(f"{what}: {value} is positional-only, and comes by name: remove the `/`")
    return CompletionEntry(name, handler, value)


def _prompt_arguments(what: str, binder: TextBinder | DictBinder, options: PromptOptions) -> list[PromptArgument]:
    """The arguments given in the options; without them, the function's parameters."""
    if options.arguments is None:
        if isinstance(binder, DictBinder):
            return []
        return [PromptArgument(each.wire, None, _described(each), each.required) for each in binder.parameters.values()]
    arguments = [_prompt_argument(what, each) for each in options.arguments]
    if isinstance(binder, TextBinder):
        names = {each.name for each in arguments}
        unknown = [name for name in sorted(names) if name not in binder.parameters]
        missing = [each.wire for each in binder.parameters.values() if each.required and each.wire not in names]
        if unknown or missing:
            raise RegistrationError(
                f"{what}: its arguments and its function's parameters differ in {', '.join(unknown + missing)}"
            )
    return arguments


def _described(parameter: Parameter) -> str | None:
    """The parameter's description, from its hint or the docstring."""
    try:
        description = schema_of(parameter.hint).get("description")
    except BadHint:
        description = None
    return description or parameter.description or None


def _prompt_argument(what: str, given: Any) -> PromptArgument:
    if isinstance(given, PromptArgument):
        return given
    if isinstance(given, str):
        return PromptArgument(given)
    if is_object(given) and isinstance(given.get("name"), str) and given.keys() <= _ARGUMENT_FIELDS:
        return PromptArgument(**given)
    raise RegistrationError(
        f"{what}: {given!r} is not an argument: give a PromptArgument, a name, or {{name, description, required}}"
    )


_ARGUMENT_FIELDS: Final = {"name", "title", "description", "required"}


def _checked_schema(what: str, which: str, schema: Any, *, root_object: bool = True) -> Mapping[str, Any]:
    from greenroom.protocol.validation import BadSchema, check_schema  # noqa: PLC0415 - few write schemas by hand

    try:
        check_schema(schema, root_object=root_object)
    except BadSchema as error:
        raise RegistrationError(f"{what}: {which}: {error}") from error
    checked: Mapping[str, Any] = schema
    return checked


def _is_completion_name(name: Any) -> TypeGuard[tuple[str, str, str]]:
    match name:
        case ("prompt" | "resource_template", str(), str()):
            return isinstance(name, tuple)
        case _:
            return False


def _validator(schema: Mapping[str, Any]) -> Validator:
    from greenroom.protocol.validation import Validator  # noqa: PLC0415 - as above

    return Validator(schema)


def _check_name(what: str, name: Any) -> None:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise RegistrationError(f"{what}: a name has to be a non-empty text on one line")


def _listed_fields(
    what: str, function: Callable[..., Any], options: ListedOptions, shown: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Title, description, icons and meta, checked. The description may come from the docstring without its parameter sections.

    `shown` is the member `ui` of the meta.
    """
    icons: Any = options.icons
    if isinstance(icons, str | bytes | Mapping) or not isinstance(
        icons, Iterable
    ):  # a text is iterable, and no list of icons
        raise RegistrationError(f"{what}: icons is a list of Icon(src, …), not {icons!r}")
    meta: Any = options.meta
    if not isinstance(meta, Mapping):
        raise RegistrationError(f"{what}: meta is a dict with texts as keys, not {meta!r}")
    if shown is not None:
        if "ui" in meta:
            raise RegistrationError(f'{what}: meta has "ui", which the options app and view write: say it in one place')
        meta = {**cast("Mapping[str, Any]", meta), "ui": shown}
    description: Any = options.description
    if description is None:
        description = docstrings.parse_docstring(docstring_of(function)).description or None
    elif isinstance(description, str):
        description = cleandoc(description).strip()
    return {"title": options.title, "description": description, "icons": list(options.icons), "meta": meta}


__all__ = [
    "CatalogueEntry",
    "CompletionEntry",
    "PromptEntry",
    "ResourceEntry",
    "TemplateEntry",
    "ToolEntry",
    "completion_entry",
    "prompt_entry",
    "resource_entry",
    "template_entry",
    "tool_entry",
]


# --- The wire form of an entry in a list, checked at registration.
# A client with a strict library refuses a whole list for one invalid member, and all other tools with it. So
# handwritten fields (titles, icons, annotations) are checked against the protocol's shapes here, once.

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


class _Icon(msgspec.Struct, rename="camel"):
    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class _ListedToolAnnotations(msgspec.Struct, rename="camel"):
    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class _ListedAnnotations(msgspec.Struct, rename="camel"):
    audience: list[Literal["user", "assistant"]] | None = None
    priority: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    last_modified: str | None = None


class _Listed(msgspec.Struct, rename="camel"):
    title: str | None = None
    description: str | None = None
    icons: list[_Icon] | None = None
    mime_type: str | None = None
    size: int | None = None
    meta: Annotated[dict[str, Any] | None, msgspec.Meta()] = msgspec.field(default=None, name="_meta")


class _ListedTool(_Listed, rename="camel"):
    annotations: _ListedToolAnnotations | None = None


class _ListedOther(_Listed, rename="camel"):
    annotations: _ListedAnnotations | None = None


def listed_form(what: str, definition: Any) -> Mapping[str, Any]:
    """The wire form of a definition. Raises `RegistrationError` if it cannot be encoded, or is not valid for clients."""
    try:
        wire: Mapping[str, Any] = definition.to_wire()
        encode(wire)
    except Exception as error:
        raise RegistrationError(f"{what}: its options cannot be written as JSON: {error}") from error
    shape = _ListedTool if "inputSchema" in wire else _ListedOther
    try:
        msgspec.convert(wire, shape)
    except msgspec.ValidationError as error:
        raise RegistrationError(f"{what}: its options are not valid for clients: {explain(error, shape)}") from None
    return wire


def scopes_of(what: str, options: ListedOptions) -> tuple[str, ...]:
    """The scopes of the options. An invalid value is refused, since reading it as "no scopes" would open the entry."""
    given: Any = options.scopes
    if not isinstance(given, list | tuple | set | frozenset):
        raise RegistrationError(f"{what}: scopes is a list of words, not {given!r}")
    scopes: tuple[Any, ...] = tuple(dict.fromkeys(cast("Iterable[Any]", given)))
    for each in scopes:
        if not isinstance(each, str) or not _SCOPE.fullmatch(each):
            raise RegistrationError(f"{what}: a scope is a word without blanks, quotes or backslashes, not {each!r}")
        if each == OFFLINE_ACCESS:
            raise RegistrationError(
                f"{what}: {each} asks for a refresh token, and no server has it as a scope: leave it out"
            )
    return scopes
