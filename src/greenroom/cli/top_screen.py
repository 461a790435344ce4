"""The screen of `greenroom top`: the views of a running program in a terminal, once a second. No other file imports textual.

A thread asks the program, so that keys work while it does not answer. When the program ends, its last views stay, and the screen waits until a program of the same
name is there. Nothing depends on colours: states are words, the chosen view has a mark, and the chosen row is reversed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, cast, get_args

from textual.app import App
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from greenroom.errors import GreenroomError
from greenroom.inspect_protocol import ActName
from greenroom.observe.view_models import CallsView, CallView, NowView, PagedView, ProcessView

from .exit_codes import visible
from .inspect_connection import ProgramGone
from .view_tables import detail_lines, fitted_lines, now_lines, program_line, sorted_rows, view_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.events import Key

    from greenroom.observe.view_models import ActOutcome, View

    from .view_tables import TableRow, ViewTable

LISTS: Final = {
    "1": "now",
    "2": "tree",
    "3": "calls",
    "4": "tools",
    "5": "sessions",
    "6": "upstreams",
    "7": "crashes",
    "8": "pools",
    "9": "tasks",
    "0": "questions",
    "-": "loop",
}
"""The views by their keys."""
ACTS: Final = frozenset(get_args(ActName))
_SHORT: Final = {"questions": "asks"}
"""Words that make the line of views fit 80 columns."""
_STYLES: Final = {"": "", "good": "ansi_green", "odd": "ansi_yellow", "bad": "ansi_red", "dim": "dim", "name": "bold"}
_RECONNECT: Final = 1.0
_TALLEST_ABOVE: Final = 14


class WatchedProgram(Protocol):
    """What the screen asks: an `InspectConnection`."""

    def view(self, name: str, **query: Any) -> View:
        """A view."""
        ...

    def act(self, act: ActName, target: str) -> ActOutcome:
        """Act on the program."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the screen shows: a list, or with `is_detail` one thing."""

    name: str
    query: tuple[tuple[str, Any], ...] = ()
    is_detail: bool = False
    page: int = 0
    lines: tuple[str, ...] = ()
    """The lines of a thing that has no view of its own."""


class ActDialog(ModalScreen[str]):
    """Asks which act, and then whether it is meant. The result is the act, or empty."""

    CSS = """
    ActDialog { align: center middle; }
    #act { width: 60; max-width: 100%; height: auto; border: solid $foreground; padding: 0 1; }
    """

    def __init__(self, target: str, acts: Sequence[str]) -> None:
        """`target` is what is acted on, for a person."""
        super().__init__()
        self._target = target
        self._acts = tuple(acts)
        self._chosen = self._acts[0] if len(self._acts) == 1 else ""

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static(self._question(), id="act", markup=False)

    def _question(self) -> str:
        if self._chosen:
            return f"{self._chosen} {self._target}?\n\ny  do it\nany other key  leave it as it is"
        listed = "\n".join(f"{number}  {act}" for number, act in enumerate(self._acts, 1))
        return f"{self._target}\n\n{listed}\nany other key  leave it as it is"

    def on_key(self, event: Key) -> None:
        """Choose, confirm or leave."""
        event.stop()
        if self._chosen:
            _ = self.dismiss(self._chosen if event.key == "y" else "")
            return
        numbers = {str(number): act for number, act in enumerate(self._acts, 1)}
        self._chosen = numbers.get(event.key, "")
        if self._chosen:
            self.query_one("#act", Static).update(self._question())
        else:
            _ = self.dismiss("")


