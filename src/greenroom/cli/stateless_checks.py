"""Checks of the stateless revision that fit every transport, and those of stdio. `stateless_http_checks` has those of HTTP.

Each function is one promise. It returns what it saw, or raises `Deviation` with it.
"""

from __future__ import annotations

import asyncio
import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from greenroom.protocol.dialect import LATEST_DIALECT, STATELESS_DIALECT
from greenroom.protocol.jsonrpc import JSONRPC

from .raw_peer import PREFIX, SUBSCRIPTION_ID, CommandExchange, PeerFailed, RawReply, object_in, objects_in
from .stateless_probe import (
    BAD_REQUEST,
    FORM,
    INVALID_PARAMS,
    LISTS,
    MISSING_CAPABILITY,
    NO_SUCH_TOOL,
    UNSUPPORTED_VERSION,
    CheckedServer,
    CheckTable,
    Deviation,
    NotApplicable,
    expect,
    expect_error,
    need,
)

if TYPE_CHECKING:
    from .raw_peer import Exchange, Json

_TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
_QUIET: Final = 0.3
"""Seconds without a message after which none is expected any more."""
_EXITS_WITHIN: Final = 10.0
"""Seconds for a server to exit after the end of its input: many let running calls end first, for five seconds or so."""
_CURSOR: Final = "check-no-such-cursor"
_UNREADABLE: Final = (
    b'{"jsonrpc": "2.0", "id": 1, "method": ',
    json.dumps({"jsonrpc": JSONRPC, "id": {"a": 1}, "method": "server/discover", "params": {}}).encode(),
    json.dumps({"jsonrpc": JSONRPC, "id": None, "method": "server/discover", "params": {}}).encode(),
)
_VERSION: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TASKS: Final = f"{PREFIX}tasks"


CHECKS: Final = CheckTable()
"""The checks of this module."""


# --- Messages and statelessness


@CHECKS.add("M14")
async def unreadable_ids_are_left_out(at: CheckedServer) -> str:
    """An error for a message whose id cannot be read has no id member."""
    said = list[str]()
    for sent in _UNREADABLE:
        for found in await _answers_to(at, sent):
            where = sent[:60].decode()
            expect("result" not in found, f"{where!r} was answered with a result")
            expect("id" not in found, f"{where!r} was answered with id {json.dumps(found.get('id'))}")
            said.append(str(object_in(found, "error").get("code")))
    need(said, "the server sends no JSON-RPC error for such messages")
    return f"errors {', '.join(said)} without an id"


async def _answers_to(at: CheckedServer, sent: bytes) -> list[Json]:
    if at.is_http:
        headers = {"MCP-Protocol-Version": STATELESS_DIALECT.version, "Mcp-Method": "server/discover"}
        return (await (await at.http.send("POST", headers, sent)).finish()).messages
    strays = at.command.strays
    before = len(strays)
    await at.command.write(sent)
    await at.peer.ask("server/discover")
    await asyncio.sleep(_STRAYS_WITHIN)
    return [each for each in strays[before:] if "method" not in each]


_STRAYS_WITHIN: Final = 0.2
"""Seconds that an answer to an unreadable line may come after the answer to the line behind it."""


@CHECKS.add("M9")
async def capabilities_are_not_remembered(at: CheckedServer) -> str:
    """Capabilities of an earlier request are not remembered, on the same connection either."""
    tool = at.tool("check_ask", "test_missing_capability")
    word = "elicitation" if tool == "check_ask" else "sampling"
    declared: Json = FORM if tool == "check_ask" else {"sampling": {}}
    arguments: Json = {"topic": "memory"} if tool == "check_ask" else {}
    async with at.one_line() as line:
        first = await at.call(tool, arguments, capabilities=declared, line=line)
        expect(not first.error, f"{tool} with {word} declared: {first}")
        second = await at.call(tool, arguments, capabilities={}, line=line)
    expect_error(second, MISSING_CAPABILITY, f"{tool} without {word}, after a request that declared it", BAD_REQUEST)
    required = second.error_data.get("requiredCapabilities")
    expect(isinstance(required, dict) and word in required, f"data.requiredCapabilities is {json.dumps(required)}")
    return f"the second request of a connection: {second}"


