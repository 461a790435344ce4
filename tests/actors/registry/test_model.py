"""Any history of registrations, calls and kills, against a dict: the registry has what it said it has, and nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.catalogue import NotFound
from greenroom.actors.catalogue_entries import tool_entry
from greenroom.actors.handler_options import ToolOptions
from greenroom.actors.subscriptions import ChangeAnnouncement, Subscriptions
from greenroom.supervision import ProcessExited
from greenroom.supervision.testing import Probe, kill, seeds

from .registry_services import start_registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.testing import Seed

pytestmark = pytest.mark.deep

NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), NAMES, st.integers(0, 9)),
        st.tuples(st.just("register both"), NAMES, st.integers(0, 9)),
        st.tuples(st.just("unregister"), NAMES, st.just(0)),
        st.tuples(st.just("kill registrar"), st.just(""), st.just(0)),
        st.tuples(st.just("kill subscriptions"), st.just(""), st.just(0)),
    ),
    max_size=25,
)


def returning(value: int) -> Callable[[], Any]:
    async def tool() -> int:
        return value

    return tool


@given(STEPS)
async def test_sequential_registrations_behave_like_a_dict(steps: list[tuple[str, str, int]]) -> None:
    services = await start_registry()
    session = Probe()
    await services.subscriptions.call(Subscriptions.join, session.pid)
    model: dict[str, int] = {}
    for what, name, value in steps:
        if what == "register":
            await services.registry.register_tool(name, returning(value), ToolOptions())
            model[name] = value
        elif what == "register both":
            await services.registry.put(tool_entry(name, returning(value)), tool_entry("twin", returning(value)))
            model[name] = model["twin"] = value
        elif what == "unregister":
            assert await services.registry.unregister_tool(name) == (model.pop(name, None) is not None)
        else:
            who: Any = services.registrar if what == "kill registrar" else services.subscriptions
            await kill(who, successor=True)
        changed = what in ("register", "register both", "kill subscriptions")
        if changed:  # each change is announced, sooner or later, whichever process died in between
            await session.expect(ChangeAnnouncement, within=1)
            await asyncio.sleep(1)
            for _ in list(session.pending):
                await session.expect(ChangeAnnouncement)
    assert [name for name, _ in services.registry.list_tools()] == sorted(model)
    for name in ("a", "b", "c", "twin"):
        try:
            assert await services.registry.call_tool(name) == model[name]
        except NotFound:
            assert name not in model


@given(STEPS, seeds())
async def test_all_at_once_what_was_acknowledged_is_there_and_twins_are_never_apart(
    steps: list[tuple[str, str, int]], seed: Seed
) -> None:
    services = await start_registry()
    apart: list[set[str]] = []

    async def do(number: int, what: str, value: int) -> str | None:
        names = f"one{number}", f"two{number}"
        try:
            if what.startswith("register"):
                await services.registry.put(*(tool_entry(name, returning(value)) for name in names))
                return names[0]
            if what == "kill registrar":
                await kill(services.registrar, successor=True)
        except ProcessExited:
            return None
        return None

    def look() -> None:
        names = {name for name, _ in services.registry.list_tools()}
        ones = {name[3:] for name in names if name.startswith("one")}
        twos = {name[3:] for name in names if name.startswith("two")}
        if ones != twos:
            apart.append(ones ^ twos)

    tasks = [asyncio.create_task(do(number, what, value)) for number, (what, _, value) in enumerate(steps)]
    while not all(task.done() for task in tasks):
        look()
        await asyncio.sleep(0)
    look()
    assert apart == []
    acknowledged = {task.result() for task in tasks} - {None}
    assert acknowledged <= {name for name, _ in services.registry.list_tools()}
