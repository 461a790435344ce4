"""The shapes of params and results, one struct each: required members, optional members, and their types.

Only the outer shape is checked: what a handler chooses freely (arguments, schemas, content blocks) is any object here. Unknown members are
allowed, since any revision may add some. An optional member may also be null, which several clients send instead of leaving it out.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, field

ProgressToken: TypeAlias = str | int
"""A progress token, or a request's id."""

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""The severity of a log message, with the names of RFC 5424."""

LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
"""In ascending severity."""

JsonObject: TypeAlias = dict[str, Any]


class RequestMeta(Struct, rename="camel"):
    """`_meta` of a request. Members other than the progress token belong to the sender."""

    progress_token: ProgressToken | None = None


class BaseParams(Struct, rename="camel", kw_only=True):
    """The params that every method accepts, and the params of methods without any."""

    meta: RequestMeta | None = field(name="_meta", default=None)


class ListParams(BaseParams):
    """The params of every `…/list` method. An empty cursor is a cursor."""

    cursor: str | None = None


class PeerInfo(Struct, rename="camel"):
    """`clientInfo` and `serverInfo`."""

    name: str
    version: str


class InitializeParams(BaseParams):
    """The params of `initialize`."""

    protocol_version: str
    capabilities: JsonObject
    client_info: PeerInfo


class ListenFilter(Struct, rename="camel"):
    """The wish of a listening client: changed lists, and updates of these resources and tasks."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


class ListenParams(BaseParams):
    """The params of `subscriptions/listen`, and of its acknowledgement."""

    notifications: ListenFilter


class TaskMetadata(Struct, rename="camel"):
    """Requests a task instead of a result, kept for `ttl` milliseconds."""

    ttl: float | None = None


class CallToolParams(BaseParams):
    """The params of `tools/call`. The tool's own schema checks the arguments."""

    name: str
    arguments: JsonObject | None = None
    task: TaskMetadata | None = None


class ResourceUriParams(BaseParams):
    """The params of `resources/read`, `subscribe`, `unsubscribe` and `notifications/resources/updated`."""

    uri: str


class GetPromptParams(BaseParams):
    """The params of `prompts/get`. A prompt's arguments are strings."""

    name: str
    arguments: dict[str, str] | None = None


class PromptReference(Struct, tag_field="type", tag="ref/prompt"):
    """`ref/prompt` of a completion."""

    name: str


class ResourceTemplateReference(Struct, tag_field="type", tag="ref/resource"):
    """`ref/resource` of a completion."""

    uri: str


class CompletionArgument(Struct):
    """The argument to complete, and the text typed so far."""

    name: str
    value: str


class CompletionContext(Struct):
    """The arguments that are filled in already."""

    arguments: dict[str, str] | None = None


class CompleteParams(BaseParams):
    """The params of `completion/complete`."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class SetLevelParams(BaseParams):
    """The params of `logging/setLevel`: the lowest level to send."""

    level: LogLevel


class TaskIdParams(BaseParams):
    """The params of `tasks/get`, `tasks/result` and `tasks/cancel`, in both eras."""

    task_id: str


class UpdateTaskParams(TaskIdParams):
    """The params of `tasks/update`: answers to questions of the task, by key."""

    input_responses: JsonObject


class DetailedTaskParams(BaseParams):
    """The params of `notifications/tasks`: a task as `tasks/get` returns it."""

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    status_message: str | None = None
    input_requests: JsonObject | None = None
    result: JsonObject | None = None
    error: JsonObject | None = None


class CreateMessageParams(BaseParams):
    """The params of `sampling/createMessage`."""

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
    """The params of `elicitation/create`: a form with a schema, or a URL to open."""

    message: str
    mode: Literal["form", "url"] = "form"
    requested_schema: JsonObject | None = None
    elicitation_id: str | None = None
    url: str | None = None
    task: TaskMetadata | None = None


class CancelledParams(BaseParams):
    """The params of `notifications/cancelled`."""

    request_id: ProgressToken | None = None
    reason: str | None = None


class ProgressParams(BaseParams):
    """The params of `notifications/progress`."""

    progress_token: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None


class LogMessageParams(BaseParams):
    """The params of `notifications/message`."""

    level: LogLevel
    data: Any
    logger: str | None = None


class ElicitationCompleteParams(BaseParams):
    """The params of `notifications/elicitation/complete`."""

    elicitation_id: str


class TaskStatusParams(BaseParams):
    """The params of `notifications/tasks/status`."""

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    created_at: str
    last_updated_at: str
    ttl: float | None
    status_message: str | None = None
    poll_interval: float | None = None


class BaseResult(Struct, rename="camel", kw_only=True):
    """The members that every result may have, and the empty result."""

    meta: JsonObject | None = field(name="_meta", default=None)


class InitializeResult(BaseResult):
    """The result of `initialize`."""

    protocol_version: str
    capabilities: JsonObject
    server_info: PeerInfo
    instructions: str | None = None


class DiscoverResult(BaseResult):
    """The result of `server/discover`."""

    supported_versions: list[str]
    capabilities: JsonObject
    instructions: str | None = None


class ListResult(BaseResult, kw_only=True):
    """One page of a list, and the cursor of the next page."""

    next_cursor: str | None = None


class ListToolsResult(ListResult):
    """The result of `tools/list`."""

    tools: list[JsonObject]


class ListResourcesResult(ListResult):
    """The result of `resources/list`."""

    resources: list[JsonObject]


class ListResourceTemplatesResult(ListResult):
    """The result of `resources/templates/list`."""

    resource_templates: list[JsonObject]


class ListPromptsResult(ListResult):
    """The result of `prompts/list`."""

    prompts: list[JsonObject]


class ListTasksResult(ListResult):
    """The result of `tasks/list`."""

    tasks: list[JsonObject]


class CallToolResultShape(BaseResult):
    """The result of `tools/call`, or the task that was created instead."""

    content: list[JsonObject] | None = None
    structured_content: JsonObject | None = None
    is_error: bool = False
    task: JsonObject | None = None


class ReadResourceResult(BaseResult):
    """The result of `resources/read`."""

    contents: list[JsonObject]


class GetPromptResult(BaseResult):
    """The result of `prompts/get`."""

    messages: list[JsonObject]
    description: str | None = None


class CompletionValues(Struct, rename="camel"):
    """The suggestions in a completion result."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(BaseResult):
    """The result of `completion/complete`."""

    completion: CompletionValues


class CreateMessageResult(BaseResult):
    """The result of `sampling/createMessage`: one block, or several since the revision with tool use in sampling."""

    role: Literal["user", "assistant"]
    content: JsonObject | list[JsonObject]
    model: str
    stop_reason: str | None = None


class ListRootsResult(BaseResult):
    """The result of `roots/list`."""

    roots: list[JsonObject]


class ElicitResult(BaseResult):
    """The result of `elicitation/create`."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, str | int | float | bool | list[str] | None] | None = None


class GetTaskResult(TaskStatusParams, kw_only=True):
    """The result of `tasks/get` and `tasks/cancel`."""
