"""The blocks that results and messages are made of, and the builders that handlers use for them.

A block may be an object of these classes or a plain mapping with the same members: `is_block` tells which mappings are blocks.
Binary data is bytes here and base64 on the wire, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from .definitions import Meta, SomeAnnotations, SomeIcon  # noqa: TC001 - the fields of structs are read at run time
from .wire import Wire, base64_text, is_object


class Text(Wire, frozen=True, tag_field="type", tag="text"):
    """A piece of text."""

    text: str
    annotations: SomeAnnotations | None = None
    meta: Meta | None = None


class Image(Wire, frozen=True, tag_field="type", tag="image"):
    """A picture."""

    data: bytes
    mime_type: str
    annotations: SomeAnnotations | None = None
    meta: Meta | None = None


class Audio(Wire, frozen=True, tag_field="type", tag="audio"):
    """A sound."""

    data: bytes
    mime_type: str
    annotations: SomeAnnotations | None = None
    meta: Meta | None = None


class ResourceLink(Wire, frozen=True, tag_field="type", tag="resource_link"):
    """Where a resource can be read. It need not be one that the server lists."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: SomeAnnotations | None = None
    icons: Sequence[SomeIcon] = ()
    meta: Meta | None = None


class Contents(Wire, frozen=True):
    """What is in a resource: text, or bytes (`blob`)."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: bytes | None = None
    annotations: SomeAnnotations | None = None
    meta: Meta | None = None

    def to_wire(self) -> dict[str, Any]:
        """The contents with either `text` or `blob`, which may be empty."""
        wire = super().to_wire()
        if self.blob is not None:
            wire["blob"] = base64_text(self.blob)
        else:
            wire["text"] = self.text or ""
        return wire


class Embedded(Wire, frozen=True, tag_field="type", tag="resource"):
    """A resource's contents inside of something else."""

    resource: Contents
    annotations: SomeAnnotations | None = None
    meta: Meta | None = None


Block: TypeAlias = Text | Image | Audio | ResourceLink | Embedded
BLOCKS: Final = (Text, Image, Audio, ResourceLink, Embedded)


def text(value: str, *, annotations: SomeAnnotations | None = None, meta: Meta | None = None) -> Text:
    """A block of text."""
    return Text(value, annotations, meta)


def image(
    data: bytes, mime_type: str, *, annotations: SomeAnnotations | None = None, meta: Meta | None = None
) -> Image:
    """A block with a picture."""
    return Image(data, mime_type, annotations, meta)


def audio(
    data: bytes, mime_type: str, *, annotations: SomeAnnotations | None = None, meta: Meta | None = None
) -> Audio:
    """A block with a sound."""
    return Audio(data, mime_type, annotations, meta)


def resource_link(  # noqa: PLR0913 - the members of the block
    uri: str,
    name: str,
    *,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: SomeAnnotations | None = None,
    icons: Sequence[SomeIcon] = (),
    meta: Meta | None = None,
) -> ResourceLink:
    """A block that says where to read on."""
    return ResourceLink(uri, name, title, description, mime_type, size, annotations, icons, meta)


def text_resource(
    uri: str,
    value: str,
    *,
    mime_type: str | None = None,
    annotations: SomeAnnotations | None = None,
    meta: Meta | None = None,
) -> Contents:
    """The contents of a resource that is text."""
    return Contents(uri, mime_type, value, None, annotations, meta)


def blob_resource(
    uri: str,
    data: bytes,
    *,
    mime_type: str | None = None,
    annotations: SomeAnnotations | None = None,
    meta: Meta | None = None,
) -> Contents:
    """The contents of a resource that is bytes."""
    return Contents(uri, mime_type, None, data, annotations, meta)


def embedded(resource: Contents, *, annotations: SomeAnnotations | None = None, meta: Meta | None = None) -> Embedded:
    """A block with the contents of a resource inside."""
    return Embedded(resource, annotations, meta)


# type -> the members that make a mapping a block of that type, and what they are.
_MEMBERS: Final[Mapping[str, Mapping[str, type | tuple[type, ...]]]] = {
    "text": {"text": str},
    "image": {"data": (str, bytes), "mimeType": str},
    "audio": {"data": (str, bytes), "mimeType": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": (Mapping, Contents)},
}


def is_block(value: Any) -> bool:
    """Whether it is a block: of our classes, or a mapping of a known `type` with the members that this type must have.

    A mapping that only happens to have a member `type` is a handler's data, not a block.
    """
    if isinstance(value, BLOCKS):
        return True
    if not is_object(value):
        return False
    kind = value.get("type")
    members = _MEMBERS.get(kind) if isinstance(kind, str) else None
    return members is not None and all(isinstance(value.get(name), kinds) for name, kinds in members.items())


# The first bytes of what tools return most, where they return bytes and nothing else.
_SIGNATURES: Final[tuple[tuple[bytes, int, bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", 0, b"", "image/png"),
    (b"\xff\xd8\xff", 0, b"", "image/jpeg"),
    (b"GIF8", 0, b"", "image/gif"),
    (b"RIFF", 8, b"WEBP", "image/webp"),
    (b"RIFF", 8, b"WAVE", "audio/wav"),
    (b"ID3", 0, b"", "audio/mpeg"),
    (b"OggS", 0, b"", "audio/ogg"),
    (b"fLaC", 0, b"", "audio/flac"),
)


def mime_type_of(data: bytes) -> str | None:
    """What kind of picture or sound the bytes are, if they are one of the common ones."""
    for head, place, mark, mime_type in _SIGNATURES:
        if data.startswith(head) and data.startswith(mark, place):
            return mime_type
    return None
