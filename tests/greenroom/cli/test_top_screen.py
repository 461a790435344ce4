"""top: the views of a program on a screen of 80 columns and 24 lines, and what the keys do."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.cli.exit_codes import DENIED, UNREACHABLE
from greenroom.cli.inspect_connection import ProgramGone, ProgramRefused
from greenroom.cli.top_screen import LISTS, TopScreen
from greenroom.observe import view_models as views
from greenroom.observe import view_rows as rows

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from textual.pilot import Pilot

pytestmark = pytest.mark.greenroom(clock="real")

AT = 1_700_000_000.0
HOSTILE = "[bold red]b\x1b[2J\u202e[/] [link='x']"


def tree(text: str) -> views.TreeView:
    processes = [
        rows.TreeRow(depth=0, pid="<n.1>", label="root", kind="Supervisor", age=70.0),
        rows.TreeRow(
            depth=1, pid="<n.2>", label="session", kind="Session", activity="running", restarts=2, restarted=3.0
        ),
        rows.TreeRow(depth=1, pid="<n.3>", label=HOSTILE, kind="Worker", state="restarting", mailbox=7),
    ]
    return views.TreeView(at=AT, program="weather", rows=[each for each in processes if text in each.label])


@dataclass
class FakeProgram:
    """A program as `InspectConnection` shows it; the screen asks from a thread."""

    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    acted: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    acts: list[str] = field(default_factory=lambda: ["kill", "restart"])
    gone: threading.Event = field(default_factory=threading.Event)
    connected: int = 0
    may_act: bool = True

    def connect(self) -> FakeProgram:
        if self.gone.is_set():
            raise ProgramGone(UNREACHABLE, "no running program 'weather' can be inspected")
        self.connected += 1
        return self

    def close(self) -> None:
        """Nothing is open."""

    def view(self, name: str, **query: Any) -> views.View:
        if self.gone.is_set():
            raise ProgramGone(UNREACHABLE, "it has closed the connection")
        self.asked.append((name, query))
        match name:
            case "now":
                notice = rows.Notice(number=1, at=AT, kind="ProcessCrashed", level="error", text=HOSTILE, pid="<n.3>")
                curve = rows.Curve(name="calls", unit="calls/s", step=1.0, ends_at=AT, values=[0.0, 1.0, None, 8.0])
                return views.NowView(
                    at=AT, program="weather", process=7, refresh=60.0, notices=[notice], curves=[curve]
                )
            case "tree":
                return tree(query.get("text", ""))
            case "process":
                row = tree("").rows[1]
                state = [rows.Field(name="token", value="hidden")]
                return views.ProcessView(
                    at=AT, program="weather", pid=query["pid"], row=row, state=state, acts=self.acts
                )
            case "calls":
                call = rows.CallRow(
                    call=5,
                    side="server",
                    program="weather",
                    way="session",
                    method="tools/call",
                    name="slow",
                    seconds=1.5,
                )
                return views.CallsView(
                    at=AT,
                    program="weather",
                    rows=[call],
                    is_ended=bool(query.get("ended")),
                    pages=3,
                    page=query["page"],
                )
            case "call":
                one = rows.CallRow(
                    call=5, side="server", program="weather", way="session", method="tools/call", name="slow"
                )
                return views.CallView(
                    at=AT,
                    program="weather",
                    call=5,
                    row=one,
                    steps=[rows.CallStepRow(after=0.25, step="progress", text="half")],
                )
            case "upstreams":
                up = rows.UpstreamRow(
                    upstream="git", program="host", state="needs_sign_in", reason="no login", acts=["retry"], process=41
                )
                return views.UpstreamsView(at=AT, program="weather", rows=[up])
            case "tools":
                many = [
                    rows.ToolRow(program="w", side="server", method="tools/call", name=name, calls=calls)
                    for name, calls in (("b", 5), ("a", 90), ("c", 7))
                ]
                return views.ToolsView(at=AT, program="weather", rows=many)
            case _:
                return views.VIEW_TYPES[name](at=AT, program="weather")

    def act(self, act: str, target: str) -> views.ActOutcome:
        if not self.may_act:
            raise ProgramRefused(DENIED, 'this program allows no acts: run(…, inspect="acts")')
        self.acted.append((act, target))
        return views.ActOutcome(act=act, target=target, is_done=True, text=f"did {act} {target}")


class Seen:
    """A screen and its keys."""

    def __init__(self, app: TopScreen, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def text(self) -> str:
        lines = self.app.screen._compositor.render_strips()  # the one place that has the screen as text
        return "\n".join("".join(part.text for part in line).rstrip() for line in lines)

    @property
    def reversed_line(self) -> str:
        lines = self.app.screen._compositor.render_strips()[2:]
        return "".join(part.text for line in lines for part in line if part.style is not None and part.style.reverse)

    async def until(self, there: Callable[[str], bool]) -> str:
        while not there(self.text):
            await self.pilot.pause()
        return self.text

    async def see(self, text: str) -> str:
        return await self.until(lambda shown: text in shown)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)


@asynccontextmanager
async def screen(program: FakeProgram) -> AsyncGenerator[Seen]:
    app = TopScreen(program.connect, "weather")
    async with app.run_test(size=(80, 24)) as pilot:
        seen = Seen(app, pilot)
        await seen.see("weather (process 7)")
        yield seen


async def test_the_first_view_has_curves_and_what_happened_last_and_hostile_text_is_text() -> None:
    async with screen(FakeProgram()) as seen:
        text = await seen.until(lambda text: "▁▂·█" in text and "WHAT HAPPENED LAST" in text and "q quit" in text)
        assert "[bold red]b\\u001b[2J\\u202e[/] [link='x']" in text
        assert len(text.split("\n")) == 24


@pytest.mark.parametrize(("key", "name"), LISTS.items())
async def test_each_view_has_a_key_and_a_mark(key: str, name: str) -> None:
    program = FakeProgram()
    async with screen(program) as seen:
        await seen.press({"-": "minus"}.get(key, key))
        await seen.until(
            lambda text: text.split("\n")[1].partition("▸")[2].split(" ")[0] == {"questions": "asks"}.get(name, name)
        )
        while program.asked[-1][0] != name:
            await seen.pilot.pause()
        assert len(seen.text.split("\n")[1]) <= 80


async def test_the_tree_shows_states_as_words_and_enter_opens_a_process() -> None:
    async with screen(FakeProgram()) as seen:
        await seen.press("2")
        text = await seen.see("new 3.00 s")
        assert "restarting" in text
        assert "  session" in text
        await seen.press("down", "enter")
        text = await seen.see("token = hidden")
        assert "session <n.2>, a Session" in text
        assert "▸tree" in text
        await seen.press("escape")
        await seen.see("PROCESS")


async def test_the_chosen_row_is_reversed_and_stays_chosen_when_others_go() -> None:
    program = FakeProgram()
    async with screen(program) as seen:
        await seen.press("2")
        await seen.see("<n.3>")
        await seen.press("end", "slash", "b")
        await seen.until(lambda text: "<n.1>" not in text and "filter: b" in text)
        assert ("tree", {"page": 0, "text": "b"}) in program.asked
        assert "<n.3>" in seen.reversed_line
        await seen.press("escape")
        await seen.see("<n.1>")
        assert "<n.3>" in seen.reversed_line


async def test_a_column_sorts_the_rows_and_a_key_reverses_them() -> None:
    def names(text: str) -> list[str]:
        lines = text.split("\n")
        first = next(place for place, line in enumerate(lines) if line.startswith("NAME")) + 1
        return [line.split()[0] for line in lines[first : first + 3]]

    async with screen(FakeProgram()) as seen:
        await seen.press("4")
        assert names(await seen.see("90")) == ["b", "a", "c"]
        await seen.press("s")
        assert names(await seen.see("NAME▲")) == ["a", "b", "c"]
        await seen.press("s", "s", "S")
        assert names(await seen.see("CALLS▼")) == ["a", "c", "b"]


async def test_calls_have_a_timeline_pages_and_an_ended_list() -> None:
    program = FakeProgram()
    async with screen(program) as seen:
        await seen.press("3")
        await seen.see("page 1 of 3")
        await seen.press("right_square_bracket")
        await seen.see("page 2 of 3")
        await seen.press("left_square_bracket", "left_square_bracket")
        await seen.see("page 1 of 3")
        await seen.press("enter")
        await seen.see("progress  half")
        await seen.press("escape", "e")
        await seen.see("the calls that ended last")
        assert ("calls", {"page": 0, "ended": True}) in program.asked


async def test_an_upstream_is_shown_in_full() -> None:
    async with screen(FakeProgram()) as seen:
        await seen.press("6")
        assert "needs sign in" in await seen.see("no login")
        await seen.press("enter")
        assert "process 41" in await seen.see("why: no login")


async def test_an_act_needs_a_choice_and_a_y() -> None:
    program = FakeProgram()
    async with screen(program) as seen:
        await seen.press("2")
        await seen.see("<n.2>")
        await seen.press("down", "a")
        await seen.see("2  restart")
        await seen.press("2")
        await seen.see("restart session <n.2>?")
        await seen.press("n")
        await seen.until(lambda text: "do it" not in text)
        assert program.acted == []
        await seen.press("a")
        await seen.see("2  restart")
        await seen.press("2")
        await seen.see("restart session <n.2>?")
        await seen.press("y")
        await seen.see("did restart <n.2>")
        assert program.acted == [("restart", "<n.2>")]


async def test_a_program_that_allows_no_acts_says_what_to_write() -> None:
    async with screen(FakeProgram(may_act=False)) as seen:
        await seen.press("6")
        await seen.see("git")
        await seen.press("a", "y")
        await seen.see('this program allows no acts: run(…, inspect="acts")')


async def test_a_row_without_acts_says_so() -> None:
    async with screen(FakeProgram(acts=[])) as seen:
        await seen.press("2")
        await seen.see("<n.2>")
        await seen.press("a")
        await seen.see("nothing can be done to this")


async def test_acts_on_a_row_of_a_program_that_has_just_ended_say_so() -> None:
    program = FakeProgram()
    async with screen(program) as seen:
        await seen.press("2")
        await seen.see("<n.2>")
        program.gone.set()
        await seen.press("a")
        await seen.see("it has closed the connection")


async def test_the_screen_waits_for_a_program_that_has_ended_and_connects_again() -> None:
    program = FakeProgram()
    async with screen(program) as seen:
        await seen.press("2")
        await seen.see("<n.2>")
        program.gone.set()
        seen.app.wakeup.set()
        text = await seen.see("waiting for it")
        assert "<n.2>" in text
        program.gone.clear()
        seen.app.wakeup.set()
        await seen.see("weather (process 7)")
        assert program.connected == 2


async def test_q_ends_the_screen() -> None:
    program = FakeProgram()
    app = TopScreen(program.connect, "weather")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
        await pilot.pause()
    assert app.return_code == 0
