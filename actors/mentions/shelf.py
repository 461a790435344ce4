"""What resources servers have, asked for when somebody first wants to know, and kept until the server says that it is different.

One list of a server is fetched once, however many wait for it. It is void when that server says `list_changed`, connects anew, or said itself for how
long it holds (`ttlMs`); another server's is none of its business. What is fetched while it becomes void is fetched again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.actors.client.errors import RequestTimeout
from greenroom.protocol.errors import BadAnswer, ErrorCode, PeerError
from greenroom.protocol.wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from greenroom.actors.client.seam import Line

MAX_PAGES: Final = 1000
MAX_ENTRIES: Final = 100_000
PATIENCE: Final = 30.0
"""How long a server may take for all pages of its lists."""
_ROUNDS: Final = 5
"""How often a list is fetched again that has changed meanwhile: of one that always does, the last is taken."""


class Offered(NamedTuple):
    """What one server has: resources and templates, as the wire has them."""

    resources: Sequence[Mapping[str, Any]]
    templates: Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class _Entry:
    generation: int
    turn: int
    fetching: asyncio.Task[tuple[Offered, float | None]]
    until: float | None = None


class ResourceShelf:
    """The lists of all servers of a host."""

    def __init__(self, line: Callable[[str], Line], *, timeout: float = PATIENCE) -> None:
        """`line` gives the way to a server, or raises what says that there is none."""
        self._line = line
        self._timeout = timeout
        self._entries: dict[str, _Entry] = {}
        self._turns: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<ResourceShelf: {', '.join(self._entries) or 'nothing was asked for yet'}>"

    def changed(self, server: str) -> None:
        """That server's lists are not what they were."""
        self._turns[server] = self._turns.get(server, 0) + 1

    def forget(self, server: str) -> None:
        """There is no such server any more, or another one by its name."""
        self.changed(server)
        self._entries.pop(server, None)

    def known(self, server: str) -> Offered | None:
        """What is there at once, without asking anybody."""
        entry = self._entries.get(server)
        if entry is None or not self._holds(server, entry) or not entry.fetching.done() or entry.fetching.cancelled():
            return None
        return None if entry.fetching.exception() is not None else entry.fetching.result()[0]

    async def of(self, server: str) -> Offered:
        """What the server has. Raises the client's errors; a failure is not kept."""
        rounds = 0
        while True:
            rounds += 1
            entry = self._entries.get(server)
            if entry is None or not self._holds(server, entry):
                line = self._line(server)
                fetching = asyncio.ensure_future(self._fetch(line))
                fetching.add_done_callback(_seen)
                entry = _Entry(line.status.generation, self._turns.get(server, 0), fetching)
                self._entries[server] = entry
            try:
                offered, seconds = await asyncio.shield(entry.fetching)
            except BaseException:
                if entry.fetching.done() and self._entries.get(server) is entry:
                    del self._entries[server]
                if entry.fetching.cancelled() and not _cancelling():
                    continue  # whoever began it was ended, and took it along
                raise
            if seconds is not None and entry.until is None:
                entry.until = asyncio.get_running_loop().time() + seconds
            if self._turns.get(server, 0) == entry.turn or rounds == _ROUNDS:
                return offered

    def _holds(self, server: str, entry: _Entry) -> bool:
        if entry.turn != self._turns.get(server, 0):
            return False
        if entry.until is not None and asyncio.get_running_loop().time() >= entry.until:
            return False
        return self._line(server).status.generation == entry.generation

    async def _fetch(self, line: Line) -> tuple[Offered, float | None]:
        try:
            async with asyncio.timeout(self._timeout):
                resources, holds = await self._list(line, "resources/list", "resources")
                templates, also = await self._list(line, "resources/templates/list", "resourceTemplates")
        except RequestTimeout:
            raise
        except TimeoutError:
            raise RequestTimeout("resources/list", self._timeout) from None
        return Offered(resources, templates), min((each for each in (holds, also) if each is not None), default=None)

    async def _list(self, line: Line, method: str, key: str) -> tuple[list[Mapping[str, Any]], float | None]:
        entries: list[Mapping[str, Any]] = []
        holds: float | None = None
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            params = None if cursor is None else {"cursor": cursor}
            try:
                page = await line.request(method, params, timeout=self._timeout)
            except PeerError as error:
                if error.code == ErrorCode.METHOD_NOT_FOUND:
                    return [], None  # many have resources and no templates, or neither
                raise
            found: Any = page.get(key)
            if not is_array(found):
                raise BadAnswer(f"the server answered {method} without a list of {key}")
            entries += [each for each in found if is_object(each)]
            if len(entries) > MAX_ENTRIES:
                raise BadAnswer(f"{method} of {line.name} has more than {MAX_ENTRIES} entries")
            lasts: Any = page.get("ttlMs")
            if isinstance(lasts, int | float) and not isinstance(lasts, bool) and lasts >= 0:
                holds = min(lasts / 1000, holds if holds is not None else lasts / 1000)
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                return entries, holds
            if cursor in seen:
                raise BadAnswer(f"{method} of {line.name} comes back to a page that was there before")
            seen.add(cursor)
        raise BadAnswer(f"{method} of {line.name} has more than {MAX_PAGES} pages")


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
