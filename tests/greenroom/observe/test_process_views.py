"""The tree in pages, and one process: what is shown is true, bounded, without secrets, and runs no code of the program."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.observe import process_views
from greenroom.observe.observatory import BadQuery, Observatory
from greenroom.observe.view_models import PAGE_SIZE, ProcessView, TreeView
from greenroom.supervision import (
    DynamicSupervisor,
    GenServer,
    Ref,
    Supervisor,
    child,
    current_node,
    kill,
    monitor,
    register,
    start,
    start_child,
    stop,
    wait_down,
    whereis,
)
from greenroom.supervision.kernel import clock
from greenroom.supervision.supervisors.supervision_tree import Branch, tree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Untouchable:
    """An object whose code must not run for a view."""

    def __repr__(self) -> str:
        raise AssertionError("a view has run this code")

    __str__ = __repr__

    def __len__(self) -> int:
        raise AssertionError("a view has run this code")

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("a view has run this code")


ORDERS = list(range(1_000_000))


class Clerk(GenServer):
    """A server with secrets."""

    def __init__(self) -> None:
        self.password = "hunter2"
        self.desk = {"api_key": "hunter2", "name": "front"}
        self.words = ["serve", "--api-key", "hunter2", "--port", "80"]
        self.orders = ORDERS
        self.note = "\x1b[2J\u202e" + "n" * 5_000
        self.odd = Untouchable()

    async def wait_for_customer(self, password: str) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    def work(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def report_state(self) -> str:
        return "serving with Bearer hunter2-hunter2"


@asynccontextmanager
async def observed(**options: Any) -> AsyncGenerator[Observatory]:
    """An observatory of this node."""
    observatory = Observatory("shop", **options)
    observatory.start()
    try:
        yield observatory
    finally:
        observatory.stop()


async def tree_view(observatory: Observatory, **query: Any) -> TreeView:
    """The tree as it is now."""
    observatory.forget()
    view = await observatory.view("tree", **query)
    assert isinstance(view, TreeView)
    return view


async def process_view(observatory: Observatory, pid: object) -> ProcessView:
    """A process as it is now."""
    observatory.forget()
    view = await observatory.view("process", pid=str(pid))
    assert isinstance(view, ProcessView)
    return view


def flat(branch: Branch, depth: int = 0) -> list[tuple[int, str, str]]:
    """A drawing as rows."""
    own = [(depth, str(branch.pid or ""), "" if branch.id is None else str(branch.id))]
    return own + [row for each in branch.children for row in flat(each, depth + 1)]


async def test_the_tree_has_the_rows_of_the_drawing() -> None:
    inner = child(Supervisor, [child(Clerk).but(id="b"), child(Clerk).but(id="c")], strategy="rest_for_one")
    await start(Supervisor, [child(Clerk).but(id="a"), inner.but(id="inner"), child(Clerk).but(id="d")])
    async with observed() as observatory:
        view = await tree_view(observatory)
        drawn = [row for each in tree().children for row in flat(each)]
        assert [(row.depth, row.pid, row.id) for row in view.rows] == drawn
        assert (view.total, view.matching, view.pages) == (6, 6, 1)
        supervisor = next(row for row in view.rows if row.id == "inner")
        assert (supervisor.strategy, supervisor.children, supervisor.restart) == ("rest_for_one", 2, "permanent")


async def test_many_children_are_shown_by_some_and_all_of_them_from_their_parent_down() -> None:
    crowd = await start(DynamicSupervisor)
    for _ in range(450):
        await start_child(crowd, child(Clerk).but(restart="temporary"))
    async with observed() as observatory:
        view = await tree_view(observatory)
        assert len(view.rows) == 1 + process_views.MOST_CHILDREN
        assert (view.rows[0].children, view.rows[0].hidden, view.total) == (450, 430, 451)
        pages = [await tree_view(observatory, pid=str(crowd.pid), page=page) for page in range(3)]
        assert [len(each.rows) for each in pages] == [PAGE_SIZE, PAGE_SIZE, 51]
        pids = [row.pid for each in pages for row in each.rows]
        assert len(set(pids)) == 451
        assert [each.label for each in pages[2].ancestors] == ["DynamicSupervisor"]
        assert (await tree_view(observatory, page=7)).rows == []


async def test_a_filter_leaves_what_matches_and_what_is_above() -> None:
    await start(
        Supervisor,
        [
            child(Supervisor, [child(Clerk).but(id="Anna"), child(Clerk).but(id="ben")]).but(id="shop"),
            child(Clerk).but(id="carl"),
        ],
    )
    async with observed() as observatory:
        view = await tree_view(observatory, text="anna")
        assert [(row.depth, row.id) for row in view.rows] == [(0, ""), (1, "shop"), (2, "Anna")]
        assert (await tree_view(observatory, text="nobody")).rows == []
        assert len((await tree_view(observatory, text="clerk")).rows) == 5


async def test_a_filter_counts_all_that_matches_and_shows_a_page_of_it() -> None:
    inner = [child(Clerk).but(id=f"{letter}{number}") for number in range(110) for letter in "ab"]
    halls = [child(Supervisor, inner).but(id=f"hall{number}") for number in range(3)]
    await start(Supervisor, [child(Clerk).but(id="a first"), *halls, child(Clerk).but(id="last")])
    async with observed() as observatory:
        pages = [await tree_view(observatory, text="a", page=page) for page in range(3)]
        every = [row for page in pages for row in page.rows]
        expected = [(0, ""), (1, "a first")]
        for number in range(3):
            expected += [(1, f"hall{number}"), *((2, f"a{each}") for each in range(110))]
        expected.append((1, "last"))
        assert [(row.depth, row.id) for row in every] == expected
        assert {page.matching for page in pages} == {len(expected)}
        assert [len(page.rows) for page in pages] == [PAGE_SIZE, len(expected) - PAGE_SIZE, 0]


async def test_one_walk_at_a_time_however_many_viewers_look(monkeypatch: pytest.MonkeyPatch) -> None:
    walks, most = [0], [0]
    plain = process_views.ProcessIndex.page

    async def page(self: Any, query: Any) -> Any:
        walks[0] += 1
        most[0] = max(most[0], walks[0])
        found = await plain(self, query)
        await asyncio.sleep(0.01)
        walks[0] -= 1
        return found

    monkeypatch.setattr(process_views.ProcessIndex, "page", page)
    await start(Supervisor, [child(Clerk).but(id="a")])
    async with observed() as observatory:
        views = await asyncio.gather(*(observatory.view("tree", text=f"a{number}") for number in range(20)))
    assert (len(views), most[0]) == (20, 1)


async def test_a_restart_is_seen_in_the_tree() -> None:
    top = await start(Supervisor, [child(Clerk).but(id="a", name="clerk")])
    async with observed() as observatory:
        before = (await tree_view(observatory)).rows[1]
        assert (before.restarts, before.restarted) == (0, None)
        kill(whereis("clerk"))
        await asyncio.sleep(0.5)
        row = (await tree_view(observatory)).rows[1]
        assert (row.restarts, row.restarted) == (1, 0.5)
        assert row.pid != before.pid
        await Ref[Any](top).call(Supervisor.terminate_child, "a")
        row = (await tree_view(observatory)).rows[1]
        assert (row.pid, row.state) == ("", "undefined")


async def test_a_process_that_ended_since_the_walk_has_no_row() -> None:
    """Views of the same second share one walk over the processes."""
    await start(Supervisor, [child(Clerk).but(id="a", name="clerk", restart="temporary"), child(Clerk).but(id="b")])
    async with observed() as observatory:
        assert len((await tree_view(observatory)).rows) == 3
        clerk = whereis("clerk")
        kill(clerk)
        await wait_down(clerk)
        view = await observatory.view("tree", text="clerk")
        assert isinstance(view, TreeView)
        assert [row.id for row in view.rows] == ["", "b"]


async def test_a_process_is_shown_without_its_secrets_and_without_running_its_code() -> None:
    clerk = await start(Clerk)
    register("front desk", clerk.pid)
    watcher = await start(Clerk)
    process = current_node().process(clerk.pid)
    assert process is not None
    waiting = asyncio.ensure_future(clerk.call(Clerk.wait_for_customer, "hunter2"))
    await asyncio.sleep(0)
    clerk.cast(Clerk.work, "Bearer hunter2-hunter2", Untouchable(), password="hunter2")
    clerk.send({"note": "swordfish"})
    async with observed(acts=True) as observatory:
        view = await process_view(observatory, clerk.pid)
        assert view.row is not None
        assert (view.names, view.row.mailbox, view.row.activity) == (["front desk"], 2, "working")
        fields = {each.name: each.value for each in view.state}
        assert fields["password"] == "<hidden>"
        assert fields["words"] == "['serve', '--api-key', <hidden>, '--port', '80']"
        assert fields["desk"] == "{'api_key': <hidden>, 'name': 'front'}"
        assert fields["orders"].endswith("… 1000000 in all]")
        assert fields["odd"] == "<Untouchable>"
        assert len(fields["note"]) < 400
        assert "wait_for_customer" in view.stack
        first, second = view.mailbox
        assert first.text.startswith("cast work(<str of 22>, <Untouchable>")
        assert second.text == "message <dict of 1>"
        assert view.report == "serving with <hidden>"
        assert view.acts == ["kill"]
        text = repr(view)
        assert "hunter2" not in text
        assert "swordfish" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    waiting.cancel()
    assert watcher.pid is not None


class Watcher(GenServer):
    """Watches another process, and links to none."""

    def init(self) -> None:
        monitor("watched")


async def test_links_and_monitors_lead_both_ways() -> None:
    await start(Supervisor, [child(Clerk).but(id="a", name="watched"), child(Watcher).but(id="w", name="watcher")])
    async with observed() as observatory:
        view = await process_view(observatory, whereis("watched"))
        assert [each.label for each in view.links] == ["Supervisor"]
        assert [each.label for each in view.monitors] == ["Watcher"]
        assert [each.label for each in view.ancestors] == ["Supervisor"]
        watcher = await process_view(observatory, whereis("watcher"))
        assert [each.pid for each in watcher.watching] == [str(whereis("watched"))]
        top = await process_view(observatory, view.ancestors[0].pid)
        assert top.supervisor is not None
        assert (top.supervisor.strategy, top.supervisor.left, top.supervisor.children) == ("one_for_one", 1, 2)
        assert [each.label for each in top.children] == ["Clerk", "Watcher"]


async def test_a_process_that_has_crashed_shows_why() -> None:
    class Faulty(GenServer):
        def fall(self) -> None:
            raise KeyError("hunter2 is no secret here")

    await start(Supervisor, [child(Faulty).but(id="a", name="faulty")], intensity=3)
    pid = whereis("faulty")
    async with observed() as observatory:
        Ref[Any]("faulty").cast(Faulty.fall)
        await asyncio.sleep(0.1)
        gone = await process_view(observatory, pid)
        assert gone.row is None
        assert [each.pid for each in gone.crashes] == [str(pid)]
        assert "KeyError" in gone.crashes[0].reason
        successor = await process_view(observatory, whereis("faulty"))
        assert [each.pid for each in successor.crashes] == [str(pid)]


@pytest.mark.parametrize(
    "pid",
    ["", "<node.999>", "<other.1>", "node", "<node.-1>", "<node.1e3>", "<node." + "9" * 5_000 + ">", "<node.\u0661>"],
)
async def test_a_pid_that_is_none_shows_no_process(pid: str) -> None:
    await start(Clerk)
    async with observed() as observatory:
        assert (await process_view(observatory, pid)).row is None
        assert (await tree_view(observatory, pid=pid)).rows == [] or not pid


@pytest.mark.parametrize(
    ("name", "query"),
    [("nothing", {}), ("tree", {"depth": 3}), ("tree", {"page": "many"}), ("call", {"call": "x"}), ("__init__", {})],
)
async def test_a_query_without_a_meaning_is_refused(name: str, query: dict[str, Any]) -> None:
    async with observed() as observatory:
        with pytest.raises(BadQuery):
            await observatory.view(name, **query)


async def test_a_walk_gives_way_and_ends_while_processes_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock finds the slice used up, so that the walk gives way as often as it can."""
    ticks = count()
    monkeypatch.setattr(clock, "real_seconds", lambda: next(ticks) * 1.0)
    crowd = await start(DynamicSupervisor)
    for _ in range(60):
        await start_child(crowd, child(Clerk).but(restart="temporary"))

    async def churn() -> None:
        while True:
            found = await start_child(crowd, child(Clerk).but(restart="temporary"))
            await asyncio.sleep(0.001)
            await stop(found)

    churning = asyncio.ensure_future(churn())
    async with observed() as observatory:
        began = asyncio.get_running_loop().time()
        view = await tree_view(observatory, pid=str(crowd.pid))
        assert asyncio.get_running_loop().time() - began >= 10 * process_views.PAUSE_SECONDS
        assert 60 <= len(view.rows) <= 70
        assert len((await tree_view(observatory, text="clerk")).rows) >= 61
    churning.cancel()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=400) | st.binary(max_size=50),
    lambda inner: (
        st.lists(inner, max_size=10) | st.dictionaries(st.text(max_size=5), inner, max_size=10) | st.tuples(inner)
    ),
    max_leaves=50,
)


@given(VALUES, st.text(max_size=20))
def test_any_value_is_a_short_text(value: Any, name: str) -> None:
    text = process_views.value_text(name, value)
    assert len(text) < 6_000
    assert text.isprintable() or "\n" not in text


@given(st.text(max_size=2_000))
def test_any_name_is_one_line(name: str) -> None:
    text = process_views.text_of(name)
    assert len(text) <= 201 * 10
    assert "\n" not in text
