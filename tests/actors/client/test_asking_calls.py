"""A question of a server names the call in whose reply it came: exactly in the stateless era, and where it is certain in the handshake era."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, ClientHandler, Context, McpError, SamplingRequest, Server
from greenroom.actors.client.client_handler import asking_call
from greenroom.client_callbacks import CallbackHandler, ElicitationRequest, UrlElicitationRequest
from greenroom.protocol.errors import ErrorCode
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
from greenroom.transports.client.interfaces import RelatedRequest
from greenroom.transports.client.remote_wire import pack, unpack

from .client_helpers import playing
from .fake_server import SILENCE

if TYPE_CHECKING:
    from .fake_server import Stage

FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
STATELESS, LEGACY = "2026-07-28", "legacy"


def mail() -> Server:
    """A server that asks in each of the three ways, and for the roots."""
    server = Server("mail")

    @server.tool
    async def send(to: str, ctx: Context) -> str:
        return (await ctx.elicit(f"Send to {to}?", FORM)).action

    @server.tool
    async def pay(ctx: Context) -> str:
        return (await ctx.elicit_url("Pay.", "https://pay.example/{elicitation_id}")).action

    @server.tool
    async def write(ctx: Context) -> str:
        return (await ctx.sample("Dear", max_tokens=5)).text

    @server.tool
    async def where(ctx: Context) -> int:
        return len(await ctx.roots())

    @server.prompt
    async def letter(to: str, ctx: Context) -> str:
        return (await ctx.elicit("Politely?", FORM)).action

    @server.resource("mail://{box}")
    async def box(box: str, ctx: Context) -> str:
        return (await ctx.elicit("Open it?", FORM)).action

    return server


class Listener:
    """The functions of a client; they record the calls that they are told, and do not block."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def form(self, request: ElicitationRequest) -> bool:
        self.calls.append(request.call_text)
        return True

    def page(self, request: UrlElicitationRequest) -> bool:
        self.calls.append(f"{request.call_text} {request.elicitation_id != ''}")
        return True

    async def model(self, request: SamplingRequest) -> str:
        self.calls.append(request.call_text)
        return "Ada"

    def roots(self) -> list[str]:
        call = asking_call()
        self.calls.append("" if call is None else str(call.params["name"]))
        return ["file:///srv"]

    def client(self, target: Any, mode: str) -> Client:
        return Client(
            target,
            mode=mode,
            elicitation=self.form,
            url_elicitation=self.page,
            sampling=self.model,
            roots=self.roots,
        )


@pytest.mark.row("26-F8")
@pytest.mark.parametrize("mode", [STATELESS, LEGACY])
async def test_each_kind_of_question_names_its_call(mode: str) -> None:
    listener = Listener()
    async with listener.client(mail(), mode) as client:
        assert await client.call("send", to="Ada") == "accept"
        assert await client.call("pay") == "accept"
        assert await client.call("write") == "Ada"
        assert await client.call("where") == 1
        assert (await client.get_prompt("letter", to="Ada")).messages
        assert (await client.read_resource("mail://in")).text == "accept"
    has_id = mode == LEGACY  # in the stateless era the outcome is learnt by the next reply, and nothing announces it
    assert listener.calls == [
        *("send(to='Ada')", f"pay() {has_id}", "write()", "where"),
        *("prompt letter(to='Ada')", "resource mail://in"),
    ]


@pytest.mark.parametrize("mode", [STATELESS, LEGACY])
async def test_calls_side_by_side_over_http_each_have_their_own_questions(mode: str) -> None:
    server, asked = mail(), asyncio.Event()
    found: list[tuple[str, str]] = []

    async def ask(request: ElicitationRequest) -> bool:
        found.append((request.message, request.call_text))
        if len(found) == 3:
            asked.set()
        await asked.wait()  # all three are asked before any is answered
        return True

    async with server.started():
        url = await server.listen(port=0)
        async with Client(url, mode=mode, elicitation=ask) as client:
            names = ("Ada", "Bob", "Cy")
            assert await asyncio.gather(*(client.call("send", to=each) for each in names)) == ["accept"] * 3
    assert sorted(found) == [(f"Send to {each}?", f"send(to='{each}')") for each in names]


def test_a_question_on_a_stream_is_still_one_in_another_process() -> None:
    question = RelatedRequest("s1", "roots/list", {}, during=7)
    for items in ([question], [question, JsonRpcRequest(1, "x", {"n": 2**70})]):
        data, plain = pack(items)
        there = unpack(data, plain=plain)
        assert there == items
        assert type(there[0]) is RelatedRequest