@CHECKS.add("M17", "should")
async def calls_are_interleaved(at: CheckedServer) -> str:
    """Questions of interleaved calls are answered in any order, on other connections."""
    tool = at.tool("check_ask")
    asked = {topic: await at.ask_user(tool, topic) for topic in ("one", "two")}
    for topic in ("two", "one"):
        reply = await at.retry(tool, topic, asked[topic], f"for {topic}")
        expect(reply.text == f"{topic}: for {topic}", f"the retry of {topic!r}: {reply}, text {reply.text[:60]!r}")
    return "two questions were answered in the opposite order"


@CHECKS.add("M18")
async def lists_do_not_vary(at: CheckedServer) -> str:
    """Lists are the same on every connection, and for every client."""
    compared = 0
    for method, name in LISTS.items():
        if at.pages[method]:
            other = await at.peer.ask(
                method, capabilities={"sampling": {}, "roots": {}}, client={"name": "another", "version": "9"}
            )
            expect(other.result.get(name) == at.pages[method][0].get(name), f"{method} differs: {other}")
            compared += 1
    need(compared, "the server has no lists")
    return f"{compared} lists are equal on two connections"


@CHECKS.add("M16", "should")
async def trace_context_arrives(at: CheckedServer) -> str:
    """The trace context of a request reaches its handler."""
    reply = await at.call(at.tool("check_trace"), meta={"traceparent": _TRACE})
    expect(reply.text == _TRACE, f"the handler saw {reply.text!r}")
    return "the handler saw the traceparent that was sent"


# --- Versions and eras


@CHECKS.add("V3.handshake", "should")
async def handshake_revisions_are_refused_by_envelope(at: CheckedServer) -> str:
    """A handshake revision is not served by envelope."""
    reply = await at.peer.ask("server/discover", version=LATEST_DIALECT.version)
    expect_error(reply, UNSUPPORTED_VERSION, f"an enveloped request of {LATEST_DIALECT.version}", BAD_REQUEST)
    supported = reply.error_data.get("supported")
    expect(
        isinstance(supported, list) and STATELESS_DIALECT.version in supported,
        f"data.supported is {json.dumps(supported)}",
    )
    expect(
        reply.error_data.get("requested") == LATEST_DIALECT.version,
        f"data.requested is {json.dumps(reply.error_data.get('requested'))}",
    )
    return str(reply)


@CHECKS.add("V8", on=["http"])
async def both_eras_at_one_endpoint(at: CheckedServer) -> str:
    """A handshake session and requests of this revision are served beside each other."""
    welcome = await at.initialize()
    need("protocolVersion" in welcome.result, f"the server has no handshake: {welcome}")
    session, version = welcome.header("mcp-session-id"), str(welcome.result["protocolVersion"])
    expect(_VERSION.fullmatch(version) is not None, f"initialize agreed to the revision {version[:40]!r}")
    headers = {"MCP-Protocol-Version": version}
    if session is not None:
        headers["Mcp-Session-Id"] = session
    ready = json.dumps({"jsonrpc": JSONRPC, "method": "notifications/initialized"}).encode()
    await (await at.http.send("POST", headers, ready)).finish()
    for _ in range(2):
        modern = await at.peer.ask("server/discover")
        expect(modern.kind == "complete", f"server/discover beside a session: {modern}")
        legacy = await at.peer.ask("ping", enveloped=False, headers=headers)
        expect("result" in (legacy.final or {}), f"ping in the session: {legacy}")
    return f"a session of {version} and stateless requests, in turn"


