"""The value of a tool's reply, by the tool's output schema and the type that the caller expects.

Structured content is an object in the handshake revisions. A tool that returns a list or a number puts it under `result`, and its schema says so;
that is undone here. A tool without an output schema often returns JSON as text, which is parsed if a type is expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from .content import Audio, Contents, Embedded, Image, Text
from .errors import BadAnswer
from .jsonrpc import decode_checked
from .received_results import ToolReply, text_of
from .serialization import is_object
from .type_schemas import typed_schema_of
from .validation_errors import STEPS_ON_LOOP, Mismatch, ProblemReason, StepMeter, ValidationProblem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SHOWN: Final = 120
_WRAPPED: Final = "x-fastmcp-wrap-result"


def is_wrapped(schema: Mapping[str, Any] | None) -> bool:
    """Whether an output schema is that of a wrapped value: an object with only a required `result`."""
    if schema is None:
        return False
    if schema.get(_WRAPPED) is True:
        return True
    members: Any = schema.get("properties")
    return is_object(members) and set(members) == {"result"} and list(schema.get("required") or ()) == ["result"]


def unwrapped(structured: Any, schema: Mapping[str, Any] | None) -> Any:
    """The structured content without its wrapper object."""
    if is_object(structured) and set(structured) == {"result"} and is_wrapped(schema):
        return structured["result"]
    return structured


def plain_value(reply: ToolReply, schema: Mapping[str, Any] | None = None) -> Any:
    """The data if there is any, else the text, else the block or the list of blocks; None if there is nothing."""
    if reply.structured_content is not None or (reply.is_structured and schema is not None):
        return unwrapped(reply.structured_content, schema)
    match reply.content:
        case []:
            return None
        case blocks if all(isinstance(block, Text) for block in blocks):
            return reply.text
        case [block]:
            return block
        case blocks:
            return blocks


def typed_value(
    reply: ToolReply,
    kind: Any,
    schema: Mapping[str, Any] | None = None,
    name: str = "the tool",
    *,
    meter: StepMeter | None = None,
) -> Any:
    """The value as that type. Raises `BadAnswer` with all `problems`; with a meter, `StepsExceeded` when it is used up.

    A wrapper object may be meant as the value itself: the form that fits is used.
    """
    if isinstance(kind, type) and isinstance(whole := plain_value(reply, schema), kind) and not is_object(whole):
        return whole
    structured = reply.structured_content
    if structured is None:
        return _converted(_from_content(reply, kind, name), kind, name, meter)
    inner = unwrapped(structured, schema)
    try:
        return typed_schema_of(kind).convert(inner, meter)
    except Mismatch as error:
        if inner is structured and not (kind is str and reply.content):
            raise _misfit_error(name, kind, error) from None
    if kind is str:
        return reply.text
    return _converted(structured, kind, name, meter)


def _from_content(reply: ToolReply, kind: Any, name: str) -> Any:
    """The JSON in the content; for bytes, the data of a single block."""
    if kind is bytes:
        match reply.content:
            case [Image(data) | Audio(data) | Embedded(Contents(blob=bytes() as data))]:
                return msgspec.to_builtins(data)
            case _:
                pass
    text = text_of(reply.content)
    if not text:
        return None
    try:
        return decode_checked(text)
    except msgspec.DecodeError:
        if kind_accepts_text(kind):
            return text
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        wrong = ValidationProblem(
            (), ProblemReason(f"the tool returned text that is no JSON: {shown!r}", "type_mismatch")
        )
        raise _misfit_error(name, kind, Mismatch([wrong])) from None


def kind_accepts_text(kind: Any) -> bool:
    """Whether a string may be a value of that type: str, a date, a choice of strings."""
    schema = typed_schema_of(kind).schema
    return schema.get("type", "string") == "string" or "anyOf" in schema


def _converted(value: Any, kind: Any, name: str, meter: StepMeter | None) -> Any:
    try:
        return typed_schema_of(kind).convert(value, meter)
    except Mismatch as error:
        raise _misfit_error(name, kind, error) from None


def _misfit_error(name: str, kind: Any, error: Mismatch) -> BadAnswer:
    shown = getattr(kind, "__name__", None) if isinstance(kind, type) and not hasattr(kind, "__args__") else None
    return BadAnswer(f"the result of {name} is no {shown or kind}: {error}", error.errors)


class OutputSchema:
    """A tool's output schema, compiled at its first use. A schema that cannot be used checks nothing."""

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        """`schema` is untrusted."""
        self.schema = schema
        self._validator: Any = None
        self._meter = StepMeter()
        """The meter for checks on the event loop, which run one at a time."""
        self.unusable_reason: str | None = None
        """Why the schema cannot be used."""

    def problems(self, reply: ToolReply, meter: StepMeter | None = None) -> Sequence[ValidationProblem]:
        """The problems of a successful result; a failure is not checked.

        Raises `StepsExceeded` when the meter is used up, by the schema or by the value.
        """
        if meter is None:
            meter = self._meter
            meter.left = STEPS_ON_LOOP
        if self.schema is None or reply.is_error or self.unusable_reason is not None:
            return ()
        if not reply.is_structured:
            return (
                ()
                if reply.task
                else [ValidationProblem((), ProblemReason("there is no structuredContent", "missing_required"))]
            )
        if self._validator is None:
            from .validation import BadSchema, Validator  # noqa: PLC0415 - jsonschema is much to load, and few need it

            try:
                self._validator = Validator(self.schema, meter=meter)
            except BadSchema as error:
                self.unusable_reason = str(error)
                return ()
        found: Sequence[ValidationProblem] = self._validator.check(reply.structured_content, meter)
        return found
