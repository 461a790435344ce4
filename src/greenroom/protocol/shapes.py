"""The shapes of params and results, one struct each: what must be there, what may be, and of which type.

Only the outer shape: what a handler is free to choose (arguments, schemas, content blocks) is an object here and nothing more.
Members that are not named are let through, since any revision may add some. A member that may be missing may also be null, which
several clients send instead.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, field

Token: TypeAlias = str | int
"""What a progress token is, and a request's id."""

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""How grave a log message is, in RFC 5424's words."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""The least grave first."""

Object: TypeAlias = dict[str, Any]


class Meta(Struct, rename="camel"):
    """`_meta` of a request. Everything else in it belongs to its author."""

    progress_token: Token | None = None


class Params(Struct, rename="camel", kw_only=True):
    """What any params may have, and those of a method that takes nothing."""

    meta: Meta | None = field(name="_meta", default=None)


class Page(Params):
    """One page of a list. An empty cursor is a cursor."""

    cursor: str | None = None


class Named(Struct, rename="camel"):
    """Who a peer is."""

    name: str
    version: str


class Initialize(Params):
    """The handshake's first word."""

    protocol_version: str
    capabilities: Object
    client_info: Named


class TaskWish(Struct, rename="camel"):
    """The asker would rather have a task, kept for so many milliseconds."""

    ttl: float | None = None


class CallTool(Params):
    """A tool and its arguments; what those must be is the tool's own business."""

    name: str
    arguments: Object | None = None
    task: TaskWish | None = None


class Uri(Params):
    """A resource."""

    uri: str


class GetPrompt(Params):
    """A prompt and its arguments, which are texts."""

    name: str
    arguments: dict[str, str] | None = None


class PromptRef(Struct, tag_field="type", tag="ref/prompt"):
    """Completion for a prompt."""

    name: str


class ResourceRef(Struct, tag_field="type", tag="ref/resource"):
    """Completion for a resource template."""

    uri: str


class Argument(Struct):
    """What is being typed: of which argument, and how far it has come."""

    name: str
    value: str


class Known(Struct):
    """The arguments that are already filled in."""

    arguments: dict[str, str] | None = None


class Complete(Params):
    """How could this go on?"""

    ref: PromptRef | ResourceRef
    argument: Argument
    context: Known | None = None


class SetLevel(Params):
    """From which level on log messages are wanted."""

    level: Level


class TaskId(Params):
    """A task."""

    task_id: str


class CreateMessage(Params):
    """Let the client's model say something."""

    messages: list[Object]
    max_tokens: int
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    model_preferences: Object | None = None
    include_context: str | None = None
    metadata: Object | None = None
    tools: list[Object] | None = None
    tool_choice: Object | None = None
    task: TaskWish | None = None


class Elicit(Params):
    """Ask the user: by a form that has a schema, or by an address to visit."""

    message: str
    mode: Literal["form", "url"] = "form"
    requested_schema: Object | None = None
    elicitation_id: str | None = None
    url: str | None = None
    task: TaskWish | None = None


class Cancelled(Params):
    """The answer to that request is no longer wanted."""

    request_id: Token | None = None
    reason: str | None = None


class Progress(Params):
    """How far it has come."""

    progress_token: Token
    progress: float
    total: float | None = None
    message: str | None = None


class LogMessage(Params):
    """Something happened."""

    level: Level
    data: Any
    logger: str | None = None


class Elicited(Params):
    """The user has been where a url elicitation sent them."""

    elicitation_id: str


class TaskState(Params):
    """How a task stands."""

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    created_at: str
    last_updated_at: str
    ttl: float | None
    status_message: str | None = None
    poll_interval: float | None = None


class Result(Struct, rename="camel", kw_only=True):
    """What any result may have, and the empty one."""

    meta: Object | None = field(name="_meta", default=None)


class Welcome(Result):
    """The handshake's answer."""

    protocol_version: str
    capabilities: Object
    server_info: Named
    instructions: str | None = None


class Listed(Result, kw_only=True):
    """A page, and where the next one begins."""

    next_cursor: str | None = None


class Tools(Listed):
    """The tools."""

    tools: list[Object]


class Resources(Listed):
    """The resources."""

    resources: list[Object]


class ResourceTemplates(Listed):
    """The resource templates."""

    resource_templates: list[Object]


class Prompts(Listed):
    """The prompts."""

    prompts: list[Object]


class Tasks(Listed):
    """The tasks."""

    tasks: list[Object]


class ToolResult(Result):
    """What a tool answered, or a task instead."""

    content: list[Object] | None = None
    structured_content: Object | None = None
    is_error: bool = False
    task: Object | None = None


class Contents(Result):
    """What a resource holds."""

    contents: list[Object]


class PromptMessages(Result):
    """What a prompt says."""

    messages: list[Object]
    description: str | None = None


class Values(Struct, rename="camel"):
    """Some completions."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class Completion(Result):
    """How it could go on."""

    completion: Values


class Sampled(Result):
    """What the client's model said: one block, or several since the revision that lets it use tools."""

    role: Literal["user", "assistant"]
    content: Object | list[Object]
    model: str
    stop_reason: str | None = None


class Roots(Result):
    """Where the client lets the server work."""

    roots: list[Object]


class Answered(Result):
    """What the user did with an elicitation."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, str | int | float | bool | list[str] | None] | None = None


class TaskResult(TaskState, kw_only=True):
    """How a task stands, as an answer."""
