"""The observer's pages without a browser: hostile texts stay texts, pages are well-formed, everything that they lead to is there, and acts need a right."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import jinja2
import pytest

from greenroom.errors import ConfigError
from greenroom.observe.observer_pages import ACTS, MOST_STREAMS
from greenroom.observe.page_templates import FOLDER, link
from greenroom.observe.view_models import (
    PAGE_SIZE,
    VIEW_TYPES,
    NowView,
    ProcessView,
    ToolsView,
    TreeView,
    View,
    ViewQuery,
)
from greenroom.observe.view_rows import ProcessRef, TreeRow

from .page_checks import MARK, FakeProgram, HostileValues, PageReader, Site

VIEWS = sorted(VIEW_TYPES)
QUERIES = {"tools": "?tool={}", "crashes": "?crash={}", "faults": "?kind={}&pid=x", "calls": "?ended=1&text={}"}


def hostile_site(seed: int = 1, **rights: bool) -> Site:
    values = HostileValues(seed)
    return Site(FakeProgram({name: values.view(name) for name in VIEWS}), **rights)


def path_of(name: str, value: str = "x") -> str:
    return link(name) + QUERIES.get(name, "").format(quote(value, safe=""))


async def test_hostile_texts_stay_texts_on_each_page() -> None:
    for may in (True, False):
        site = hostile_site(may_act=may, may_inject=may)
        tool = getattr(site.program.views["tools"], "rows", [])[0].name
        for name in VIEWS:
            status, html = await site.get(path_of(name, tool if name == "tools" else f'"><{MARK}>'))
            read = PageReader(html)
            assert (name, status, read.wrong) == (name, 200, [])
            assert any(MARK in text for text in read.texts), f"{name} shows none of the hostile texts"
            assert not [text for text in read.texts if " 49{" in text], f"{name} evaluates a text"


async def test_no_template_uses_a_field_that_a_view_does_not_have() -> None:
    site = hostile_site(2)
    assert site.pages.templates is not None
    site.pages.templates.environment.undefined = jinja2.StrictUndefined
    for views in (site.program.views, FakeProgram().views):
        site.program.views = views
        for name in VIEWS:
            status, html = await site.get(path_of(name))
            assert (name, status, PageReader(html).wrong) == (name, 200, [])


async def test_every_link_form_and_file_of_a_page_is_there() -> None:
    site = hostile_site(3)
    rules = {(method, rule.rule) for rule in site.app.url_map.iter_rules() for method in rule.methods or ()}
    outside = ("POST", "/observe/sign-out")  # the listener's own
    found: set[str] = set()
    for name in VIEWS:
        read = PageReader((await site.get(path_of(name)))[1])
        assert link("tree") in read.links, name
        found.update(read.links, read.files)
        for method, action in read.forms:
            assert (method.upper(), urlsplit(action).path) in {*rules, outside} or method == "get", (name, action)
    for each in {address.partition("?")[0]: address for address in found if not address.startswith("#")}.values():
        assert (await site.client.get(each)).status_code == 200, each[:200]


async def test_a_stream_sends_the_fragments_of_its_page() -> None:
    site = hostile_site(4)
    for name in VIEWS:
        _, html = await site.get(path_of(name))
        regions = set(PageReader(html).regions)
        assert {"nav", "facts", "said"} < regions
        sent: dict[str, str] = {}
        async with site.stream(link(f"live/{name}")) as events:
            while sent.keys() != regions:
                event, data = await events.next()
                assert event in regions, (name, event)
                sent[event] = data
        for data in sent.values():
            assert PageReader(data).wrong == [], name


async def test_who_may_only_look_sees_nothing_to_press() -> None:
    site = hostile_site(6, may_act=False, may_inject=False)
    for name in VIEWS:
        read = PageReader((await site.get(path_of(name)))[1])
        assert not [each for each in read.links if each.startswith(link("act"))], name
        assert {action for method, action in read.forms if method == "post"} <= {link("sign-out")}, name


async def test_a_stream_sends_what_has_changed_and_nothing_else() -> None:
    site = Site(FakeProgram())
    view = site.program.views["tree"]
    assert isinstance(view, TreeView)
    async with site.stream(link("live/tree")) as events:
        first = [await events.next() for _ in range(4)]
        assert sorted(name for name, _ in first) == ["facts", "nav", "said", "tree"]
        view.rows = [TreeRow(depth=0, pid="<a.7>", label="boom", kind="X", restarted=1.0)]
        name, data = await events.next()
        assert name == "tree"
        assert "restarted 1 s ago" in data


async def test_viewers_with_the_same_rights_share_what_is_rendered() -> None:
    site = Site(FakeProgram())
    async with site.stream(link("live/pools")) as one, site.stream(link("live/pools")) as two:
        assert await one.next() == await two.next()
        assert [name for name, _ in site.program.asked].count("pools") == 1


async def test_a_stream_ends_when_its_viewer_is_signed_out() -> None:
    site = Site(FakeProgram())
    async with site.stream(link("live/now")) as events:
        await events.next()
        site.access.sign_out(site.viewer)
        while (await events.next())[0] != "over":
            pass
    assert not site.pages.streams


async def test_open_streams_are_bounded() -> None:
    site = Site(FakeProgram())
    site.pages.streams["bob"] = MOST_STREAMS
    assert (await site.get(link("live/now")))[0] == 503
    assert (await site.get(link("now")))[0] == 200


async def test_one_principal_has_a_share_of_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(FakeProgram())
    site.pages.streams["ada"] = MOST_STREAMS // 2
    async with site.stream(link("live/now")) as events:  # all viewers are one person
        await events.next()
    monkeypatch.setattr(type(site.access), "has_principals", True)
    assert (await site.get(link("live/now")))[0] == 503
    del site.pages.streams["ada"]
    site.pages.streams["bob"] = MOST_STREAMS // 2
    async with site.stream(link("live/now")) as events:
        await events.next()
        assert site.pages.streams["ada"] == 1
    assert dict(site.pages.streams) == {"bob": MOST_STREAMS // 2}


async def test_a_stream_that_is_only_asked_about_is_not_opened() -> None:
    site = Site(FakeProgram())
    response = await site.client.head(link("live/now"))
    assert (response.status_code, response.mimetype) == (200, "text/event-stream")
    assert not site.pages.streams
    assert not site.program.asked


async def test_a_text_with_line_ends_begins_no_event_of_its_own() -> None:
    forged = "".join(f"x{end}{end}event: over{end}data: y" for end in ("\r", "\n", "\r\n"))
    view = ProcessView(at=1.0, program="p", pid="<a.1>", stack=forged)
    view.row = TreeRow(depth=0, pid="<a.1>", label="boom", kind="X")
    site = Site(FakeProgram({"process": view}))
    async with site.stream(link("live/process", pid="<a.1>")) as events:
        sent = dict([await events.next() for _ in range(5)])
    assert sent.keys() == {"nav", "facts", "said", "acts", "process"}
    assert "data: y" in sent["process"]
    assert "\r" not in "".join(sent.values())  # a browser ends a line there as well


async def test_an_act_is_confirmed_and_done_as_the_viewer() -> None:
    site = Site(FakeProgram())
    for act in ACTS:
        status, html = await site.get(link("act", act=act, target="<a.1>", worker="2", kind="kill"))
        assert status == 200
        assert ("post", link("act")) in PageReader(html).forms
        assert site.program.acts == []
        status, html = await site.post(link("act"), act=act, target="<a.1>", worker="2", kind="kill")
        assert (status, PageReader(html).wrong) == (200, [])
        assert site.program.acts == [(act, "<a.1>", "ada", {"worker": "2", "kind": "kill"})]
        assert (await site.post(link("act"), act=act, target="nothing"))[0] == 409
        site.program.acts.clear()


async def test_the_two_buttons_of_a_confirmation_say_different_things() -> None:
    site = Site(FakeProgram())
    for act in ACTS:
        texts = PageReader((await site.get(link("act", act=act, target="x")))[1]).texts
        said = [each.strip() for each in texts if each.strip() in ("Cancel", "Back")]
        assert len(said) == 1, act


@pytest.mark.parametrize(
    ("failed", "said"), [(0.0, "Nothing needs your attention"), (0.3, "30 % of the calls of the last minute failed")]
)
async def test_calls_that_fail_need_attention(failed: float, said: str) -> None:
    now = NowView(at=1.0, program="p", calls_per_second=1.0, failed_per_second=failed)
    texts = PageReader((await Site(FakeProgram({"now": now})).get(path_of("now")))[1]).texts
    found = {each.strip() for each in texts}
    assert {"Nothing needs your attention", "30 % of the calls of the last minute failed"} & found == {said}


@pytest.mark.parametrize(("state", "act"), [("serving", "drain"), ("drained", "undrain"), ("draining", "")])
async def test_the_page_offers_what_ends_the_present_state(state: Any, act: str) -> None:
    site = Site(FakeProgram({"now": NowView(at=1.0, program="p", state=state)}))
    read = PageReader((await site.get(path_of("now")))[1])
    offered = [parse_qs(urlsplit(each).query)["act"] for each in read.links if each.startswith(link("act"))]
    assert offered == ([[act]] if act else [])


async def test_no_act_without_the_right() -> None:
    site = hostile_site(5, may_act=False, may_inject=False)
    for act in (*ACTS, "try"):
        assert (await site.get(link("act", act=act, target="x")))[0] in (403, 404)
        path = link("try") if act == "try" else link("act")
        assert (await site.post(path, act=act, target="x", tool="x"))[0] == 403
        assert site.program.acts == []


async def test_faults_are_a_right_of_their_own() -> None:
    site = Site(FakeProgram(), may_act=True, may_inject=False)
    assert (await site.post(link("act"), act="inject", target="x"))[0] == 403
    assert (await site.post(link("act"), act="kill", target="x"))[0] == 200
    site = Site(FakeProgram(), may_act=False, may_inject=True)
    assert (await site.post(link("act"), act="inject", target="x"))[0] == 200
    assert (await site.post(link("act"), act="kill", target="x"))[0] == 403


async def test_a_tool_is_tried_with_what_was_filled_in() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}
    view = ToolsView(at=1.0, program="p", schema=schema, can_try=True)
    site = Site(FakeProgram({"tools": view}))
    form = {"tool": "add", "program": "p", "argument.a": "2", "argument.b": ""}
    assert (await site.post(link("try"), **form))[0] == 200
    assert site.program.acts == [("try", "add", "ada", {"program": "p", "worker": "", "arguments": {"a": 2}})]
    status, html = await site.post(link("try"), **{**form, "argument.a": f"<{MARK}>"})
    assert (status, PageReader(html).wrong) == (409, [])
    view.can_try = False
    assert (await site.post(link("try"), **form))[0] == 404
    assert len(site.program.acts) == 1


@pytest.mark.parametrize(
    "path", ["nothing", "now", "tree/", "../tree", "process.html", "live/nothing", "act?act=nothing"]
)
async def test_an_unknown_address_is_refused(path: str) -> None:
    site = Site(FakeProgram())
    status, html = await site.get(link("now") + path)
    assert status == 404
    assert PageReader(html).wrong == []


async def test_an_address_with_a_wrong_value_is_refused() -> None:
    site = Site(FakeProgram())
    for query in ("page=x", "call=1.5", "ended=maybe", "page=" + "9" * 400):
        assert (await site.get(f"{link('calls')}?{query}"))[0] == 400, query


async def test_a_query_reaches_the_view_and_the_links_keep_it() -> None:
    site = Site(FakeProgram())
    view = site.program.views["tree"]
    assert isinstance(view, TreeView)
    view.pages, view.page, view.total, view.matching = 3, 1, 500, 450
    view.rows = [TreeRow(depth=0, pid=f"<a.{number}>", label="x", kind="X") for number in range(PAGE_SIZE)]
    status, html = await site.get(link("tree", text="a&b=<c>", page=1))
    assert status == 200
    assert site.program.asked[-1] == ("tree", ViewQuery(text="a&b=<c>", page=1))
    read = PageReader(html)
    assert link("tree", text="a&b=<c>", page=2) in read.links
    assert link("tree", text="a&b=<c>") in read.links
    assert len([each for each in read.ids if each.startswith("row:")]) == PAGE_SIZE


async def test_the_recording_is_a_file() -> None:
    response = await Site(FakeProgram()).client.get(link("wire.jsonl"))
    assert response.headers["content-disposition"].startswith("attachment")
    assert await response.get_data() == b'{"a":1}\n{"b":2}\n'


async def test_the_graph_of_a_process_names_each_neighbour_once() -> None:
    refs = [ProcessRef(pid=f"<a.{number}>", label=f"<{MARK}>") for number in range(60)]
    row = TreeRow(depth=0, pid="<a.99>", label="me", kind="X")
    view = ProcessView(at=1.0, program="p", pid="<a.99>", row=row, links=refs, children=refs[:3], ancestors=refs[3:6])
    status, html = await Site(FakeProgram({"process": view})).get(link("process", pid="<a.99>"))
    assert (status, PageReader(html).wrong) == (200, [])


async def test_files_are_found_and_folders_are_not() -> None:
    site = Site(FakeProgram())
    files: list[Any] = [path for path in (FOLDER / "static").rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert (await site.client.get(f"/observe/static/{path.relative_to(FOLDER / 'static')}")).status_code == 200
    for path in ("", "vendor", "../page_templates.py", "..%2fpage_templates.py", "/etc/passwd", "%2e%2e/__init__.py"):
        assert (await site.client.get(f"/observe/static/{path}")).status_code == 404, path


async def test_a_view_that_cannot_be_made_is_said_and_its_stream_goes_on() -> None:
    class Stopped(FakeProgram):
        is_stopped = True

        async def view(self, name: str, query: ViewQuery) -> View:
            if self.is_stopped:
                raise ConfigError("the program is not observed")
            return await super().view(name, query)

    program = Stopped()
    site = Site(program)
    status, html = await site.get(link("tree"))
    assert (status, PageReader(html).wrong) == (503, [])
    assert "the program is not observed" in html
    async with site.stream(link("live/tree")) as events:
        program.is_stopped = False
        assert (await events.next())[0] in ("nav", "facts", "said", "tree")
