"""What a server says of its tools, resources and prompts, and of itself: the definitions that its lists are made of.

All of them are values. What is optional comes after what is not, is left out on the wire when it is empty, and `meta` travels
as `_meta`. Annotations may be given as the class or as a plain mapping, which then travels verbatim, unknown members included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .serialization import WireObject

Theme: TypeAlias = Literal["light", "dark"]
Role: TypeAlias = Literal["user", "assistant"]


class Icon(WireObject, frozen=True):
    """A picture for something. `src` is an https: or data: URI; `sizes` are like "48x48", or "any"."""

    src: str
    mime_type: str | None = None
    sizes: Sequence[str] = ()
    theme: Theme | None = None


class Annotations(WireObject, frozen=True):
    """Hints on who content is for ("user", "assistant"), how much it matters (0 to 1), and when it was last changed (ISO 8601)."""

    audience: Sequence[Role] = ()
    priority: float | None = None
    last_modified: str | None = None


class ToolAnnotations(WireObject, frozen=True):
    """Hints on what a tool does. No client has to believe them."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


# A reader of the wire gets mappings, since peers may add members; a writer may use the classes.
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
    """The program that speaks: the `serverInfo` and `clientInfo` of the handshake."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: Sequence[SomeIcon] = ()


class Tool(WireObject, frozen=True):
    """A tool as `tools/list` shows it. A schema travels as it was written."""

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
    """What is said of a resource wherever it is named. `size` is in bytes, where it is known."""

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
    """A family of resources as `resources/templates/list` shows it."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: SomeAnnotations | None = None
    icons: Sequence[SomeIcon] = ()
    meta: Meta | None = None


class PromptArgument(WireObject, frozen=True):
    """An argument of a prompt: always a string."""

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
