"""Mentions of a host's resources in a text: completion while typing, and reading.

A resource is found by its URI, name or title. A template is found by its text, name or title, and the words after it fill its placeholders. An unreadable
mention is reported beside the results of the others.
"""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from greenroom.actors.client.errors import RequestTimeout
from greenroom.actors.federation.offering import seconds_to_keep
from greenroom.errors import GreenroomError
from greenroom.protocol.cache_hints import received_cache
from greenroom.protocol.errors import BadAnswer, ErrorCode, PeerError
from greenroom.protocol.serialization import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from greenroom.actors.client.interfaces import Line

MOST: Final = 100
"""The number of completions returned, and of mentions read in one text."""


class UnknownResource(GreenroomError):
    """The mention names an unknown server or resource, or is malformed."""


class ResolvedMention(NamedTuple):
    """A mention with the URI to read, and its end in the text including its words."""

    mention: Mention
    uri: str
    end: int


class MentionResult(NamedTuple):
    """A mention and its result: the server's reply, or the error."""

    mention: Mention
    uri: str | None
    reply: Any = None
    error: Exception | None = None


@dataclass(eq=False, repr=False)
class MentionReader:
    """Completes and reads the mentions of a host's resources."""

    _lists: ResourceListCache
    _servers: Callable[[], Iterable[str]]
    _read: Callable[[str, str], Awaitable[Any]]
    """Reads a URI of a server."""
    _complete: Callable[[str, str, str, str, Mapping[str, str]], Awaitable[Sequence[str]]]
    """Asks a server for values of a placeholder: server, template, name, prefix, the other values."""

    # --- completion

    async def completions(self, text: str) -> list[str]:
        """Completions for the mention at the end of the text; empty if there is none, or its server cannot be reached."""
        now = partial_mention(text)
        if now is None:
            return []
        if now.server is None:
            return [f"@{each}:" for each in sorted(self._servers()) if each.startswith(now.prefix)][:MOST]
        if now.server not in set(self._servers()):
            return []
        try:
            offered = await self._lists.of(now.server)
            if now.resource is None:
                return _names_with_prefix(offered, now.prefix)[:MOST]
            return await self._values(now.server, offered, now.resource, now.words, now.prefix)
        except GreenroomError:
            return []  # no errors while typing: reading the mention reports them

    async def _values(
        self, server: str, offered: OfferedResources, resource: str, words: Sequence[str], prefix: str
    ) -> list[str]:
        template = _template(offered, resource)
        names = () if template is None else placeholders(template)
        if template is None or len(words) >= len(names):
            return []
        before = dict(zip(names, words, strict=False))
        values = await self._complete(server, template, names[len(words)], prefix, before)
        return [typed for value in values if (typed := quoted_as_typed(value)) is not None][:MOST]

    # --- reading

    async def find(self, text: str) -> ResolvedMention:
        """Resolve a text that is a single mention. Raises `UnknownResource`, `TemplateWordsError`, and the client's errors."""
        found = mentions(text.strip())
        if not found or found[0].start:
            raise UnknownResource(f"{text.strip()!r} is not a mention of a resource: write @server:resource")
        words, end = words_after(text.strip(), found[0].end, MOST)
        if text.strip()[end:].strip():
            raise TemplateWordsError(
                f"{text.strip()[end:].strip()!r} behind {found[0]} cannot be read: put it in quotes"
            )
        return ResolvedMention(found[0], await self._uri(found[0], words), end)

    async def read(self, text: str) -> Any:
        """Read the resource of a text that is a single mention."""
        found = await self.find(text)
        return await self._read(found.mention.server, found.uri)

    async def read_all(self, text: str) -> list[MentionResult]:
        """Read all mentions of a text concurrently."""
        found = mentions(text)[:MOST]
        return list(await asyncio.gather(*(self._reading(text, each) for each in found)))

    async def _reading(self, text: str, mention: Mention) -> MentionResult:
        uri: str | None = None
        try:
            template = await self._template_of(mention)
            wanted = 0 if template is None else len(placeholders(template))
            uri = await self._uri(mention, words_after(text, mention.end, wanted, sentence=True)[0])
            return MentionResult(mention, uri, await self._read(mention.server, uri))
        except GreenroomError as error:
            return MentionResult(mention, uri, error=error)

    async def _template_of(self, mention: Mention) -> str | None:
        offered = await self._offered(mention)
        return None if _resource(offered, mention.resource) is not None else _template(offered, mention.resource)

    async def _offered(self, mention: Mention) -> OfferedResources:
        if mention.server not in set(self._servers()):
            raise UnknownResource(
                f"no server is called {mention.server!r}{_suggestion(mention.server, self._servers())}"
            )
        return await self._lists.of(mention.server)

    async def _uri(self, mention: Mention, words: Sequence[str]) -> str:
        offered = await self._offered(mention)
        uri = _resource(offered, mention.resource)
        if uri is not None:
            if words:
                raise TemplateWordsError(f"{mention} takes no words, but has {len(words)}")
            return uri
        template = _template(offered, mention.resource)
        if template is not None:
            return expand(template, words)
        if "://" in mention.resource and not words:
            return mention.resource  # servers need not list all of their resources
        names = [name for each in (*offered.resources, *offered.templates) for name in _names(each)]
        raise UnknownResource(
            f"{mention.server} has no resource {mention.resource!r}{_suggestion(mention.resource, names)}"
        )