@CHECKS.add("V8.process", "may", ["stdio"])
async def both_eras_in_one_process(at: CheckedServer) -> str:
    """One process serves both eras at once."""
    async with at.fresh() as fresh:
        discovered = await fresh.peer.ask("server/discover")
        expect(discovered.kind == "complete", f"server/discover: {discovered}")
        welcome = await fresh.initialize()
        if "protocolVersion" not in welcome.result:
            raise Deviation(f"initialize after server/discover: {welcome}")
        await fresh.command.notify("notifications/initialized")
        legacy = await fresh.peer.ask("ping", enveloped=False)
        expect("result" in (legacy.final or {}), f"ping in the session: {legacy}")
        modern = await fresh.peer.ask("server/discover")
        expect(modern.kind == "complete", f"server/discover after initialize: {modern}")
    return "server/discover, initialize, ping, and server/discover again"


@CHECKS.add("V9", "should")
async def initialize_is_told_the_revisions(at: CheckedServer) -> str:
    """A server without a handshake names its revisions in the error for initialize."""
    if at.is_http:
        reply = await at.initialize()
    else:
        async with at.fresh() as fresh:
            reply = await fresh.initialize()
    need("protocolVersion" not in reply.result, "the server has a handshake, too")
    named = _VERSION.findall(json.dumps(reply.final or {}) or reply.body.decode(errors="replace"))
    expect(STATELESS_DIALECT.version in named, f"initialize: {reply}, and {STATELESS_DIALECT.version} is not named")
    return str(reply)


# --- Features


@CHECKS.add("F1", "should")
async def unknown_tools_are_errors(at: CheckedServer) -> str:
    """An unknown tool is an error -32602, not a result."""
    at.capability("tools")
    reply = await at.call(NO_SUCH_TOOL)
    expect_error(reply, INVALID_PARAMS, "an unknown tool")
    return str(reply)


@CHECKS.add("F1.arguments", "should")
async def wrong_arguments_are_results(at: CheckedServer) -> str:
    """Wrong arguments of a tool are a result with isError."""
    reply = await at.call(at.tool("check_slow_state"), {"key": {"not": "a text"}})
    expect(reply.result.get("isError") is True, f"an argument of the wrong type: {reply}, where isError is due")
    return str(reply)


@CHECKS.add("F5.prompt", "should")
async def unknown_prompts_are_errors(at: CheckedServer) -> str:
    """An unknown prompt is the error -32602."""
    at.capability("prompts")
    reply = await at.peer.ask("prompts/get", {"name": "check_no_such_prompt"})
    expect_error(reply, INVALID_PARAMS, "an unknown prompt")
    return str(reply)


@CHECKS.add("F5.argument", "should")
async def missing_prompt_arguments_are_errors(at: CheckedServer) -> str:
    """A missing argument of a prompt is the error -32602."""
    needy = next((each for each in at.items["prompts/list"] if any(map(_is_required, _arguments(each)))), None)
    need(needy, "the server has no prompt with a required argument")
    assert needy is not None
    reply = await at.peer.ask("prompts/get", {"name": needy.get("name")})
    expect_error(reply, INVALID_PARAMS, f"the prompt {needy.get('name')!r} without its arguments")
    return str(reply)


@CHECKS.add("F5.completion", "should")
async def completions_of_unknown_prompts_are_errors(at: CheckedServer) -> str:
    """A completion for an unknown prompt is the error -32602."""
    at.capability("completions")
    reference = {"type": "ref/prompt", "name": "check_no_such_prompt"}
    reply = await at.peer.ask("completion/complete", {"ref": reference, "argument": {"name": "a", "value": ""}})
    expect_error(reply, INVALID_PARAMS, "a completion for an unknown prompt")
    return str(reply)


