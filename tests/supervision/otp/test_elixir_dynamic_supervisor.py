"""Elixir's tests of its DynamicSupervisor: how it is started, and how children are that each bring a spec."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from greenroom.supervision import (
    IGNORE,
    NORMAL,
    AlreadyStarted,
    BadSpec,
    ChildSpec,
    Crash,
    DynamicSupervisor,
    GenServer,
    MaxChildren,
    Options,
    Quit,
    Ref,
    Registry,
    Shutdown,
    StartFailed,
    StartIgnored,
    Supervisor,
    child,
    is_alive,
    kill,
    start,
    start_child,
    start_link,
    stop,
    tree,
    via,
    whereis,
    which_children,
)
from greenroom.supervision.kernel import links
from greenroom.supervision.supervisors.supervisor_base import GAVE_UP

from .supervised_children import Died, Failing, among, counts, gone, shut_down

if TYPE_CHECKING:
    from greenroom.supervision import Inbox

MANY = 100_000


class Idle(GenServer):
    """Waits, and does not trap exits."""


def idle(**changes: Any) -> ChildSpec[Ref[Idle]]:
    """One that ends as it is told."""
    return child(Idle).but(**changes)


async def crowd(intensity: int = MANY, **options: Any) -> Ref[DynamicSupervisor]:
    """A supervisor without children yet, linked to the test."""
    return await start_link(DynamicSupervisor, intensity=intensity, **options)


async def settled(sup: Ref[Any]) -> None:
    """Wait until the supervisor has tried its restarts several times."""
    for _ in range(5):
        await which_children(sup)


# --- as a child


@pytest.mark.otp("dynamic_supervisor_test", "can be supervised directly")
@among
async def test_the_supervisor_can_be_a_child_itself(me: Inbox) -> None:
    sup = await start_link(Supervisor, [child(DynamicSupervisor).but(name="crowd")])
    assert await which_children("crowd") == []
    await shut_down(me, sup)


@pytest.mark.otp(
    "dynamic_supervisor_test", "multiple supervisors can be supervised and identified with simple child spec"
)
@among
async def test_several_under_one_supervisor_have_ids_and_names_of_their_own(me: Inbox) -> None:
    registry = await start(Registry)
    names = ["simple", via(registry, "key")]
    specs = [child(DynamicSupervisor).but(id=number, name=name) for number, name in enumerate(names)]
    sup = await start_link(Supervisor, specs)
    last = await start_child(sup, child(DynamicSupervisor))
    for who in (*names, last):
        assert await which_children(who) == []
    with pytest.raises(AlreadyStarted) as refused:
        await start_child(sup, child(DynamicSupervisor))
    assert refused.value.pid == last.pid
    await shut_down(me, sup)


# --- its start


@pytest.mark.otp("dynamic_supervisor_test", "init/1 set default options")
@among
async def test_by_itself_it_allows_one_restart_in_five_seconds_and_any_number_of_children(me: Inbox) -> None:
    sup = await start_link(DynamicSupervisor)
    children = [await start_child(sup, idle()) for _ in range(100)]
    kill(children[0])
    await settled(sup)
    await asyncio.sleep(6)
    kill(children[1])
    await settled(sup)
    assert await counts(sup) == [100, 100, 0, 100]
    kill(children[2])
    assert await gone(me, sup.pid) == GAVE_UP


class Shy(DynamicSupervisor):
    """Its `init` returns `IGNORE`."""

    def init(self) -> Any:
        return IGNORE


@pytest.mark.otp("dynamic_supervisor_test", "start_link/3 with non-ok init")
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"intensity": -1}, "intensity"),
        ({"period": 0}, "period"),
        ({"max_children": -1}, "max_children"),
        ({"template": -1}, "child"),
        ({"template": idle(restart="transient", significant=True)}, "significant"),
    ],
)
@among
async def test_options_that_cannot_be_are_refused(me: Inbox, options: Any, field: str) -> None:
    with pytest.raises(StartFailed) as refused:
        await start_link(DynamicSupervisor, **options)
    assert isinstance(refused.value.__cause__, BadSpec)
    assert refused.value.__cause__.field == field
    assert len(me) == 0


@pytest.mark.otp("dynamic_supervisor_test", "start_link/3 with non-ok init")
@among
async def test_an_init_may_fail_or_say_no(me: Inbox) -> None:
    for unknown in ({"strategy": "one_for_all"}, {"auto_shutdown": "any_significant"}):
        options: Any = unknown
        with pytest.raises(StartFailed, match="unexpected keyword argument"):
            await start_link(DynamicSupervisor, **options)
    with pytest.raises(StartIgnored):
        await start_link(Shy)
    assert len(me) == 0


@pytest.mark.otp("dynamic_supervisor_test", "start_link/3 with registered process")
@among
async def test_the_supervisor_has_a_name_and_a_link_and_gives_both_back(me: Inbox) -> None:
    sup = await Options(name="crowd").start_link(DynamicSupervisor)
    process = sup._find()
    assert me._process in links.linked(process)
    assert whereis("crowd") == sup.pid
    assert process.label == "DynamicSupervisor"
    await stop(Ref[Any]("crowd"))
    assert whereis("crowd") is None
    assert await gone(me, sup.pid) == NORMAL


@pytest.mark.otp("dynamic_supervisor_test", "start_link/3 sets initial call to the same as a regular supervisor")
@among
async def test_the_tree_shows_a_dynamic_supervisor_as_a_supervisor(me: Inbox) -> None:
    kinds: list[Any] = [Supervisor, DynamicSupervisor]
    for kind in kinds:
        sup = await start_link(kind)
        worker = await start_child(sup, idle())
        assert [branch.pid for branch in tree(sup).children] == [worker.pid]
        await shut_down(me, sup)


# --- the start of children


REF, MORE = "a handle", "a handle, and more"


async def run(answer: Any) -> Any:
    """A start function that returns or raises a given value."""
    if isinstance(answer, BaseException):
        raise answer
    ref = await start_link(Idle)
    if answer == REF:
        return ref
    if answer == MORE:
        return ref, "extra"
    await stop(ref)
    return answer


def gives(answer: Any, **changes: Any) -> ChildSpec[Any]:
    """The spec of a child that is started so."""

    async def begin() -> Any:
        return await run(answer)

    return ChildSpec(id="given", start=begin, shutdown=1.0).but(**changes)


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 supports new child spec as tuple")
@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 supports new child spec")
@pytest.mark.parametrize("spec", [gives(REF, restart="temporary"), idle()])
@among
async def test_a_child_is_started_by_a_function_or_by_its_class(me: Inbox, spec: Any) -> None:
    sup = await crowd()
    ref = await start_child(sup, spec)
    assert is_alive(ref)
    assert [one.pid for one in await which_children(sup)] == [ref.pid]
    await shut_down(me, sup)


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 with different returns")
@among
async def test_start_child_returns_what_the_start_function_returned(me: Inbox) -> None:
    sup = await crowd()
    ref, extra = await start_child(sup, gives(MORE))
    assert (is_alive(ref), extra) == (True, "extra")
    assert is_alive(await start_child(sup, gives(REF)))
    with pytest.raises(StartIgnored):
        await start_child(sup, child(Failing, [], lambda _: "ignore"))
    with pytest.raises(StartFailed, match="Died: in init"):
        await start_child(sup, child(Failing, [], lambda _: "error"))
    with pytest.raises(StartFailed, match="returned 'unknown', which is neither a Ref nor a pid"):
        await start_child(sup, gives("unknown"))
    assert await counts(sup) == [2, 2, 0, 2]
    await shut_down(me, sup)


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 with throw/error/exit")
@among
async def test_whatever_a_start_raises_is_a_failed_start(me: Inbox) -> None:
    sup = await crowd()
    for error in (Died("oops"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()):
        with pytest.raises(StartFailed) as failed:
            await start_child(sup, gives(error))
        assert failed.value.reason == Crash(error)
    with pytest.raises(StartFailed) as quitted:
        await start_child(sup, gives(Quit(Shutdown("oops"))))
    assert quitted.value.reason == Shutdown("oops")
    assert await counts(sup) == [0, 0, 0, 0]
    await shut_down(me, sup)


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 with max_children")
@among
async def test_max_children_may_be_zero(me: Inbox) -> None:
    sup = await crowd(max_children=0)
    with pytest.raises(MaxChildren):
        await start_child(sup, idle())
    await shut_down(me, sup)


def never(*_: Any) -> NoReturn:
    """Is never called."""
    raise AssertionError


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 with invalid valid shutdown")
@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 with invalid child spec")
@pytest.mark.parametrize(
    ("field", "value"),
    [("shutdown", -1), ("start", (never, "bar")), ("id", [1]), ("significant", True), ("restart", "always")],
)
def test_a_spec_that_cannot_be_is_refused_where_it_is_written(field: str, value: Any) -> None:
    fields: Any = {"id": 1, "start": never, field: value}
    with pytest.raises(BadSpec) as refused:
        ChildSpec(**fields)
    assert refused.value.field == field
