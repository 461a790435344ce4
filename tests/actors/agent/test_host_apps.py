"""Apps at a host: a tool's document, read strictly; what it may reach; and the calls that it makes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom import (
    App,
    AppCsp,
    AppView,
    Client,
    ClientSettings,
    ConfigError,
    Context,
    Host,
    Server,
    ToolReply,
    shows_apps,
)
from greenroom.actors.apps import APP_TYPE
from greenroom.actors.consent.consent import Consent
from greenroom.actors.consent.rules import ConsentDenied, Permissions, Rule
from greenroom.actors.federation.federation_errors import UnknownServer, UnknownTool
from greenroom.host import OutputLimit, OutputLimits
from greenroom.host_apps import AppRefused, read_view
from greenroom.protocol.content import Contents
from greenroom.protocol.extension_ids import APPS_ID

if TYPE_CHECKING:
    from greenroom.host_apps import HostedApp

PAGE = "<!doctype html><title>Scores</title>"
URI = "ui://games/board"


def games() -> Server:
    """A server with an app, and with tools for models, for apps, and for both."""
    server = Server("games")
    csp = AppCsp(
        connect_domains=["https://live.example.com", "wss://live.example.com"],
        resource_domains=["https://*.cdn.example"],
        frame_domains=["https://video.example"],
        base_uri_domains=["https://base.example"],
    )
    view = AppView(csp=csp, permissions=["camera", "clipboardWrite"], domain="games.example", prefers_border=False)
    board = server.app(URI, PAGE, view=view)

    @server.tool(app=board)
    async def scores(ctx: Context) -> str:
        return f"shown: {shows_apps(ctx)}"

    @server.tool(app=App(board.uri, visibility=["app"]))
    async def step(by: int = 1) -> int:
        return by

    @server.tool(app=App(board.uri, visibility=["model"]))
    async def bet() -> str:
        return "lost"

    @server.tool
    async def plain() -> str:
        return "plain"

    @server.resource("note://rules")
    async def rules() -> str:
        return "Take turns."

    return server


def sending(*contents: Contents, uri: str = URI) -> Server:
    """A server whose document is this."""
    server = Server("games")
    server.resource(uri, "board")(lambda: list(contents))

    @server.tool(meta={"ui": {"resourceUri": uri}})
    async def scores() -> str:
        return "none"

    return server


async def opened(host: Host, tool: str = "games:scores") -> HostedApp:
    app = await host.apps.open(tool)
    assert app is not None
    return app


@pytest.mark.row("26-X1")
async def test_a_tools_document_is_read_with_what_it_may_reach() -> None:
    async with Host({"games": games()}, apps=True) as host:
        app = await opened(host)
        assert (app.server, app.uri, app.html, list(app.left_out)) == ("games", URI, PAGE, [])
        assert app.policy.split("; ") == [
            "default-src 'none'",
            "script-src 'self' 'unsafe-inline' https://*.cdn.example",
            "style-src 'self' 'unsafe-inline' https://*.cdn.example",
            "img-src 'self' data: https://*.cdn.example",
            "font-src 'self' https://*.cdn.example",
            "media-src 'self' data: https://*.cdn.example",
            "connect-src https://live.example.com wss://live.example.com",
            "frame-src https://video.example",
            "base-uri https://base.example",
            "object-src 'none'",
            "form-action 'none'",
        ]
        assert app.allow == "camera; clipboard-write"
        assert (app.view.domain, app.view.prefers_border) == ("games.example", False)
        assert await host.apps.uri_of("games:scores") == URI
        assert PAGE not in repr(app)


@pytest.mark.row("26-X1")
async def test_a_document_that_declares_nothing_reaches_nothing() -> None:
    async with Host({"games": sending(Contents(URI, APP_TYPE, PAGE))}) as host:
        app = await opened(host)
        assert app.policy == (
            "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data:; font-src 'self'; media-src 'self' data:; connect-src 'none'; frame-src 'none'; "
            "base-uri 'self'; object-src 'none'; form-action 'none'"
        )
        assert (app.view, app.allow) == (AppView(), "")


@pytest.mark.row("26-X1")
async def test_a_tool_without_an_app_has_no_document() -> None:
    async with Host({"games": games()}) as host:
        assert await host.apps.open("games:plain") is None
        assert await host.apps.uri_of("games:plain") is None
        with pytest.raises(UnknownTool):
            await host.apps.open("games:chess")
        with pytest.raises(UnknownServer):
            await host.apps.read("chess", URI)


@pytest.mark.row("26-X1")
async def test_the_extension_is_declared_by_a_host_that_shows_apps_and_by_no_other() -> None:
    async with Host({"games": games()}, apps=True) as host, Host({"games": games()}) as other:
        assert await host.call("games:scores") == "shown: True"
        assert await other.call("games:scores") == "shown: False"


@pytest.mark.row("26-X1")
async def test_extensions_of_the_settings_stay_beside_the_apps() -> None:
    server = Server("games")

    @server.tool
    async def declared(ctx: Context) -> list[str]:
        return sorted(ctx.client_capabilities["extensions"])

    settings = ClientSettings(capabilities={"extensions": {"com.example/x": {}}})
    async with (
        Host({"games": server}, apps=True, settings=settings) as host,
        Client(server, settings=settings) as plain,
    ):
        assert {"com.example/x"} <= {*await plain.call("declared")} - {APPS_ID}
        assert {"com.example/x", APPS_ID} <= {*await host.call("games:declared")}


@pytest.mark.row("26-X1")
async def test_tools_for_apps_alone_are_kept_from_models() -> None:
    async with Host({"games": games()}) as host:
        assert [tool.name for tool in await host.tools()] == ["games:bet", "games:plain", "games:scores"]
        assert {tool.name for tool in await host.tools(for_apps=True)} == {
            *("games:bet", "games:plain", "games:scores", "games:step")
        }
        assert "games__step" not in {tool["name"] for tool in await host.to_anthropic()}
        assert await host.call("games:step", by=3) == 3


@pytest.mark.row("26-X1")
async def test_a_document_calls_tools_of_its_own_server_that_are_for_apps() -> None:
    other = Server("other")
    other.tool("step")(lambda: "of another server")
    async with Host({"games": games(), "other": other}) as host:
        app = await opened(host)
        assert (await app.call("step", {"by": 2})).text == "2"
        assert (await app.call("scores")).text == "shown: False"
        with pytest.raises(AppRefused, match=r"ui://games/board: its server keeps the tool bet from apps"):
            await app.call("bet")
        for foreign in ("other:step", "games:step", "none"):
            with pytest.raises(UnknownTool):
                await app.call(foreign)
        assert (await app.read_resource("note://rules")).text == "Take turns."


@pytest.mark.row("26-X1")
async def test_a_document_does_not_reach_another_server_by_an_alias() -> None:
    other = Server("other")
    other.tool("burn")(lambda: "burnt")
    aliases: dict[str | tuple[str, str], str] = {"other:burn": "games:burn"}
    async with Host({"games": games(), "other": other}, aliases=aliases) as host:
        app = await opened(host)
        assert await host.call("games:burn") == "burnt"
        with pytest.raises(AppRefused, match="keeps the tool burn from apps"):
            await app.call("burn")


@pytest.mark.row("26-X1")
async def test_a_documents_calls_need_consent() -> None:
    consent = Consent(Permissions([Rule("deny", "games:step"), Rule("allow", "*")]))
    async with Host({"games": games()}, consent=consent) as host:
        app = await opened(host)
        with pytest.raises(ConsentDenied):
            await app.call("step")
        assert (await app.call("scores")).text


@pytest.mark.row("26-X1")
@pytest.mark.parametrize(
    ("contents", "why"),
    [
        ([], "something else than this document"),
        ([Contents(URI, APP_TYPE, PAGE), Contents(URI, APP_TYPE, PAGE)], "something else than this document"),
        ([Contents("ui://games/other", APP_TYPE, PAGE)], "something else than this document"),
        ([Contents(URI, "text/html", PAGE)], "its type is text/html, and must be text/html;profile=mcp-app"),
        ([Contents(URI, "text/html\x1b[2J", PAGE)], r"its type is text/html\u001b[2j"),
        ([Contents(URI, APP_TYPE, blob=b"\xff")], "it is not UTF-8"),
    ],
)
async def test_what_is_no_document_of_an_app_is_refused(contents: list[Contents], why: str) -> None:
    async with Host({"games": sending(*contents)}) as host:
        with pytest.raises(AppRefused, match=re.escape(why)):
            await host.apps.open("games:scores")


@pytest.mark.row("26-X1")
@pytest.mark.parametrize("uri", ["https://games.example/board", "ui://a b", "note://x", "ui://"])
async def test_an_address_that_is_none_of_a_document_is_not_read(uri: str) -> None:
    server = Server("games")

    @server.tool(meta={"ui": {"resourceUri": uri}})
    async def scores() -> str:
        return "none"

    async with Host({"games": server}) as host:
        for ask in (host.apps.open, host.apps.uri_of):
            with pytest.raises(AppRefused, match="has a URI such as"):
                await ask("games:scores")


@pytest.mark.row("26-X1")
async def test_bytes_and_the_older_name_of_the_address_are_taken() -> None:
    server = Server("games")
    server.resource(URI, "board")(lambda: Contents(URI, "Text/HTML; profile=mcp-app", blob=PAGE.encode()))
    server.tool("scores", meta={"ui/resourceUri": URI})(lambda: "none")
    async with Host({"games": server}) as host:
        assert (await opened(host)).html == PAGE


@pytest.mark.row("26-X1")
async def test_what_is_invalid_in_a_declaration_is_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    ui: dict[str, Any] = {
        "csp": {
            "connectDomains": ["https://a.example; script-src *", "https://a.example", "https://a.example", 3],
            "resourceDomains": "https://b.example",
            "frameDomains": [f"https://{number}.example" for number in range(65)],
        },
        "permissions": {"camera": True, "microphone": {}, "usb": {}},
        "domain": "https://games.example",
        "prefersBorder": "yes",
    }
    async with Host({"games": sending(Contents(URI, APP_TYPE, PAGE, meta={"ui": ui}))}) as host:
        app = await opened(host)
    assert app.view.csp == AppCsp(
        connect_domains=("https://a.example",), frame_domains=tuple(f"https://{number}.example" for number in range(64))
    )
    assert (app.allow, app.view.domain, app.view.prefers_border) == ("microphone", None, None)
    assert list(app.left_out) == [
        "ui.permissions.camera must be an object, not True",
        "ui.domain must be the name of a host, not 'https://games.example'",
        "ui.prefersBorder must be true or false, not 'yes'",
        "ui.csp.connectDomains has values that are no origins, such as 'https://a.example; script-src *'",
        "ui.csp.resourceDomains must be a list of origins, not 'https://b.example'",
        "ui.csp.frameDomains has 65 origins, and 64 are taken",
    ]
    assert "ui://games/board of games declares what is left out: ui.prefersBorder must be true or false" in caplog.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(["https://a.example", "*"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["ui", "csp", "connectDomains", "frameDomains", "permissions", "camera", "domain"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)
ORIGIN = re.compile(r"https?://[A-Za-z0-9.*:-]+|wss?://[A-Za-z0-9.*:-]+")


@pytest.mark.row("26-X1")
@settings(max_examples=examples(300))
@given(JSON)
def test_no_declaration_raises_or_adds_a_directive(ui: Any) -> None:
    view, left_out = read_view({"ui": ui})
    for origins in (view.csp or AppCsp()).to_wire().values():
        assert all(ORIGIN.fullmatch(each) for each in origins)
    assert all(each.isprintable() and len(each) < 500 for each in left_out)


def test_the_error_of_a_document_shows_no_control_character() -> None:
    assert str(AppRefused("ui://a\x1b[2J\n" + "b" * 500, "no")) == f"ui://a\\u001b[2J {'b' * 189}…: no"


@pytest.mark.row("26-X1")
async def test_a_models_call_is_made_once_and_its_whole_reply_is_for_the_app() -> None:
    server = Server("games")
    calls: list[int] = []
    board = server.app(URI, PAGE)

    @server.tool(app=board)
    async def scores(rounds: int) -> list[int]:
        calls.append(rounds)
        return list(range(rounds))

    shown: list[tuple[str, Any]] = []

    def show(name: str, reply: ToolReply) -> None:
        shown.append((name, len(reply.content[0].text)))

    def call(rounds: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": "1", "name": "games__scores", "input": {"rounds": rounds}}

    async with Host({"games": server}, limits=OutputLimits(OutputLimit(tokens=100))) as host:
        result = await host.run(call(1000), on_reply=show)
        assert len(str(result["content"])) < shown[0][1] / 2  # the model gets a part of it
        assert (await opened(host, shown[0][0])).uri == URI
        refused = await host.run(call("x"), on_reply=show)
        assert refused["is_error"]

        def fails(name: str, reply: ToolReply) -> None:
            raise ConfigError(f"{name} cannot be shown")

        with pytest.raises(ConfigError, match="games:scores cannot be shown"):  # and it is no text for the model
            await host.run(call(1), on_reply=fails)
    assert calls == [1000, 1]
    assert [name for name, _ in shown] == ["games:scores"]
