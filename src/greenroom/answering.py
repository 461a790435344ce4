"""A client's handler made of plain functions: one for each thing that a server may ask or say, each sync or async.

What is declared to the server follows from the functions that there are. Each question is answered in a process of its own; a plain `def` runs
in a thread, so that one that blocks (on a model, on a user) delays nobody. What is only told goes to its function in order.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.actors.client.handler import ClientHandler
from greenroom.actors.client.seam import Told
from greenroom.actors.consent.errors import ConsentDenied
from greenroom.actors.hooks import takes
from greenroom.protocol.received import read_log
from greenroom.protocol.wire import is_array, is_object
from greenroom.supervision import Threads

from .asked import ElicitationRequest, SamplingRequest, UrlElicitationRequest, roots_result
from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from greenroom.actors.client.seam import Line
    from greenroom.protocol.received import LogMessage

Sampler: TypeAlias = "Callable[[SamplingRequest], Any]"
Elicitor: TypeAlias = "Callable[[ElicitationRequest], Any]"
Usher: TypeAlias = "Callable[[UrlElicitationRequest], Any]"
Roots: TypeAlias = "Iterable[Any] | Callable[[], Any]"
Logger: TypeAlias = "Callable[[LogMessage], Any]"
Listener: TypeAlias = "Callable[[Told], Any]"

_log: Final = logging.getLogger("greenroom.client")
_THREADS = 8
"""How many plain functions of one client may block at once; more wait."""


class Callbacks(ClientHandler):
    """Answers with the functions that there are, and leaves the rest to another handler."""

    def __init__(  # noqa: PLR0913 - a function for each thing
        self,
        *,
        sampling: Sampler | None = None,
        elicitation: Elicitor | None = None,
        url_elicitation: Usher | None = None,
        roots: Roots | None = None,
        on_log: Logger | None = None,
        on_notification: Listener | None = None,
        rest: ClientHandler | None = None,
        allowed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`rest` answers what none of these does, and hears of everything. `allowed` raises `ConsentDenied` where the user is not to be asked."""
        self._sampling = sampling
        self._elicitation = elicitation
        self._url_elicitation = url_elicitation
        self.roots: Roots | None = roots
        self._on_log = on_log
        self._on_notification = on_notification
        self._rest = ClientHandler() if rest is None else rest
        self._allowed = allowed
        self._threads = Threads(_THREADS)
        self.model_uses_tools = False
        """Whether `sampling.tools` was declared."""

    def capabilities(self) -> Mapping[str, Any]:
        """What there is a function for."""
        modes = {"form": self._elicitation, "url": self._url_elicitation}
        asked: dict[str, Any] = {mode: {} for mode, function in modes.items() if function is not None}
        own: dict[str, Any] = {"elicitation": asked} if asked else {}
        if self._sampling is not None:
            own["sampling"] = {}
        if self.roots is not None:
            own["roots"] = {"listChanged": True}
        return {**self._rest.capabilities(), **own}

    def init(self, line: Line) -> Awaitable[None] | None:
        """The connection has begun."""
        return self._rest.init(line)

    def terminate(self) -> Awaitable[None] | None:
        """It is over."""
        return self._rest.terminate()

    async def handle_request(self, method: str, params: dict[str, Any]) -> Any:
        """Ask the function for it."""
        url = params.get("mode") == "url"
        if method == "elicitation/create" and not await self._may_ask():
            return {"action": "decline"}
        match method:
            case "sampling/createMessage" if self._sampling is not None:
                request = SamplingRequest.of(params, tools=self.model_uses_tools)
                return request.to_result(await self._ask(self._sampling, request))
            case "elicitation/create" if url and self._url_elicitation is not None:
                visit = UrlElicitationRequest.of(params)
                return visit.to_result(await self._ask(self._url_elicitation, visit))
            case "elicitation/create" if not url and self._elicitation is not None:
                form = ElicitationRequest.of(params)
                return form.to_result(await self._ask(self._elicitation, form))
            case "roots/list" if self.roots is not None:
                roots = self.roots
                return roots_result(await self._ask(roots) if callable(roots) else roots)
            case _:
                answer = self._rest.handle_request(method, params)
                return await answer if inspect.isawaitable(answer) else answer

    async def handle_notification(self, method: str, params: dict[str, Any]) -> None:
        """Tell the functions for it, and the other handler."""
        if method == "notifications/message" and self._on_log is not None:
            await told(self._on_log, read_log(params))
        if self._on_notification is not None:
            await told(self._on_notification, Told(method, params))
        heard = self._rest.handle_notification(method, params)
        if heard is not None:
            await heard

    async def _may_ask(self) -> bool:
        """Whether the server may ask the user at all; it is told no more than that nobody wanted to answer."""
        if self._allowed is None:
            return True
        try:
            await self._allowed()
        except ConsentDenied as error:
            _log.info("a question was declined: %s", error)
            return False
        return True

    async def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 - an object may have an async one
            return await function(*arguments)
        answer = await self._threads.run(function, *arguments)
        return await answer if inspect.isawaitable(answer) else answer


async def told(function: Callable[[Any], Any], value: Any) -> None:
    """Call it, and wait for it if there is something to wait for."""
    answer = function(value)
    if inspect.isawaitable(answer):
        await answer


_GIVEN: Final[Mapping[str, tuple[str, ...]]] = {
    "sampling": ("request",),
    "elicitation": ("request",),
    "url_elicitation": ("request",),
    "roots": (),
    "on_log": ("message",),
    "on_progress": ("step",),
    "on_notification": ("told",),
}
"""What each function is called with."""


def check_callbacks(functions: Mapping[str, Any], *first: str) -> None:
    """Raise `ConfigError` for what cannot be called with what it would be given; `first` comes before the rest."""
    for name, function in functions.items():
        given = (*first, *_GIVEN[name])
        if function is not None and not takes(function, len(given)):
            raise ConfigError(f"{name} is a function of {len(given)} ({', '.join(given)}), not {function!r}")


def check_roots(roots: Any) -> Any:
    """The places, or the function that names them. Raises `TypeError` for what are none."""
    if roots is None or callable(roots):
        return roots
    if isinstance(roots, str | bytes) or is_object(roots) or not (is_array(roots) or hasattr(roots, "__iter__")):
        raise TypeError(f"roots are a list of paths, URIs or Root, or a function that returns one; not {roots!r}")
    found = list(roots)
    roots_result(found)
    return found
