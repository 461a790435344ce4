"""Child specs and flags: defaults, changes, and errors that name the wrong field."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest

from greenroom.supervision import (
    BRUTAL_KILL,
    INFINITY,
    ActorError,
    Backoff,
    BadSpec,
    ChildSpec,
    DynamicSupervisor,
    Flags,
    Options,
    PartitionSupervisor,
    Pid,
    StartFailed,
    Supervisor,
    check_children,
    child,
    inbox,
    start_link,
    template,
    whereis,
)
from greenroom.supervision.supervisors.child_spec import start_name

from .sample_children import Counter


async def start() -> Pid:
    raise NotImplementedError


def test_a_child_is_permanent_called_by_its_class_and_gets_five_seconds() -> None:
    spec = child(Counter, 2)
    assert (spec.id, spec.restart, spec.shutdown, spec.type, spec.significant) == (
        "Counter",
        "permanent",
        5.0,
        "worker",
        False,
    )
    assert str(spec.start) == "Counter(2)"


@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor, PartitionSupervisor])
def test_a_supervisor_as_a_child_has_for_ever(kind: Any) -> None:
    spec = template(kind)
    assert (spec.type, spec.shutdown) == ("supervisor", INFINITY)


@pytest.mark.otp("supervisor_test", "child_spec/2")
def test_but_changes_one_field_and_leaves_the_others() -> None:
    spec = child(Counter)
    changed = spec.but(id=7, restart="transient", significant=True, shutdown=BRUTAL_KILL)
    assert (changed.id, changed.restart, changed.significant, changed.shutdown) == (7, "transient", True, BRUTAL_KILL)
    assert spec == child(Counter)


def test_a_default_shutdown_follows_the_type_and_one_that_was_chosen_stays() -> None:
    assert child(Counter).but(type="supervisor").shutdown == INFINITY
    assert child(Counter).but(shutdown=2.0).but(type="supervisor").shutdown == 2.0
    assert child(Counter).but(type="supervisor", shutdown=3).shutdown == 3


async def test_but_says_how_the_process_is_started() -> None:
    async with inbox():
        options = Options(label="hits")
        sup = await start_link(Supervisor, [child(Counter).but(options=options).but(name="hits")])
        assert whereis("hits") is not None
        assert sup.pid != whereis("hits")


@pytest.mark.otp("supervisor_test", "start_child/2 with invalid child spec")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", []),
        ("start", None),
        ("start", "Counter"),
        ("restart", "prmanent"),
        ("restart", None),
        ("shutdown", -10),
        ("shutdown", True),
        ("shutdown", math.inf),
        ("shutdown", math.nan),
        ("shutdown", "forever"),
        ("type", "wrker"),
        ("significant", "maybe"),
        ("significant", 1),
        ("backoff", 3),
    ],
)
def test_a_bad_field_of_a_spec_is_refused_by_name(field: str, value: object) -> None:
    fields: dict[str, Any] = {"id": "one", "start": start, field: value}
    with pytest.raises(BadSpec) as caught:
        ChildSpec(**fields)
    assert caught.value.field == field
    assert caught.value.value is value
    assert field in str(caught.value)


def test_a_bad_spec_is_a_value_error_and_one_of_ours() -> None:
    assert issubclass(BadSpec, ValueError)
    assert issubclass(BadSpec, ActorError)


def test_a_permanent_child_cannot_be_significant() -> None:
    with pytest.raises(BadSpec, match="significant must be False for a permanent child"):
        child(Counter).but(significant=True)


@pytest.mark.parametrize("changes", [{"name": "hits"}, {"options": Options()}])
def test_only_what_child_made_can_be_told_how_to_start(changes: dict[str, Any]) -> None:
    with pytest.raises(BadSpec, match="start function"):
        ChildSpec(id="one", start=start).but(**changes)


def test_an_unknown_field_is_refused_by_name() -> None:
    changes: dict[str, Any] = {"restrt": "transient"}
    with pytest.raises(BadSpec, match="restrt must be left out"):
        child(Counter).but(**changes)


def test_a_class_that_is_no_behaviour_is_no_child() -> None:
    with pytest.raises(BadSpec, match="server must be a class that derives"):
        child(dict)
    with pytest.raises(BadSpec, match="server must be a class that derives"):
        child(Counter())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("strategy", "none_for_one"),
        ("strategy", "simple_one_for_one"),
        ("intensity", -1),
        ("intensity", 1.5),
        ("intensity", True),
        ("intensity", "infinity"),
        ("period", 0),
        ("period", -1),
        ("period", math.inf),
        ("auto_shutdown", "sometimes"),
        ("backoff", 1.0),
    ],
)
async def test_a_bad_flag_is_refused_by_name(field: str, value: object) -> None:
    flags: dict[str, Any] = {field: value}
    with pytest.raises(BadSpec) as caught:
        Flags(**flags)
    assert caught.value.field == field
    async with inbox():
        with pytest.raises(StartFailed) as failed:
            await start_link(Supervisor, [], **flags)
        assert isinstance(failed.value.__cause__, BadSpec)
        assert failed.value.__cause__.field == field


@pytest.mark.parametrize(
    ("children", "field"),
    [
        ([child(Counter), child(Counter)], "id"),
        ([child(Counter), "Counter"], "child"),
        ([Counter], "child"),
        ("children", "children"),
        (None, "children"),
        ([child(Counter).but(restart="transient", significant=True)], "significant"),
    ],
)
def test_a_bad_list_of_children_is_refused(children: Any, field: str) -> None:
    with pytest.raises(BadSpec) as caught:
        check_children(children)
    assert caught.value.field == field


@pytest.mark.otp("supervisor_test", "init/2")
def test_a_good_list_of_children_comes_back_in_order() -> None:
    specs = [child(Counter).but(id=n) for n in (3, 1, 2)]
    assert check_children(iter(specs)) == specs


@pytest.mark.parametrize(
    ("field", "value"),
    [("first", -1), ("factor", 0.5), ("jitter", 1.5), ("quiet", math.nan), ("longest", 0.01), ("first", "soon")],
)
def test_a_bad_backoff_is_refused_by_name(field: str, value: Any) -> None:
    fields: dict[str, Any] = {field: value}
    with pytest.raises(BadSpec) as caught:
        Backoff(**fields)
    assert caught.value.field == f"backoff.{field}"


def test_a_spec_without_arguments_tells_what_it_was() -> None:
    spec = child(Counter, 12345).but(restart="temporary").without_start_arguments()
    assert str(spec.start) == "Counter(…)"
    assert spec.restart == "temporary"


def test_a_start_function_is_called_by_its_name_and_never_by_an_address() -> None:
    assert start_name(start) == "start"
    assert start_name(Counter.add) == "Counter.add"
    assert start_name(partial(start)) == "partial"
    assert start_name(child(Counter, 1).start) == "Counter"


@pytest.mark.parametrize("value", [-1, True, 2.5, "many"])
async def test_a_bad_bound_of_children_is_refused_by_name(value: Any) -> None:
    async with inbox():
        with pytest.raises(StartFailed) as failed:
            await start_link(DynamicSupervisor, max_children=value)
        assert isinstance(failed.value.__cause__, BadSpec)
        assert failed.value.__cause__.field == "max_children"
