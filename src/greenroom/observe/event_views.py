"""The views that are made from events: calls, one call's timeline, crashes, and what happened last as lines.

All texts that come from events may be a peer's: they are shortened, and escaped for display.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from greenroom import event_types as events
from greenroom.inspect_protocol import level_of
from greenroom.supervision import visible

from .secret_masks import masked, masked_text
from .view_rows import CallRow, CallStepRow, CrashGroup, CrashRow, Notice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.event_types import Event

    from .event_record import EventRecord, SeenCall, SeenCrashes

LONGEST: Final = 200
"""The longest shown text of a row in characters."""
_LONGEST_REASON: Final = 500
_LONGEST_STACK: Final = 8_000
_WHOLE: Final = 100.0
"""Seconds from which on a duration has no fraction,"""
_SHORT: Final = 0.0001
"""and those below which it is in microseconds."""
_HASHED: Final = 55
"""The length of a `traceparent`."""


def shown(text: str, longest: int = LONGEST) -> str:
    """A text of a peer or of the program in one line, without credentials."""
    return visible(masked_text(text, longest), longest + LONGEST)


# --- calls


def call_row(seen: SeenCall, now: float, *, pid: str = "", acts: bool = False) -> CallRow:
    """A call as a row. `pid` is the process that runs it."""
    started, ended = seen.started, seen.ended
    trace = (started.trace or {}).get("traceparent", "")
    return CallRow(
        call=started.call,
        side=started.side,
        program=shown(started.program),
        way=started.way,
        method=shown(started.method),
        name=shown(started.name),
        seconds=max(0.0, now - seen.at) if ended is None else ended.seconds,
        at=seen.at,
        step="" if ended is not None else seen.steps[-1][1] if seen.steps else "accepted",
        outcome="" if ended is None else ended.outcome,
        code=None if ended is None else ended.code,
        queued=0.0 if ended is None else ended.queued,
        isolation="" if ended is None else ended.isolation,
        request=shown(started.request),
        session=shown(started.session),
        revision=shown(started.revision),
        transport=shown(started.transport),
        address=shown(started.address),
        principal=shown(started.principal),
        principal_kind=started.principal_kind,
        task=shown(started.task),
        trace=trace[3:35] if len(trace) == _HASHED and trace.isascii() and trace.isprintable() else "",
        pid=pid,
        acts=["cancel"] if acts and pid else [],
    )


def call_steps(seen: SeenCall) -> list[CallStepRow]:
    """The timeline of a call, from its arrival to its reply."""
    steps = [CallStepRow(after=0.0, step="accepted", text=shown(seen.started.way))]
    steps += [
        CallStepRow(after=max(0.0, at - seen.at), step=step, text=shown(text, _LONGEST_REASON))  # type: ignore[arg-type]  # one of the literals
        for at, step, text in seen.steps
    ]
    ended = seen.ended
    if ended is not None:
        said = f"{ended.outcome} {ended.message or ended.detail}".strip()
        steps.append(CallStepRow(after=ended.seconds, step="reply", text=shown(said, _LONGEST_REASON)))
    return steps


def texts_of_call(seen: SeenCall) -> tuple[str, ...]:
    """What a filter looks at."""
    started, ended = seen.started, seen.ended
    return (
        started.name,
        started.method,
        started.program,
        started.session,
        started.principal,
        started.address,
        started.way,
        started.task,
        "" if ended is None else ended.outcome,
    )


# --- crashes


def crash_row(at: float, event: events.ProcessCrashed) -> CrashRow:
    """One crash."""
    return CrashRow(
        at=at,
        pid=event.pid,
        label=shown(event.label),
        kind=shown(event.kind),
        reason=shown(event.reason, _LONGEST_REASON),
        during=shown(event.during),
        last_message=shown(event.last_message, _LONGEST_REASON),
        state=shown(event.state, _LONGEST_REASON),
        stack=visible(masked_text(event.stack, _LONGEST_STACK), lines=True),
        ancestors=[shown(each) for each in event.ancestors],
    )


def crash_group(group: SeenCrashes, now: float) -> CrashGroup:
    """The crashes of one kind for one reason."""
    _, latest = group.latest[0]
    minutes = [0 if each is None else int(each) for each in group.minutes.values(now + 60.0)]
    return CrashGroup(
        group=group.group,
        kind=shown(group.kind),
        reason=shown(latest.reason, _LONGEST_REASON),
        count=group.count,
        first_at=group.first_at,
        last_at=group.last_at,
        label=shown(latest.label),
        per_minute=minutes,
    )


def crashes_of_kind(record: EventRecord, kind: str) -> list[CrashRow]:
    """The last crashes of processes of that kind, the newest first."""
    with record.lock:
        found = [each for group in record.crashes.values() if group.kind == kind for each in group.latest]
    return [crash_row(at, event) for at, event in sorted(found, key=lambda each: -each[0])[:10]]


# --- events as lines


def notices(record: EventRecord, most: int, *kinds: type[Event]) -> list[Notice]:
    """What happened last, the newest first: of these kinds, or of all that are worth a line."""
    with record.lock:
        found = list(record.notices)
    rows: list[Notice] = []
    for number, at, event in found:
        if not kinds or isinstance(event, kinds):
            rows.append(notice(number, at, event))
            if len(rows) == most:
                break
    return rows


def notice(number: int, at: float, event: Event, *, with_data: bool = False) -> Notice:
    """An event as a line."""
    level = level_of(event)
    any_event: Any = event
    return Notice(
        number=number,
        at=at,
        kind=type(event).__name__,
        level="info" if level == "debug" else level,
        text=shown(text_of_event(event), _LONGEST_REASON),
        program=shown(getattr(any_event, "program", "")),
        pid=shown(getattr(any_event, "pid", "")),
        call=getattr(any_event, "call", 0),
        data=_data(event) if with_data else None,
    )


def _data(event: Event) -> dict[str, Any]:
    """The fields of an event for a program that reads them. A message of the protocol has none: the wire's view shows it without its secrets."""
    fields: dict[str, Any] = msgspec.to_builtins(event, builtin_types=(bytes,))
    fields.pop("body", None)
    shown_fields: dict[str, Any] = masked(fields, hides_names=False)
    return shown_fields


