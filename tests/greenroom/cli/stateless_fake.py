"""A small server of revision 2026-07-28 that is right in everything, except for one fault of the caller's choice.

It is written by hand on sockets and pipes, and shares no code with greenroom or with the checks. A fault is the id of a check, or an id and a variant: `P2:case`.
`stateless_fake.py FAULT` serves on stdin and stdout; `serving` serves over HTTP in the running loop.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, NoReturn, Protocol, TypeAlias, TypeGuard, cast

Json: TypeAlias = dict[str, Any]
Running: TypeAlias = dict[tuple[type, Any], tuple["asyncio.Future[None]", Json]]
Progress: TypeAlias = Callable[..., Awaitable[None]]


class Emit(Protocol):
    async def __call__(self, method: str, params: Json, id: Any = None) -> None: ...


VERSION, LEGACY = "2026-07-28", "2025-11-25"
IO = "io.modelcontextprotocol/"
TASKS = f"{IO}tasks"
TOKENS = ("Bearer one", "Bearer two")
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
HEADERS = {"region": "Region", "count": "Count"}
FORM = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
KINDS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}


def _text(name: str, *properties: str) -> Json:
    schema = {"type": "object", "properties": {each: {"type": "string"} for each in properties}, "required": properties}
    return {"name": name, "inputSchema": schema}


TOOLS = [
    _text("check_slow", "key"),
    _text("check_slow_state", "key"),
    _text("check_ask", "topic"),
    _text("check_ask_other", "topic"),
    _text("check_url", "topic"),
    {
        "name": "check_header",
        "inputSchema": {
            "type": "object",
            "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "count": {"type": "integer", "x-mcp-header": "Count"},
            },
        },
    },
    *(_text(name) for name in ("check_log", "check_trace", "test_tool_with_progress", "test_missing_capability")),
    *(_text(f"test_trigger_{name}_change") for name in ("tool", "prompt")),
]


class Refused(Exception):
    def __init__(self, code: int, message: str, data: Any = None, status: int = 200) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, **({} if data is None else {"data": data})}
        self.status = status


def mismatch(what: str) -> Refused:
    return Refused(-32020, f"{what} does not match", status=400)


def invalid(what: str, status: int = 200) -> Refused:
    return Refused(-32602, what, status=status)


def decoded(value: str) -> str:
    """A mirrored header's value."""
    found = re.fullmatch(r"=\?base64\?(.*)\?=", value)
    if found is None:
        return value
    try:
        return base64.b64decode(found[1], validate=True).decode()
    except (binascii.Error, ValueError):
        raise mismatch("base64") from None


