"""What can be said in a decorator, for type checkers: the fields of `greenroom.actors.options`, one by one; a test compares them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.actors.options import Isolation, TaskSupport


class RunningWords(TypedDict, total=False):
    """How a function runs."""

    isolation: Isolation | None
    timeout: float | None
    threads: int | None


class ShownWords(RunningWords, total=False):
    """What clients see of anything that is listed."""

    title: str | None
    description: str | None
    icons: Sequence[Any]
    meta: Mapping[str, Any]
    scopes: Sequence[str]


class ToolWords(ShownWords, total=False):
    """Of a tool."""

    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None
    annotations: Any
    validate_input: bool | None
    validate_output: bool | None
    long_running: bool
    task_support: TaskSupport | None


class ResourceWords(ShownWords, total=False):
    """Of a resource, or a template; `size` is for a resource alone, `segments` for a template."""

    mime_type: str | None
    annotations: Any
    size: int | None
    segments: bool


class PromptWords(ShownWords, total=False):
    """Of a prompt."""

    arguments: Sequence[Any] | None


class CompletionWords(RunningWords, total=False):
    """Of a completion."""
