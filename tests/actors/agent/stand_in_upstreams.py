"""Stand-ins for a federation: servers that are dictionaries, and lines that answer from them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from greenroom.actors.client.errors import Unavailable
from greenroom.actors.client.interfaces import Phase, Progress, ServerWelcome, Status, Updates
from greenroom.actors.federation.offering import EMPTY_OFFERING, Offering

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from greenroom.supervision import Pid

ADD = {
    "name": "add",
    "description": "Adds.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


class Answered:
    """A request that was answered as soon as it was made."""

    id = 1

    def __init__(self, outcome: Any) -> None:
        self._outcome = outcome

    async def result(self) -> dict[str, Any]:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return dict(self._outcome)

    async def progress(self) -> AsyncIterator[Progress]:
        return
        yield

    def cancel(self, reason: str = "") -> None:
        pass


class StandInLine:
    """A line that records requests, and returns set answers."""

    def __init__(self, name: str, answer: Callable[[str, Mapping[str, Any]], Any]) -> None:
        self.name = name
        self.pid: Pid | None = None
        self.status = Status(Phase.READY)
        self.welcome: ServerWelcome | None = None
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._answer = answer

    def begin(  # noqa: PLR0913 - as a line has it
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        wait: bool = True,
        progress: bool = False,
        token: str | int | None = None,
        idempotent: bool | None = None,
    ) -> Answered:
        self.asked.append((method, dict(params or {})))
        return Answered(self._answer(method, params or {}))

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None, wait: bool = True
    ) -> dict[str, Any]:
        return await self.begin(method, params).result()

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        raise NotImplementedError

    async def ready(self, timeout: float | None = None) -> ServerWelcome:
        raise NotImplementedError

    def subscribe(self, uri: str) -> Updates:
        raise NotImplementedError

    def listen(self, *methods: str) -> Updates:
        raise NotImplementedError

    def watch(self) -> AsyncIterator[Status]:
        raise NotImplementedError

    def retry(self) -> None:
        raise NotImplementedError

    async def close(self, timeout: float | None = None) -> None:
        raise NotImplementedError


class StandIn:
    """Servers with tools; the lists of those in `silent` are never known."""

    def __init__(self, **servers: list[dict[str, Any]]) -> None:
        self.offerings = {id: EMPTY_OFFERING.with_lists({"tools": tools}) for id, tools in servers.items()}
        self.silent: set[str] = set()
        self.lines = {id: StandInLine(id, self._answer) for id in servers}
        self.answer: Any = {"content": [{"type": "text", "text": "done"}]}
        self.listed = 0
        self.refusals: dict[str, Exception] = {}
        self.serials: dict[str, int] = {}
        """The serials of servers that replaced others."""

    def _answer(self, method: str, params: Mapping[str, Any]) -> Any:
        return self.answer

    def offer(self, id: str, *tools: Mapping[str, Any]) -> None:
        self.offerings[id] = self.offerings.get(id, EMPTY_OFFERING).with_lists({"tools": tools})
        self.lines.setdefault(id, StandInLine(id, self._answer))

    def ids(self) -> list[str]:
        return list(self.lines)

    def line(self, id: str) -> Any:
        return self.lines.get(id)

    def serial(self, id: str) -> int | None:
        return self.serials.get(id, 1) if id in self.lines else None

    def known(self, id: str) -> Offering | None:
        return None if id in self.silent else self.offerings.get(id)

    def shown(self, id: str) -> Offering | None:
        return self.known(id)

    def refusal(self, id: str) -> Exception | None:
        return self.refusals.get(id)

    def timeout(self, id: str, method: str) -> float | None:
        return 30.0

    async def freshen(self, *parts: str) -> None:
        pass

    async def offering(self, id: str, *, timeout: float | None = 30.0) -> Offering:
        self.listed += 1
        await asyncio.sleep(0)
        if id in self.silent:
            raise Unavailable(id, retry_in=timeout)
        return self.offerings[id]