@CHECKS.add("F6", "should")
async def unknown_cursors_are_errors(at: CheckedServer) -> str:
    """A cursor that was never given out is the error -32602."""
    lists = [method for method, pages in at.pages.items() if pages]
    need(lists, "the server has no lists")
    for method in lists:
        reply = await at.peer.ask(method, {"cursor": _CURSOR})
        expect_error(reply, INVALID_PARAMS, f"{method} with an invented cursor")
    return f"{len(lists)} lists refuse it"


@CHECKS.add("F7.level")
async def log_levels_are_kept(at: CheckedServer) -> str:
    """Messages are logged only if the request asks for them, and from its level on."""
    tool = at.tool("check_log", "test_logging_tool")
    loud, quiet = ("info", {"info", "error"}) if tool == "check_log" else ("info", {"info"})
    above = {"error"} if tool == "check_log" else set[str]()
    for level, wanted in ((None, set[str]()), (loud, quiet), ("error", above)):
        reply = await at.call(tool, meta={} if level is None else {f"{PREFIX}logLevel": level})
        heard = {str(each.get("level")) for each in reply.notifications("notifications/message")}
        expect(heard == wanted, f"with the level {level} came {sorted(heard) or 'nothing'}: {sorted(wanted)} is due")
    return f"none without a level, {' and '.join(sorted(quiet))} at {loud}"


@CHECKS.add("F7.unknown", "should")
async def unknown_log_levels_are_errors(at: CheckedServer) -> str:
    """A log level that there is not is the error -32602."""
    at.capability("logging")
    reply = await at.peer.ask("server/discover", meta={f"{PREFIX}logLevel": "loud"})
    expect_error(reply, INVALID_PARAMS, "the log level 'loud'")
    return str(reply)


@CHECKS.add("F8")
async def questions_by_url(at: CheckedServer) -> str:
    """A question by URL has a mode, a message and a URL, and no elicitationId."""
    reply = await at.call(at.tool("check_url"), {"topic": "url"}, capabilities={"elicitation": {"url": {}}})
    expect(reply.kind == "input_required", f"{reply}, where a question is due")
    asked = _questions(reply)
    expect(bool(asked), "the result has no inputRequests")
    for params in asked:
        expect(params.get("mode") == "url" and isinstance(params.get("url"), str), f"it asks {json.dumps(params)}")
        expect("elicitationId" not in params, f"it asks with the elicitationId {params.get('elicitationId')!r}")
    return f"it asks with {', '.join(sorted(asked[0]))}"


@CHECKS.add("F9")
async def an_empty_elicitation_capability_means_forms(at: CheckedServer) -> str:
    """An empty capability for elicitation means forms, and forms only."""
    tool = at.tool("check_ask")
    reply = await at.ask_user(tool, "modes", capabilities={"elicitation": {}})
    for params in _questions(reply):
        expect(params.get("mode", "form") == "form", f"it asks in the mode {params.get('mode')!r}")
    return "it asks by a form"


@CHECKS.add("R5")
async def undeclared_modes_are_missed(at: CheckedServer) -> str:
    """A question in a mode that the client did not declare is not asked, but is the error -32021."""
    tool = at.tool("check_ask")
    reply = await at.call(tool, {"topic": "modes"}, capabilities={"elicitation": {"url": {}}})
    expect_error(reply, MISSING_CAPABILITY, "a form, where only URLs are declared", BAD_REQUEST)
    return str(reply)


# --- Multi-round-trip requests


@CHECKS.add("R10.arguments", "should")
async def states_are_bound_to_arguments(at: CheckedServer) -> str:
    """A requestState is refused with other arguments than it was given for."""
    tool = at.tool("check_ask")
    reply = await at.retry(tool, "another", _with_state(await at.ask_user(tool, "bound")))
    expect_error(reply, INVALID_PARAMS, "the state of a call with another argument")
    return str(reply)


@CHECKS.add("R10.tool", "should")
async def states_are_bound_to_tools(at: CheckedServer) -> str:
    """A requestState is refused at another tool than it was given for."""
    tool, other = at.tool("check_ask"), at.tool("check_ask_other")
    reply = await at.retry(other, "bound", _with_state(await at.ask_user(tool, "bound")))
    expect_error(reply, INVALID_PARAMS, "the state of another tool")
    return str(reply)