@pytest.mark.parametrize("mode", [STATELESS, LEGACY])
async def test_two_questions_of_one_call_both_name_it(mode: str) -> None:
    server = Server("mail")

    @server.tool
    async def send(to: str, ctx: Context) -> str:
        return " ".join([(await ctx.elicit(f"{to} {n}?", FORM)).action for n in range(2)])

    listener = Listener()
    async with listener.client(server, mode) as client:
        assert await client.call("send", to="Ada") == "accept accept"
    assert listener.calls == ["send(to='Ada')"] * 2


# --- The handshake era without streams: a question says nothing of its call.


class Questioner(ClientHandler):
    """Answers each question with the call that it is told."""

    def capabilities(self) -> dict[str, Any]:
        return {"roots": {}}

    def handle_request(self, method: str, params: dict[str, Any]) -> Any:
        call = asking_call()
        return {"roots": [] if call is None else [{"uri": f"call:{call.method}:{call.params.get('name')}"}]}


async def told(stage: Stage, id: str, params: dict[str, Any] | None = None) -> list[str]:
    """The call that a question of the server is told to be of."""
    stage.wire.say(JsonRpcRequest(id, "roots/list", params or {}))
    reply = await stage.wire.hears(lambda message: isinstance(message, JsonRpcResponse) and message.id == id)
    assert isinstance(reply, JsonRpcResponse)
    return [each["uri"] for each in reply.result["roots"]]