class Fake:
    def __init__(self, fault: str = "", *, handshake: bool = True) -> None:
        self.fault, self.handshake = fault, handshake
        self.slow: dict[str, str] = {}
        self.states: dict[str, tuple[str, str, str]] = {}
        self.listens: list[tuple[Callable[..., Awaitable[None]], set[str]]] = []
        self.numbers = count(1)
        self.pinned = ""
        self.tasks: set[asyncio.Future[Any]] = set()
        self.never = (
            asyncio.Event()
        )  # kept here, since a task that waits for an event of its own can be collected with it

    def wrong(self, *names: str) -> bool:
        """Whether this is the fault."""
        return self.fault in names

    async def for_ever(self) -> NoReturn:
        await self.never.wait()
        raise AssertionError("nothing sets this event")

    # --- messages, on every transport

    async def answer(self, message: Json, emit: Emit, line: Json, principal: str = "one") -> tuple[Json, int]:
        """The response to a request. `line` is what the connection remembers."""
        try:
            result = await self.result(message, emit, line, principal)
        except Refused as refused:
            return {"jsonrpc": "2.0", "id": message["id"], "error": refused.error}, refused.status
        meta = result.setdefault("_meta", {})
        if not (self.wrong("M8") and message["method"] == "tools/call"):
            meta[f"{IO}serverInfo"] = {"name": "fake", "version": "1"}
        if self.wrong("M15"):
            meta["1bad.prefix/x"] = True
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}, 200

    def envelope(self, params: Json) -> Json:
        meta = params.get("_meta", {})
        version = meta.get(f"{IO}protocolVersion")
        capabilities: Any = meta.get(f"{IO}clientCapabilities")
        if not isinstance(version, str) or not isinstance(capabilities, dict):
            raise invalid("the envelope is missing", 400)
        if version != VERSION and not self.wrong("V3.handshake"):
            data = {"supported": [VERSION], "requested": version}
            if self.wrong("V3.handshake:data"):
                data["requested"] = "another"
            raise Refused(-32022, "Unsupported protocol version", data, 400)
        return cast("Json", capabilities)

    async def result(self, message: Json, emit: Emit, line: Json, principal: str) -> Json:
        method, params = message["method"], message.get("params", {})
        capabilities = self.envelope(params)
        if self.wrong("M9"):
            capabilities = line["capabilities"] = {**cast("Json", line.get("capabilities", {})), **capabilities}
        level = params["_meta"].get(f"{IO}logLevel")
        if level is not None and level not in LEVELS and not self.wrong("F7.unknown"):
            raise invalid("no such level")
        if method == "server/discover":
            return self.discover()
        if method in ("tools/list", "prompts/list", "resources/list"):
            return self.listed(method, params, capabilities)
        if method == "tools/call":
            return await self.call(message, params, capabilities, emit, principal)
        if method == "prompts/get":
            if params["name"] != "greet" and self.wrong("F5.prompt"):
                raise Refused(-32603, "Internal error")
            if params["name"] != "greet" and self.wrong("M12"):
                raise Refused(-32042, "no such prompt")
            if params["name"] == "greet" and self.wrong("F5.argument"):
                return {"messages": []}
            raise invalid("no such prompt, or no argument")
        if method == "completion/complete":
            if self.wrong("F5.completion"):
                return {"completion": {"values": []}}
            raise invalid("no such prompt")
        if method == "subscriptions/listen":
            return await self.listen(message, params, capabilities, emit)
        if method == "tasks/get":
            if TASKS not in capabilities.get("extensions", {}):
                raise Refused(-32021, "needs tasks", {"requiredCapabilities": {"extensions": {TASKS: {}}}}, 400)
            raise Refused(-32603, "?") if self.wrong("T10") else invalid("no such task")
        raise Refused(-32601, "Method not found", status=404)

    def discover(self) -> Json:
        capabilities: Json = {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {},
            "completions": {},
            "logging": {},
            "extensions": {TASKS: {}},
        }
        return {"supportedVersions": [VERSION], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"}

    def listed(self, method: str, params: Json, capabilities: Json) -> Json:
        name = method.partition("/")[0]
        cursor = params.get("cursor")
        if cursor not in (None, "more") and not self.wrong("F6"):
            raise invalid("no such cursor")
        hints = {"ttlMs": 0, "cacheScope": "private"}
        if name != "tools":
            prompts = [{"name": "greet", "arguments": [{"name": "name", "required": True}]}]
            return {name: prompts if name == "prompts" else [], **hints}
        if cursor == "more":
            return {name: TOOLS[6:], **hints, **({"cacheScope": "public"} if self.wrong("C2") else {})}
        extra = [_text("more")] if self.wrong("M18") and "sampling" in capabilities else []
        return {name: TOOLS[:6] + extra, "nextCursor": "more", **hints}

    # --- tools

    async def call(  # noqa: C901, PLR0911, PLR0912 - a branch for each tool
        self, message: Json, params: Json, capabilities: Json, emit: Emit, principal: str
    ) -> Json:
        name, arguments = params["name"], params.get("arguments", {})
        meta, topic = params["_meta"], arguments.get("topic")
        token = meta.get("progressToken")

        async def progress(done: int, total: int = 100) -> None:
            if token is not None or self.wrong("S5:unasked"):
                sent = "another" if self.wrong("S5:token") else token
                said = {"progressToken": sent, "progress": done, "total": total}
                await emit("notifications/progress", said)

        if name == "check_slow":
            return await self.wait(arguments["key"], progress)
        if name == "check_slow_state":
            if not isinstance(arguments["key"], str):
                if self.wrong("F1.arguments"):
                    raise invalid("the key is no text")
                return {"content": [], "isError": True}
            return said(self.slow.get(arguments["key"], "unknown"))
        if name in ("check_ask", "check_ask_other", "check_url"):
            return self.ask(name, topic, params, capabilities, principal)
        if name == "test_missing_capability":
            if "sampling" not in capabilities:
                raise Refused(-32021, "needs sampling", {"requiredCapabilities": {"sampling": {}}}, 400)
            return said("done")
        if name == "check_header":
            return said("taken")
        if name == "check_log":
            asked = meta.get(f"{IO}logLevel")
            if asked is None and self.wrong("F7.level:unasked"):
                asked = "error"
            for level in ("debug", "info", "error"):
                loud = asked is not None and LEVELS.index(level) >= LEVELS.index(asked)
                if loud or (asked is not None and self.wrong("F7.level")):
                    await emit("notifications/message", {"level": level, "data": "x"})
            return said("logged")
        if name == "check_trace":
            return said("None" if self.wrong("M16") else str(meta.get("traceparent")))
        if name == "test_tool_with_progress":
            if self.wrong("M1"):
                await emit("roots/list", {}, id=99)
            for done in (0, 0 if self.wrong("S5") else 50, 100):
                await progress(done)
            return said("done")
        if name.startswith("test_trigger_"):
            kind = "tools" if "tool" in name else "prompts"
            for heard, kinds in list(self.listens):
                if kind in kinds or self.wrong("L5"):
                    await heard(f"notifications/{kind}/list_changed")
            return said("triggered")
        if self.wrong("F1"):
            return {"content": [], "isError": True}
        raise Refused(-32000, "no such tool") if self.wrong("M12.legacy") else invalid("no such tool")

    async def wait(self, key: str, progress: Progress) -> Json:
        self.slow[key] = "waiting"
        try:
            await progress(0, 1)
            return await self.for_ever()
        finally:
            self.slow[key] = "stopped"

    def ask(self, name: str, topic: str, params: Json, capabilities: Json, principal: str) -> Json:
        modes = capabilities.get("elicitation")
        form = modes is not None and (not modes or "form" in modes or self.wrong("R5"))
        url = modes is not None and "url" in modes
        if not (url if name == "check_url" else form):
            mode = "url" if name == "check_url" else "form"
            needed: Any = ["elicitation"] if self.wrong("M9:data") else {"elicitation": {mode: {}}}
            raise Refused(-32021, "needs elicitation", {"requiredCapabilities": needed}, 400)
        state, answers = params.get("requestState"), params.get("inputResponses")
        if state is not None:
            if not isinstance(answers, dict) and not self.wrong("R11"):
                raise invalid("inputResponses is no object")
            self.check_state(state, (name, topic, principal))
            if isinstance(answers, dict):
                return said(f"{topic}: {answers['a']['content']['answer']}")
        state = f"state-{next(self.numbers)}"
        if self.wrong("M17"):
            self.states.clear()
        self.states[state] = (name, topic, principal)
        asked = {"mode": "form", "message": topic, "requestedSchema": FORM}
        if name == "check_url" or (self.wrong("F9") and not modes):
            asked = {"mode": "url", "message": topic, "url": "https://check.example/"}
            if self.wrong("F8"):
                asked["elicitationId"] = "e1"
        requests = {"a": {"method": "elicitation/create", "params": asked}}
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}

    def check_state(self, state: str, used: tuple[str, str, str]) -> None:
        bound = self.states.get(state) if self.wrong("R10.once") else self.states.pop(state, None)
        free = {"R10.tool": 0, "R10.arguments": 1, "R10.principal": 2}.get(self.fault)
        if bound is None or any(bound[place] != used[place] for place in range(3) if place != free):
            raise invalid("the requestState is not of this request")

    async def listen(self, message: Json, params: Json, capabilities: Json, emit: Emit) -> Json:
        wanted, id = params["notifications"], message["id"]
        if "taskIds" in wanted and TASKS not in capabilities.get("extensions", {}) and not self.wrong("L8"):
            raise Refused(-32021, "needs tasks", {"requiredCapabilities": {"extensions": {TASKS: {}}}}, 400)
        honoured = {kind: True for kind in ("toolsListChanged", "promptsListChanged") if wanted.get(kind)}
        if self.wrong("L2:undeclared") and wanted.get("resourcesListChanged"):
            honoured["resourcesListChanged"] = True
        if self.wrong("L2"):
            honoured |= {"toolsListChanged": True, "promptsListChanged": True}
        tag = {f"{IO}subscriptionId": str(id) if self.wrong("L4") else id}

        async def heard(method: str, params: Json | None = None) -> None:
            await emit(method, {**(params or {}), "_meta": tag})

        await heard("notifications/subscriptions/acknowledged", {"notifications": honoured})
        entry = (heard, {KINDS[kind] for kind in honoured})
        self.listens.append(entry)
        try:
            return await self.for_ever()
        finally:
            if not self.wrong("L6.client"):
                self.listens.remove(entry)