@CHECKS.add("R10.once", "may")
async def states_are_used_once(at: CheckedServer) -> str:
    """A requestState is used up by its first retry."""
    tool = at.tool("check_ask")
    asked = _with_state(await at.ask_user(tool, "once"))
    first = await at.retry(tool, "once", asked)
    expect(first.text == "once: yes", f"the first retry: {first}")
    second = await at.retry(tool, "once", asked)
    expect(bool(second.error), f"the second retry with the same state: {second}")
    return f"the second retry: {second}"


@CHECKS.add("R10.principal", "should", ["http"])
async def states_are_bound_to_principals(at: CheckedServer) -> str:
    """A requestState of another principal is refused."""
    need(at.other, "no second credentials: name them with --second-header")
    tool = at.tool("check_ask")
    reply = await at.retry(tool, "mine", _with_state(await at.ask_user(tool, "mine")), peer=at.other)
    expect_error(reply, INVALID_PARAMS, "the state of another principal")
    return str(reply)


@CHECKS.add("R11", "should")
async def malformed_answers_are_errors(at: CheckedServer) -> str:
    """Malformed inputResponses are an error."""
    tool = at.tool("check_ask")
    asked = await at.ask_user(tool, "shape")
    state = {"requestState": asked.result["requestState"]} if "requestState" in asked.result else {}
    params: Json = {"name": tool, "arguments": {"topic": "shape"}, "inputResponses": ["no", "map"], **state}
    reply = await at.peer.ask("tools/call", params, capabilities=FORM)
    expect(bool(reply.error), f"inputResponses that are an array: {reply}")
    return str(reply)


# --- Progress and cancellation


@CHECKS.add("S5")
async def progress_increases(at: CheckedServer) -> str:
    """Progress increases, has the token of its request, and does not come without one."""
    tool = at.tool("test_tool_with_progress")
    heard = (await at.call(tool, meta={"progressToken": "t1"})).notifications("notifications/progress")
    steps = [each.get("progress", 0) for each in heard]
    expect(bool(steps), "no progress came")
    expect(all(isinstance(each, int | float) for each in steps), f"it was {steps}")
    expect(all(a < b for a, b in pairwise(steps)), f"it was {steps}")
    expect(all(each.get("progressToken") == "t1" for each in heard), "it had another token")
    silent = (await at.call(tool)).notifications("notifications/progress")
    expect(not silent, f"{len(silent)} came without a token")
    return f"{steps}, and none without a token"


@CHECKS.add("S2", on=["stdio"])
async def cancelled_calls_stop(at: CheckedServer) -> str:
    """A cancellation stops the work, and nothing more is sent for its request."""
    at.tool("check_slow_state")
    key = at.key()
    exchange = await at.open_call(at.tool("check_slow"), {"key": key}, meta={"progressToken": key})
    assert isinstance(exchange, CommandExchange)
    await exchange.next()
    await exchange.close()
    took = await at.until(key, "stopped", "after notifications/cancelled")
    await asyncio.sleep(_QUIET)
    expect(not exchange.late, f"the cancelled request was answered: {json.dumps(exchange.late[:1])[:100]}")
    return f"stopped after {took:.1f} s, and nothing more came"


@CHECKS.add("S3", "should", ["stdio"])
async def end_of_input_ends_the_server(at: CheckedServer) -> str:
    """The server exits when its input ends, also with requests under way."""
    async with at.fresh() as fresh:
        if at.has_tool("check_slow"):
            call = await fresh.open_call("check_slow", {"key": at.key()}, meta={"progressToken": 1})
            await call.next()
        else:
            await fresh.peer.ask("server/discover")
        expect(
            await fresh.command.exits_within(_EXITS_WITHIN),
            f"it still ran {_EXITS_WITHIN:g} s after the end of its input",
        )
    return "it exited"


