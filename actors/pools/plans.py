"""What a worker is told of a handler, so that it can make the same entry of it: where the function is, and what was said of it.

Only that travels which has to do with running it. What clients are shown stays at home.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.events import _set_running_loop
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import msgspec

from greenroom.actors.catalogue import Catalogue, Shelf
from greenroom.actors.entries import (
    CompletionEntry,
    PromptEntry,
    ResourceEntry,
    TemplateEntry,
    ToolEntry,
    completion_entry,
    prompt_entry,
    resource_entry,
    template_entry,
    tool_entry,
)
from greenroom.actors.handlers import Place
from greenroom.actors.options import PromptOptions, ResourceOptions, TemplateOptions, ToolOptions
from greenroom.supervision.kernel import forks

from .loading import load
from .places import MAIN, Found, Main, checked, main_program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.actors.entries import Entry

    Maker = Callable[[Any, Any, dict[str, Any]], Entry]


class Plan(msgspec.Struct, frozen=True):
    """One handler, as it is described to workers."""

    kind: str
    name: Any
    found: Found
    main: Main | None
    said: dict[str, Any]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Plan)


def plan_of(entry: Entry) -> bytes:
    """What to tell of it. Raises `RegistrationError` when a worker would find something else in its place."""
    handler = entry.handler
    assert handler.found is not None
    found = checked(f"{entry.kind.replace('_', ' ')} {entry.name!r}", handler.function, handler.found)
    main = main_program() if found.module == MAIN else None
    return _encoder.encode(Plan(entry.kind, entry.name, found, main, _said_of(entry)))


def plans_of(entries: Sequence[Entry], known: dict[int, bytes]) -> dict[int, bytes]:
    """Of all these; `known` are those that were made before, and those that are made now. One that cannot be is said to whoever calls it."""
    plans: dict[int, bytes] = {}
    for entry in entries:
        number = entry.handler.number
        if number not in known:
            try:
                known[number] = plan_of(entry)
            except Exception:  # noqa: BLE001, S112 - as it says
                continue
        plans[number] = known[number]
    return plans


def _said_of(entry: Entry) -> dict[str, Any]:
    match entry:
        case ToolEntry(options=options):
            return {
                "input_schema": options.input_schema,
                "output_schema": options.output_schema,
                "validate_input": options.validate_input,
                "validate_output": options.validate_output,
            }
        case ResourceEntry():
            return {"uri": entry.uri, "mime_type": entry.mime_type}
        case TemplateEntry():
            return {
                "uri_template": entry.uri_template,
                "mime_type": entry.mime_type,
                "segments": entry.template.segments,
            }
        case PromptEntry():
            known = ("name", "title", "description", "required")
            arguments = [
                {name: value for name, value in each.items() if name in known}
                for each in entry.wire.get("arguments", ())
            ]
            return {"arguments": arguments, "description": entry.description}
        case CompletionEntry():
            return {}


def entry_of(data: bytes) -> Shelf:
    """In a worker: a shelf with that one entry on it. Imports what it needs, which may take long. Raises `NotLoaded`."""
    plan = _decoder.decode(data)
    function = load(plan.found, plan.main)
    entry = _MAKERS[plan.kind](plan.name, function, plan.said)
    if entry.handler.place is Place.THREAD and entry.handler.context is None:
        entry = replace(entry, handler=replace(entry.handler, place=Place.LOOP, function=_alone(function)))
    return Shelf(Catalogue().put(entry))


def _alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that can say and hear nothing while it runs needs no thread: nobody waits for this process's loop meanwhile.

    It is called as from a thread all the same: it may run a loop of its own, and a child that it forks ends with it.
    """

    @wraps(function)
    def run(**named: Any) -> Any:
        loop, program = asyncio.get_running_loop(), os.getpid()
        _set_running_loop(None)
        error: BaseException | None = None
        try:
            return function(**named)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if os.getpid() != program:
                forks.leave(error)
            _set_running_loop(loop)

    return run


_MAKERS: dict[str, Maker] = {
    "tool": lambda name, function, said: tool_entry(name, function, ToolOptions(**said)),
    "resource": lambda name, function, said: resource_entry(name, function, ResourceOptions(**said)),
    "resource_template": lambda name, function, said: template_entry(name, function, TemplateOptions(**said)),
    "prompt": lambda name, function, said: prompt_entry(name, function, PromptOptions(**said)),
    "completion": lambda name, function, said: completion_entry(tuple(name), function),  # noqa: ARG005 - nothing was
}