def said(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


# --- HTTP


class HttpFake(Fake):
    url = ""

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line: Json = {}
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while await self.request(reader, writer, line):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Json) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        verb, path, _ = head[0].split(" ")
        exact = dict(each.split(": ", 1) for each in head[1:] if each)
        headers = {name.lower(): value for name, value in exact.items()}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        out = HttpOut(self, writer)
        work = asyncio.ensure_future(self.respond(verb, path, headers, exact, body, line, out))
        self.tasks.add(work)
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            keep = self.wrong("H9") or (self.wrong("H9.silent") and not out.streaming)
            if not keep:
                work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            return False
        await work
        if headers.get("connection") == "close":
            gone.cancel()
            return False
        if self.wrong("H3") and out.streaming:
            await gone
            return False
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        return not out.streaming

    async def respond(  # noqa: PLR0913, PLR0917 - the parts of an HTTP request
        self,
        verb: str,
        path: str,
        headers: dict[str, str],
        exact: dict[str, str],
        body: bytes,
        line: Json,
        out: HttpOut,
    ) -> None:
        if path.startswith("/.well-known/"):
            resource = "https://elsewhere.example" if self.wrong("A10:resource") else self.url
            scopes = ["tools", *(["offline_access"] if self.wrong("A9:metadata") else [])]
            whole = {"resource": resource, "authorization_servers": ["https://as.example"], "scopes_supported": scopes}
            return await out.json(200, whole)
        if verb == "OPTIONS":
            names = "content-type, mcp-protocol-version, mcp-method, mcp-name"
            allowed = names if self.wrong("P9") else headers["access-control-request-headers"]
            cors = {"Access-Control-Allow-Origin": headers["origin"], "Access-Control-Allow-Headers": allowed}
            return await out.whole(204, b"", cors)
        token = headers.get("authorization")
        if self.wrong("A10.every"):
            token = line["token"] = token or line.get("token")
        if token not in TOKENS:
            where = "" if self.wrong("A10") else f' resource_metadata="{self.url.removesuffix("/mcp")}/.well-known/x"'
            scope = ', scope="offline_access"' if self.wrong("A9") else ""
            return await out.whole(401, b"", {"WWW-Authenticate": f"Bearer{where}{scope}"})
        if verb != "POST":
            if self.wrong("H11.methods"):
                await out.stream()
                await self.for_ever()
            return await out.json(404 if self.wrong("H11.methods:status") else 400 if self.handshake else 405, {})
        return await self.post(headers, exact, body, line, out, token.removeprefix("Bearer "))

    async def post(
        self, headers: dict[str, str], exact: dict[str, str], body: bytes, line: Json, out: HttpOut, principal: str
    ) -> None:
        message = parsed(body)
        if isinstance(message, list):
            if self.wrong("H1"):
                found = [(await self.answer(each, out.emit, line))[0] for each in cast("list[Json]", message)]
                return await out.json(200, found)
            return await out.error(400, -32600, "a batch")
        if not is_message(message):
            return await out.error(400, -32700, "this cannot be read")
        if "id" not in message:
            if message["method"] == "notifications/initialized" or not self.wrong("H4"):
                return await out.whole(202, b"")
            return await out.json(200, {})
        params = message.get("params", {})
        if f"{IO}protocolVersion" not in params.get("_meta", {}):
            return await self.legacy(message, headers, out)
        if self.pinned and self.wrong("V8"):
            return await out.error(400, -32600, "there is a session", message["id"])
        try:
            self.compare(message, headers, exact, line)
        except Refused as refused:
            return await out.json(refused.status, {"jsonrpc": "2.0", "id": message["id"], "error": refused.error})
        response, status = await self.answer(message, out.emit, line, principal)
        return await out.response(status, response)

    def compare(self, message: Json, headers: dict[str, str], exact: dict[str, str], line: Json) -> None:
        method, params = message["method"], message["params"]
        version = params["_meta"][f"{IO}protocolVersion"]
        if headers.get("mcp-protocol-version") != version:
            other = headers.get("mcp-protocol-version") is not None
            if not self.wrong("H6" if other else "H7"):
                raise mismatch("the version")
        sent = exact.get("Mcp-Method") if self.wrong("P2:names") else headers.get("mcp-method")
        alike = sent is not None and sent.lower() == method.lower() if self.wrong("P2:case") else sent == method
        if not alike and not self.wrong("P2"):
            raise mismatch("Mcp-Method")
        name = params.get({"tools/call": "name", "prompts/get": "name", "tasks/get": "taskId"}.get(method, ""))
        if name is not None and not self.wrong("P2.name"):
            given = headers.get("mcp-name")
            if given is None:
                raise mismatch("Mcp-Name")
            taken = (self.wrong("P3.broken") and "*" in given) or (self.wrong("P3.literal") and given == name)
            if not taken and (given if self.wrong("P3") else decoded(given)) != name:
                raise mismatch("Mcp-Name")
        if name == "check_header" and not self.wrong("P7"):
            for argument, header in HEADERS.items():
                value = params.get("arguments", {}).get(argument)
                if value is not None:
                    self.compare_parameter(value, headers.get(f"mcp-param-{header.lower()}"))

    def compare_parameter(self, value: Any, given: str | None) -> None:
        if given is None:
            if self.wrong("P7:missing"):
                return
            raise mismatch("Mcp-Param")
        plain = given if self.wrong("P7.accepted") else decoded(given)
        if isinstance(value, int) and not self.wrong("P7.numeric"):
            try:
                equal = float(plain) == value
            except ValueError:
                equal = False
        else:
            equal = plain == str(value) or (self.wrong("P7:case") and plain.lower() == str(value).lower())
        if not equal:
            raise mismatch("Mcp-Param")

    async def legacy(self, message: Json, headers: dict[str, str], out: HttpOut) -> None:
        id = message["id"]
        if not self.handshake:
            if message["method"] != "initialize" and self.wrong("H7.bare"):
                return await out.json(200, {"jsonrpc": "2.0", "id": id, "result": {"tools": []}})
            named = "no handshake" if self.wrong("V9") else f"no handshake: {VERSION} is spoken"
            return await out.error(400, -32600, named, id)
        if message["method"] == "initialize":
            self.pinned = "legacy"
            result = {"protocolVersion": LEGACY, "capabilities": {}, "serverInfo": {"name": "fake", "version": "1"}}
            answer = {"jsonrpc": "2.0", "id": id, "result": result}
            return await out.json(200, answer, {"Mcp-Session-Id": "s1"})
        if headers.get("mcp-session-id") != "s1":
            return await out.error(400, -32600, "no session", id)
        return await out.json(200, {"jsonrpc": "2.0", "id": id, "result": {}})