@CHECKS.add("S4", on=["stdio"])
async def servers_cancel_listens_only(at: CheckedServer) -> str:
    """The server sends notifications/cancelled for a listen only."""
    seen = [each for each in at.peer.seen if each.message.get("method") == "notifications/cancelled"]
    wrong = [each.method for each in seen if each.enveloped and each.method != "subscriptions/listen"]
    expect(not wrong, f"it cancelled {', '.join(wrong)}")
    return f"{len(seen)} in the whole run"


# --- Listening


def _declared(at: CheckedServer) -> Json:
    """The kinds of notifications that the declared capabilities promise."""
    kinds = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
    capabilities = at.capabilities
    found: Json = {kind: True for kind, name in kinds.items() if object_in(capabilities, name).get("listChanged")}
    if object_in(capabilities, "resources").get("subscribe"):
        found["resourceSubscriptions"] = ["check://nothing"]
    return found


_ALL_KINDS: Final[Json] = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["check://nothing"],
}


def _listens(at: CheckedServer) -> Json:
    declared = _declared(at)
    need(declared, "the server declares nothing to listen to")
    return declared


@CHECKS.add("L2")
async def acknowledgements_are_honest(at: CheckedServer) -> str:
    """An acknowledgement has the honoured subset: nothing undeclared, nothing that was not asked for."""
    declared = _listens(at)
    one = next(iter(declared))
    for wanted in ({one: declared[one], "checkNoSuchKind": True}, _ALL_KINDS):
        exchange, acknowledged = await at.listen(wanted)
        await exchange.close()
        honoured = {name for name, value in object_in(acknowledged, "notifications").items() if value}
        extra = honoured - (set(declared) & set(wanted))
        expect(not extra, f"{', '.join(sorted(extra))}: acknowledged, and not declared or not asked for")
    return f"of all kinds and an invented one, it honours {', '.join(sorted(declared))}"


@CHECKS.add("L4")
async def subscription_ids_keep_their_type(at: CheckedServer) -> str:
    """The subscription id is the request's id, with its type."""
    wanted = _listens(at)
    for id in (71_001, "71001"):
        exchange, acknowledged = await at.listen(wanted, id=id)
        await exchange.close()
        found = object_in(acknowledged, "_meta").get(SUBSCRIPTION_ID)
        expect(found == id and type(found) is type(id), f"the request {id!r} got the subscription id {found!r}")
    return "a number stays a number, a text a text"


@CHECKS.add("L5")
async def filters_are_kept_apart(at: CheckedServer) -> str:
    """Listens at the same time hear what their own filter names, and nothing else."""
    kinds = {"toolsListChanged": "tools", "promptsListChanged": "prompts"}
    triggers = {"tools": at.tool("test_trigger_tool_change"), "prompts": at.tool("test_trigger_prompt_change")}
    need(set(kinds) <= set(_declared(at)), "the server does not declare that its tools and prompts change")
    opened = {name: await at.listen({kind: True}) for kind, name in kinds.items()}
    try:
        for trigger in triggers.values():
            await at.call(trigger)
        for name, (exchange, acknowledged) in opened.items():
            heard = await exchange.next()
            expect(object_in(heard).get("method") == f"notifications/{name}/list_changed", f"{name}: it heard {heard}")
            id = object_in(heard, "params", "_meta").get(SUBSCRIPTION_ID)
            expect(
                id == object_in(acknowledged, "_meta").get(SUBSCRIPTION_ID),
                f"{name}: it has the subscription id {id!r}",
            )
        for name, (exchange, _) in opened.items():
            more = await _next_within(exchange, _QUIET)
            while more is not None:
                expect(more.get("method") == f"notifications/{name}/list_changed", f"{name}: it heard {more}")
                more = await _next_within(exchange, _QUIET)
    finally:
        for exchange, _ in opened.values():
            await exchange.close()
    return "each of two heard its own kind"


