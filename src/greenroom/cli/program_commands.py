"""``greenroom top``, ``status``, ``logs``, ``calls``, ``wire``, ``retry``, ``park`` and ``restart``: a running program, seen and acted on from another terminal."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from greenroom.inspect_protocol import FollowRequest
from greenroom.observe.page_formats import clock, took
from greenroom.observe.view_models import NowView, UpstreamsView, WireView
from greenroom.supervision import visible_text

from .click_app import echo, is_terminal, styled
from .command_output import print_json
from .exit_codes import FAILED, UNREACHABLE, CommandFailed, UsageError, visible
from .inspect_connection import InspectConnection, ProgramGone, chosen_socket
from .view_tables import fitted_lines, program_line, view_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.inspect_protocol import ActName, Level
    from greenroom.observe.view_rows import FrameRow, Notice

_LEVEL_STYLES: Final = {"info": "", "warning": "odd", "error": "bad"}
_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?) *(ms|s|min)?")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0}
_WIDE: Final = 100


# --- the screen


def top(*, which: str | None) -> None:
    """Show the screen until the user leaves it."""
    try:
        from .top_screen import run_top  # noqa: PLC0415 - it loads textual
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "textual":
            raise
        raise CommandFailed(
            UNREACHABLE, "greenroom top needs textual: pip install 'greenroom[textual]'; `greenroom status` does not"
        ) from None
    if not is_terminal():
        raise UsageError("greenroom top needs a terminal: `greenroom status` and `greenroom logs` write lines")
    path = chosen_socket(which)
    name = which if which is not None and not which.isdigit() else path.stem.partition("-")[2]

    def connect() -> InspectConnection:
        return InspectConnection(path if path.exists() else chosen_socket(name))

    run_top(connect, name)


# --- one line for each upstream


def status(*, which: str | None, link: bool, json: bool) -> None:
    """Show the program, and a line for each server of its hosts; or a link to its page."""
    with InspectConnection(chosen_socket(which)) as program:
        if link:
            address = program.observe_link()
            if json:
                print_json({"link": address})
            else:
                echo(visible(address))
            return
        now, found = program.view("now"), program.view("upstreams")
    assert isinstance(now, NowView)
    assert isinstance(found, UpstreamsView)
    if json:
        print_json({"program": now, "upstreams": found.rows})
        return
    echo(styled(program_line(now), "name"))
    for url in now.urls:
        echo(f"  {visible(url)}")
    table = view_table(found)
    if table.rows:
        head, lines = fitted_lines(table.rows, table.columns, _columns())
        echo(styled(head.rstrip(), "dim"))
        for line in lines:
            echo("".join(styled(text, style) if style else text for text, style in line).rstrip())
    for note in found.notes:
        echo(visible(note))


def _columns() -> int:
    from shutil import get_terminal_size  # noqa: PLC0415 - rarely used

    return max(get_terminal_size((_WIDE, 24)).columns, 60)


# --- events


def logs(  # noqa: PLR0913 - a keyword for each option
    *,
    which: str | None,
    kind: Sequence[str],
    level: Level | None,
    tool: Sequence[str],
    outcome: Sequence[str],
    stderr: str | None,
    last: int | None,
    follow: bool | None,
    json: bool,
) -> None:
    """Print events, one a line."""
    path = chosen_socket(which)
    if stderr is not None:
        if kind or level or tool or outcome or last is not None or follow is False:
            raise UsageError("--stderr shows what a server writes from now on: it takes no filters")
        _print_stderr(path, stderr, json=json)
        return
    request = FollowRequest(
        kinds=tuple(kind),
        level=level or "debug",
        names=tuple(tool),
        outcomes=tuple(outcome),
        last=20 if last is None else last,
        is_live=follow is not False,
    )
    with InspectConnection(path) as program:
        for event in program.follow(request):
            _print_event(event, event_text(event), json=json)


def calls(  # noqa: PLR0913 - as above
    *,
    which: str | None,
    failed: bool,
    tool: Sequence[str],
    slower: str | None,
    last: int | None,
    follow: bool | None,
    json: bool,
) -> None:
    """Print each call when it ends."""
    request = FollowRequest(
        kinds=("CallEnded",),
        names=tuple(tool),
        is_failed=failed,
        slower=0.0 if slower is None else duration(slower),
        last=20 if last is None else last,
        is_live=follow is not False,
    )
    with InspectConnection(chosen_socket(which)) as program:
        for event in program.follow(request):
            _print_event(event, call_text(event), json=json)


def duration(text: str) -> float:
    """Seconds from `200ms`, `1.5s`, `2min` or a number of seconds. Raises `UsageError`."""
    found = _SECONDS.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is no duration: write 200ms, 1.5s or 2min")
    return float(found[1]) * _UNITS[found[2] or "s"]


def _print_event(event: Notice, text: str, *, json: bool) -> None:
    if json:
        echo(visible_text.escaped_in_json(msgspec.json.encode(event).decode()))
    else:
        style = _LEVEL_STYLES[event.level]
        echo(styled(text, style) if style else text)


def event_text(event: Notice) -> str:
    """An event as one line: time, level, kind, and what happened."""
    return f"{clock(event.at)} {event.level:<7} {visible(event.kind, 40)} {visible(event.text)}"


def call_text(event: Notice) -> str:
    """A call that has ended as one line: time, outcome, how long it took, what was called, and what is known of the caller."""
    fields = event.data or {}
    if event.kind == "Gap":
        return event_text(event)
    seconds = fields.get("seconds")
    code = "" if fields.get("code") is None else f" {visible(str(fields['code']))}"
    parts = [
        clock(event.at),
        f"{visible(str(fields.get('outcome', '')).replace('_', ' ')) + code:<14}",
        f"{took(seconds) if isinstance(seconds, int | float) else '':>8}",
        visible(str(fields.get("name") or fields.get("method", ""))),
        *(visible(str(fields.get(name, ""))) for name in ("program", "way", "isolation", "principal_kind")),
    ]
    return " ".join(filter(None, parts))


def _print_stderr(path: Any, server: str, *, json: bool) -> None:
    """Print what a server writes to its standard error. The server may be restarted meanwhile, and is then another process."""
    with InspectConnection(path) as asked, InspectConnection(path) as followed:

        def process() -> int | None:
            found = asked.view("upstreams")
            assert isinstance(found, UpstreamsView)
            rows = [each for each in found.rows if each.upstream == server]
            if not rows:
                names = ", ".join(visible(each.upstream) for each in found.rows)
                raise CommandFailed(FAILED, f"the program has no server {server!r}; it has {names or 'none'}")
            return rows[0].process

        known, strangers = process(), set[int]()
        for event in followed.follow(FollowRequest(kinds=("ServerWrote",))):
            fields = event.data or {}
            number: Any = fields.get("process")
            if event.kind != "Gap" and number != known and number not in strangers:
                try:
                    known = process()
                except ProgramGone:
                    return  # as when the events end
                if number != known:
                    strangers.add(number)
            if event.kind == "Gap" or number == known:
                _print_event(event, visible(str(fields.get("text", event.text))), json=json)


# --- the messages of the protocol


def wire(*, which: str | None, server: str | None, json: bool) -> None:
    """Print the messages that pass from now on."""
    with InspectConnection(chosen_socket(which)) as program:
        last, is_first = 0, True
        while True:
            view, frames = frames_after(program, server or "", last)
            for note in view.notes if is_first else ():
                echo(visible(note), error=True)
            for frame in frames:
                last = frame.number
                echo(visible_text.escaped_in_json(msgspec.json.encode(frame).decode()) if json else frame_text(frame))
            is_first = False
            time.sleep(max(0.2, view.refresh))


def frames_after(program: InspectConnection, server: str, last: int) -> tuple[WireView, list[FrameRow]]:
    """The messages of a server, or of all, that came after the one with the number `last`, the oldest first; and the view's first page."""
    pages: list[WireView] = []
    # All pages: the reply to a request of long ago is in that one's group, which may be on the last.
    while not pages or len(pages) < pages[0].pages:
        view = program.view("wire", program=server, page=len(pages))
        assert isinstance(view, WireView)
        pages.append(view)
    found = {each.number: each for page in pages for group in page.groups for each in group.frames}
    return pages[0], [found[number] for number in sorted(found) if number > last]


def frame_text(frame: FrameRow) -> str:
    """A message as one line: time, direction, the program, what it is, and its body as far as it is shown."""
    arrow = "<-" if frame.direction == "in" else "->"
    request = f" {visible(frame.request)}" if frame.request else ""
    body = f" {visible(frame.body)}" if frame.body else f" {frame.size} bytes"
    return f"{clock(frame.at)} {arrow} {visible(frame.program)} {frame.kind} {visible(frame.method)}{request}{body}"


# --- acts


def act(*, what: ActName, which: str | None, target: str, json: bool) -> None:
    """Act on the program, and print what came of it."""
    with InspectConnection(chosen_socket(which)) as program:
        outcome = program.act(what, target)
    if json:
        print_json(outcome)
    elif outcome.is_done:
        echo(visible(outcome.text))
    if not outcome.is_done:
        raise CommandFailed(FAILED, outcome.text)


def retry(**given: Any) -> None:
    """Try an upstream again now."""
    act(what="retry", **given)


def park(**given: Any) -> None:
    """Stop an upstream, and leave it stopped."""
    act(what="park", **given)


def restart(**given: Any) -> None:
    """Restart an upstream or a process."""
    act(what="restart", **given)