def is_message(value: Any) -> TypeGuard[Json]:
    """Whether its id can be read, if it has one."""
    return type(value) is dict and type(cast("Json", value).get("id", 0)) in (int, str)


def parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


class HttpOut:
    """The answer to one HTTP request: one object, or an event stream once something is emitted."""

    def __init__(self, fake: Fake, writer: asyncio.StreamWriter) -> None:
        self.fake, self.writer, self.streaming = fake, writer, False

    async def whole(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        lines = {"Content-Length": str(len(body)), "Content-Type": "application/json", **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body)
        await self.writer.drain()

    async def json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        minted = self.fake.fault in ("H11.session", "H6:session", "H7:session")
        session = {"Mcp-Session-Id": "s2"} if minted else {}
        await self.whole(status, json.dumps(value).encode(), {**session, **(headers or {})})

    async def error(self, status: int, code: int, message: str, id: Any = None) -> None:
        named = {"id": id} if id is not None or self.fake.wrong("M14") else {}
        await self.json(status, {"jsonrpc": "2.0", **named, "error": {"code": code, "message": message}})

    async def stream(self) -> None:
        self.streaming = True
        buffering = "" if self.fake.wrong("H13") else "X-Accel-Buffering: no\r\n"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{buffering}Transfer-Encoding: chunked\r\n\r\n"
        self.writer.write(head.encode())
        if self.fake.wrong("H11.events:retry", "H11.events:priming"):
            await self.chunk(b"retry: 100\n" if self.fake.wrong("H11.events:retry") else b"event: hello\n\n")
        await self.chunk(b": a comment\n\n")

    async def chunk(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def event(self, message: Json) -> None:
        id = b"id: 7\n" if self.fake.wrong("H11.events") else b""
        await self.chunk(id + b"data: %b\n\n" % json.dumps(message).encode())

    async def emit(self, method: str, params: Json, id: Any = None) -> None:
        if not self.streaming:
            await self.stream()
        await self.event({"jsonrpc": "2.0", "method": method, "params": params, **({} if id is None else {"id": id})})

    async def response(self, status: int, message: Json) -> None:
        if not self.streaming:
            await self.json(status, message)
            return
        await self.event(message)
        if not self.fake.wrong("H3"):
            self.writer.write(b"0\r\n\r\n")
            await self.writer.drain()


@asynccontextmanager
async def serving(fault: str = "", *, handshake: bool = True) -> AsyncGenerator[str]:
    """The URL of a fake with that fault."""
    fake = HttpFake(fault, handshake=handshake)
    server = await asyncio.start_server(fake.connection, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield fake.url
    finally:
        server.close()
        for task in fake.tasks:
            task.cancel()
        await asyncio.gather(*fake.tasks, return_exceptions=True)


# --- stdio


class LineFake(Fake):
    def write(self, message: Json) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    async def run(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        line: Json = {}
        tasks: Running = {}
        while raw := await reader.readline():
            self.take(parsed(raw), line, tasks)
            await asyncio.sleep(0)
        if not self.wrong("L6.server"):
            for (_, id), (task, message) in tasks.items():
                if not task.done() and message["method"] == "subscriptions/listen":
                    meta = {f"{IO}subscriptionId": id, f"{IO}serverInfo": {"name": "fake", "version": "1"}}
                    self.write({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", "_meta": meta}})
        if self.wrong("S3"):
            await self.for_ever()
        sys.stdout.flush()
        os._exit(0)

    def take(self, message: Any, line: Json, tasks: Running) -> None:
        if not is_message(message):
            named = {"id": None} if self.wrong("M14") else {}
            self.write({"jsonrpc": "2.0", **named, "error": {"code": -32700, "message": "this cannot be read"}})
        elif message.get("method") == "notifications/cancelled":
            self.cancel(message["params"]["requestId"], tasks)
        elif "id" in message:
            tasks[type(message["id"]), message["id"]] = asyncio.ensure_future(self.reply(message, line)), message

    def cancel(self, id: Any, tasks: Running) -> None:
        task, message = tasks[type(id), id]
        if message["method"] != "subscriptions/listen":
            if self.wrong("S4"):
                self.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
            if self.wrong("S2:answer"):
                self.write({"jsonrpc": "2.0", "id": id, "error": {"code": -32800, "message": "cancelled"}})
            if self.wrong("S2"):
                return
        task.cancel()

    async def reply(self, message: Json, line: Json) -> None:
        async def emit(method: str, params: Json, id: Any = None) -> None:
            self.write({"jsonrpc": "2.0", "method": method, "params": params, **({} if id is None else {"id": id})})

        if f"{IO}protocolVersion" in message.get("params", {}).get("_meta", {}):
            response, _ = await self.answer(message, emit, line)
        elif not self.handshake or (self.wrong("V8.process") and message["method"] == "ping"):
            named = "no handshake" if self.wrong("V9") else f"no handshake: {VERSION} is spoken"
            response = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32600, "message": named}}
        else:
            result = {"protocolVersion": LEGACY} if message["method"] == "initialize" else {}
            response = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self.write(response)


if __name__ == "__main__":
    asyncio.run(LineFake(*sys.argv[1:2], handshake="modern" not in sys.argv).run())
