"""Definitions of tools, resources and prompts, as lists contain them, and of the implementation.

All are values. Optional fields come after required ones and are left out on the wire when empty; `meta` is `_meta` there. Annotations may be
the class or a mapping, which is sent unchanged with its unknown members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .serialization import WireObject

Theme: TypeAlias = Literal["light", "dark"]
Role: TypeAlias = Literal["user", "assistant"]


class Icon(WireObject, frozen=True):
    """An icon. `src` is an https: or data: URI; `sizes` are like "48x48", or "any"."""

    src: str
    mime_type: str | None = None
    sizes: Sequence[str] = ()
    theme: Theme | None = None


class Annotations(WireObject, frozen=True):
    """Annotations of content: the audience ("user", "assistant"), the priority (0 to 1), the last change (ISO 8601)."""

    audience: Sequence[Role] = ()
    priority: float | None = None
    last_modified: str | None = None


class ToolAnnotations(WireObject, frozen=True):
    """Hints about a tool's behaviour. Clients need not trust them."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


# Parsed definitions have mappings, since peers may add members; in definitions that are written, both forms are allowed.
if TYPE_CHECKING:
    SomeIcon: TypeAlias = Icon | Mapping[str, Any]
    SomeAnnotations: TypeAlias = Annotations | Mapping[str, Any]
    SomeToolAnnotations: TypeAlias = ToolAnnotations | Mapping[str, Any]
else:
    SomeIcon = Icon
    SomeAnnotations = SomeToolAnnotations = dict[str, Any]

Meta: TypeAlias = Mapping[str, Any]
Schema: TypeAlias = Mapping[str, Any]


class Implementation(WireObject, frozen=True):
    """An implementation: the `serverInfo` and `clientInfo` of the handshake."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: Sequence[SomeIcon] = ()


class Tool(WireObject, frozen=True):
    """A tool as `tools/list` shows it. Its schemas are sent unchanged."""

    name: str
    input_schema: Schema
    title: str | None = None
    description: str | None = None
    output_schema: Schema | None = None
    annotations: SomeToolAnnotations | None = None
    icons: Sequence[SomeIcon] = ()
    execution: Mapping[str, Any] | None = None
    meta: Meta | None = None


class ResourceFields(WireObject, frozen=True):
    """The members of a resource and of a link to one. `size` is in bytes, if known."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: SomeAnnotations | None = None
    icons: Sequence[SomeIcon] = ()
    meta: Meta | None = None


class Resource(ResourceFields, frozen=True):
    """A resource as `resources/list` shows it."""


class ResourceTemplate(WireObject, frozen=True):
    """A resource template as `resources/templates/list` shows it."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: SomeAnnotations | None = None
    icons: Sequence[SomeIcon] = ()
    meta: Meta | None = None


class PromptArgument(WireObject, frozen=True):
    """An argument of a prompt. Its value is always a string."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool = False


class Prompt(WireObject, frozen=True):
    """A prompt as `prompts/list` shows it."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: Sequence[PromptArgument] = ()
    annotations: SomeAnnotations | None = None
    icons: Sequence[SomeIcon] = ()
    meta: Meta | None = None
