"""Limits for tool answers that go to a model: a longer answer is cut to its beginning and end, and saved whole in a file that it links to.

Only answers for a model are cut (`Host.run`, `ToolRouter.call_tool`); a program's own calls return the whole answer.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from base64 import b64decode
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from mimetypes import guess_extension
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

import msgspec

from greenroom.actors.exclusive_supervisor import ExclusiveSupervisor
from greenroom.errors import ConfigError
from greenroom.protocol.serialization import is_array, is_object
from greenroom.protocol.tool_formats import MEDIA_KINDS, can_show
from greenroom.supervision import GenServer, child
from greenroom.supervision.private_files import write_private

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from greenroom.supervision import ChildSpec, ExitReason

TOKENS: Final = 25_000
BYTES: Final = 1024 * 1024
_HEAD: Final = 2 / 3
"""The share of the kept text that comes from the beginning."""
_LEAST: Final = 100
_LONGEST_TYPE: Final = 100
"""The number of characters of a MIME type that are quoted."""


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """The limit for an answer: `tokens` of its text and `bytes` of its whole content; None is no limit."""

    tokens: int | None = TOKENS
    bytes: int | None = BYTES

    def __post_init__(self) -> None:
        given: Any
        for name, given in (("tokens", self.tokens), ("bytes", self.bytes)):
            if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < _LEAST):
                raise ConfigError(f"{name} has to be {_LEAST} or more, or None for no limit, not {given!r}")


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """The limits of a host: a default, and limits for servers and tools (`git:log`); the most specific one applies."""

    default: OutputLimit = field(default_factory=OutputLimit)
    servers: Mapping[str, OutputLimit] = field(default_factory=dict[str, OutputLimit])
    tools: Mapping[str, OutputLimit] = field(default_factory=dict[str, OutputLimit])

    def of(self, server: str, tool: str) -> OutputLimit:
        """The limit for this tool."""
        return self.tools.get(f"{server}:{tool}") or self.servers.get(server) or self.default


class OutputSize(NamedTuple):
    """The size of an answer."""

    tokens: int
    bytes: int


def tokens(text: str) -> int:
    """An estimate of a text's tokens: one for four ASCII characters, and one for each other character."""
    plain = len(text.encode("ascii", "ignore"))
    return -(-plain // 4) + len(text) - plain


class OutputLimiter:
    """Cuts answers to the limits, and saves the whole answers."""

    def __init__(self, limits: OutputLimits, spill: Spill, count: Callable[[str], int] = tokens) -> None:
        """`count` counts the tokens of a text; the default estimates them by its length."""
        self.limits = limits
        self.spill = spill
        self._count = count

    def size(self, result: Mapping[str, Any]) -> OutputSize:
        """The size of an answer."""
        content: Any = result.get("content")
        texts = [_text(block) for block in _blocks(result)]
        structured = result.get("structuredContent")
        written = b"" if structured is None else msgspec.json.encode(structured)
        text_tokens = sum(self._count(text) for text in texts)
        return OutputSize(
            max(text_tokens, self._count(written.decode())), len(msgspec.json.encode(content)) + len(written)
        )

    def limited(
        self, server: str, tool: str, result: dict[str, Any], shows: Callable[[str, str], bool] | None = None
    ) -> dict[str, Any]:
        """The answer, cut to the limit if necessary. A failure to save the whole answer is noted in it and not raised, because the call has been made.

        Pictures that the model can see, according to `shows` (MIME type, base64), stay unchanged and do not count. Other binary content is replaced by a
        text with its type and the file in which it is saved.
        """
        shown: Callable[[str, str], bool] = shows or partial(can_show, "")
        blocks: list[Mapping[str, Any]] = []
        for block in _blocks(result):
            media = _media(block)
            if media is None or shown(media.mime_type, media.data):
                blocks.append(block)
            else:
                blocks.append({"type": "text", "text": self._file(server, tool, media)})
        if blocks != _blocks(result):
            result = {**result, "content": blocks}
        limit = self.limits.of(server, tool)
        pictures = [block for block in blocks if _media(block) is not None]
        others = [block for block in blocks if _media(block) is None]
        rest = {key: value for key, value in result.items() if key not in ("content", "structuredContent")}
        structured = result.get("structuredContent")
        counted = {**result, "content": others} if pictures else result
        size = self.size(counted)
        if size.tokens <= (limit.tokens or size.tokens) and size.bytes <= (limit.bytes or size.bytes):
            return result
        only_text = structured is None and bool(others) and all(block.get("type") == "text" for block in others)
        whole = "\n".join(each for block in others if (each := _text(block)))
        data = whole.encode() if only_text else msgspec.json.format(msgspec.json.encode(counted))
        kept: Path | None = None
        try:
            kept = self.spill.keep(f"{server}-{tool}", ".txt" if only_text else ".json", data, server)
        except OSError as error:
            where = f"the rest could not be saved ({error.strerror or error})"
        else:
            where = f"all of it is in {kept.as_uri()}"
        unsaid = others if structured is None else structured
        head, tail = self._ends(whole or msgspec.json.encode(unsaid).decode(), limit)
        note = (
            f"[This answer of {server}:{tool} has about {size.tokens} tokens ({size.bytes} bytes), more than the limit of "
            f"{_limit_text(limit)}. Here are its beginning and its end; {where}]"
        )
        texts = [part for part in (head, note, tail) if part]
        text = {"type": "text", "text": "\n\n".join(texts)}
        if kept is None:
            return {**rest, "content": [text, *pictures]}
        link = {
            "type": "resource_link",
            "uri": kept.as_uri(),
            "name": kept.name,
            "description": f"The whole answer of {server}:{tool}",
            "mimeType": "text/plain" if only_text else "application/json",
            "size": len(data),
        }
        return {**rest, "content": [text, link, *pictures]}

    def _file(self, server: str, tool: str, media: _Media) -> str:
        """The text that replaces binary content which cannot be shown: its type and its file."""
        what = f"a {media.what} ({media.mime_type}"
        try:
            data = b64decode(media.data)
            what = f"{what}, {len(data):,} bytes)"
            kept = self.spill.keep(f"{server}-{tool}", guess_extension(media.mime_type) or ".bin", data, server)
        except OSError as error:
            return f"[{what}, which cannot be shown here, and could not be saved ({error.strerror or error})]"
        except ValueError:
            return f"[{what}), which is not base64]"
        return f"[{what}, which cannot be shown here, is in {kept.as_uri()}]"

    def _ends(self, text: str, limit: OutputLimit) -> tuple[str, str]:
        """The beginning and end of a text that together fit the limit."""
        low, high = 0, len(text)
        while low < high:  # binary search: the number of tokens grows with the number of characters
            middle = (low + high + 1) // 2
            head, tail = _head_and_tail(text, middle)
            fits = limit.tokens is None or self._count(head) + self._count(tail) <= limit.tokens
            if fits and (limit.bytes is None or len(head.encode()) + len(tail.encode()) <= limit.bytes):
                low = middle
            else:
                high = middle - 1
        return _head_and_tail(text, low)


def _head_and_tail(text: str, keep: int) -> tuple[str, str]:
    if keep >= len(text):
        return text, ""
    head = int(keep * _HEAD)
    return text[:head], text[len(text) - (keep - head) :] if keep > head else ""


class _Media(NamedTuple):
    """Binary content in an answer."""

    what: str
    mime_type: str
    data: str


def _blocks(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content: Any = result.get("content")
    return [block for block in content if is_object(block)] if is_array(content) else []


def _media(block: Mapping[str, Any]) -> _Media | None:
    kind: Any = block.get("type")
    inner: Any = block.get("resource") if kind == "resource" else block
    data: Any = inner.get("blob" if kind == "resource" else "data") if is_object(inner) else None
    if not isinstance(data, str) or not isinstance(kind, str):
        return None
    mime_type: Any = inner.get("mimeType")
    if kind not in ("image", "audio", "resource") and not isinstance(mime_type, str):
        return None
    plain = mime_type if isinstance(mime_type, str) else "application/octet-stream"
    return _Media(MEDIA_KINDS.get(kind, "file"), plain[:_LONGEST_TYPE], data)


def _text(block: Mapping[str, Any]) -> str:
    resource: Any = block.get("resource")
    found: Any = resource.get("text") if is_object(resource) else block.get("text")
    return found if isinstance(found, str) else ""


def _limit_text(limit: OutputLimit) -> str:
    parts = [f"{limit.tokens} tokens" if limit.tokens else "", f"{limit.bytes} bytes" if limit.bytes else ""]
    return " and ".join(part for part in parts if part)


# --- A process that deletes saved answers when the host stops. A host that is a supervisor's child has no `async with` block that could do it.
# It is the first of two children, so it ends after the host. It gets no messages; if it dies, nothing is lost.

_INTENSITY, _PERIOD = 5, 10.0


class SpillCleanup(GenServer):
    """Deletes a host's saved answers when it terminates."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, spill: Spill) -> None:
        """`spill` holds the saved answers."""
        self._spill = spill

    def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - for any reason
        """Delete the saved answers."""
        self._spill.close()


def with_spill_cleanup(spill: Spill, host: ChildSpec[Any]) -> ChildSpec[Any]:
    """A supervisor of the host and of the process that deletes its saved answers."""
    both = child(
        ExclusiveSupervisor,
        [child(SpillCleanup, spill).but(id="spill_cleanup"), host],
        intensity=_INTENSITY,
        period=_PERIOD,
    )
    return both.but(id=host.id)


# --- Storage of whole answers: files with mode 0600 in a folder with mode 0700, bounded in total, and deleted with the host.

MOST: Final = 1 << 30
MOST_FILES: Final = 10_000
_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")


class Spill:
    """A folder of saved answers, created for the first one."""

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, most: int = MOST, most_files: int = MOST_FILES
    ) -> None:
        """Save below `folder`, by default the system's temporary folder.

        Beyond `most` bytes or `most_files` files in total, the oldest files of the owner with the most bytes are deleted.
        """
        if most < 1:
            raise ConfigError(f"most has to be at least 1 byte, not {most!r}")
        if most_files < 1:
            raise ConfigError(f"most_files has to be at least 1, not {most_files!r}")
        self._parent = None if folder is None else Path(folder)
        self._most = most
        self._most_files = most_files
        self._folder: Path | None = None
        self._kept: dict[str, OrderedDict[Path, int]] = {}
        self._sizes: dict[str, int] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"<Spill: {sum(map(len, self._kept.values()))} answers>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(self, name: str, suffix: str, data: bytes, owner: str = "") -> Path:
        """Save an answer. Limits apply first to the owner (a server) with the most bytes, so a verbose server evicts its own answers. Raises `OSError`."""
        self._count += 1
        file = f"{_NAME.sub('_', name)[:80]}-{self._count}{suffix}"
        try:
            path = self._write(file, data)
        except FileNotFoundError:  # the folder was deleted, as temporary folders may be
            self._forget()
            path = self._write(file, data)
        self._kept.setdefault(owner, OrderedDict())[path] = len(data)
        self._sizes[owner] = self._sizes.get(owner, 0) + len(data)
        while (count := sum(map(len, self._kept.values()))) > 1 and (
            sum(self._sizes.values()) > self._most or count > self._most_files
        ):
            self._drop_oldest(path)
        return path

    def _drop_oldest(self, newest: Path) -> None:
        """Delete the oldest answer of the owner with the most bytes (or files, if the number is exceeded), but never the newest answer."""
        too_large = sum(self._sizes.values()) > self._most
        others = [each for each, kept in self._kept.items() if next(iter(kept)) != newest]
        greedy = max(others, key=lambda each: self._sizes[each] if too_large else len(self._kept[each]))
        kept = self._kept[greedy]
        oldest, size = kept.popitem(last=False)
        self._sizes[greedy] -= size
        if not kept:
            del self._kept[greedy], self._sizes[greedy]
        oldest.unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> Path:
        if self._folder is None:
            if self._parent is not None:
                self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="greenroom-answers-", dir=self._parent))  # 0700
        path = self._folder / name
        write_private(path, data, sync=False)
        return path

    def _forget(self) -> Path | None:
        folder, self._folder = self._folder, None
        self._kept.clear()
        self._sizes.clear()
        return folder

    def close(self) -> None:
        """Delete all saved answers."""
        folder = self._forget()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
