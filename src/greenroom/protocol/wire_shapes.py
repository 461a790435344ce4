"""The shapes of params and results, one struct each: what must be there, what may be, and of which type.

Only the outer shape: what a handler is free to choose (arguments, schemas, content blocks) is an object here and nothing more.
Members that are not named are let through, since any revision may add some. A member that may be missing may also be null, which
several clients send instead.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, field

ProgressToken: TypeAlias = str | int
"""What a progress token is, and a request's id."""

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""How grave a log message is, in RFC 5424's words."""

LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
"""The least grave first."""

JsonObject: TypeAlias = dict[str, Any]


class RequestMeta(Struct, rename="camel"):
    """`_meta` of a request. Everything else in it belongs to its author."""

    progress_token: ProgressToken | None = None


class BaseParams(Struct, rename="camel", kw_only=True):
    """What any params may have, and those of a method that takes nothing."""

    meta: RequestMeta | None = field(name="_meta", default=None)


class ListParams(BaseParams):
    """One page of a list. An empty cursor is a cursor."""

    cursor: str | None = None


class PeerInfo(Struct, rename="camel"):
    """Who a peer is."""

    name: str
    version: str


class InitializeParams(BaseParams):
    """The handshake's first word."""

    protocol_version: str
    capabilities: JsonObject
    client_info: PeerInfo


class TaskMetadata(Struct, rename="camel"):
    """The asker would rather have a task, kept for so many milliseconds."""

    ttl: float | None = None


class CallToolParams(BaseParams):
    """A tool and its arguments; what those must be is the tool's own business."""

    name: str
    arguments: JsonObject | None = None
    task: TaskMetadata | None = None


class ResourceUriParams(BaseParams):
    """A resource."""

    uri: str


class GetPromptParams(BaseParams):
    """A prompt and its arguments, which are texts."""

    name: str
    arguments: dict[str, str] | None = None


class PromptReference(Struct, tag_field="type", tag="ref/prompt"):
    """Completion for a prompt."""

    name: str


class ResourceTemplateReference(Struct, tag_field="type", tag="ref/resource"):
    """Completion for a resource template."""

    uri: str


class CompletionArgument(Struct):
    """What is being typed: of which argument, and how far it has come."""

    name: str
    value: str


class CompletionContext(Struct):
    """The arguments that are already filled in."""

    arguments: dict[str, str] | None = None


class CompleteParams(BaseParams):
    """How could this go on?"""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class SetLevelParams(BaseParams):
    """From which level on log messages are wanted."""

    level: LogLevel


class TaskIdParams(BaseParams):
    """A task."""

    task_id: str


class CreateMessageParams(BaseParams):
    """Let the client's model say something."""

    messages: list[JsonObject]
    max_tokens: int
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    model_preferences: JsonObject | None = None
    include_context: str | None = None
    metadata: JsonObject | None = None
    tools: list[JsonObject] | None = None
    tool_choice: JsonObject | None = None
    task: TaskMetadata | None = None


class ElicitParams(BaseParams):
    """Ask the user: by a form that has a schema, or by an address to visit."""

    message: str
    mode: Literal["form", "url"] = "form"
    requested_schema: JsonObject | None = None
    elicitation_id: str | None = None
    url: str | None = None
    task: TaskMetadata | None = None


class CancelledParams(BaseParams):
    """The answer to that request is no longer wanted."""

    request_id: ProgressToken | None = None
    reason: str | None = None


class ProgressParams(BaseParams):
    """How far it has come."""

    progress_token: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None


class LogMessageParams(BaseParams):
    """Something happened."""

    level: LogLevel
    data: Any
    logger: str | None = None


class ElicitationCompleteParams(BaseParams):
    """The user has been where a url elicitation sent them."""

    elicitation_id: str


class TaskStatusParams(BaseParams):
    """How a task stands."""

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    created_at: str
    last_updated_at: str
    ttl: float | None
    status_message: str | None = None
    poll_interval: float | None = None


class BaseResult(Struct, rename="camel", kw_only=True):
    """What any result may have, and the empty one."""

    meta: JsonObject | None = field(name="_meta", default=None)


class InitializeResult(BaseResult):
    """The handshake's answer."""

    protocol_version: str
    capabilities: JsonObject
    server_info: PeerInfo
    instructions: str | None = None


class ListResult(BaseResult, kw_only=True):
    """A page, and where the next one begins."""

    next_cursor: str | None = None


class ListToolsResult(ListResult):
    """The tools."""

    tools: list[JsonObject]


class ListResourcesResult(ListResult):
    """The resources."""

    resources: list[JsonObject]


class ListResourceTemplatesResult(ListResult):
    """The resource templates."""

    resource_templates: list[JsonObject]


class ListPromptsResult(ListResult):
    """The prompts."""

    prompts: list[JsonObject]


class ListTasksResult(ListResult):
    """The tasks."""

    tasks: list[JsonObject]


class CallToolResultShape(BaseResult):
    """What a tool answered, or a task instead."""

    content: list[JsonObject] | None = None
    structured_content: JsonObject | None = None
    is_error: bool = False
    task: JsonObject | None = None


class ReadResourceResult(BaseResult):
    """What a resource holds."""

    contents: list[JsonObject]


class GetPromptResult(BaseResult):
    """What a prompt says."""

    messages: list[JsonObject]
    description: str | None = None


class CompletionValues(Struct, rename="camel"):
    """Some completions."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(BaseResult):
    """How it could go on."""

    completion: CompletionValues


class CreateMessageResult(BaseResult):
    """What the client's model said: one block, or several since the revision that lets it use tools."""

    role: Literal["user", "assistant"]
    content: JsonObject | list[JsonObject]
    model: str
    stop_reason: str | None = None


class ListRootsResult(BaseResult):
    """Where the client lets the server work."""

    roots: list[JsonObject]


class ElicitResult(BaseResult):
    """What the user did with an elicitation."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, str | int | float | bool | list[str] | None] | None = None


class GetTaskResult(TaskStatusParams, kw_only=True):
    """How a task stands, as an answer."""