async def _next_within(exchange: Exchange, seconds: float) -> Json | None:
    try:
        return await exchange.next(seconds)
    except PeerFailed:
        return None


@CHECKS.add("L6.client", on=["stdio"])
async def ended_listens_are_silent(at: CheckedServer) -> str:
    """A listen that the client has ended hears nothing more."""
    trigger = at.tool("test_trigger_tool_change")
    need("toolsListChanged" in _declared(at), "the server does not declare that its tools change")
    exchange, _ = await at.listen({"toolsListChanged": True})
    assert isinstance(exchange, CommandExchange)
    await exchange.close()
    await at.peer.ask("server/discover")
    await at.call(trigger)
    await asyncio.sleep(_QUIET)
    changes = [each for each in exchange.late if each.get("method") == "notifications/tools/list_changed"]
    expect(not changes, "it still heard a change")
    return "a change after notifications/cancelled was not sent"


@CHECKS.add("L6.server", "may", ["stdio"])
async def listens_end_with_a_result(at: CheckedServer) -> str:
    """A server whose input ends still sends the results of its listens."""
    wanted = _listens(at)
    async with at.fresh() as fresh:
        exchange, _ = await fresh.listen(wanted, id="last")
        await fresh.command.exits_within(_EXITS_WITHIN)
        try:
            reply = await exchange.finish(_EXITS_WITHIN)
        except PeerFailed as missing:
            raise Deviation(f"the end of its input: {missing}, and the listen had no result") from None
    expect(reply.kind == "complete", f"the listen ended with {reply}")
    found = object_in(reply.result, "_meta").get(SUBSCRIPTION_ID)
    expect(found == "last", f"its result has the subscription id {found!r}")
    return str(reply)


@CHECKS.add("L8")
async def task_ids_need_the_extension(at: CheckedServer) -> str:
    """A listen for tasks, of a client without the tasks extension, is refused with -32021."""
    at.capability("extensions", _TASKS)
    exchange = await at.peer.open("subscriptions/listen", {"notifications": {"taskIds": ["check-no-such-task"]}})
    await exchange.next()
    reply = exchange.reply
    await exchange.close()
    expect_error(reply, MISSING_CAPABILITY, "taskIds without the extension", BAD_REQUEST)
    return str(reply)


@CHECKS.add("T10")
async def unknown_tasks_are_errors(at: CheckedServer) -> str:
    """A task that does not exist is the error -32602."""
    at.capability("extensions", _TASKS)
    declared: Json = {"extensions": {_TASKS: {}}}
    reply = await at.peer.ask("tasks/get", {"taskId": "check-no-such-task"}, capabilities=declared)
    expect_error(reply, INVALID_PARAMS, "an unknown task")
    return str(reply)


# --- Lists


@CHECKS.add("C2")
async def pages_share_their_scope(at: CheckedServer) -> str:
    """All pages of a list have the same cacheScope."""
    many = {method: pages for method, pages in at.pages.items() if len(pages) > 1}
    need(many, "no list has several pages")
    for method, pages in many.items():
        scopes = {str(page.get("cacheScope")) for page in pages}
        expect(len(scopes) == 1, f"{method}: {', '.join(sorted(scopes))}")
    return f"{sum(map(len, many.values()))} pages of {', '.join(many)}"


def _arguments(prompt: Json) -> list[Json]:
    return objects_in(prompt.get("arguments"))


def _is_required(argument: Json) -> bool:
    return argument.get("required") is True


def _questions(reply: RawReply) -> list[Json]:
    """The params of the questions of an interim result."""
    return [object_in(each, "params") for each in object_in(reply.result, "inputRequests").values()]


def _with_state(asked: RawReply) -> RawReply:
    if "requestState" not in asked.result:
        raise NotApplicable("the server asks without a requestState")
    return asked
