"""Process groups as OTP's `pg`: join, leave, members, broadcast, monitors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import ActorError, GenServer, NotRegistered, Ref, inbox, kill, start, wait_down
from greenroom.supervision.groups import (
    ALL_GROUPS,
    GroupChange,
    Groups,
    broadcast,
    join,
    leave,
    members,
    monitor,
    which_groups,
)

if TYPE_CHECKING:
    from greenroom.supervision import Pid


class Member(GenServer):
    """Joins given groups, and keeps its messages."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def enter(self, groups: Ref[Groups], group: str) -> None:
        await join(groups, group)

    async def go(self, groups: Ref[Groups], group: str) -> None:
        await leave(groups, group)

    def handle_info(self, message: Any) -> None:
        self.heard.append(message)

    def tell_me(self) -> list[Any]:
        return self.heard


async def crowd(groups: Ref[Groups], group: str, size: int) -> list[Ref[Member]]:
    """So many members of a group."""
    refs = [await start(Member) for _ in range(size)]
    for ref in refs:
        await ref.call(Member.enter, groups, group)
    return refs


def pids(refs: list[Ref[Member]]) -> list[Pid]:
    """Their addresses."""
    return [ref.pid for ref in refs]


@pytest.mark.otp("pg_SUITE", "single")
async def test_members_are_told_together_and_in_order() -> None:
    groups = await start(Groups)
    refs = await crowd(groups, "choir", 3)
    assert members(groups, "choir") == pids(refs)
    assert broadcast(groups, "choir", "sing") == 3
    assert broadcast(groups, "missing", "sing") == 0
    assert [await ref.call(Member.tell_me) for ref in refs] == [["sing"]] * 3
    assert which_groups(groups) == ["choir"]


@pytest.mark.otp("pg_SUITE", "double")
async def test_a_process_that_joins_twice_has_to_leave_twice() -> None:
    groups = await start(Groups)
    (ref,) = await crowd(groups, "choir", 1)
    await ref.call(Member.enter, groups, "choir")
    assert members(groups, "choir") == [ref.pid] * 2
    assert broadcast(groups, "choir", "sing") == 2
    await ref.call(Member.go, groups, "choir")
    assert members(groups, "choir") == [ref.pid]
    await ref.call(Member.go, groups, "choir")
    assert (members(groups, "choir"), which_groups(groups)) == ([], [])
    await ref.call(Member.go, groups, "choir")
    server = groups._process
    assert server is not None
    assert server.watching is None, "processes without a group are not monitored"


@pytest.mark.otp("pg_SUITE", "single")
async def test_the_dead_are_in_no_group() -> None:
    groups = await start(Groups)
    refs = await crowd(groups, "choir", 3)
    await refs[1].call(Member.enter, groups, "band")
    kill(refs[1])
    assert members(groups, "choir") == [refs[0].pid, refs[2].pid], "seen before the groups have heard of it"
    assert which_groups(groups) == ["choir"]
    with pytest.raises(ActorError, match="not alive"):
        await groups.call(Groups.join, "choir", [refs[0].pid, refs[1].pid])
    assert len(members(groups, "choir")) == 2, "all of them or none"


@pytest.mark.otp("pg_SUITE", "monitor")
async def test_a_monitor_hears_of_every_change_of_its_group() -> None:
    groups = await start(Groups)
    first, second = await crowd(groups, "choir", 2)
    async with inbox() as me:
        ref, now = await monitor(groups, "choir")
        assert now == [first.pid, second.pid]
        (third,) = await crowd(groups, "choir", 1)
        await crowd(groups, "band", 1)
        assert await me.receive() == GroupChange(ref, "joined", "choir", (third.pid,))
        await third.call(Member.go, groups, "choir")
        assert await me.receive() == GroupChange(ref, "left", "choir", (third.pid,))
        await first.call(Member.enter, groups, "choir")
        assert await me.receive() == GroupChange(ref, "joined", "choir", (first.pid,))
        kill(first)
        assert await me.receive() == GroupChange(ref, "left", "choir", (first.pid, first.pid))
        assert await groups.call(Groups.demonitor, ref)
        assert not await groups.call(Groups.demonitor, ref)
        kill(second)
        await wait_down(second)
        await groups.call(Groups.demonitor, 0)
        assert me.pending() == ()


@pytest.mark.otp("pg_SUITE", "monitor_scope")
async def test_a_single_monitor_sees_the_changes_of_all_groups() -> None:
    groups = await start(Groups)
    (first,) = await crowd(groups, "choir", 1)
    async with inbox() as me:
        ref, now = await monitor(groups, ALL_GROUPS)
        assert now == {"choir": [first.pid]}
        (second,) = await crowd(groups, "band", 1)
        assert await me.receive() == GroupChange(ref, "joined", "band", (second.pid,))
    await groups.call(Groups.join, "choir", [second.pid])
    server = groups._process
    assert server is not None
    assert len(server.watching or ()) == 2, "the listener is gone, and with it its monitor"
    with pytest.raises(ActorError, match="not alive"):
        await groups.call(Groups.monitor, "choir", me.pid)


@pytest.mark.otp("pg_SUITE", "missing_scope_join")
async def test_without_its_owner_there_are_no_groups() -> None:
    groups = await start(Groups)
    kill(groups)
    with pytest.raises(NotRegistered):
        members(groups, "choir")
