"""Mentions of a host's resources: completed while they are typed, and read.

A resource is found by its URI, its name or its title; a template by its name or by itself, and the words behind it fill in its
places. What cannot be read is told beside what can: a text with one wrong mention is not lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.errors import GreenroomError

from .expansion import WrongWords, expand, placeholders
from .grammar import Mention, as_typed, mentions, typing, words_behind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from .shelf import Offered, ResourceShelf

MOST: Final = 100
"""How many completions are given, and how many mentions of one text are read."""


class UnknownResource(GreenroomError):
    """The server has nothing of that name."""


class Found(NamedTuple):
    """What a mention is of: the URI to read, and where in the text it ends, with its words."""

    mention: Mention
    uri: str
    end: int


class Reading(NamedTuple):
    """One mention of a text, and what came of it: what the server answered, or why there is nothing."""

    mention: Mention
    uri: str | None
    reply: Any = None
    error: Exception | None = None


class MentionReader:
    """For one host."""

    def __init__(
        self,
        shelf: ResourceShelf,
        servers: Callable[[], Iterable[str]],
        read: Callable[[str, str], Awaitable[Any]],
        complete: Callable[[str, str, str, str, Mapping[str, str]], Awaitable[Sequence[str]]],
    ) -> None:
        """`read` reads a URI of a server; `complete` asks a server for values of a template's place: server, template, name, prefix, the others."""
        self._shelf = shelf
        self._servers = servers
        self._read = read
        self._complete = complete

    # --- while it is typed

    async def completions(self, text: str) -> list[str]:
        """What could stand instead of the word that is being typed at the end; nothing when that is no mention, or its server is away."""
        now = typing(text)
        if now is None:
            return []
        if now.server is None:
            return [f"@{each}:" for each in sorted(self._servers()) if each.startswith(now.prefix)][:MOST]
        if now.server not in set(self._servers()):
            return []
        try:
            offered = await self._shelf.of(now.server)
            if now.resource is None:
                return _beginning(offered, now.prefix)[:MOST]
            return await self._values(now.server, offered, now.resource, now.words, now.prefix)
        except GreenroomError:
            return []  # whoever types is not to be bothered; whoever reads hears of it

    async def _values(
        self, server: str, offered: Offered, resource: str, words: Sequence[str], prefix: str
    ) -> list[str]:
        template = _template(offered, resource)
        names = () if template is None else placeholders(template)
        if template is None or len(words) >= len(names):
            return []
        before = dict(zip(names, words, strict=False))
        values = await self._complete(server, template, names[len(words)], prefix, before)
        return [typed for value in values if (typed := as_typed(value)) is not None][:MOST]

    # --- when it is done

    async def find(self, text: str) -> Found:
        """What a text that is one mention, and nothing else, is of. Raises `UnknownResource`, `WrongWords`, and the client's errors."""
        found = mentions(text.strip())
        if not found or found[0].start:
            raise UnknownResource(f"{text.strip()!r} is no mention of a resource: write @server:resource")
        words, end = words_behind(text.strip(), found[0].end, MOST)
        if text.strip()[end:].strip():
            raise WrongWords(f"{text.strip()[end:].strip()!r} behind {found[0]} cannot be read: put it in quotes")
        return Found(found[0], await self._uri(found[0], words), end)

    async def read(self, text: str) -> Any:
        """What a text that is one mention is of, read."""
        found = await self.find(text)
        return await self._read(found.mention.server, found.uri)

    async def read_all(self, text: str) -> list[Reading]:
        """All mentions of a text, read at once."""
        found = mentions(text)[:MOST]
        return list(await asyncio.gather(*(self._reading(text, each) for each in found)))

    async def _reading(self, text: str, mention: Mention) -> Reading:
        uri: str | None = None
        try:
            template = await self._template_of(mention)
            wanted = 0 if template is None else len(placeholders(template))
            uri = await self._uri(mention, words_behind(text, mention.end, wanted, sentence=True)[0])
            return Reading(mention, uri, await self._read(mention.server, uri))
        except GreenroomError as error:
            return Reading(mention, uri, error=error)

    async def _template_of(self, mention: Mention) -> str | None:
        offered = await self._offered(mention)
        return None if _resource(offered, mention.resource) is not None else _template(offered, mention.resource)

    async def _offered(self, mention: Mention) -> Offered:
        if mention.server not in set(self._servers()):
            raise UnknownResource(
                f"there is no server called {mention.server!r}{_instead(mention.server, self._servers())}"
            )
        return await self._shelf.of(mention.server)

    async def _uri(self, mention: Mention, words: Sequence[str]) -> str:
        offered = await self._offered(mention)
        uri = _resource(offered, mention.resource)
        if uri is not None:
            if words:
                raise WrongWords(f"{mention} takes no words, and has {len(words)}")
            return uri
        template = _template(offered, mention.resource)
        if template is not None:
            return expand(template, words)
        if "://" in mention.resource and not words:
            return mention.resource  # servers need not list all that they have
        names = [name for each in (*offered.resources, *offered.templates) for name in _names(each)]
        raise UnknownResource(
            f"{mention.server} has no resource {mention.resource!r}{_instead(mention.resource, names)}"
        )


def _names(entry: Mapping[str, Any]) -> list[str]:
    keys = ("name", "title", "uri", "uriTemplate")
    return [entry[key] for key in keys if isinstance(entry.get(key), str)]


def _resource(offered: Offered, word: str) -> str | None:
    for key in ("uri", "name", "title"):
        for each in offered.resources:
            if each.get(key) == word and isinstance(each.get("uri"), str):
                return str(each["uri"])
    return None


def _template(offered: Offered, word: str) -> str | None:
    for key in ("uriTemplate", "name", "title"):
        for each in offered.templates:
            if each.get(key) == word and isinstance(each.get("uriTemplate"), str):
                return str(each["uriTemplate"])
    return None


def _beginning(offered: Offered, prefix: str) -> list[str]:
    """What begins so, names before URIs; whoever types a name does not care for its case."""
    begins = prefix.strip("\"'").casefold()
    words = [
        str(each["name"]) for each in (*offered.resources, *offered.templates) if isinstance(each.get("name"), str)
    ]
    words += [str(each["uri"]) for each in offered.resources if isinstance(each.get("uri"), str)]
    found = (word for word in dict.fromkeys(words) if word.casefold().startswith(begins))
    return [typed for word in found if (typed := as_typed(word)) is not None]


def _instead(word: str, known: Iterable[str]) -> str:
    from greenroom.actors.federation.agent_errors import close  # noqa: PLC0415 - only for who has mistyped

    near = close(word, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""