def _names(entry: Mapping[str, Any]) -> list[str]:
    keys = ("name", "title", "uri", "uriTemplate")
    return [entry[key] for key in keys if isinstance(entry.get(key), str)]


def _resource(offered: OfferedResources, word: str) -> str | None:
    return _uri_of_named(offered.resources, "uri", word)


def _template(offered: OfferedResources, word: str) -> str | None:
    return _uri_of_named(offered.templates, "uriTemplate", word)


def _uri_of_named(entries: Sequence[Mapping[str, Any]], own: str, word: str) -> str | None:
    for key in (own, "name", "title"):
        for each in entries:
            if each.get(key) == word and isinstance(each.get(own), str):
                return str(each[own])
    return None


def _names_with_prefix(offered: OfferedResources, prefix: str) -> list[str]:
    """Names and URIs with this prefix, names first; case is ignored."""
    begins = prefix.strip("\"'").casefold()
    words = [
        str(each["name"]) for each in (*offered.resources, *offered.templates) if isinstance(each.get("name"), str)
    ]
    words += [str(each["uri"]) for each in offered.resources if isinstance(each.get("uri"), str)]
    found = (word for word in dict.fromkeys(words) if word.casefold().startswith(begins))
    return [typed for word in found if (typed := quoted_as_typed(word)) is not None]