async def test_the_only_call_under_way_is_named_and_no_other() -> None:
    async with playing(handler=Questioner()) as (line, stage):
        stage.answers |= {
            "tools/call": SILENCE,
            "prompts/get": SILENCE,
            "completion/complete": SILENCE,
            "tools/list": SILENCE,
        }
        assert await told(stage, "none") == []
        first = line.begin("tools/call", {"name": "one"})
        listing = line.begin("tools/list")
        await stage.wire.hears(lambda message: getattr(message, "method", "") == "tools/list")
        assert await told(stage, "only") == ["call:tools/call:one"]
        related = {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": "t"}}}
        assert await told(stage, "a task's", related) == []
        second = line.begin("completion/complete", {"ref": {}, "argument": {}})
        await stage.wire.hears(lambda message: getattr(message, "method", "") == "completion/complete")
        assert await told(stage, "two") == []
        for each in (first, second, listing):
            each.cancel()


async def test_after_a_call_was_given_up_no_call_is_certain() -> None:
    async with playing(handler=Questioner()) as (line, stage):
        stage.answers |= {"tools/call": SILENCE, "tools/list": SILENCE}
        listing = line.begin("tools/list")
        await stage.wire.hears(lambda message: getattr(message, "method", "") == "tools/list")
        listing.cancel()
        given_up = line.begin("tools/call", {"name": "one"})
        await stage.wire.hears(lambda message: getattr(message, "method", "") == "tools/call")
        assert await told(stage, "before") == ["call:tools/call:one"]
        given_up.cancel()
        await stage.wire.hears(
            lambda message: isinstance(message, JsonRpcNotification) and message.params.get("requestId") == given_up.id
        )
        other = line.begin("tools/call", {"name": "two"})
        await stage.wire.hears(lambda message: getattr(message, "params", {}).get("name") == "two")
        assert await told(stage, "after") == []
        other.cancel()


# --- Modes, and the URLs of pages.


@pytest.mark.row("26-F9")
@pytest.mark.parametrize(
    ("functions", "params", "outcome"),
    [
        ({"elicitation"}, {}, "form"),
        ({"elicitation"}, {"mode": "form"}, "form"),
        ({"elicitation", "url_elicitation"}, {"mode": "url", "url": "https://a.example/"}, "page"),
        ({"elicitation"}, {"mode": "url", "url": "https://a.example/"}, "declares no elicitation of the mode url"),
        ({"url_elicitation"}, {}, "declares no elicitation of the mode form"),
        ({"elicitation", "url_elicitation"}, {"mode": "wink\x1b"}, r"declares no elicitation of the mode wink\u001b"),
        ({"elicitation", "url_elicitation"}, {"mode": None}, "declares no elicitation of the mode None"),
        ({"url_elicitation"}, {"mode": "url", "url": "javascript:alert(1)"}, "must be an http(s) URL"),
        ({"url_elicitation"}, {"mode": "url"}, "must be an http(s) URL"),
        (set[str](), {}, "elicitation/create"),
    ],
)
async def test_a_question_of_a_mode_that_was_not_declared_is_refused_and_not_shown(
    functions: set[str], params: dict[str, Any], outcome: str
) -> None:
    shown: list[str] = []
    asked: list[str] = []

    async def may_ask(message: str, _: object) -> None:
        asked.append(message)

    def form(_: ElicitationRequest) -> None:
        shown.append("form")

    def page(_: UrlElicitationRequest) -> None:
        shown.append("page")

    given: dict[str, Any] = {"elicitation": form, "url_elicitation": page}
    handler = CallbackHandler(**{name: given[name] for name in functions}, allowed=may_ask)
    question = {"message": "Who?", "requestedSchema": FORM, **params}
    if outcome in ("form", "page"):
        assert await handler.handle_request("elicitation/create", question) == {"action": "cancel"}
        assert (shown, asked) == ([outcome], ["Who?"])
        return
    with pytest.raises(McpError) as refused:
        await handler.handle_request("elicitation/create", question)
    assert outcome in str(refused.value)
    assert refused.value.code == (ErrorCode.INVALID_PARAMS if functions else ErrorCode.METHOD_NOT_FOUND)
    assert shown == []
    assert asked == ([] if functions else ["Who?"])


@pytest.mark.row("26-F9")
async def test_a_handler_that_declares_elicitation_gets_the_modes_without_a_function() -> None:
    class Own(ClientHandler):
        def capabilities(self) -> dict[str, Any]:
            return {"elicitation": {"url": {}}}

        def handle_request(self, method: str, params: dict[str, Any]) -> Any:
            return {"action": f"own {params['mode']}"}

    handler = CallbackHandler(elicitation=lambda request: True, rest=Own())
    question = {"mode": "url", "message": "Pay.", "url": "https://a.example/"}
    assert await handler.handle_request("elicitation/create", question) == {"action": "own url"}


@pytest.mark.row("26-F8")
async def test_a_page_of_the_stateless_era_has_no_id_and_the_next_reply_tells_the_outcome() -> None:
    server = Server("till")
    paid: list[str] = []

    @server.tool
    async def enter(ctx: Context) -> str:
        while not paid:
            answer = await ctx.elicit_url("Pay first.", "https://pay.example/")
            if answer.action != "accept":
                return "not today"
        return "welcome"

    seen: list[str] = []

    def visit(request: UrlElicitationRequest) -> bool:
        seen.append(f"{request.call_text} {request.url} {request.elicitation_id!r}")
        if len(seen) > 1:
            paid.append("24 crowns")
        return True

    async with Client(server, mode=STATELESS, url_elicitation=visit) as client:
        assert await client.call("enter") == "welcome"
    assert seen == ["enter() https://pay.example/ ''"] * 2


@pytest.mark.parametrize(
    ("url", "host", "warnings"),
    [
        ("https://pay.example/a@b", "pay.example", []),
        ("https://Pay.Example:8443", "pay.example", []),
        ("http://localhost:8000/x", "localhost", []),
        ("http://[::1]:8000/x", "[::1]", []),
        ("http://pay.example/", "pay.example", ["it is not encrypted (http)"]),
        ("https://bank.example@evil.example/", "evil.example", ["what stands before the @ is not the host"]),
        ("https://bank.example:443@evil.example:1/", "evil.example", ["what stands before the @ is not the host"]),
        ("https://xn--pypal-4ve.com/", "xn--pypal-4ve.com", ["letters that can look like others"]),
        ("https://\u0440ay.example/", "\u0440ay.example", ["letters that can look like others"]),
        ("https://evil.example\\@bank.example/", "evil.example", ["before the @", "a character that no URL has"]),
        ("https://bank.example/\u202ex", "bank.example", ["a character that no URL has"]),
        ("https://", "", ["it names no host"]),
        ("https:////evil.example/a", "evil.example", []),
    ],
)
def test_the_host_of_a_page_is_shown_and_what_may_mislead_is_named(url: str, host: str, warnings: list[str]) -> None:
    page = UrlElicitationRequest.of({"message": "Pay.", "mode": "url", "url": url})
    assert page.host == host
    assert len(page.warnings) == len(warnings)
    assert all(part in said for part, said in zip(warnings, page.warnings, strict=True))
