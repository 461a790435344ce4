"""Acts end as they should also where the viewer leaves, the target ends the viewer's own connection, or what was captured is hostile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import pytest
from tests.transports.http.raw_http import request

from greenroom import event_types as events
from greenroom.observe.observatory import Observatory
from greenroom.supervision import GenServer, Supervisor, child, current_node, start, stop
from greenroom.supervision.event_bus import bus
from greenroom.supervision.supervisors.supervisor_base import BaseSupervisor

from .admin_helpers import running_admin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.supervision import Process

    from .admin_helpers import RunningAdmin

FORM = {"content_type": "application/x-www-form-urlencoded", "x_csrf_token": ""}


class Reluctant(GenServer):
    """Ends when it is let go."""

    traps_exit: ClassVar[bool] = True
    leaving: asyncio.Event
    let_go: asyncio.Event

    async def terminate(self, reason: Any) -> None:
        Reluctant.leaving.set()
        await Reluctant.let_go.wait()


@pytest.fixture
async def told() -> AsyncGenerator[asyncio.Queue[events.ActDone]]:
    """The acts that are logged."""
    acts: asyncio.Queue[events.ActDone] = asyncio.Queue()
    unsubscribe = bus.subscribe(lambda event: acts.put_nowait(event) if isinstance(event, events.ActDone) else None)
    yield acts
    unsubscribe()


def running(id: str) -> Process | None:
    """The running child with this id."""
    node = current_node()
    for process in list(node.processes.values()):
        if isinstance(process.behaviour.inner, BaseSupervisor):
            for record in process.behaviour.inner.children():
                if str(record.spec.id).startswith(id) and record.pid is not None:
                    return node.process(record.pid)
    return None


def act_of(admin: RunningAdmin, act: str, process: Process) -> bytes:
    return f"act={act}&target={quote(str(process.pid))}&csrf={admin.csrf}".encode()


async def test_an_act_is_finished_and_logged_when_its_viewer_leaves(told: asyncio.Queue[events.ActDone]) -> None:
    Reluctant.leaving, Reluctant.let_go = asyncio.Event(), asyncio.Event()
    top = await start(Supervisor, [child(Reluctant).but(id="reluctant", shutdown=5.0)])
    before = running("reluctant")
    assert before is not None
    async with running_admin(acts=True) as admin:
        await admin.sign_in()
        client = await admin.client()
        body = act_of(admin, "restart", before)
        await client.send(request("POST", "/observe/act", body, **{**admin.posted, **FORM}))
        await Reluctant.leaving.wait()
        client.abort()
        assert (await admin.ask("GET", "/observe/", **admin.own)).status == 200
        Reluctant.let_go.set()
        done = await told.get()
        assert (done.act, done.target, done.outcome) == ("restart", str(before.pid), "done")
        after = running("reluctant")
        assert after is not None
        assert after is not before
    await stop(top, timeout=None)


async def test_a_viewer_that_restarts_its_own_listener_gets_it_back(told: asyncio.Queue[events.ActDone]) -> None:
    async with running_admin(acts=True) as admin:
        await admin.sign_in()
        before = running("http:")
        assert before is not None
        client = await admin.client()
        await client.send(request("POST", "/observe/act", act_of(admin, "restart", before), **{**admin.posted, **FORM}))
        assert (await told.get()).outcome == "done"
        assert running("http:") not in (None, before)
        assert (await admin.ask("GET", "/observe/", **admin.own)).status == 200


async def test_what_its_supervisor_would_forget_is_not_stopped_to_be_restarted(
    told: asyncio.Queue[events.ActDone],
) -> None:
    async with running_admin(acts=True) as admin:
        await admin.sign_in()
        part = running("admin")
        assert part is not None
        refused = await admin.ask("POST", "/observe/act", act_of(admin, "restart", part), **{**admin.posted, **FORM})
        assert refused.status == 409
        assert "temporary" in (await told.get()).outcome
        assert running("admin") is part
        page = await admin.ask("GET", f"/observe/process?pid={quote(str(part.pid))}", **admin.own)
        assert b"act=kill" in page.body
        assert b"act=restart" not in page.body


async def test_a_captured_request_with_odd_params_is_refused_and_logged(told: asyncio.Queue[events.ActDone]) -> None:
    observatory = Observatory("shop", acts=True, capture=True)
    observatory.start()
    for number, params in enumerate((b"[1]", b'"x"', b"7"), 1):
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + params + b"}"
        observatory.wire.take(events.FramePassed(side="server", program="shop", direction="in", body=body))
        outcome = await observatory.act("replay", str(number), principal="ada")
        assert not outcome.is_done
        assert "no object" in outcome.text
        assert told.get_nowait().target == str(number)
    observatory.stop()
