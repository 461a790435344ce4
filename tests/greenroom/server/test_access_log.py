"""The access log: a line for each call and each refusal; bounded, escaped, and silent when it is off."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.example_counts import one_in

from greenroom import Client, HttpConfig, PeerError, Server, Settings, ToolError
from greenroom.auth import APIKeyAuth
from greenroom.console_log import LogOptions, NonBlockingHandler
from greenroom.supervision.logs import JsonLines
from greenroom.transports import access_log
from greenroom.transports.access_log import log_refusal
from greenroom.transports.interfaces import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

BOTH = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    """The log lines since the last call, decoded."""
    caplog.set_level(logging.INFO, logger="greenroom.access")

    def found() -> list[dict[str, Any]]:
        data = [each.__dict__["greenroom"] for each in caplog.records if each.name == "greenroom.access"]
        caplog.clear()
        return data

    return found


def made(settings: Settings | None = None, **more: Any) -> Server:
    server = Server("logged", settings=settings, **more)

    @server.tool
    async def echo(text: str = "") -> str:
        return text

    @server.tool
    def fail() -> str:
        raise ValueError

    @server.tool
    def complain() -> str:
        raise ToolError("x" * 100_000)

    @server.tool
    async def wait() -> str:
        await asyncio.sleep(1000)
        return ""

    @server.tool(long_running=True)
    async def work() -> str:
        return "done"

    @server.resource("logged://{name}")
    def read(name: str) -> str:
        return name

    @server.prompt
    def ask() -> str:
        return "?"

    return server


def short(data: dict[str, Any]) -> tuple[Any, ...]:
    return data["method"], data["name"], data["outcome"]


async def test_each_call_is_a_line_with_its_outcome(lines: Callable[[], list[dict[str, Any]]]) -> None:
    async with Client(made(Settings(call_timeout=3)), mode="legacy") as client:
        await client.call_tool("echo", {"text": "secret"})
        await client.call_tool("fail")
        await client.call_tool("complain")
        with pytest.raises(PeerError):
            await client.call_tool("none")
        await client.read_resource("logged://one?token=secret")
        await client.get_prompt("ask")
        await client.list_tools()
        await client.call_tool("wait")
        call = client.start_tool("wait")
        await asyncio.sleep(0.1)
        call.cancel("enough")
        await client.ping()
    data = lines()
    assert [short(each) for each in data] == [
        ("initialize", None, "ok"),
        ("tools/call", "echo", "ok"),
        ("tools/call", "fail", "crashed"),
        ("tools/call", "complain", "tool error"),
        ("tools/call", "none", "error -32602"),
        ("resources/read", "logged://one", "ok"),
        ("prompts/get", "ask", "ok"),
        ("tools/list", None, "ok"),
        ("tools/call", "wait", "timed out"),
        ("tools/call", "wait", "cancelled"),
        ("ping", None, "ok"),
    ]
    assert [data[8]["ms"], data[9]["ms"]] == [3000.0, 100.0]
    assert {(each["revision"], each["transport"], each["principal"]) for each in data} == {
        ("2025-11-25", "memory", None)
    }
    assert "secret" not in str(data)


async def test_a_task_has_a_line_when_it_begins_and_one_when_it_ends(
    lines: Callable[[], list[dict[str, Any]]],
) -> None:
    async with Client(made(), mode="legacy") as client:
        task = (await client.call_tool("work", task=True)).task
        assert task is not None
        await client.tasks_result(task)
    begun, ended = (each for each in lines() if each["method"] == "tools/call")
    assert (begun["outcome"], ended["outcome"], ended["name"]) == ("ok", "completed", "work")
    assert task.id not in str(ended), "an id is a ticket to the task"


async def test_a_call_that_is_lost_with_its_session_has_a_line(lines: Callable[[], list[dict[str, Any]]]) -> None:
    server = made()
    async with server.started() as company, Client(server, mode="legacy") as client:
        call = client.start_tool("wait")
        await client.ping()
        (card,) = await company.peers.all()
        await company.peers.end(card.id)
        with pytest.raises(Exception, match="session"):
            await call
    assert ("tools/call", "wait", "lost with its session") in [short(each) for each in lines() if "outcome" in each]


@asynccontextmanager
async def over_http(server: Server, config: HttpConfig | None = None) -> AsyncGenerator[httpx.AsyncClient]:
    """The server mounted in a host that is none of greenroom's."""
    mounted = server.asgi(config)
    transport = httpx.ASGITransport(mounted, client=("192.0.2.1", 4242))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client
    finally:
        await mounted.close()


