"""Acts of an operator on the running program: each is checked, done by the function that the program itself has for it, told in a sentence, and logged.

Whether the program allows acts at all is checked here; whether this viewer may act is checked by the door that it came through. Every attempt emits `ActDone` with its
principal, also one that was refused.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from greenroom import event_types as events
from greenroom.actors.process_names import short_task_id
from greenroom.errors import GreenroomError
from greenroom.supervision import CallTimeout, Ref, Supervisor, kill, restart_child, terminate_child, wait_down
from greenroom.supervision.event_bus import bus
from greenroom.supervision.kernel.process_lookup import shared_task

from . import process_views, program_views
from .event_views import shown
from .secret_masks import masked
from .view_models import LONGEST_TRY, ActOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.actors.company import Company
    from greenroom.actors.federation.federation import Federation
    from greenroom.actors.federation.upstream import Upstream
    from greenroom.supervision import Process

    from .observatory import Observatory

_PATIENCE: Final = 10.0
"""Seconds to wait for an act to have its effect; it goes on after that."""
_REPLAYED: Final = frozenset(
    {"tools/call", "tools/list", "prompts/get", "prompts/list", "resources/read", "resources/list", "ping"}
    | {"resources/templates/list", "completion/complete"}
)
"""Requests that may be sent again: those that belong to no session or task."""
_WHY: Final = "an operator has cancelled it"
log: Final = logging.getLogger("greenroom.observe")


class ActRefused(GreenroomError):
    """An act was not done; the text says why, in a sentence for a person."""


class Acts:
    """The acts on one program."""

    def __init__(self, observatory: Observatory) -> None:
        """`observatory` shows the program that is acted on."""
        self._observatory = observatory
        self._by_name: dict[str, Callable[..., Awaitable[str]]] = {
            "kill": self._kill,
            "restart": self._restart,
            "retry": self._retry,
            "park": self._park,
            "recycle": self._recycle,
            "cancel": self._cancel,
            "cancel_task": self._cancel_task,
            "drain": self._drain,
            "undrain": self._undrain,
        }

    async def act(self, act: str, target: str, *, principal: str, **query: Any) -> ActOutcome:
        """Do it. The outcome says how it went; an act that cannot be done is no error."""
        if act == "replay":
            doing = self._replay(target)
        elif act == "inject":
            doing = _without_result(self._inject(target, str(query.get("kind") or ""), principal))
        else:
            doing = _without_result(self._do(act, target))
        return await self._told(act, target, doing, principal)

    async def try_tool(self, program: str, tool: str, arguments: dict[str, Any], *, principal: str) -> ActOutcome:
        """Call a tool, as a client of this program would."""
        target = f"{program}/{tool}" if program else tool
        return await self._told("try", target, self._try(program, tool, arguments), principal)

    async def _told(
        self, act: str, target: str, doing: Awaitable[tuple[str, str | None]], principal: str
    ) -> ActOutcome:
        """Do the act, and tell and log how it went. It is finished and logged also when the viewer leaves, or when it ends the viewer's own connection."""
        return await asyncio.shield(shared_task(self._tell(act, target, doing, principal)))

    async def _tell(
        self, act: str, target: str, doing: Awaitable[tuple[str, str | None]], principal: str
    ) -> ActOutcome:
        result: str | None = None
        text, is_done = "it was broken off", False
        try:
            text, result = await doing
            is_done = True
        except (GreenroomError, TimeoutError, ValueError, LookupError) as error:
            text = shown(str(error) or type(error).__name__, 1_000)
        finally:
            self._observatory.forget()
            said = "done" if is_done else f"not done: {text}"
            if bus.listener is not None:
                bus.listener(events.ActDone(act=act[:100], target=target[:200], principal=principal, outcome=said))
            log.warning("%s: %s %s: %s", shown(principal) or "an operator", shown(act), shown(target), said)
        return ActOutcome(act=shown(act), target=shown(target), is_done=is_done, text=text, result=result)

    async def _do(self, act: str, target: str) -> str:
        self._check()
        do = self._by_name.get(act)
        if do is None:
            raise ActRefused(
                f"there is no act {shown(act)!r}: there are {', '.join([*self._by_name, 'inject', 'replay'])}"
            )
        return await do(target)

    def _check(self) -> None:
        if not self._observatory.may_act:
            raise ActRefused("this program allows no acts: start it with Admin(acts=True)")

    # --- processes

    def _process(self, target: str) -> Process:
        found = process_views.find_process(self._observatory.node, target)
        if found is None or found.life:
            raise ActRefused(f"there is no process {shown(target)} any more")
        return found

    async def _kill(self, target: str) -> str:
        process = self._process(target)
        label = shown(process.label)
        kill(process.pid)
        try:
            await wait_down(process.pid, _PATIENCE)
        except CallTimeout:
            return f"{label} was killed, and has not unwound yet"
        return f"{label} was killed"

    async def _restart(self, target: str) -> str:
        node = self._observatory.node
        if process_views.find_process(node, target) is None and self._upstreams(target):
            return await self._restart_upstream(target)
        process = self._process(target)
        label = shown(process.label)
        index = await self._observatory.indexed()
        found = index.supervisor_of(process)
        if found is None:
            raise ActRefused(f"{label} has no supervisor that could restart it")
        supervisor, record = found
        if record.spec.restart == "temporary":  # its supervisor forgets it when it is stopped
            raise ActRefused(f"{label} is temporary: its supervisor would not start it again")
        if isinstance(supervisor.behaviour.inner, Supervisor):
            ref: Ref[Any] = Ref(supervisor.pid)
            # No deadline: between the two steps the child would stay away.
            await terminate_child(ref, record.spec.id)
            await restart_child(ref, record.spec.id)
            return f"{label} was restarted by {shown(supervisor.label)}"
        if record.spec.restart != "permanent":
            raise ActRefused(f"{label} is {record.spec.restart}: its supervisor would not start it again")
        kill(process.pid)
        return f"{label} was killed, and {shown(supervisor.label)} starts it again"

    # --- upstreams

    def _upstreams(self, target: str) -> list[tuple[Federation, Upstream]]:
        """The upstreams of that id, or of `program/id`."""
        found = program_views.upstreams_of(self._observatory.node)
        members = [(federation, each) for federation, each in found if federation.members.get(each.id) is each]
        exact = [pair for pair in members if f"{pair[0].key}/{pair[1].name}" == target]
        return exact or [pair for pair in members if pair[1].name == target]

    def _upstream(self, target: str) -> tuple[Federation, Upstream]:
        found = self._upstreams(target)
        if not found:
            raise ActRefused(f"there is no upstream {shown(target)!r}")
        if len(found) > 1:
            names = ", ".join(shown(f"{federation.key}/{each.name}") for federation, each in found[:10])
            raise ActRefused(f"there are several upstreams {shown(target)!r}: name one of {names}")
        return found[0]

    async def _retry(self, target: str) -> str:
        federation, upstream = self._upstream(target)
        federation.retry(upstream.id)
        return f"{shown(upstream.name)} is connected now"

    async def _park(self, target: str) -> str:
        from greenroom.actors.federation.upstream_manager import UpstreamManager  # noqa: PLC0415 - a program with upstreams has it

        federation, upstream = self._upstream(target)
        async with asyncio.timeout(_PATIENCE):
            await Ref[Any](federation.name("manager")).within(_PATIENCE).call(UpstreamManager.park, upstream.id)
        return f"{shown(upstream.name)} is parked until it is retried"

    async def _restart_upstream(self, target: str) -> str:
        federation, upstream = self._upstream(target)
        pid = upstream.pid
        if pid is None or not upstream.running:
            federation.retry(upstream.id)
            return f"{shown(upstream.name)} did not run, and is started"
        kill(pid)
        await wait_down(pid, _PATIENCE)
        federation.retry(upstream.id)
        return f"{shown(upstream.name)} is started again"

    # --- calls, tasks, pools

    async def _cancel(self, target: str) -> str:
        number = int(target) if target.isascii() and target.isdecimal() and len(target) < 19 else 0  # noqa: PLR2004 - more is no number
        for _, _, call in program_views.jobs_of(self._observatory.node):
            if call.observed.number == number and call.abort(_WHY):
                return f"call {number} is cancelled"
        raise ActRefused(
            f"no process works on call {shown(target)} any more: only calls that a worker runs can be cancelled"
        )

    async def _cancel_task(self, target: str) -> str:
        from greenroom.actors.task_record import CancelTask  # noqa: PLC0415 - a program with tasks has it

        found = [
            (company, task)
            for company, _, task in program_views.tasks_of(self._observatory.node)
            if target
            in (
                short_task_id(task.record.id),
                f"{company.settings.name}/{short_task_id(task.record.id)}",
            )
        ]
        if len(found) != 1:
            raise ActRefused(f"{'several tasks are' if found else 'no task under way is'} called {shown(target)!r}")
        company, task = found[0]
        company.tasks.send(task.record.id, CancelTask(_WHY))
        return f"task {shown(target)} is being cancelled"

    async def _recycle(self, target: str) -> str:
        pools = program_views.pools_of(self._observatory.node)
        found = [
            process
            for company, process, facts in pools
            if target
            in (
                program_views.pool_id(facts),
                f"{company.settings.name}/{program_views.pool_id(facts)}",
                str(process.pid),
            )
        ]
        if len(found) != 1:
            raise ActRefused(f"{'several pools are' if found else 'no pool is'} called {shown(target)!r}")
        scheduler: Any = type(found[0].behaviour.inner)
        count = await Ref[Any](found[0].pid).within(_PATIENCE).call(scheduler.recycle)
        return f"{count} processes are replaced, those with calls after these"

    async def _drain(self, target: str) -> str:  # noqa: ARG002 - the program
        drain = self._observatory.drain
        if drain is None:
            raise ActRefused("this program cannot be drained")
        drain()
        return "the program says that it is not ready, so that no new calls are sent to it; what runs goes on"

    async def _undrain(self, target: str) -> str:  # noqa: ARG002 - the program
        undrain = self._observatory.undrain
        if undrain is None:
            raise ActRefused("this program cannot be drained")
        undrain()
        return "the program is not drained any more, and takes calls again once it is ready"

    # --- tools, messages, faults

    def _company(self, program: str) -> Company:
        found = [
            each for each in program_views.companies(self._observatory.node) if program in (each.settings.name, "")
        ]
        if not found:
            raise ActRefused(f"no server {shown(program)!r} runs in this program")
        return found[0]

    async def _try(self, program: str, tool: str, arguments: dict[str, Any]) -> tuple[str, str | None]:
        self._check()
        company = self._company(program)
        if company.catalogue_ref.current.tool(tool) is None:
            raise ActRefused(f"the server has no tool {shown(tool)!r}")
        reply = await _ask(company, "tools/call", {"name": tool, "arguments": arguments})
        return ("the tool reports an error" if reply.get("isError") else "the tool has returned"), _as_json(reply)

    async def _replay(self, target: str) -> tuple[str, str | None]:
        self._check()
        found = self._observatory.wire.find_request(int(target) if target.isascii() and target.isdecimal() else 0)
        if found is None:
            raise ActRefused("that message is not kept any more, or the program does not capture it")
        method, body, program = found
        if method not in _REPLAYED:
            raise ActRefused(f"{shown(method)} belongs to a session or a task, and cannot be sent again")
        params: Any = msgspec.json.decode(body).get("params") or {}
        if type(params) is not dict:
            raise ActRefused(f"{shown(method)} was sent with params that are no object")
        kept = {
            name: each
            for name, each in cast("dict[str, Any]", params).items()
            if name not in ("_meta", "requestState", "inputResponses", "task")
        }
        reply = await _ask(self._company(program), method, kept)
        return "the request was sent again", _as_json(reply)

    async def _inject(self, target: str, kind: str, principal: str) -> str:
        trials = self._observatory.trials
        if trials is None:
            raise ActRefused("this program allows no faults: start it with Admin(faults=True)")
        return await trials.inject(self._process(target), kind, principal)


async def _without_result(doing: Awaitable[str]) -> tuple[str, None]:
    return await doing, None


async def _ask(company: Company, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request, sent as by a client in this program."""
    from greenroom.client import Client  # noqa: PLC0415 - a server that is only looked at needs no client
    from greenroom.transports.client.memory_route import MemoryRoute  # noqa: PLC0415 - as above

    async with asyncio.timeout(LONGEST_TRY):
        async with Client(MemoryRoute(company, description=company.settings.name)) as client:
            reply: dict[str, Any] = await client.within(LONGEST_TRY).request(method, params)
            return reply


def _as_json(reply: dict[str, Any]) -> str:
    return msgspec.json.encode(masked(reply)).decode()
