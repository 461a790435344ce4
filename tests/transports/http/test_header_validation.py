"""Requests of revision 2026-07-28 whose headers differ from their bodies: refused with HTTP 400 and -32020, and nothing runs."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from msgspec import Meta

from greenroom import Server

from .engine_driver import BOTH, EngineDriver, RecordedResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

VERSION = "2026-07-28"
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class StatelessClient:
    """A client of revision 2026-07-28, whose headers can be changed: None leaves one out."""

    def __init__(self, driver: EngineDriver) -> None:
        self.driver = driver
        self.ran: list[Any] = []
        """The arguments of the calls that ran."""

    async def ask(
        self, method: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str | None] | None = None
    ) -> RecordedResponse:
        """Send a request with right headers, but for those given."""
        return await self.send({"id": 7, "method": method}, params, headers)

    async def notify(self, method: str, headers: Mapping[str, str | None]) -> RecordedResponse:
        """Send a notification with an envelope, and with these headers alone."""
        return await self.send({"method": method}, {}, {"mcp-protocol-version": None, "mcp-method": None, **headers})

    async def send(
        self, message: dict[str, Any], params: Mapping[str, Any] | None, headers: Mapping[str, str | None] | None
    ) -> RecordedResponse:
        method: str = message["method"]
        params = {**(params or {}), "_meta": META}
        right = {"mcp-protocol-version": VERSION, "mcp-method": method}
        if method in NAMES and NAMES[method] in params:
            right["mcp-name"] = params[NAMES[method]]
        return await self.driver.post({"jsonrpc": "2.0", **message, "params": params}, {**right, **(headers or {})})

    async def call(self, arguments: Mapping[str, Any] | None, **headers: str | None) -> RecordedResponse:
        """Call the tool with mirrored parameters; the headers by the ends of their names."""
        params = {"name": "query"} | ({} if arguments is None else {"arguments": arguments})
        return await self.ask("tools/call", params, {f"mcp-param-{name}": value for name, value in headers.items()})

    async def refused(self, arguments: Mapping[str, Any] | None, **headers: str | None) -> str:
        """Call it, check that the call was refused as a mismatch, and return the header that is named."""
        before = len(self.ran)
        header = mismatch(await self.call(arguments, **headers))
        assert len(self.ran) == before
        return header


def mismatch(response: RecordedResponse, id: Any = 7) -> str:
    """The header that a refusal names."""
    assert (response.status, response.headers["content-type"]) == (400, "application/json")
    reply = response.json
    assert (reply["jsonrpc"], reply.get("id"), reply["error"]["code"]) == ("2.0", id, -32020)
    header: str = reply["error"]["data"]["header"]
    assert reply["error"]["message"].startswith(f"Header mismatch: {header} ")
    return header


def mirrored(name: str) -> Meta:
    return Meta(extra_json_schema={"x-mcp-header": name})


@asynccontextmanager
async def stateless_client() -> AsyncGenerator[StatelessClient]:
    server = Server("mirrors")

    @server.tool
    async def echo(text: str = "") -> str:
        client.ran.append(text)
        return text

    @server.tool
    async def query(
        region: Annotated[str, mirrored("Region")] = "eu",
        limit: Annotated[int, mirrored("Limit")] = 10,
        flag: Annotated[bool, mirrored("Flag")] = False,  # noqa: FBT002 - as a tool's author writes it
    ) -> str:
        client.ran.append((region, limit, flag))
        return region

    @server.tool(scopes=["deploy"])
    async def deploy(region: Annotated[str, mirrored("Region")]) -> str:
        client.ran.append(region)
        return region

    @server.prompt
    async def greet(name: str) -> str:
        return name

    @server.prompt("a, b")
    async def comma() -> str:
        return "comma"

    @server.resource("demo://ä")
    async def umlaut() -> str:
        return "umlaut"

    async with server.started() as company:
        client = StatelessClient(EngineDriver.before(company))
        yield client


def text_of(response: RecordedResponse) -> str:
    assert response.status == 200, response.body
    text: str = response.json["result"]["content"][0]["text"]
    return text


def sentinel(text: str) -> str:
    return f"=?base64?{b64encode(text.encode()).decode()}?="


# --- the standard headers


@pytest.mark.row("26-P2", "26-H6")
@pytest.mark.parametrize(
    ("wrong", "header"),
    [
        ({"mcp-protocol-version": None}, "MCP-Protocol-Version"),
        ({"mcp-protocol-version": "2025-11-25"}, "MCP-Protocol-Version"),
        ({"mcp-protocol-version": "1900-01-01"}, "MCP-Protocol-Version"),
        ({"mcp-method": None}, "Mcp-Method"),
        ({"mcp-method": "tools/list"}, "Mcp-Method"),
        ({"mcp-method": "TOOLS/CALL"}, "Mcp-Method"),
        ({"mcp-name": None}, "Mcp-Name"),
        ({"mcp-name": "wrong_tool_name"}, "Mcp-Name"),
        ({"mcp-name": "ECHO"}, "Mcp-Name"),
        ({"mcp-name": "=?base64?ZWNobw?="}, "Mcp-Name"),
        ({"mcp-name": "echo\xa0"}, "Mcp-Name"),
    ],
)
async def test_a_wrong_standard_header_is_refused_and_nothing_runs(wrong: dict[str, str | None], header: str) -> None:
    async with stateless_client() as client:
        assert text_of(await client.ask("tools/call", {"name": "echo", "arguments": {"text": "a"}})) == "a"
        response = await client.ask("tools/call", {"name": "echo", "arguments": {"text": "b"}}, wrong)
        assert mismatch(response) == header
        assert client.ran == ["a"]
        assert "mcp-session-id" not in response.headers


@pytest.mark.row("26-P2", "26-P3")
async def test_names_of_headers_ignore_case_and_their_values_may_be_encoded_or_padded() -> None:
    async with stateless_client() as client:
        for name in ("echo", "  echo ", "\techo", sentinel("echo")):
            assert text_of(await client.ask("tools/call", {"name": "echo"}, {"mcp-name": name})) == ""
        for spelled in ("MCP-NAME", "Mcp-Name"):
            response = await client.ask("tools/call", {"name": "echo"}, {"mcp-name": None, spelled: "echo"})
            assert text_of(response) == ""


@pytest.mark.row("26-P2", "26-P3")
@pytest.mark.parametrize("header", ["demo://other", "demo://\xe4", None])
async def test_a_uri_that_no_header_may_hold_is_encoded(header: str | None) -> None:
    async with stateless_client() as client:
        right = {"mcp-name": sentinel("demo://ä")}
        assert (await client.ask("resources/read", {"uri": "demo://ä"}, right)).status == 200
        assert mismatch(await client.ask("resources/read", {"uri": "demo://ä"}, {"mcp-name": header})) == "Mcp-Name"


@pytest.mark.row("26-P2")
async def test_a_prompt_is_compared_by_its_name() -> None:
    async with stateless_client() as client:
        params = {"name": "greet", "arguments": {"name": "Ann"}}
        assert (await client.ask("prompts/get", params)).status == 200
        assert mismatch(await client.ask("prompts/get", params, {"mcp-name": "Ann"})) == "Mcp-Name"


@pytest.mark.row("26-P2")
async def test_two_headers_do_not_pass_for_one_value_with_a_comma() -> None:
    async with stateless_client() as client:
        name = "a, b"
        assert (await client.ask("prompts/get", {"name": name})).status == 200
        params = {"name": name, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "prompts/get", "params": params}).encode()
        headers = [
            ("host", "127.0.0.1:9090"),
            ("accept", BOTH),
            ("content-type", "application/json"),
            ("mcp-protocol-version", VERSION),
            ("mcp-method", "prompts/get"),
        ]
        for names in (("a", "b"), (name, name)):
            response = RecordedResponse()
            doubled = [*headers, *(("mcp-name", each) for each in names)]
            await client.driver.engine.handle("POST", "/mcp", doubled, body, response)
            assert mismatch(response) == "Mcp-Name"


async def test_params_without_a_name_are_invalid_params() -> None:
    async with stateless_client() as client:
        for params in ({}, {"name": 7}, {"name": None}):
            response = await client.ask("tools/call", params, {"mcp-name": "echo"})
            assert response.json["error"]["code"] == -32602


@pytest.mark.row("26-H4")
async def test_a_notification_needs_no_headers_but_may_not_have_different_ones() -> None:
    async with stateless_client() as client:
        method = "notifications/cancelled"
        right: Sequence[dict[str, str | None]] = (
            {},
            {"mcp-protocol-version": VERSION},
            {"mcp-protocol-version": VERSION, "mcp-method": method},
        )
        for headers in right:
            response = await client.notify(method, headers)
            assert (response.status, response.body) == (202, b"")
        for wrong in ({"mcp-method": "notifications/initialized"}, {"mcp-protocol-version": "1900-01-01"}):
            response = await client.notify(method, wrong)
            assert mismatch(response, None) in ("Mcp-Method", "MCP-Protocol-Version")
            assert "id" not in response.json
        # Without an envelope the header alone tells the era.
        bare = {"jsonrpc": "2.0", "method": method}
        assert (await client.driver.post(bare, {"mcp-protocol-version": VERSION})).status == 202
        metas: list[Any] = [7, None, {}]
        for meta in metas:
            odd = {**bare, "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": meta}}}
            assert (await client.driver.post(odd, {"mcp-protocol-version": VERSION})).status == 202


# --- the parameters of tools


@pytest.mark.row("26-P4", "26-P7")
async def test_mirrored_parameters_that_agree_reach_the_tool() -> None:
    async with stateless_client() as client:
        assert (
            text_of(
                await client.call({"region": "us", "limit": 42, "flag": True}, region="us", limit="42", flag="true")
            )
            == "us"
        )
        assert text_of(await client.call({"region": "日本"}, region=sentinel("日本"))) == "日本"
        assert text_of(await client.call({"limit": 42}, limit="42.0")) == "eu"
        assert text_of(await client.call({"limit": 42.0}, limit="42")) == "eu"
        assert text_of(await client.call({"region": ""}, region="")) == ""
        assert text_of(await client.call({})) == text_of(await client.call(None)) == "eu"
        assert text_of(await client.call({}, zone="x")) == "eu"  # no parameter of this tool
        assert client.ran[0] == ("us", 42, True)


@pytest.mark.row("26-P7")
@pytest.mark.parametrize(
    ("arguments", "headers", "header"),
    [
        ({"region": "us"}, {}, "Mcp-Param-Region"),
        ({"region": "us"}, {"region": "eu"}, "Mcp-Param-Region"),
        ({"region": "us"}, {"region": "US"}, "Mcp-Param-Region"),
        ({"region": "Hello"}, {"region": "=?base64?SGVsbG8?="}, "Mcp-Param-Region"),
        ({"region": "Hello"}, {"region": "=?base64?SGVs!!!bG8=?="}, "Mcp-Param-Region"),
        ({"region": "\xe4"}, {"region": "\xe4"}, "Mcp-Param-Region"),
        ({"limit": 42}, {"limit": "43"}, "Mcp-Param-Limit"),
        ({"limit": 2**53}, {"limit": "9007199254740992"}, "Mcp-Param-Limit"),
        ({"flag": False}, {}, "Mcp-Param-Flag"),
        ({"flag": True}, {"flag": "True"}, "Mcp-Param-Flag"),
        ({}, {"region": "eu"}, "Mcp-Param-Region"),
        (None, {"region": "eu"}, "Mcp-Param-Region"),
        ({"region": ["eu"]}, {"region": "eu"}, "Mcp-Param-Region"),
    ],
)
async def test_a_parameter_whose_header_is_missing_different_or_invalid_is_refused(
    arguments: dict[str, Any] | None, headers: dict[str, str], header: str
) -> None:
    async with stateless_client() as client:
        assert await client.refused(arguments, **headers) == header


async def test_an_argument_of_a_wrong_type_is_explained_to_the_model() -> None:
    async with stateless_client() as client:
        for arguments, headers in (({"region": ["eu"]}, {}), ({"limit": 4.5}, {"limit": "4.5"})):
            response = await client.call(arguments, **headers)
            assert response.json["result"]["isError"] is True
        assert client.ran == []


async def test_a_peer_that_may_not_use_a_tool_learns_its_scopes_and_not_its_headers() -> None:
    async with stateless_client() as client:
        body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
        params = {"name": "deploy", "arguments": {"region": "eu"}, "_meta": META}
        headers = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "deploy"}
        response = await client.driver.post({**body, "params": params}, headers)
        assert response.status == 403
        assert response.json["error"]["data"] == {"required_scopes": ["deploy"]}
        assert client.ran == []
