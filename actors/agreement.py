"""What was agreed with the peer: the revision, who it is and what it can do, how much it wants to hear; and the server's own state for it.

It is the part of the session's process that deals with `initialize` and `logging/setLevel`. Where the server wants to be called for one of them,
a worker does that (`hooks`), and nothing is agreed before it came through.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol import automaton
from greenroom.protocol.automaton import Event, State
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.json import encode
from greenroom.protocol.messages import encode_result
from greenroom.protocol.negotiation import read_hello
from greenroom.protocol.shapes import LEVELS
from greenroom.protocol.versions import DEFAULT_NEGOTIATED
from greenroom.supervision import demonitor, monitor, send_after

from .handshake import welcome
from .hooks import run_heeded, run_hook
from .jobs import Facts
from .subscriptions import Subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.protocol.messages import Request
    from greenroom.protocol.negotiation import Hello
    from greenroom.supervision import Monitor
    from greenroom.transports.seam import Peer

    from .inflight import Call
    from .session import Session

_INTRODUCTION: Final = 64 * 1024
"""How many bytes a peer may say of itself."""

WAITS: Final = object()
"""The answer comes later, and until then nothing else is taken."""

JOIN: Final = object()
_AGAIN: Final = 0.05
"""After how many seconds somebody is looked for who is not there just now."""


class Agreement:
    """One session's."""

    __slots__ = ("_again", "_facts", "_heeded", "_session", "_watching", "level", "state")

    def __init__(self, session: Session) -> None:
        """Nothing was agreed."""
        self.level = LEVELS.index(session.company.settings.log_level)
        self.state: Any = None
        self._session = session
        self._facts: Facts | None = None
        self._watching: Monitor | None = None
        self._heeded: float | None = None  # since when somebody has been at the peer's new roots
        self._again: Mapping[str, Any] | None = None

    @property
    def version(self) -> str:
        """The revision that was agreed on, or what is assumed before."""
        return self._session.card.version or DEFAULT_NEGOTIATED

    @property
    def facts(self) -> Facts:
        """What handlers may know of this session."""
        if self._facts is None:
            card = self._session.card
            id = card.id if card.lasting else ""
            self._facts = Facts(id, self.version, card.peer, card.client_info, card.client_capabilities, self.state)
        return self._facts

    def speaks(self, peer: Peer | None) -> None:
        """Who asks now. What was granted may be more, or less, than when the session began."""
        if peer is not None and peer.auth is not self.facts.peer.auth:
            self._facts = replace(self.facts, peer=peer)

    def initialize(self, request: Request) -> Any:
        """The welcome, or a wait for the server's own `init`. Whatever comes next on a channel waits as well."""
        session = self._session
        hello = check_hello(request.params)
        hook = session.company.hooks.init
        if hook is None:
            return self._greet(request.id, hello, None)
        call = session.begin(request, session.company.settings.call_timeout, waits=True)
        call.note = hello
        card = session.card
        self._run(call, hook, Facts(card.id, hello.version, card.peer, hello.client_info, hello.capabilities))
        return WAITS

    def ready(self) -> None:
        """The peer has said that it is initialized."""
        session = self._session
        if session.card.version is not None and session.card.state is not State.READY:
            session.card.state = State.READY
            self.join()

    def roots_changed(self, params: Mapping[str, Any]) -> None:
        """The server hears of it, once at a time: what comes while it is at it is one more change afterwards, however often it came."""
        session = self._session
        hook = session.company.hooks.roots_changed
        if hook is None or session.card.version is None:
            return
        now, patience = session.now(), session.company.settings.call_timeout
        if self._heeded is not None and (patience is None or now < self._heeded + patience):
            self._again = params
        elif session.calls.run(run_heeded, session.own_ref, session.company.threads, hook, params, self.facts):
            self._heeded = now

    def roots_heeded(self) -> None:
        """The server has heard of it."""
        self._heeded = None
        again, self._again = self._again, None
        if again is not None:
            self.roots_changed(again)

    def join(self) -> None:
        """Hear of what changes, from whoever tells it now; its successor is asked again."""
        session = self._session
        if self._watching is not None:
            demonitor(self._watching)
            self._watching = None
        if session.company.subscriptions.cast(Subscriptions.join, session.pid):
            self._watching = monitor(session.company.subscriptions)
        else:
            send_after(_AGAIN, session.own_ref, JOIN)

    def watches(self, ref: Monitor) -> bool:
        """Whether that is our monitor on whoever tells what changes."""
        return ref is self._watching

    def set_level(self, request: Request, level: str) -> bytes | None:
        """The answer to a peer that wants another level; None when the server is asked first."""
        session = self._session
        hook = session.company.hooks.level
        if hook is None:
            self.level = LEVELS.index(level)
            return encode_result(request.id, {})
        call = session.begin(request, session.company.settings.call_timeout)
        call.note = level
        self._run(call, hook, level, self.facts)
        return None

    def subscribe(self, request: Request) -> None:
        """Have whoever knows of subscriptions note this one down, or strike it off. It may take a moment, and is not waited for."""
        session = self._session
        call = session.begin(request, session.company.settings.call_timeout)
        method = Subscriptions.subscribe if request.method == "resources/subscribe" else Subscriptions.unsubscribe
        self._run(call, session.company.subscriptions.call, method, session.pid, request.params["uri"])

    def returned(self, call: Call, value: Any) -> bytes:
        """The server's own code came through: what waited for it is agreed, and this is the answer."""
        if call.method == "initialize":
            return self._greet(call.id, call.note, value)
        if call.method == "logging/setLevel":
            self.level = LEVELS.index(call.note)
        return encode_result(call.id, {})

    def _greet(self, id: str | int, hello: Hello, state: Any) -> bytes:
        session = self._session
        card = session.card
        company = session.company
        answer = encode_result(id, welcome(company.settings, company.shelf.catalogue, hello.version))
        if card.version is not None:
            company.subscriptions.cast(Subscriptions.leave, session.pid)  # it begins anew, and asks for them again
        card.version = hello.version
        card.client_info = hello.client_info
        card.client_capabilities = hello.capabilities
        card.state = automaton.judge(State.NEW, Event.INITIALIZE).state
        self.state = state
        self._facts = None
        return answer

    def _run(self, call: Call, hook: Callable[..., Any], *args: Any) -> None:
        session = self._session
        session.calls.start(call, run_hook, session.own_ref, call.key, session.company.threads, hook, *args)


def check_hello(params: dict[str, Any]) -> Hello:
    """Who wants to begin. Raises `McpError` for what says too little, or more than can be kept as long as the session lives."""
    hello = read_hello(params)
    if len(encode([hello.client_info, hello.capabilities])) > _INTRODUCTION:
        raise McpError(
            ErrorCode.INVALID_PARAMS, f"clientInfo and capabilities may be {_INTRODUCTION} bytes together, not more"
        )
    return hello
