"""A child spec has the type of its start's result, and accepts only OTP's values."""

from __future__ import annotations

from typing import assert_type

from greenroom.supervision import (
    BRUTAL_KILL,
    TRANSIENT,
    ChildSpec,
    DynamicSupervisor,
    GenServer,
    Options,
    Pid,
    Ref,
    Supervisor,
    child,
    spawn_link,
    start_child,
    start_link,
    template,
)


class Counter(GenServer):
    """Counts."""

    def __init__(self, total: int) -> None:
        """It begins at `total`."""
        self.total = total


async def idle() -> None:
    """Do nothing."""


async def plain() -> Pid:
    """Start a process that is no server."""
    return spawn_link(idle)


async def pair() -> tuple[Ref[Counter], str]:
    """Start one, and tell something of it."""
    return await start_link(Counter, 1), "extra"


async def right(sup: Ref[Supervisor], dynamic: Ref[DynamicSupervisor]) -> None:
    """Accepted by both checkers."""
    assert_type(child(Counter, 2), ChildSpec[Ref[Counter]])
    assert_type(child(Counter, 2).but(restart="transient", shutdown=3), ChildSpec[Ref[Counter]])
    assert_type(child(Counter, 2).but(restart=TRANSIENT, shutdown=BRUTAL_KILL, name="hits"), ChildSpec[Ref[Counter]])
    assert_type(await start_child(sup, child(Counter, 2)), Ref[Counter])
    assert_type(await start_child("by name", child(Counter, 2)), Ref[Counter])
    assert_type(await start_child(sup, ChildSpec(id="plain", start=plain)), Pid)
    assert_type(await start_child(sup, ChildSpec(id="pair", start=pair)), tuple[Ref[Counter], str])
    assert_type(await sup.call(Supervisor.start_child, child(Counter, 2)), Ref[Counter])
    assert_type(await start_child(dynamic, child(Counter, 2)), Ref[Counter])
    assert_type(await start_link(Supervisor, [child(Counter, 2)], strategy="one_for_all"), Ref[Supervisor])
    await start_link(DynamicSupervisor, template(Counter).but(options=Options(label="hits")), max_children=3)


async def wrong() -> None:
    """Refused by both checkers."""
    child(Counter)  # expect-error: call-arg, reportCallIssue
    child(Counter, "two")  # expect-error: arg-type, reportArgumentType
    child(Counter, 2).but(restart="prmanent")  # expect-error: arg-type, reportArgumentType
    child(Counter, 2).but(restrt="transient")  # expect-error: call-arg, reportCallIssue
    await start_link(Supervisor, strategy="none_for_one")  # expect-error: arg-type, reportArgumentType
    await start_link(Supervisor, [Counter])  # expect-error: list-item, reportArgumentType
    ChildSpec(id="one", start=idle, restart="always")  # expect-error: arg-type, reportArgumentType
