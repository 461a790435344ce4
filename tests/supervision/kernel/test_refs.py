"""Refs: by pid and by name, and the caller that a server sees."""

from __future__ import annotations

import pytest

from greenroom.supervision import (
    CallTimeout,
    Node,
    NotRegistered,
    Options,
    Pid,
    ProcessExited,
    Ref,
    kill,
    multi_call,
    spawn,
    start,
)
from greenroom.supervision.behaviours.refs import request

from .counter_server import Counter
from .sample_servers import Log, forever, turns

# --- handles


async def test_a_handle_by_name_is_looked_up_at_each_use() -> None:
    by_name: Ref[Counter] = Ref("counter")
    with pytest.raises(NotRegistered, match="no process is registered as 'counter'"):
        await by_name.call(Counter.add, 1)
    with pytest.raises(NotRegistered):
        _ = by_name.pid
    assert not by_name.cast(Counter.add, 1)
    for _ in range(2):
        ref = await Options(name="counter").start(Counter)
        assert by_name.pid == ref.pid
        assert by_name.cast(Counter.add, 1)
        assert await by_name.call(Counter.add, 1) == 2
        assert await by_name.ask(1) == 1
        kill(ref)


async def test_handles_are_equal_when_they_mean_the_same() -> None:
    ref = await start(Counter)
    same: Ref[Counter] = Ref(ref.pid)
    named: list[Ref[Counter]] = [Ref("x"), Ref("x")]
    assert ref == same == ref.within(1.0)
    assert len({ref, same, *named}) == 2
    assert ref != ref.pid
    assert repr(named[0]) == "<Ref x>"
    assert repr(ref) == f"<Ref {ref.pid}>"


async def test_a_caller_can_be_looked_at() -> None:
    ref, asker = await start(Counter), await start(Log)
    asker.cast(Log.do_async, lambda: ref.call(Counter.keep))
    outside = request(ref, Counter.keep)
    await turns()
    kept = await ref.call(lambda server: server.kept)
    by_pid = {caller.pid: caller for caller in kept}
    assert set(by_pid) == {None, asker.pid}
    assert {repr(caller) for caller in kept} == {"<Caller outside>", f"<Caller {asker.pid}>"}
    await ref.call(Counter.release, 1)
    assert all(caller.over for caller in kept)
    assert await outside.wait() == 1


async def test_there_is_no_caller_outside_a_call(node: Node) -> None:
    ref = await start(Counter)
    ref.cast(lambda server: server.caller)
    with pytest.raises(ProcessExited, match="there is no caller: the current message is not a call"):
        await ref.call(Counter.add, 1)


async def test_a_call_to_what_is_no_server_is_refused_or_waits() -> None:
    pid = spawn(forever)
    by_pid: Ref[Counter] = Ref(pid, 0.5)
    with pytest.raises(CallTimeout):
        await by_pid.call(Counter.add, 1)


async def test_several_are_asked_at_once_and_the_dead_do_not_spoil_it() -> None:
    refs = [await start(Counter, number) for number in range(4)]
    kill(refs[1])
    answers = await multi_call([*refs, Ref(Pid("elsewhere", 1, 1))], Counter.divide, 1)
    assert answers.replies == {refs[0]: 0, refs[2]: 2, refs[3]: 3}
    assert [type(error) for error in answers.missing.values()] == [ProcessExited, ProcessExited]
