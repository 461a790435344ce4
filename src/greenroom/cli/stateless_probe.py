"""The common parts of the checks of `greenroom check --era modern`: the table of checks, the server under test with what it offers, and verdicts.

A check calls no tool of the server except those of the contract below, whose names begin with `check_` or `test_`: lists, reads, prompts and completions are
safe by nature, and tools of unknown effect are only called by names that no tool has. The contract, each part of it optional:

    check_slow(key)        reports progress 0 of 1, then waits until it is cancelled, or half a minute
    check_slow_state(key)  the text "unknown", "waiting", "stopped" (cancelled) or "finished"
    check_ask(topic)       asks the user for `answer` by a form, and answers with the text "<topic>: <answer>"
    check_ask_other(topic) the same again
    check_url(topic)       sends the user to a URL, and answers with a text
    check_header(region, count)  a string mirrored into `Mcp-Param-Region` and an integer mirrored into `Mcp-Param-Count`, both optional
    check_log()            logs at debug, info and error
    check_trace()          the text of the `traceparent` that its request has
    test_tool_with_progress, test_logging_tool, test_missing_capability, test_trigger_tool_change, test_trigger_prompt_change
                           as the official conformance suite has them
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from greenroom.protocol.dialect import LATEST_DIALECT
from greenroom.protocol.jsonrpc import is_object

from .raw_peer import CLIENT, CommandPeer, HttpPeer, PeerFailed, RawReply, object_in, objects_in

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from .raw_peer import Exchange, HttpLine, Json, RawPeer

Level: TypeAlias = Literal["must", "should", "may"]
Verdict: TypeAlias = Literal["passed", "failed", "absent", "not applicable"]
"""`absent`: an optional behaviour (level `may`) that the server does not have, which is no failure."""
Transport: TypeAlias = Literal["http", "stdio"]

FORM: Final[Json] = {"elicitation": {"form": {}}}
NO_SUCH_TOOL: Final = "check_no_such_tool"
INVALID_PARAMS: Final = -32602
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
BAD_REQUEST: Final = 400
_STOPS_WITHIN: Final = 5.0
_POLL: Final = 0.05
_MOST_PAGES: Final = 50
LISTS: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


class Deviation(Exception):
    """The server breaks the promise; the message is the evidence."""


class NotApplicable(Exception):
    """The check cannot be made at this server; the message says what is missing."""


class StatelessCheck(NamedTuple):
    """One check."""

    id: str
    """The row of the delta that it belongs to, with a word behind a dot where a row has several."""
    promise: str
    level: Level
    transports: tuple[Transport, ...]
    run: Callable[[CheckedServer], Awaitable[str]]
    """Returns the evidence; raises `Deviation` or `NotApplicable`."""

    @property
    def row(self) -> str:
        """The row of the delta."""
        return self.id.partition(".")[0]


class CheckOutcome(NamedTuple):
    """The outcome of one check."""

    id: str
    promise: str
    level: Level
    verdict: Verdict
    evidence: str


CheckFunction: TypeAlias = "Callable[[CheckedServer], Awaitable[str]]"


class CheckTable(list[StatelessCheck]):
    """Checks, in the order in which they run."""

    def add(
        self, id: str, level: Level = "must", on: Sequence[Transport] = ("http", "stdio")
    ) -> Callable[[CheckFunction], CheckFunction]:
        """Add a function; its docstring is the promise."""

        def added(run: CheckFunction) -> CheckFunction:
            promise = (run.__doc__ or "").partition("\n")[0].removesuffix(".")
            self.append(StatelessCheck(id, promise, level, tuple(on), run))
            return run

        return added


def expect(holds: bool, what: str) -> None:  # noqa: FBT001 - an assertion
    """Raise `Deviation` with the evidence unless it holds."""
    if not holds:
        raise Deviation(what)


def need(holds: object, what: str) -> None:
    """Raise `NotApplicable` unless it holds."""
    if not holds:
        raise NotApplicable(what)


def expect_error(reply: RawReply, code: int, what: str, status: int | None = None) -> None:
    """Raise `Deviation` unless the answer is that error; over HTTP with that status, if one is given."""
    expect(reply.code == code, f"{what}: {reply}, where the error {code} is due")
    if status is not None and reply.status is not None:
        expect(reply.status == status, f"{what}: {reply}, where HTTP {status} is due")


@dataclass
class CheckedServer:
    """The server under test, and what `server/discover` and its lists say."""

    peer: RawPeer
    other: HttpPeer | None = None
    """The same server, asked with the credentials of another principal."""

    def __post_init__(self) -> None:
        self.discovered: Json = {}
        self.items: dict[str, list[Json]] = {name: [] for name in LISTS}
        self.pages: dict[str, list[Json]] = {name: [] for name in LISTS}
        self._keys = count(1)
        self._began = f"{time.time_ns():x}"

    @property
    def capabilities(self) -> Json:
        """The declared capabilities."""
        return object_in(self.discovered, "capabilities")

    @property
    def is_http(self) -> bool:
        """Whether the server is reached over HTTP."""
        return self.peer.transport == "http"

    @property
    def http(self) -> HttpPeer:
        """The peer of a check that is made over HTTP only."""
        assert isinstance(self.peer, HttpPeer)
        return self.peer

    @property
    def command(self) -> CommandPeer:
        """The peer of a check that is made on stdio only."""
        assert isinstance(self.peer, CommandPeer)
        return self.peer

    async def discover(self) -> None:
        """Ask what the server is and has. Raises `Deviation` if it does not serve this revision."""
        reply = await self.peer.ask("server/discover")
        expect(reply.kind == "complete", f"server/discover: {reply}")
        self.discovered = reply.result
        for method, name in LISTS.items():
            if method.partition("/")[0] in self.capabilities:
                await self._list(method, name)

    async def _list(self, method: str, name: str) -> None:
        params: Json = {}
        for _ in range(_MOST_PAGES):
            reply = await self.peer.ask(method, params)
            if not reply.result:
                return
            self.pages[method].append(reply.result)
            self.items[method] += objects_in(reply.result.get(name))
            cursor = reply.result.get("nextCursor")
            if cursor is None:
                return
            params = {"cursor": cursor}

    async def initialize(self) -> RawReply:
        """The answer to the first request of a handshake."""
        params = {"protocolVersion": LATEST_DIALECT.version, "capabilities": {}, "clientInfo": dict(CLIENT)}
        return await self.peer.ask("initialize", params, enveloped=False)

    # --- what checks need

    def has_tool(self, name: str) -> bool:
        """Whether the server lists this tool."""
        return any(each.get("name") == name for each in self.items["tools/list"])

    def tool(self, *names: str) -> str:
        """The first of these tools that the server has. Raises `NotApplicable` if it has none of them."""
        found = next((name for name in names if self.has_tool(name)), None)
        need(found, f"the server has no tool {' or '.join(names)}")
        assert found is not None
        return found

    def capability(self, *path: str) -> Any:
        """A declared capability. Raises `NotApplicable` if it is not declared."""
        found: Any = self.capabilities
        for name in path:
            found = found.get(name) if is_object(found) else None
            need(found is not None and found is not False, f"the server does not declare {'.'.join(path)}")
        return found

    def key(self) -> str:
        """A key that no other call has."""
        return f"{self._began}-{next(self._keys)}"

    async def call(self, name: str, arguments: Json | None = None, **how: Any) -> RawReply:
        """Call a tool of the contract."""
        return await self.peer.ask("tools/call", {"name": name, "arguments": arguments or {}}, **how)

    async def open_call(self, name: str, arguments: Json, **how: Any) -> Exchange:
        """Begin a call of a tool of the contract."""
        return await self.peer.open("tools/call", {"name": name, "arguments": arguments}, **how)

    async def ask_user(self, name: str, topic: str, **how: Any) -> RawReply:
        """Call a tool that asks. Raises `Deviation` if it does not ask."""
        how.setdefault("capabilities", FORM)
        reply = await self.call(name, {"topic": topic}, **how)
        expect(reply.kind == "input_required", f"{name} with elicitation declared: {reply}, where a question is due")
        return reply

    async def retry(
        self, name: str, topic: str, asked: RawReply, answer: str = "yes", *, peer: RawPeer | None = None
    ) -> RawReply:
        """Answer the questions of an earlier call by calling again."""
        params: Json = {
            "name": name,
            "arguments": {"topic": topic},
            "inputResponses": {
                key: {"action": "accept", "content": {"answer": answer}}
                for key in object_in(asked.result, "inputRequests")
            },
        }
        if "requestState" in asked.result:
            params["requestState"] = asked.result["requestState"]
        return await (peer or self.peer).ask("tools/call", params, capabilities=FORM)

    async def state_of(self, key: str) -> str:
        """The state of the slow call with that key."""
        return (await self.call("check_slow_state", {"key": key})).text

    async def until(self, key: str, state: str, what: str) -> float:
        """Wait until the slow call has that state. Returns the seconds that it took; raises `Deviation` after five."""
        began = time.monotonic()
        while (found := await self.state_of(key)) != state:
            waited = time.monotonic() - began
            expect(waited < _STOPS_WITHIN, f"{what} the call is still {found!r} after {_STOPS_WITHIN:g} s")
            await asyncio.sleep(_POLL)
        return time.monotonic() - began

    async def listen(self, wanted: Json, **how: Any) -> tuple[Exchange, Json]:
        """Open a listen. Returns it with its acknowledgement's params; raises `Deviation` if none comes."""
        exchange = await self.peer.open("subscriptions/listen", {"notifications": wanted}, **how)
        first = await exchange.next()
        if first is None or first.get("method") != "notifications/subscriptions/acknowledged":
            await exchange.close()
            raise Deviation(f"subscriptions/listen: {first or exchange.reply}, where the acknowledgement is due")
        return exchange, object_in(first, "params")

    @asynccontextmanager
    async def one_line(self) -> AsyncGenerator[HttpLine | None]:
        """A connection for several requests; on stdio there is one anyway."""
        line = await self.peer.connect() if isinstance(self.peer, HttpPeer) else None
        try:
            yield line
        finally:
            if line is not None:
                await line.close()

    @asynccontextmanager
    async def fresh(self) -> AsyncGenerator[CheckedServer]:
        """Another process of the same program."""
        async with CommandPeer(self.command.command, self.command.env) as peer:
            try:
                yield CheckedServer(peer)
            finally:
                self.peer.seen += peer.seen


async def run_checks(
    checks: Sequence[StatelessCheck],
    server: CheckedServer,
    only: Sequence[str] = (),
    on_outcome: Callable[[CheckOutcome], None] | None = None,
) -> list[CheckOutcome]:
    """Make the checks that fit the transport, one after the other; with `only`, those ids or rows."""
    outcomes = list[CheckOutcome]()
    for each in checks:
        if server.peer.transport not in each.transports or not (not only or each.id in only or each.row in only):
            continue
        verdict, evidence = await _verdict(each, server)
        outcomes.append(CheckOutcome(each.id, each.promise, each.level, verdict, evidence))
        if on_outcome is not None:
            on_outcome(outcomes[-1])
    return outcomes


async def _verdict(each: StatelessCheck, server: CheckedServer) -> tuple[Verdict, str]:
    try:
        return "passed", await each.run(server)
    except NotApplicable as missing:
        return "not applicable", str(missing)
    except Deviation as deviation:
        evidence = str(deviation)
    except PeerFailed as failure:
        evidence = str(failure)
    return ("absent" if each.level == "may" else "failed"), evidence