class TopScreen(App[None]):
    """The screen. `wakeup` lets a test or a key ask for a newer snapshot at once."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "greenroom top"
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    #program { height: 1; text-style: bold; }
    #views { height: 1; }
    #above { height: auto; }
    #head { height: 1; text-style: bold underline; }
    #rows { height: 1fr; border: none; padding: 0; background: ansi_default; color: ansi_default; text-wrap: nowrap; }
    #rows > .option-list--option { padding: 0; color: ansi_default; }
    #rows > .option-list--option-highlighted { background: ansi_default; color: ansi_default; text-style: none; }
    #rows > .option-list--option-hover { background: ansi_default; }
    #details { height: 1fr; display: none; }
    #message { height: auto; display: none; text-style: bold; }
    #filter { height: 1; border: none; display: none; padding: 0; }
    Footer { background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[Any] = [
        *(
            Binding(key if key != "-" else "minus", f"show('{name}')", name, show=False, priority=True)
            for key, name in LISTS.items()
        ),
        Binding("slash", "filter", "filter", key_display="/", priority=True),
        Binding("s", "sort", "sort", priority=True),
        Binding("S", "reverse", "reverse", show=False, priority=True),
        Binding("a", "acts", "act", priority=True),
        Binding("e", "ended", "ended", priority=True),
        Binding("n", "page(1)", "next", show=False, priority=True),
        Binding("p", "page(-1)", "back", show=False, priority=True),
        Binding("right_square_bracket", "page(1)", "page", key_display="[ ]", priority=True),
        Binding("left_square_bracket", "page(-1)", "page", show=False, priority=True),
        Binding("escape", "back", "back", key_display="esc", priority=True),
        Binding("q", "quit", "quit", priority=True),
    ]

    def __init__(self, connect: Callable[[], WatchedProgram], name: str) -> None:
        """`connect` finds the program and connects, and is called again when it has ended; `name` is shown until then."""
        super().__init__(ansi_color=True)
        self._connect = connect
        self._name = name
        self._source: WatchedProgram | None = None
        self._wanted = _Wanted("now")
        self._before: list[_Wanted] = []
        self._text = ""
        self._sorted: int | None = None
        self._reversed = False
        self._table: ViewTable | None = None
        self._rows: list[TableRow] = []
        self._lines: list[list[tuple[str, str]]] = []
        self._chosen = 0
        self._detail: View | None = None
        self._asking = asyncio.Lock()
        self.wakeup = asyncio.Event()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - the signature of textual
        """Whether a key acts now. Keys act in the order in which they were typed (`priority`), so those of a dialog and of the filter have to be left to them."""
        if isinstance(self.screen, ActDialog):
            return False
        return action == "back" or not self.query_one("#filter").has_focus

    # --- the parts of the screen

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static(f"{self._name}: connecting", id="program", markup=False)
        yield Static("", id="views", markup=False)
        yield Static("", id="above", markup=False)
        yield Static("", id="head", markup=False)
        yield OptionList(id="rows", markup=False, compact=True)
        with VerticalScroll(id="details"):
            yield Static("", id="lines", markup=False)
        yield Static("", id="message", markup=False)
        yield Input(placeholder="only rows with this text", id="filter", compact=True)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to ask the program."""
        self.set_focus(self.query_one("#rows"))
        self._draw_views()
        self.run_worker(self._watch(), name="watch")

    async def on_unmount(self) -> None:
        """End the connection, and with it the thread that may wait for an answer."""
        if self._source is not None:
            self._source.close()

    # --- asking

    async def _watch(self) -> None:
        """Show what is wanted, and again after a second or a key."""
        while True:
            self.wakeup.clear()
            wanted, text = self._wanted, self._text
            pause = _RECONNECT
            try:
                async with self._asking:
                    now, view = await asyncio.to_thread(self._fetch, wanted, text)
            except ProgramGone as gone:
                self._draw_program(f"{self._name} is gone, waiting for it: {visible(str(gone))}")
                self._source = None
            except GreenroomError as refused:
                self._say(str(refused))
            else:
                pause = max(0.2, now.refresh)
                if wanted == self._wanted:
                    self._draw(now, view)
            try:
                async with asyncio.timeout(pause):
                    await self.wakeup.wait()
            except TimeoutError:
                continue

    def _fetch(self, wanted: _Wanted, text: str) -> tuple[NowView, View]:
        """The program at one glance, and the wanted view. Runs in a thread."""
        if self._source is None:
            self._source = self._connect()
        try:
            now = self._source.view("now")
            assert isinstance(now, NowView)
            if wanted.name == "now" and not wanted.is_detail:
                return now, now
            query = dict(wanted.query)
            if not wanted.is_detail:
                query |= {"page": wanted.page, **({"text": text} if text else {})}
            return now, now if wanted.lines else self._source.view(wanted.name, **query)
        except ProgramGone:
            self._source.close()
            raise

    # --- drawing

    def _draw_program(self, text: str) -> None:
        self.query_one("#program", Static).update(text)

    def _draw_views(self) -> None:
        chosen = next((each.name for each in (self._wanted, *reversed(self._before)) if not each.is_detail), "")
        pieces: list[tuple[str, str]] = []
        for key, name in LISTS.items():
            is_chosen = name == chosen
            word = _SHORT.get(name, name)
            pieces += [(f"▸{word}", "bold reverse") if is_chosen else (f"{key}{word}", ""), (" ", "")]
        self.query_one("#views", Static).update(Content.assemble(*pieces[:-1]))

    def _draw(self, now: NowView, view: View) -> None:
        self._name = visible(now.program) or self._name
        self._draw_program(program_line(now))
        self._draw_views()
        if self._wanted.is_detail:
            self._detail = None if self._wanted.lines else view
            lines = self._wanted.lines or tuple(detail_lines(view, dict(self._wanted.query)))
            self.query_one("#lines", Static).update(Content("\n".join(lines)))
            return
        self._detail = None
        table = view_table(view)
        above = [visible(each) for each in view.notes]
        above += now_lines(now, self.size.width) if view is now else table.above
        if self._text:
            above.append(f"filter: {visible(self._text)} (esc shows all)")
        if isinstance(view, PagedView) and view.pages > 1:
            above.append(f"page {view.page + 1} of {view.pages}, {view.matching} rows; [ and ] turn the page")
        if isinstance(view, CallsView):
            above.append("the calls that ended last (e: in flight)" if view.is_ended else "calls in flight (e: ended)")
        self.query_one("#above", Static).update(Content("\n".join(above[:_TALLEST_ABOVE])))
        self.query_one("#above").display = bool(above)
        self._draw_table(table)

    def _draw_table(self, table: ViewTable) -> None:
        """The table; the chosen row stays chosen while it is there."""
        rows = list(table.rows)
        if self._sorted is not None and self._sorted < len(table.columns):
            rows = sorted_rows(rows, self._sorted, is_reversed=self._reversed)
        head, lines = fitted_lines(rows, self._labels(table), max(20, self.size.width - 1))
        self.query_one("#head", Static).update(Content(head))
        shown = self.query_one("#rows", OptionList)
        old, keys = [each.key for each in self._rows], [each.key for each in rows]
        place = shown.highlighted or 0
        if old != keys and rows:
            chosen = old[place] if place < len(old) else ""
            place = keys.index(chosen) if chosen in keys else min(place, len(rows) - 1)
        prompts = [_prompt(line, is_chosen=number == place) for number, line in enumerate(lines)]
        self._table, self._rows, self._lines, self._chosen = table, rows, lines, place
        if old != keys:
            shown.set_options([Option(prompt) for prompt in prompts])
            shown.highlighted = place if rows else None
            return
        for number, (prompt, option) in enumerate(zip(prompts, shown.options, strict=True)):
            if option.prompt != prompt:
                shown.replace_option_prompt_at_index(number, prompt)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Mark the chosen row: the widget's own mark is a colour, which not every terminal has."""
        shown = self.query_one("#rows", OptionList)
        for number in {self._chosen, event.option_index}:
            if number < min(len(self._lines), len(shown.options)):
                line = _prompt(self._lines[number], is_chosen=number == event.option_index)
                shown.replace_option_prompt_at_index(number, line)
        self._chosen = event.option_index

    def _labels(self, table: ViewTable) -> list[str]:
        mark = "▼" if self._reversed else "▲"
        return [f"{label}{mark if place == self._sorted else ''}" for place, label in enumerate(table.columns)]

    def _say(self, text: str) -> None:
        """Show a message until the next key."""
        message = self.query_one("#message", Static)
        message.update(Content(visible(text)))
        message.display = bool(text)

    def _show(self, wanted: _Wanted, *, is_back: bool = False) -> None:
        if not is_back and wanted != self._wanted:
            self._before = [*self._before[-20:], self._wanted]
        if wanted.name != self._wanted.name or wanted.is_detail != self._wanted.is_detail:
            self._sorted, self._reversed = None, False
        self._wanted = wanted
        self._say("")
        self.query_one("#details").display = wanted.is_detail
        for part in ("#rows", "#above", "#head"):
            self.query_one(part).display = not wanted.is_detail
        if wanted.is_detail:
            self.query_one("#lines", Static).update("")
            self.set_focus(self.query_one("#details"))
        else:
            self.set_focus(self.query_one("#rows"))
        self._draw_views()
        self.wakeup.set()

    # --- keys

    def action_show(self, name: str) -> None:
        """Show a list."""
        self._text = ""
        self._before = []
        self._show(_Wanted(name), is_back=True)

    def action_filter(self) -> None:
        """Type a filter."""
        if self._wanted.is_detail:
            return
        typed = self.query_one("#filter", Input)
        typed.value = self._text
        typed.display = True
        self.set_focus(typed)  # at once: the next key is the first letter

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._text = event.value
        self._wanted = replace(self._wanted, page=0)
        self.wakeup.set()

    def on_input_submitted(self) -> None:
        """Keep the filter."""
        self._leave_filter()

    def _leave_filter(self) -> None:
        self.query_one("#filter").display = False
        self.set_focus(self.query_one("#rows"))

    async def action_back(self) -> None:
        """Leave what was opened, or the filter."""
        typed = self.query_one("#filter", Input)
        if not self._wanted.is_detail and (typed.display or self._text):
            typed.value = self._text = ""
            self._leave_filter()
            self.wakeup.set()
        elif self._before:
            self._show(self._before.pop(), is_back=True)

    def action_sort(self) -> None:
        """Sort by the next column; after the last one, not at all."""
        if self._table is not None and not self._wanted.is_detail:
            last = len(self._table.columns) - 1
            self._sorted = 0 if self._sorted is None else None if self._sorted >= last else self._sorted + 1
            self._draw_table(self._table)

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self._reversed = not self._reversed
        if self._table is not None and not self._wanted.is_detail:
            self._draw_table(self._table)

    def action_page(self, by: int) -> None:
        """Turn the page."""
        if not self._wanted.is_detail:
            self._wanted = replace(self._wanted, page=max(0, self._wanted.page + by))
            self.wakeup.set()

    def action_ended(self) -> None:
        """Calls that have ended, or those in flight."""
        query = dict(self._wanted.query)
        is_ended = self._wanted.name == "calls" and not query.pop("ended", False)
        self._show(_Wanted("calls", tuple({**query, **({"ended": True} if is_ended else {})}.items())), is_back=True)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open a row."""
        if event.option_index >= len(self._rows):
            return
        row = self._rows[event.option_index]
        if row.details:
            self._show(_Wanted(self._wanted.name, (("key", row.key),), is_detail=True, lines=tuple(row.details)))
        elif row.view == "calls":
            self._show(_Wanted("calls", tuple(row.query.items())))
        elif row.view:
            self._show(_Wanted(row.view, tuple(row.query.items()), is_detail=True))

    async def action_acts(self) -> None:
        """Choose an act on the row, or on what is open."""
        try:
            target, label, possible = await self._possible_acts()
        except GreenroomError as refused:  # as when the program has ended since the last view
            self._say(str(refused))
            return
        acts = [each for each in possible if each in ACTS]
        if not acts:
            self._say("nothing can be done to this")
            return
        _ = self.push_screen(ActDialog(label, acts), lambda act: self._act(act, target))

    async def _possible_acts(self) -> tuple[str, str, Sequence[str]]:
        """The target, its name for a person, and what can be done to it."""
        match self._detail if self._wanted.is_detail else None:
            case ProcessView(row=process, acts=acts, pid=pid) if process is not None:
                return pid, f"{visible(process.label)} {visible(pid)}", acts
            case CallView(row=call) if call is not None:
                return str(call.call), f"call {call.call}", call.acts
            case _:
                pass
        place = self.query_one("#rows", OptionList).highlighted
        if place is None or place >= len(self._rows):
            return "", "", ()
        row = self._rows[place]
        if row.acts or row.view != "process":
            return row.target, visible(row.target), row.acts
        source = self._source
        if source is None:
            return "", "", ()
        async with self._asking:
            view = await asyncio.to_thread(source.view, "process", pid=row.target)
        assert isinstance(view, ProcessView)
        return row.target, f"{row.cells[0].text.strip()} {visible(row.target)}", view.acts

    def _act(self, act: str | None, target: str) -> None:
        if act:
            self.run_worker(self._do(cast("ActName", act), target), name="act")

    async def _do(self, act: ActName, target: str) -> None:
        source = self._source
        if source is None:
            self._say("the program is gone")
            return
        try:
            async with self._asking:
                outcome = await asyncio.to_thread(source.act, act, target)
        except GreenroomError as refused:
            self._say(str(refused))
        else:
            self._say(outcome.text)
            self.wakeup.set()


def _prompt(line: Sequence[tuple[str, str]], *, is_chosen: bool) -> Content:
    """A row. Its texts are never read as markup."""
    if is_chosen:
        return Content.styled("".join(text for text, _ in line), "reverse")
    return Content.assemble(*((text, _STYLES[style]) for text, style in line))


def run_top(connect: Callable[[], WatchedProgram], name: str) -> None:
    """Show the screen until the user leaves it."""
    TopScreen(connect, name).run()