def text_of_event(event: Event) -> str:  # noqa: C901, PLR0911, PLR0912 - a line for each kind
    """An event as a sentence."""
    match event:
        case events.CallStarted():
            return f"{_of_call(event)} began{_by(event.principal)}"
        case events.CallEnded():
            said = f": {event.message or event.detail}" if event.message or event.detail else ""
            return f"{_of_call(event)} ended: {event.outcome.replace('_', ' ')} after {_took(event.seconds)}{said}"
        case events.CallStep():
            return f"call {event.call}: {event.step} {event.text}"
        case events.ServerWrote():
            return f"{event.command} ({event.process}): {event.text}"
        case events.RequestRefused():
            setting = f" ({event.setting})" if event.setting else ""
            return f"refused {event.method or 'a request'}: {event.kind.replace('_', ' ')}{setting}"
        case events.SessionOpened():
            return f"session {event.session} opened{_from(event.peer)}{_by(event.principal)}"
        case events.SessionClosed():
            return f"session {event.session} closed after {_took(event.seconds)}{_why(event.reason)}"
        case events.StreamOpened():
            return f"stream {event.stream} ({event.kind}) opened"
        case events.StreamClosed():
            how = "its reader was too slow, so it ended" if event.is_evicted else "closed"
            return f"stream {event.stream} ({event.kind}): {how} after {_took(event.seconds)}"
        case events.QuestionAsked():
            return f"question {event.question} asked: {event.method}"
        case events.QuestionEnded():
            return f"question {event.question} ended: {event.outcome} after {_took(event.seconds)}"
        case events.TaskCreated():
            return f"task {event.task} created: {event.method} {event.name}"
        case events.TaskEnded():
            return f"task {event.task} ended: {event.status} after {_took(event.seconds)}"
        case events.UpstreamChanged():
            again = "" if event.next_attempt is None else f"; next attempt in {_took(event.next_attempt)}"
            change = f"{event.before} → {event.state}" if event.before else event.state
            return f"{event.upstream}: {change}{_why(event.reason)}{again}"
        case events.BreakerChanged():
            return f"breaker of {event.upstream}: {event.state.replace('_', ' ')}{_why(event.reason)}"
        case events.SignInEnded():
            return f"sign-in ({event.kind.replace('_', ' ')}) {'failed' if event.is_failure else 'succeeded'}{_why(event.reason)}"
        case events.PoolWorkerStarted():
            return f"pool {event.pool}: process {event.process} started"
        case events.PoolWorkerEnded():
            how = event.signal or ("" if event.status is None else f"status {event.status}")
            return (
                f"pool {event.pool}: process {event.process} {'was lost' if event.is_failure else 'ended'}{_why(how)}"
            )
        case events.ChildStarted():
            return f"{event.supervisor} {'restarted' if event.is_restart else 'started'} {event.child} as {event.pid}"
        case events.ProcessCrashed():
            return f"{event.label} {event.pid} crashed{_why(event.reason)}"
        case events.ChildEnded():
            what = "could not start" if event.is_start else "lost"
            return f"{event.supervisor} {what} {event.child}{_why(event.reason)}"
        case events.SupervisorGaveUp():
            return f"{event.supervisor} gave up: {event.child} failed more than {event.intensity} times in {event.period:g} s{_why(event.reason)}"
        case events.ProcessLeaked():
            return f"{event.label} {event.pid} did not unwind and was abandoned{_why(event.reason)}"
        case events.LoopBlocked():
            return f"{event.label} {event.pid} blocks the event loop, for {_took(event.seconds)} by now"
        case events.LoopLagged():
            return f"the event loop was late by {_took(event.seconds)}"
        case events.ActDone():
            return f"{event.principal or 'an operator'}: {event.act} {event.target}: {event.outcome}"
        case _:
            return type(event).__name__


def _of_call(event: events.CallStarted | events.CallEnded) -> str:
    name = f" {event.name}" if event.name else ""
    return f"{event.method}{name} ({event.way}, {event.program})"


def _by(principal: str) -> str:
    return f" by {principal}" if principal else ""


def _from(peer: str) -> str:
    return f" by {peer}" if peer else ""


def _took(seconds: float) -> str:
    """A duration, without an exponent."""
    if seconds >= _WHOLE:
        return f"{seconds:.0f} s"
    return f"{seconds:.3g} s" if seconds >= _SHORT or not seconds else f"{seconds:.6f} s"


def _why(reason: str) -> str:
    return f": {reason}" if reason else ""


def total_of(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by kind, the largest first, for display."""
    return {shown(name): count for name, count in sorted(counts.items(), key=lambda each: -each[1])[:50]}