KEYS = {"k-1234567890": {"subject": "alice"}}


@pytest.mark.parametrize(
    ("trusted", "said", "address"),
    [
        (["192.0.2.1"], ["203.0.113.7"], "203.0.113.7"),
        (["192.0.2.1"], ["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
        (["192.0.2.1"], ["198.51.100.1", "203.0.113.7"], "203.0.113.7"),
        (["192.0.2.1", "10.0.0.0/8"], ["198.51.100.1, 203.0.113.7, 10.1.2.3"], "203.0.113.7"),
        (["192.0.2.1"], ["203.0.113.7:4711"], "203.0.113.7"),
        (["192.0.2.1"], ["2001:db8::7"], "2001:db8::7"),
        (["192.0.2.1"], ["203.0.113.7, unknown"], None),
        (["192.0.2.1"], ["203.0.113.7" + ", 192.0.2.1" * 2000], None),
        (["192.0.2.1"], [], None),
        (None, ["203.0.113.7"], None),
        ([], ["203.0.113.7"], None),
        (["10.0.0.0/8"], ["203.0.113.7"], None),
    ],
)
async def test_the_address_is_the_one_that_listed_proxies_have_written_last(
    lines: Callable[[], list[dict[str, Any]]], trusted: list[str] | None, said: list[str], address: str | None
) -> None:
    """Earlier entries are unverified; None: the connection's address stays."""
    config = HttpConfig(port=0, trusted_proxies=trusted)
    headers = [*BOTH.items(), *(("x-forwarded-for", each) for each in said)]
    async with over_http(made(), config) as http:
        await http.post("/mcp", json=HELLO, headers=headers)
        (call,) = lines()
        await http.post("/mcp", json=HELLO, headers=[*headers, ("origin", "https://elsewhere.example")])
        (refused,) = lines()
    for line in (call, refused):
        assert (line["address"] == address) is (address is not None)
        assert address or line["address"].startswith("192.0.2.1:")


async def test_a_mounted_server_logs_the_principal_and_the_address(lines: Callable[[], list[dict[str, Any]]]) -> None:
    server = made(auth=APIKeyAuth(KEYS))
    async with over_http(server) as http:
        headers = {**BOTH, "x-api-key": "k-1234567890"}
        hello = await http.post("/mcp", json=HELLO, headers=headers)
        assert hello.status_code == 200
    (line,) = lines()
    assert (line["principal"], line["address"], line["transport"]) == ("alice", "192.0.2.1:4242", "http")
    assert "k-1234567890" not in str(line)
    assert hello.headers["mcp-session-id"] not in str(line)


REFUSED: dict[str, tuple[int, dict[str, Any], str]] = {
    "a path": (404, {"url": "/other?token=secret"}, "No endpoint"),
    "a method": (405, {"method": "PUT"}, "Method not allowed"),
    "a host": (403, {"headers": {"host": "mcp.example.com"}}, "go by the name in Host"),
    "an origin": (403, {"headers": {"origin": "https://evil.example"}}, "Pages of this Origin"),
    "a session": (
        404,
        {"headers": {**BOTH, "mcp-session-id": "secret"}, "json": {**HELLO, "method": "ping"}},
        "Unknown",
    ),
    "no session": (400, {"headers": BOTH, "json": {**HELLO, "method": "ping"}}, "Mcp-Session-Id header required"),
    "no types": (406, {"headers": {**BOTH, "accept": "text/html"}}, "Accept"),
    "a type": (415, {"headers": {**BOTH, "content-type": "text/plain"}, "content": b"{}"}, "Unsupported"),
    "a size": (413, {"headers": BOTH, "content": b" " * 5000}, "Payload too large"),
    "bad JSON": (400, {"headers": BOTH, "content": b"{secret"}, "Parse error"),
    "no message": (400, {"headers": BOTH, "content": b"[]"}, ""),
    "a revision": (
        400,
        {"headers": {**BOTH, "mcp-session-id": "s1", "mcp-protocol-version": "9"}, "json": {**HELLO, "method": "ping"}},
        "MCP-P",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_each_refusal_over_http_is_a_line(what: str, lines: Callable[[], list[dict[str, Any]]]) -> None:
    status, request, why = REFUSED[what]
    async with over_http(made(), HttpConfig(max_body=4096)) as http:
        whole: dict[str, Any] = {"method": "POST", "url": "/mcp", **request}
        answer = await http.request(**whole)
    assert answer.status_code == status
    (line,) = lines()
    assert (line["event"], line["status"], line["address"]) == ("refused", status, "192.0.2.1:4242")
    assert why in line["why"]
    assert line["path"] == request.get("url", "/mcp").partition("?")[0]
    assert "secret" not in str(line)


@pytest.mark.parametrize(("header", "setting"), [("host", "allowed_hosts"), ("origin", "allowed_origins")])
async def test_a_refused_name_is_shown_escaped_with_the_setting(
    header: str, setting: str, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    value = b"https://evil.example\x1b[2J\xe2" + b"x" * 5000
    async with over_http(made()) as http:
        answer = await http.post("/mcp", headers=[(header.encode(), value)])
    (line,) = lines()
    assert line["setting"] == setting
    assert line["seen"].startswith("https://evil.example\\u001b[2J")
    assert len(line["seen"]) < 300
    message = answer.json()["error"]["message"]
    assert "evil.example\\u001b[2J" in message.replace("\\\\", "\\")
    assert len(message) < 400
    assert "\x1b" not in message


async def test_wrong_credentials_and_too_many_of_them_are_lines(lines: Callable[[], list[dict[str, Any]]]) -> None:
    async with over_http(made(auth=APIKeyAuth(KEYS))) as http:
        statuses = [(await http.post("/mcp", headers={"x-api-key": f"k-wrong{n}"})).status_code for n in range(101)]
        assert (statuses[0], statuses[-1]) == (401, 429)
        await asyncio.sleep(1.5)
    data = lines()
    assert [each["status"] for each in data] == [401, 429, 401]
    assert data[0]["why"].startswith("Authentication: ")
    assert data[-1]["left_out"] == 98, "one line at once, one that counts the others when a second is over"
    assert "wrong" not in str(data)


async def test_a_refusal_by_a_callers_limit_is_one_log_line(
    lines: Callable[[], list[dict[str, Any]]],
) -> None:
    server = made(Settings(max_sessions=1, max_in_flight=1))
    async with over_http(server) as http, Client(server, mode="legacy") as client:
        call = client.start_tool("wait")
        with pytest.raises(PeerError, match="Too many requests") as refused:
            await client.call_tool("echo")
        assert refused.value.data == {"reason": "too_many_requests", "maybe_done": False}
        assert not refused.value.maybe_done
        assert (await http.post("/mcp", json=HELLO, headers=BOTH)).status_code == 503
        call.cancel()
        await client.ping()
    data = [each for each in lines() if each["event"] == "refused"]
    assert [(each["setting"], each["status"]) for each in data] == [("max_in_flight", None), ("max_sessions", 503)]


@pytest.mark.greenroom(clock="real")
async def test_connections_that_are_no_http_or_too_many_are_lines(lines: Callable[[], list[dict[str, Any]]]) -> None:
    server = made()
    async with server.started():
        url = await server.listen(port=0, config=None)
        port = httpx.URL(url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /\x1b[2J\r\n\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()
        await writer.wait_closed()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /other?token=secret HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert b" 404 " in await reader.readline()
        writer.close()
        await writer.wait_closed()
    data = lines()
    assert [each["status"] for each in data] == [400, 404]
    assert data[1]["path"] == "/other"
    assert "\x1b" not in str(data)


async def test_a_line_on_a_channel_that_is_no_message_is_a_line(lines: Callable[[], list[dict[str, Any]]]) -> None:
    from greenroom.transports.session_channel import MemoryPeer  # noqa: PLC0415 - of this test alone

    async with made().started() as company, MemoryPeer(company) as wire:
        await wire.send(b"{secret")
        assert b"-32700" in (await wire.receive())[0]
    (line,) = lines()
    assert (line["transport"], line["status"]) == ("memory", None)
    assert line["why"].startswith("Parse error")
    assert "secret" not in str(line)


# --- bounds


async def test_a_flood_of_refusals_is_a_line_a_second_of_each_kind(
    lines: Callable[[], list[dict[str, Any]]],
) -> None:
    for second in range(3):
        for _ in range(1000):
            log_refusal("Accept is wrong", status=406)
            log_refusal("Host is wrong", status=403)
        await asyncio.sleep(1.0 if second < 2 else 5.0)
    data = lines()
    for status in (406, 403):
        found = [each for each in data if each["status"] == status]
        assert 3 <= len(found) <= 5
        assert len(found) + sum(each.get("left_out", 0) for each in found) == 3000, "none is forgotten"


async def test_kinds_that_a_peer_makes_up_are_bounded(lines: Callable[[], list[dict[str, Any]]]) -> None:
    for number in range(10_000):
        log_refusal(f"made-up-{number} is wrong", status=400)
    await asyncio.sleep(5)
    data = lines()
    assert len(data) <= 260
    assert len(data) + sum(each.get("left_out", 0) for each in data) == 10_000
    assert len(asyncio.all_tasks()) < 5


async def test_a_disabled_access_log_formats_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def never(*values: Any, **named: Any) -> None:
        raise AssertionError(values, named)

    caplog.set_level(logging.WARNING, logger="greenroom.access")
    monkeypatch.setattr(access_log, "_write", never)
    monkeypatch.setattr(access_log, "principal_of", never)
    async with over_http(made()) as http:
        await http.put("/mcp")
        assert (await http.post("/mcp", json=HELLO, headers=BOTH)).status_code == 200
    async with Client(made(), mode="legacy") as client:
        await client.call_tool("echo")
    assert not [each for each in caplog.records if each.name == "greenroom.access"]


def test_principals_are_shown_by_name_and_hashes_in_short() -> None:
    digest = "0123456789abcdef" * 4
    shown = {
        None: None,
        "bob\x1b": "bob\\u001b",
        ("", digest): "unnamed 01234567",
        ("https://idp", "carol", ""): "carol of https://idp",
        ("", "", "client"): "client",
    }
    for principal, text in shown.items():
        assert access_log.principal_of(Peer("http", principal=principal)) == text


# --- where it is written


async def test_json_lines_hold_the_data_and_the_traceback() -> None:
    record = logging.LogRecord("greenroom.access", logging.INFO, "", 0, "%s", ("a\u202eb",), None)
    record.greenroom = {"event": "call", "name": "x"}
    text = JsonLines().format(record)
    assert text.isascii()
    data = json.loads(text)
    assert (data["message"], data["event"], data["level"], data["logger"]) == ("a\u202eb", "call", "INFO", record.name)
    try:
        raise ValueError("mine")
    except ValueError:
        record.exc_info = sys.exc_info()
    assert "ValueError: mine" in json.loads(JsonLines().format(record))["traceback"]


def test_a_pipe_that_is_never_read_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        write_too_much(reading)
    os.close(reading)


def write_too_much(pipe: int) -> None:
    handler = NonBlockingHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    for _ in range(1000):
        handler.emit(logging.makeLogRecord({"msg": "x" * 1000}))
    assert handler.left_out > 900
    count = handler.left_out
    os.read(pipe, 1 << 20)
    handler.emit(logging.makeLogRecord({"msg": "after"}))
    assert os.read(pipe, 1 << 20).decode().splitlines()[-2:] == [
        f"{count} records left out here: stderr was full",
        "after",
    ]
    assert handler.left_out == 0


def test_a_programs_own_handlers_are_all_that_write() -> None:
    root, access = logging.getLogger(), access_log.log
    before = access.level, access.propagate, list(root.handlers), list(access.handlers)
    own = logging.NullHandler()
    root.addHandler(own)
    try:
        with LogOptions(access=True, json=True).applied():
            assert access.isEnabledFor(logging.INFO)
            assert (access.handlers, access.propagate) == (before[3], True)
        with LogOptions(access=False).applied():
            assert not access.isEnabledFor(logging.INFO)
    finally:
        root.removeHandler(own)
    assert (access.level, access.propagate, root.handlers, access.handlers) == before


PROGRAM = Path(__file__).with_name("logging_program.py")


@pytest.mark.parametrize("style", one_in(3, ["text", "json", "off"]))
def test_a_program_on_stdio_writes_calls_of_workers_too_to_stderr(style: str) -> None:
    messages: list[dict[str, Any]] = [
        HELLO,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "apart", "arguments": {}}},
    ]
    done = subprocess.run(
        [sys.executable, PROGRAM, style],
        input="".join(f"{json.dumps(each)}\n" for each in messages),
        capture_output=True,
        check=True,
        timeout=60,
        text=True,
    )
    assert len(done.stdout.splitlines()) == 2
    lines = done.stderr.splitlines()
    if style == "off":
        assert lines == []
    elif style == "json":
        assert [short(json.loads(each)) for each in lines] == [
            ("initialize", None, "ok"),
            ("tools/call", "apart", "ok"),
        ]
    else:
        assert "tools/call 'apart': ok, " in lines[1]
        assert lines[1].endswith(" ms, from stdio, 2025-11-25")