def _suggestion(word: str, known: Iterable[str]) -> str:
    from greenroom.actors.federation.federation_errors import similar_names  # noqa: PLC0415 - only after a mistyped word

    near = similar_names(word, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""


# --- The grammar of mentions: `@server:resource word word`, alone or within a text. Pure.
# The resource extends from the colon to a space; it is quoted if it contains spaces. The template determines how many of the following words belong to the
# mention. An e-mail address (`ada@example.org`) is no mention: an `@` counts at the start and after a space, quote or bracket.

_MENTION: Final = re.compile(
    r"(?<![^\s([{<\"'])@(?P<server>[A-Za-z0-9_.-]{1,64}):(?P<resource>\"[^\"]*\"|'[^']*'|[^\s\"']+)"
)
_WORD: Final = re.compile(r"[ \t]+(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>[^\s\"'@][^\s\"']*))")
_BARE: Final = re.compile(r"[^\s\"'@][^\s\"']*")
_TRAILING: Final = ".,;!?)]}>"


class Mention(NamedTuple):
    """A mention and its position in the text."""

    server: str
    resource: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"@{self.server}:{self.resource}"


class PartialMention(NamedTuple):
    """A mention that is still being typed: its server and resource as far as complete, the prefix being typed, and the words before it."""

    server: str | None
    resource: str | None
    prefix: str
    words: tuple[str, ...] = ()


def mentions(text: str) -> list[Mention]:
    """The mentions of a text, in order."""
    return [_mention(found) for found in _MENTION.finditer(text)]


def _mention(found: re.Match[str]) -> Mention:
    written, end = found["resource"], found.end()
    if written[0] in "\"'":
        return Mention(found["server"], written[1:-1], found.start(), end)
    bare = written.rstrip(_TRAILING) or written  # trailing punctuation belongs to the sentence
    return Mention(found["server"], bare, found.start(), end - (len(written) - len(bare)))


def words_after(text: str, start: int, most: int, *, sentence: bool = False) -> tuple[list[str], int]:
    """Up to `most` words of the text from `start`, and their end. The next mention is not a word of this one.

    In a `sentence`, punctuation after a word does not belong to it and ends the words.
    """
    words: list[str] = []
    while len(words) < most and (found := _WORD.match(text, start)):
        quoted = found["double"] if found["double"] is not None else found["single"]
        word = found["bare"] if quoted is None else quoted
        kept = (word.rstrip(_TRAILING) or word) if sentence and quoted is None else word
        words.append(kept)
        start = found.end() - (len(word) - len(kept))
        if kept != word:
            break
    return words, start


def quoted_as_typed(word: str) -> str | None:
    """A resource or word, quoted if necessary, so that it reads back unchanged; None if that is impossible (both kinds of quotes, or unprintable)."""
    if not word.isprintable():
        return None  # a server wrote it, and a terminal would interpret control characters
    if _BARE.fullmatch(word) and word[-1] not in _TRAILING:
        return word
    mark = next((mark for mark in "\"'" if word and mark not in word), None)
    return None if mark is None else f"{mark}{word}{mark}"


def partial_mention(text: str) -> PartialMention | None:
    """The unfinished mention at the end of the text; None without one."""
    at = max((found.start() for found in re.finditer(r"(?<![^\s([{<\"'])@", text)), default=-1)
    if at < 0:
        return None
    server, colon, rest = text[at + 1 :].partition(":")
    if not colon:
        return None if re.search(r"\s", server) else PartialMention(None, None, server)
    if rest[:1] in ("'", '"'):
        end = rest.find(rest[0], 1)
        resource, space, behind = rest[1:end], rest[end + 1 : end + 2], rest[end + 2 :]
        if end < 0 or not space:
            return PartialMention(server, None, rest)
    else:
        resource, space, behind = rest.partition(" ")
    if not space:
        return PartialMention(server, None, resource)
    *words, prefix = behind.split(" ")
    return PartialMention(server, resource, prefix, tuple(word for word in words if word))


# --- Expansion of URI templates with words in the order typed. Pure; after RFC 6570, level 3.
# A repeated placeholder gets the same word, so a template needs as many words as it has different names.

_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_VARIABLE: Final = re.compile(r"([A-Za-z0-9_.%-]+)(?:\*|:[0-9]+)?")
_RESERVED: Final = ":/?#[]@!$&'()*+,;="


class _ExpansionStyle(NamedTuple):
    first: str
    between: str
    named: bool
    safe: str


_EXPANSION_STYLES: Final[Mapping[str, _ExpansionStyle]] = {
    "": _ExpansionStyle("", ",", named=False, safe=""),
    "+": _ExpansionStyle("", ",", named=False, safe=_RESERVED),
    "#": _ExpansionStyle("#", ",", named=False, safe=_RESERVED),
    ".": _ExpansionStyle(".", ".", named=False, safe=""),
    "/": _ExpansionStyle("/", "/", named=False, safe=""),
    ";": _ExpansionStyle(";", ";", named=True, safe=""),
    "?": _ExpansionStyle("?", "&", named=True, safe=""),
    "&": _ExpansionStyle("&", "&", named=True, safe=""),
}


class TemplateWordsError(GreenroomError):
    """The number of words does not match the template's placeholders, or a word is empty."""


def placeholders(template: str) -> tuple[str, ...]:
    """The distinct placeholders of a template, in order of appearance."""
    names = (name for found in _EXPRESSION.finditer(template) for name, _ in _variables(found[2]))
    return tuple(dict.fromkeys(names))


def expand(template: str, words: Sequence[str]) -> str:
    """The URI with these words for the placeholders. Raises `TemplateWordsError`."""
    names = placeholders(template)
    if len(words) != len(names):
        wanted = " ".join(f"<{name}>" for name in names) or "none"
        raise TemplateWordsError(f"{template} needs {len(names)} words, {wanted}, but has {len(words)}")
    if "" in words:
        raise TemplateWordsError(f"{template}: <{names[words.index('')]}> is empty")
    return fill(template, dict(zip(names, words, strict=True)))


def fill(template: str, values: Mapping[str, str]) -> str:
    """The URI with these values for the placeholders."""
    return _EXPRESSION.sub(lambda found: _expanded(found, values), template)


def _expanded(found: re.Match[str], values: Mapping[str, str]) -> str:
    style = _EXPANSION_STYLES[found[1]]
    pieces = [
        f"{name}={quote(values[name], safe=style.safe)}"
        if style.named
        else quote(values[name], safe=style.safe or ("/" if many else ""))
        for name, many in _variables(found[2])
    ]
    return style.first + style.between.join(pieces) if pieces else ""


def _variables(written: str) -> list[tuple[str, bool]]:
    """Each name, and whether its value may have several path segments."""
    found = [(_VARIABLE.fullmatch(part.strip()), part.strip().endswith("*")) for part in written.split(",")]
    return [(match[1], many) for match, many in found if match is not None]


# --- A cache of servers' lists of resources and templates, fetched on first use.
# Concurrent callers share one fetch. A server's entry becomes invalid when it sends `list_changed`, when it reconnects, or when it is old
# (`seconds_to_keep`); other servers'
# entries stay valid. A fetch during which the entry becomes invalid is repeated.

MAX_PAGES: Final = 1000
MAX_ENTRIES: Final = 100_000
PATIENCE: Final = 30.0
"""The timeout for all pages of a server's lists."""
_ROUNDS: Final = 5
"""How often a list that changes during the fetch is fetched; after that, the last result is used."""


class OfferedResources(NamedTuple):
    """A server's resources and templates, as JSON objects."""

    resources: Sequence[Mapping[str, Any]]
    templates: Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class _CachedLists:
    generation: int
    version: int
    fetching: asyncio.Task[tuple[OfferedResources, float]]
    until: float | None = None


class ResourceListCache:
    """The cached lists of a host's servers."""

    def __init__(self, line: Callable[[str], Line], *, timeout: float = PATIENCE) -> None:
        """`line` gives the connection to a server, or raises an error if there is none."""
        self._line = line
        self._timeout = timeout
        self._entries: dict[str, _CachedLists] = {}
        self._versions: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<ResourceListCache: {', '.join(self._entries) or 'empty'}>"

    def changed(self, server: str) -> None:
        """Invalidate a server's lists."""
        self._versions[server] = self._versions.get(server, 0) + 1

    def forget(self, server: str) -> None:
        """Drop a server's lists: it was removed or replaced."""
        self.changed(server)
        self._entries.pop(server, None)

    def known(self, server: str) -> OfferedResources | None:
        """The cached lists, without a request; None if there are no valid ones."""
        entry = self._entries.get(server)
        if (
            entry is None
            or not self._is_current(server, entry)
            or not entry.fetching.done()
            or entry.fetching.cancelled()
        ):
            return None
        return None if entry.fetching.exception() is not None else entry.fetching.result()[0]

    async def of(self, server: str) -> OfferedResources:
        """The server's lists. Raises the client's errors; a failure is not cached."""
        rounds = 0
        while True:
            rounds += 1
            entry = self._entries.get(server)
            if entry is None or not self._is_current(server, entry):
                line = self._line(server)
                fetching = asyncio.ensure_future(self._fetch(line))
                fetching.add_done_callback(_mark_retrieved)
                entry = _CachedLists(line.status.generation, self._versions.get(server, 0), fetching)
                self._entries[server] = entry
            try:
                offered, seconds = await asyncio.shield(entry.fetching)
            except BaseException:
                if entry.fetching.done() and self._entries.get(server) is entry:
                    del self._entries[server]
                if entry.fetching.cancelled() and not _is_cancelling():
                    continue  # the caller that started the fetch was cancelled, and the fetch with it
                raise
            if entry.until is None:
                entry.until = asyncio.get_running_loop().time() + seconds
            if self._versions.get(server, 0) == entry.version or rounds == _ROUNDS:
                return offered

    def _is_current(self, server: str, entry: _CachedLists) -> bool:
        if entry.version != self._versions.get(server, 0):
            return False
        if entry.until is not None and asyncio.get_running_loop().time() >= entry.until:
            return False
        return self._line(server).status.generation == entry.generation

    async def _fetch(self, line: Line) -> tuple[OfferedResources, float]:
        try:
            async with asyncio.timeout(self._timeout):
                resources, said = await self._list(line, "resources/list", "resources")
                templates, also = await self._list(line, "resources/templates/list", "resourceTemplates")
        except RequestTimeout:
            raise
        except TimeoutError:
            raise RequestTimeout("resources/list", self._timeout) from None
        return OfferedResources(resources, templates), seconds_to_keep("resources", min(said, also), line.welcome)

    async def _list(self, line: Line, method: str, key: str) -> tuple[list[Mapping[str, Any]], float]:
        """The entries, and for how many seconds the server calls them fresh."""
        entries: list[Mapping[str, Any]] = []
        said = math.inf
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            params = None if cursor is None else {"cursor": cursor}
            try:
                page = await line.request(method, params, timeout=self._timeout)
            except PeerError as error:
                if error.code == ErrorCode.METHOD_NOT_FOUND:
                    return [], math.inf  # the server has no resources, or no templates
                raise
            found: Any = page.get(key)
            if not is_array(found):
                raise BadAnswer(f"the server answered {method} without a list of {key}")
            entries += [each for each in found if is_object(each)]
            if len(entries) > MAX_ENTRIES:
                raise BadAnswer(f"{method} of {line.name} has more than {MAX_ENTRIES} entries")
            said = min(said, received_cache(page).seconds)
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                return entries, said
            if cursor in seen:
                raise BadAnswer(f"{method} of {line.name} returned the same cursor twice")
            seen.add(cursor)
        raise BadAnswer(f"{method} of {line.name} has more than {MAX_PAGES} pages")


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _mark_retrieved(task: asyncio.Task[Any]) -> None:
    # Callers wait behind `shield`; if all of them are cancelled, the exception of the fetch would be logged as never retrieved.
    if not task.cancelled():
        task.exception()
