"""What may be said of a tool, resource, template, prompt or completion when it is registered, besides its function.

Frozen values without behaviour; what is wrong with them is found when they are registered, in `entries`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .pools.pool import Pool

Isolation: TypeAlias = "Literal['loop', 'thread', 'process'] | Pool"
"""Where a function runs. An `async def` runs in the loop, a `def` in a thread; `"thread"` gives an `async def` that may
block a thread with a loop of its own; `"process"` runs it in processes of its own, and a `Pool` in those of that pool."""

TaskSupport: TypeAlias = Literal["forbidden", "optional", "required"]
"""Whether a peer may, or must, ask for a task instead of an answer when it calls a tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How a function runs.

    `timeout` is after how many seconds the call is answered without it; None leaves it to the session's own deadline.
    `threads` is how many threads it may take at a time; None for as many as the company gives each.
    """

    isolation: Isolation | None = None
    timeout: float | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Running):
    """What clients see of anything that is listed. `description` of None is taken from the docstring.

    `scopes` are what a caller has to have been granted, all of them, to see it and to use it.
    """

    title: str | None = None
    description: str | None = None
    icons: Sequence[Any] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scopes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions(Shown):
    """Of a tool.

    Without an `input_schema` the function's type hints are the schema, and arguments are always checked and converted. With one,
    arguments come as they are; `validate_input` checks them first. `validate_output` checks structured results against
    `output_schema`. None leaves both to the company (`strict`).

    `task_support` is whether peers may call it as a task. One that is `long_running` may be, and answers with a task also where nobody
    asked for one, unless the peer's revision has no tasks.
    """

    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    annotations: Any = None
    validate_input: bool | None = None
    validate_output: bool | None = None
    long_running: bool = False
    task_support: TaskSupport | None = None

    @property
    def as_task(self) -> TaskSupport:
        """Whether it can be called as a task, as said or as follows."""
        return self.task_support or ("optional" if self.long_running else "forbidden")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceOptions(Shown):
    """Of a resource. Clients read it by its `uri`; `mime_type` is for results that name none."""

    uri: str
    mime_type: str | None = None
    annotations: Any = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions(Shown):
    """Of a resource template. `segments=True` keeps every bare `{variable}` from matching a `/`."""

    uri_template: str
    mime_type: str | None = None
    annotations: Any = None
    segments: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions(Shown):
    """Of a prompt. `arguments` of None are the function's parameters."""

    arguments: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOptions(Running):
    """Of a completion."""
