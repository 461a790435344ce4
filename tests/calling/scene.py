"""A step's scene: the client, the messages from the server, a folder of its own; and the assertions that steps use.

The client answers whatever a server may ask. All of that, and everything that a server says by itself, is written down, so that a server that
does what it was not said to do is seen.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from greenroom import Client, ClientSettings, McpError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from greenroom import ElicitationRequest, LogMessage, Progress, SamplingRequest, UrlElicitationRequest

WITHIN = 10.0
"""Seconds that an unrequested message of a server may take; none needs a second, but for those on a clock."""


class WrongError(Exception):
    """A value is not what it has to be."""


@dataclass
class Ears:
    """The server's notifications and questions, and the user's next answers."""

    logs: list[LogMessage] = field(default_factory=list["LogMessage"])
    said: Counter[str] = field(default_factory=Counter[str])
    """The number of notifications by method."""
    asked: Counter[str] = field(default_factory=Counter[str])
    """The number of questions by kind: `sampling`, `elicitation`, `url`, `roots`."""
    steps: list[Progress] = field(default_factory=list["Progress"])
    """All progress of all calls."""
    forms: list[ElicitationRequest] = field(default_factory=list["ElicitationRequest"])
    visits: list[str] = field(default_factory=list[str])
    form: dict[str, Any] | None = None
    """The user's form; None declines."""
    roots: list[Any] = field(default_factory=list[Any])

    async def samples(self, request: SamplingRequest) -> Any:
        """Play the model."""
        self.asked["sampling"] += 1
        return request.answer(request.text.upper(), model="parrot")

    async def elicits(self, request: ElicitationRequest) -> Any:
        """Play the user."""
        self.asked["elicitation"] += 1
        self.forms.append(request)
        return request.decline() if self.form is None else request.accept(self.form)

    async def visits_page(self, request: UrlElicitationRequest) -> Any:
        """Play the user's browser."""
        self.asked["url"] += 1
        self.visits.append(request.url)
        return request.accept()

    async def places(self) -> list[Any]:
        """Where the user works."""
        self.asked["roots"] += 1
        return self.roots

    def client(self, target: Any, name: str, mode: str) -> Client:
        """A client that hears and answers everything, and finds the revision in that way."""
        return Client(
            target,
            name=name,
            settings=ClientSettings(mode=mode),
            sampling=self.samples,
            elicitation=self.elicits,
            url_elicitation=self.visits_page,
            roots=self.places,
            on_log=self.logs.append,
            on_progress=self.steps.append,
            on_notification=lambda told: self.said.update([told.method]),
        )


@dataclass
class Scene:
    """The arguments of a step."""

    client: Client
    ears: Ears
    folder: Path
    aside: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further values that one server's steps need, by name."""

    async def progress(self, name: str, arguments: dict[str, Any]) -> tuple[list[Progress], Any]:
        """All that a call said on its way, and its reply."""
        heard: list[Progress] = []
        reply = await self.client.call_tool(name, arguments, on_progress=heard.append)
        self.ears.steps += heard
        return heard, reply

    async def cancelled(self, name: str, arguments: dict[str, Any], begun: Awaitable[Any] | None = None) -> None:
        """A call that is cancelled as soon as it has begun has no answer, and its caller is told."""
        call = self.client.start_tool(name, arguments, progress=False)
        if begun is not None:
            await begun
        call.cancel("enough")
        await ends(f"the cancelled {name}", call.result(), "RequestCancelled")

    async def updated(self, uri: str, change: Callable[[], Awaitable[Any]]) -> None:
        """A change is told to subscribers, and to no other client."""
        async with self.client.subscribe(uri) as updates:
            await change()
            async with asyncio.timeout(WITHIN):
                async for told in updates:
                    same("the update", (told.gap, told.params.get("uri")), (False, uri))
                    break


def same(what: str, got: Any, want: Any) -> None:
    """Go on only when it is the right value."""
    if got != want:
        raise WrongError(f"{what}: got {got!r}, not {want!r}")


def has(what: str, got: Any, *parts: Any) -> None:
    """Go on only when all of it is in there."""
    for part in parts:
        if part not in got:
            raise WrongError(f"{what}: there is no {part!r} in {got!r}")


async def becomes(what: str, look: Callable[[], Any], want: Any) -> None:
    """Wait for an unrequested message of the server."""
    try:
        async with asyncio.timeout(WITHIN):
            while look() != want:  # noqa: ASYNC110 - what is looked at is anything
                await asyncio.sleep(0.01)
    except TimeoutError:
        same(what, look(), want)


async def settles(what: str, look: Callable[[], Awaitable[bool]]) -> None:
    """Ask again until a notification has had its effect at the server."""
    try:
        async with asyncio.timeout(WITHIN):
            while not await look():  # noqa: ASYNC110 - it has to be asked
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise WrongError(f"{what}: not within {WITHIN:g} s") from None


async def ends(what: str, asking: Awaitable[Any], kind: str) -> Exception:
    """It has to raise that, and nothing else."""
    try:
        got = await asking
    except Exception as error:
        if type(error).__name__ == kind:
            return error
        raise WrongError(f"{what}: got {type(error).__name__} ({error}), not {kind}") from error
    raise WrongError(f"{what}: got {got!r}, not {kind}")


async def refused(what: str, asking: Awaitable[Any], code: int) -> McpError:
    """The server has to answer with an error, and that one."""
    error = await ends(what, asking, "PeerError")
    assert isinstance(error, McpError)
    same(f"{what}, the code of {error.message!r}", error.code, code)
    return error
