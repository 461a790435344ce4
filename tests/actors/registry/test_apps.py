"""MCP Apps: the documents and tools of apps, what a client sees of them, and the text for clients that show no app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.tasks.stateless_client import StatelessClient

from greenroom import (
    App,
    AppCsp,
    AppView,
    CallToolResult,
    Context,
    McpServer,
    RegistrationError,
    Server,
    Structured,
    image,
    resource,
    shows_apps,
    text_resource,
    tool,
)
from greenroom.actors.apps import APP_TYPE
from greenroom.actors.handler_options import ResourceOptions, ToolOptions
from greenroom.protocol.extension_ids import APPS_ID
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "<!doctype html><title>Board</title>"
SHOWS: dict[str, Any] = {"extensions": {APPS_ID: {"mimeTypes": [APP_TYPE]}}}
PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


async def listed(server: Server, method: str, member: str) -> list[dict[str, Any]]:
    async with WireProbe(server) as probe:
        found: list[dict[str, Any]] = (await probe.request(method))[member]
        return found


def board_server() -> tuple[Server, App]:
    server = Server("boards")
    return server, server.app("ui://board", PAGE)


def page() -> str:
    """A document."""
    return PAGE


# --- documents


@pytest.mark.row("26-X1")
async def test_a_document_is_a_resource_with_the_type_of_apps_and_its_view() -> None:
    server = Server("boards")
    view = AppView(
        csp=AppCsp(
            connect_domains=["https://api.example.com:8443", "wss://live.example.com"],
            resource_domains=("https://*.example.com",),
            frame_domains=["http://localhost:3000"],
            base_uri_domains=["https://example.com"],
        ),
        permissions={"clipboardWrite", "camera"},
        domain="board.example.com",
        prefers_border=False,
    )
    app = server.app("ui://board/main", PAGE, title="Board", description="A board.", view=view, meta={"a/b": 1})
    assert app == App("ui://board/main")
    ui: dict[str, Any] = {
        "csp": {
            "connectDomains": ["https://api.example.com:8443", "wss://live.example.com"],
            "resourceDomains": ["https://*.example.com"],
            "frameDomains": ["http://localhost:3000"],
            "baseUriDomains": ["https://example.com"],
        },
        "permissions": {"camera": {}, "clipboardWrite": {}},
        "domain": "board.example.com",
        "prefersBorder": False,
    }
    async with WireProbe(server) as probe:
        (shown,) = (await probe.request("resources/list"))["resources"]
        assert shown == {
            "uri": "ui://board/main",
            "name": "board/main",
            "title": "Board",
            "description": "A board.",
            "mimeType": APP_TYPE,
            "_meta": {"a/b": 1, "ui": ui},
        }
        (contents,) = (await probe.request("resources/read", {"uri": "ui://board/main"}))["contents"]
        assert contents == {"uri": "ui://board/main", "mimeType": APP_TYPE, "text": PAGE, "_meta": {"ui": ui}}


@pytest.mark.row("26-X1")
async def test_a_document_without_a_view_has_no_metadata() -> None:
    server, _ = board_server()
    async with server.started() as company:
        found = await StatelessClient(company).result("resources/read", uri="ui://board")
        assert found["contents"] == [{"uri": "ui://board", "mimeType": APP_TYPE, "text": PAGE}]
        (shown,) = (await StatelessClient(company).result("resources/list"))["resources"]
        assert "_meta" not in shown


@pytest.mark.row("26-X1")
async def test_a_documents_file_is_read_at_each_request(tmp_path: Path) -> None:
    path = tmp_path / "board.html"
    path.write_text(f"<!-- ours -->\n{PAGE}")
    server = Server("boards")
    server.app("ui://board", path)
    async with WireProbe(server) as probe:
        path.write_text("<html><p>é</html>")
        (contents,) = (await probe.request("resources/read", {"uri": "ui://board"}))["contents"]
        assert contents["text"] == "<html><p>é</html>"


@pytest.mark.row("26-X1")
async def test_a_function_may_make_the_document_and_change_its_view() -> None:
    server = Server("boards")

    async def board(ctx: Context) -> Any:
        return text_resource(ctx.uri or "", PAGE, mime_type=APP_TYPE, meta={"ui": {"prefersBorder": True}, "a/b": 2})

    server.app("ui://board", board, view=AppView(prefers_border=False))
    async with WireProbe(server) as probe:
        (contents,) = (await probe.request("resources/read", {"uri": "ui://board"}))["contents"]
        assert contents["_meta"] == {"ui": {"prefersBorder": True}, "a/b": 2}


@pytest.mark.row("26-X1")
@pytest.mark.parametrize(
    ("uri", "html", "options", "why"),
    [
        ("https://board", PAGE, {}, 'a URI such as "ui://board"'),
        ("ui://{board}", PAGE, {}, 'a URI such as "ui://board"'),
        ("ui://a b", PAGE, {}, 'a URI such as "ui://board"'),
        ("ui://board", "board.html", {}, 'a file is given as Path("board.html")'),
        ("ui://board", "<p>a part</p>", {}, "must be a whole one"),
        ("ui://board", "<!-- <html> ", {}, "must be a whole one"),
        ("ui://board", 3, {}, "is a text, a Path"),
        ("ui://board", PAGE, {"mime_type": "text/html"}, "mime_type is not an option here"),
        ("ui://board", PAGE, {"meta": {"ui": {}}, "view": AppView()}, "say it in one place"),
        ("ui://board", PAGE, {"view": {"csp": {}}}, "view must be AppView"),
    ],
)
def test_a_document_that_cannot_be_shown_is_refused(uri: str, html: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        Server("boards").app(uri, html, **options)
    assert why in str(refused.value)


@pytest.mark.row("26-X1")
@pytest.mark.parametrize(
    ("uri", "options", "why"),
    [
        ("x://y", {}, "its URI begins with ui://"),
        ("ui://y", {"mime_type": "text/html"}, "leave out mime_type"),
        ("ui://{y}", {}, "a URI without variables"),
        ("ui://y", {"isolation": "process"}, "leave out isolation"),
    ],
)
def test_a_resource_that_can_have_no_view_is_refused(uri: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        Server("boards").resource(uri, view=AppView(), **options)(page)
    assert why in str(refused.value)


@pytest.mark.row("26-X1")
def test_a_file_that_is_no_document_is_refused(tmp_path: Path) -> None:
    server = Server("boards")
    with pytest.raises(RegistrationError, match="cannot be read"):
        server.app("ui://board", tmp_path / "board.html")
    (tmp_path / "board.html").write_bytes(b"<html>\xff")
    with pytest.raises(RegistrationError, match="cannot be read"):
        server.app("ui://board", tmp_path / "board.html")
    (tmp_path / "board.html").write_text("<p>")
    with pytest.raises(RegistrationError, match="is a part of one"):
        server.app("ui://board", tmp_path / "board.html")


@pytest.mark.row("26-X1")
@pytest.mark.parametrize(
    "origin",
    [
        "example.com",
        "https://example.com/path",
        "https://example.com; script-src *",
        "https://a.com https://b.com",
        "https://*",
        "*",
        "'unsafe-eval'",
        "https://a.com\n",
        "javascript://a",
        "https://exa_mple.com",
        3,
    ],
)
def test_an_origin_cannot_add_to_the_policy(origin: Any) -> None:
    for name in ("connect_domains", "resource_domains", "frame_domains", "base_uri_domains"):
        with pytest.raises(RegistrationError, match=f"{name}: an origin is like"):
            AppCsp(**{name: ["https://example.com", origin]})


@pytest.mark.row("26-X1")
@pytest.mark.parametrize(
    ("made", "options", "why"),
    [
        (AppCsp, {"connect_domains": "https://a.com"}, "is a list of origins"),
        (AppView, {"csp": {}}, "csp must be AppCsp"),
        (AppView, {"permissions": "camera"}, "permissions is a list of names"),
        (AppView, {"permissions": ["clipboard-write"]}, "no 'clipboard-write'"),
        (AppView, {"domain": "https://a.com"}, "without a scheme"),
        (AppView, {"prefers_border": "yes"}, "True, False or None"),
        (App, {"uri": "ui://x", "visibility": "app"}, "a list of"),
        (App, {"uri": "ui://x", "visibility": []}, "a list of"),
        (App, {"uri": "ui://x", "visibility": ["user"]}, "is neither"),
        (App, {"uri": "http://x"}, 'a URI such as "ui://board"'),
    ],
)
def test_a_wrong_view_is_refused_with_what_to_write(made: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        made(**options)
    assert why in str(refused.value)


# --- tools


@pytest.mark.row("26-X1")
async def test_a_tool_names_its_document_and_who_may_call_it() -> None:
    server, board = board_server()

    @server.tool(app=board, meta={"a/b": 1})
    def show() -> str:
        return "shown"

    @server.tool(app=App("ui://board", visibility=["model"]))
    def tell() -> str:
        return "told"

    @server.tool(app=App(visibility=("app", "app")))
    def refresh() -> str:
        return "new"

    @server.tool(app="ui://board")
    def short() -> str:
        return "short"

    metas = {each["name"]: each["_meta"] for each in await listed(server, "tools/list", "tools")}
    both = ["model", "app"]
    assert metas == {
        "refresh": {"ui": {"visibility": ["app"]}},
        "short": {"ui": {"resourceUri": "ui://board", "visibility": both}},
        "show": {"a/b": 1, "ui": {"resourceUri": "ui://board", "visibility": both}},
        "tell": {"ui": {"resourceUri": "ui://board", "visibility": ["model"]}},
    }


@pytest.mark.row("26-X1")
async def test_the_list_is_the_same_for_clients_with_and_without_the_extension() -> None:
    server, board = board_server()
    server.tool(app=App(board.uri, visibility=["app"]))(test_an_origin_cannot_add_to_the_policy)
    async with server.started() as company:
        one, other = StatelessClient(company, capabilities=SHOWS), StatelessClient(company, capabilities={})
        assert (await one.result("tools/list"))["tools"] == (await other.result("tools/list"))["tools"]


@pytest.mark.row("26-X1")
def test_a_tool_whose_document_is_not_registered_is_refused_with_what_to_register() -> None:
    server = Server("boards")
    with pytest.raises(RegistrationError) as refused:
        server.tool("show", app="ui://board")(lambda: "")
    assert str(refused.value) == (
        "tool 'show': there is no resource ui://board: register its document first, as in "
        "board = server.app('ui://board', Path(\"board.html\")), and give the tool app=board"
    )
    assert server.registry.catalogue.tool("show") is None
    server.registry.register_resource("x", lambda: PAGE, ResourceOptions(uri="ui://board", mime_type="text/html"))
    with pytest.raises(RegistrationError, match="the document of an app is text/html;profile=mcp-app"):
        server.tool("show", app="ui://board")(lambda: "")
    server.registry.register_resource("x", lambda: PAGE, ResourceOptions(uri="ui://board"))
    server.tool("show", app="ui://board")(lambda: "")


@pytest.mark.row("26-X1")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"app": 3}, 'app must be App("ui://…")'),
        ({"app": "board"}, "app: the document of an app has a URI"),
        ({"app": App(), "meta": {"ui": {}}}, "say it in one place"),
    ],
)
def test_a_tool_with_a_wrong_app_is_refused(options: Any, why: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        Server("boards").tool("show", **options)(lambda: "")
    assert why in str(refused.value)


@pytest.mark.row("26-X1")
async def test_a_class_has_apps_too() -> None:
    class Boards(McpServer):
        @resource("ui://board", view=AppView(prefers_border=True))
        def board(self) -> str:
            return PAGE

        @tool(app="ui://board")
        def show(self) -> str:
            return "shown"

    (shown,) = await listed(Boards.server(), "tools/list", "tools")
    assert shown["_meta"]["ui"]["resourceUri"] == "ui://board"


# --- declaring, and clients without the extension


@pytest.mark.row("26-X1")
@pytest.mark.row("26-V6")
async def test_the_extension_is_declared_as_soon_as_an_app_is_registered() -> None:
    server = Server("boards")
    async with server.started() as company:
        client = StatelessClient(company)
        assert "extensions" not in (await client.result("server/discover"))["capabilities"]
        server.app("ui://board", PAGE)
        found = (await client.result("server/discover"))["capabilities"]["extensions"]
        assert found == {APPS_ID: {"mimeTypes": [APP_TYPE]}}
    async with WireProbe(server) as probe:
        assert probe.welcome["capabilities"]["extensions"] == {APPS_ID: {"mimeTypes": [APP_TYPE]}}
    alone = Server("alone")
    alone.tool("refresh", app=App(visibility=["app"]))(lambda: "")
    async with WireProbe(alone) as probe:
        assert APPS_ID in probe.welcome["capabilities"]["extensions"]


@pytest.mark.row("26-V7")
@pytest.mark.row("26-X1")
@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("a text", [{"type": "text", "text": "a text"}]),
        (None, [{"type": "text", "text": "Show the board: done"}]),
        ({"a": 1}, [{"type": "text", "text": '{"a":1}'}]),
        (Structured({"a": 1}), [{"type": "text", "text": '{"a":1}'}]),
        (Structured({"a": 1}, ""), [{"type": "text", "text": ""}, {"type": "text", "text": '{"a":1}'}]),
        (CallToolResult(structured_content={"a": 1}), [{"type": "text", "text": '{"a":1}'}]),
        (CallToolResult.error("broken"), [{"type": "text", "text": "broken"}]),
    ],
)
async def test_the_result_of_a_tool_with_an_app_always_has_a_text(value: Any, content: list[Any]) -> None:
    server, board = board_server()
    server.tool("show", title="Show the board", app=board)(lambda: value)
    async with WireProbe(server) as probe:
        assert (await probe.call("show"))["content"] == content


@pytest.mark.row("26-X1")
async def test_a_picture_of_a_tool_with_an_app_is_followed_by_a_text() -> None:
    server, board = board_server()
    server.tool("show", app=board)(lambda: image(PIXEL, "image/png"))
    server.tool("plain")(lambda: image(PIXEL, "image/png"))
    async with WireProbe(server) as probe:
        shown = (await probe.call("show"))["content"]
        assert [each["type"] for each in shown] == ["image", "text"]
        assert shown[1]["text"] == "show: done"
        assert [each["type"] for each in (await probe.call("plain"))["content"]] == ["image"]


@pytest.mark.row("26-X1")
@pytest.mark.parametrize(
    ("settings", "is_shown"),
    [
        ({"mimeTypes": [APP_TYPE]}, True),
        ({"mimeTypes": ["text/html"]}, False),
        ({"mimeTypes": APP_TYPE}, False),
        ({"mimeTypes": [3, None]}, False),
        ({}, False),
        (None, False),
    ],
)
async def test_a_handler_can_see_whether_its_client_shows_apps(settings: Any, *, is_shown: bool) -> None:
    server = Server("boards")

    @server.tool
    async def shown(ctx: Context) -> bool:
        return shows_apps(ctx)

    capabilities = {} if settings is None else {"extensions": {APPS_ID: settings}}
    said = [{"type": "text", "text": str(is_shown).lower()}]
    async with server.started() as company, WireProbe(company, capabilities=capabilities) as probe:
        assert (await probe.call("shown"))["content"] == said
        assert (await StatelessClient(company, capabilities=capabilities).call("shown"))["content"] == said


def test_an_entry_of_a_process_pool_keeps_its_app() -> None:
    from greenroom.actors.catalogue_entries import tool_entry  # noqa: PLC0415 - for this test alone
    from greenroom.actors.pools.handler_spec import load_catalogue, spec_of  # noqa: PLC0415 - same

    entry = tool_entry("show", page, ToolOptions(app="ui://board", isolation="process"))
    loaded = load_catalogue(spec_of(entry)).current.tool("show")
    assert loaded is not None
    assert loaded.app == App("ui://board")
