"""Lists from the snapshot: sorted, in pages, fitted to the revision, encoded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.catalogue import reached_entries
from greenroom.actors.catalogue_entries import prompt_entry, resource_entry, template_entry, tool_entry
from greenroom.actors.handler_options import PromptOptions, ResourceOptions, TemplateOptions, ToolOptions
from greenroom.actors.settings import Settings
from greenroom.actors.worker import METHOD_ANSWERS, answer_inline, handler_timeout
from greenroom.actors.worker_interfaces import SessionFacts
from greenroom.protocol.errors import McpError
from greenroom.protocol.jsonrpc import JsonRpcRequest, decode
from greenroom.protocol.versions import LATEST, SUPPORTED
from greenroom.transports.interfaces import Peer

from .registry_services import RegistryServices

if TYPE_CHECKING:
    from collections.abc import Iterable


async def hello(name: str) -> str:
    return name


def page(services: RegistryServices, method: str, cursor: str | None = None, version: str = LATEST) -> dict[str, Any]:
    params = {} if cursor is None else {"cursor": cursor}
    body = answer_inline(JsonRpcRequest(1, method, params), SessionFacts("s", version, Peer("test"), {}, {}), services)
    assert body is not None
    answer: dict[str, Any] = decode(body)
    result: dict[str, Any] = answer["result"]
    return result


def with_tools(names: Iterable[str], size: int = 50) -> RegistryServices:
    services = RegistryServices(settings=Settings(page_size=size))
    services.registry.declare(*(tool_entry(name, hello) for name in names))
    return services


def walk(services: RegistryServices) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        result = page(services, "tools/list", cursor)
        pages.append([tool["name"] for tool in result["tools"]])
        cursor = result.get("nextCursor")
        if cursor is None:
            return pages


@pytest.mark.row("WC-20")
def test_a_list_comes_in_pages_sorted_by_name() -> None:
    pages = walk(with_tools(f"t{n:03}" for n in reversed(range(120))))
    assert [len(each) for each in pages] == [50, 50, 20]
    assert [name for each in pages for name in each] == [f"t{n:03}" for n in range(120)]


@pytest.mark.row("WC-20")
def test_there_is_a_next_cursor_only_where_more_follows() -> None:
    assert "nextCursor" not in page(with_tools(f"t{n:03}" for n in range(50)), "tools/list")
    assert "nextCursor" in page(with_tools(f"t{n:03}" for n in range(51)), "tools/list")
    assert page(RegistryServices(), "tools/list") == {"tools": []}


@pytest.mark.row("WC-20")
def test_a_cursor_that_was_never_given_is_an_error() -> None:
    services = with_tools(f"t{n:03}" for n in range(60))
    cursor = page(services, "tools/list")["nextCursor"]
    for bad in ("nonsense", cursor + "x", "é"):
        with pytest.raises(McpError) as refused:
            page(services, "tools/list", bad)
        assert refused.value.code == -32602
    with pytest.raises(McpError):
        page(services, "prompts/list", cursor)


@pytest.mark.row("WC-20")
def test_changes_between_two_pages_shift_no_entry() -> None:
    services = with_tools((f"t{n:03}" for n in range(100)), size=10)
    first = page(services, "tools/list")
    services.catalogue_ref.write(lambda catalogue: catalogue.drop("tool", "t003").put(tool_entry("t0055", hello)))
    second = page(services, "tools/list", first["nextCursor"])
    assert [tool["name"] for tool in second["tools"]] == [f"t{n:03}" for n in range(10, 20)]


@given(st.sets(st.text("abcxyz_.", min_size=1, max_size=5), max_size=40), st.integers(1, 10))
def test_all_pages_together_are_the_list_once(names: set[str], size: int) -> None:
    pages = walk(with_tools(names, size))
    assert [name for each in pages for name in each] == sorted(names)
    assert all(len(each) == size for each in pages[:-1])


@pytest.mark.row("RG-04", "WC-20")
def test_a_page_is_made_once_for_each_snapshot_and_revision() -> None:
    services = with_tools(f"t{n:03}" for n in range(120))
    facts = SessionFacts("s", LATEST, Peer("test"), {}, {})
    answer: Any = METHOD_ANSWERS["tools/list"][1]
    catalogue = services.catalogue_ref.current
    assert answer(catalogue, {}, services.settings, facts) is answer(catalogue, {}, services.settings, facts)
    walk(services)
    pages: Any = catalogue.pages
    (whole,) = (kept for key, kept in pages.items() if key[0] == "tool")
    assert sorted(whole.pages) == [0, 50, 100]
    services.registry.declare(tool_entry("new", hello))
    assert services.catalogue_ref.current.pages == {}


@pytest.mark.row("RG-08", "RG-09", "RG-10", "RG-11", "RG-14")
@pytest.mark.parametrize("version", SUPPORTED)
def test_every_list_is_fitted_to_the_revision(version: str) -> None:
    services = RegistryServices()
    icons = [{"src": "data:,"}]
    services.registry.declare(
        tool_entry("t", hello, ToolOptions(title="T", icons=icons, output_schema={"type": "object"})),
        resource_entry("r", lambda: "x", ResourceOptions(uri="a://r", title="T", icons=icons)),
        template_entry("rt", hello, TemplateOptions(uri_template="a://{name}", title="T", icons=icons)),
        prompt_entry("p", hello, PromptOptions(title="T", icons=icons)),
    )
    for method, member in (
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ):
        (one,) = page(services, method, version=version)[member]
        assert ("title" in one) == (version >= "2025-06-18")
        assert ("icons" in one) == (version >= "2025-11-25")
    (tool,) = page(services, "tools/list", version=version)["tools"]
    assert ("outputSchema" in tool) == (version >= "2025-06-18")


def test_methods_with_user_code_are_not_answered_inline() -> None:
    facts = SessionFacts("s", LATEST, Peer("test"), {}, {})
    for method in ("tools/call", "resources/read", "prompts/get", "completion/complete", "ping"):
        assert answer_inline(JsonRpcRequest(1, method, {}), facts, RegistryServices()) is None


@pytest.mark.row("TF-21")
def test_a_handler_may_have_its_own_deadline() -> None:
    services = RegistryServices()
    services.registry.declare(
        tool_entry("t", hello, ToolOptions(timeout=300)),
        tool_entry("u", hello),
        prompt_entry("p", hello, PromptOptions(timeout=5)),
        resource_entry("r", lambda: "x", ResourceOptions(uri="a://r", timeout=2)),
        template_entry("rt", hello, TemplateOptions(uri_template="b://{name}", timeout=3)),
    )
    asked: list[tuple[str, dict[str, Any], float | None]] = [
        ("tools/call", {"name": "t"}, 300),
        ("tools/call", {"name": "u"}, None),
        ("tools/call", {"name": "unknown"}, None),
        ("prompts/get", {"name": "p"}, 5),
        ("resources/read", {"uri": "a://r"}, 2),
        ("resources/read", {"uri": "b://x"}, 3),
        ("resources/read", {"uri": "c://x"}, None),
        ("completion/complete", {}, None),
    ]
    for method, params, timeout in asked:
        found = reached_entries(method, params, services.catalogue_ref.current, Peer("http")) if params else ()
        assert handler_timeout(method, found) == timeout
