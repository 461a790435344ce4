"""The upstream manager: one process of a federation that starts, replaces, stops and parks upstreams, so that concurrent callers do not race.

Its messages come from the `Federation`, its jobs and its monitors. The wanted state is on the federation, which outlives it: when the manager dies its
successor resumes from there. It never waits: to wait for a new upstream to be ready, or for an old one to finish, it starts a job in a process of its own.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.actors.client.errors import ClientClosed, Unavailable
from greenroom.errors import GreenroomError
from greenroom.supervision import (
    GAVE_UP,
    NO_PROCESS,
    SHUTDOWN,
    ActorError,
    AlreadyRegistered,
    Caller,
    Down,
    GenServer,
    NotRegistered,
    Options,
    ProcessExited,
    Reject,
    child,
    current_node,
    is_alive,
    is_orderly,
    kill,
    later,
    monitor,
    send_after,
    start_child,
    stop,
    supervise_job,
)

from .federation_errors import ParkedByOperator, UpstreamBusy
from .upstream import Upstream, UpstreamSupervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import ExitReason, Monitor, Pid

    from .federation import Federation
    from .upstream_spec import UpstreamSpec

_SOON: Final = 0.1
"""Seconds until a start is tried again that failed because a supervisor was being restarted."""
_CLOSING: Final = 30.0
"""Seconds that an upstream's processes may take to end before they are killed."""


class _RestartDue(NamedTuple):
    """To itself: start this upstream now, unless a later timer replaced this one."""

    upstream: Upstream
    epoch: int


class _Replacing(NamedTuple):
    """A replacement under way."""

    new: Upstream
    caller: Caller[Any]
    keep_old: bool


class UpstreamManager(GenServer):
    """The process that changes a federation's set of upstreams; there is one for each federation."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, federation: Federation) -> None:
        """`federation` is the one whose members it writes."""
        self.federation = federation
        self._downs: dict[Monitor, Callable[[ExitReason], Any]] = {}
        self._replacing: dict[str, _Replacing] = {}
        self._leaving: dict[int, list[Caller[None]]] = {}
        self._restart_epochs: dict[int, int] = {}

    async def init(self) -> None:
        """Resume from a predecessor's state, or start the initial servers."""
        federation = self.federation
        federation.manager_started.wake()
        for upstream in federation.members.values():
            upstream.stopped = False
        for upstream in tuple(federation.arriving.values()):
            del federation.arriving[upstream.serial]
            await self._leave(upstream, 0.0)
        for upstream in tuple(federation.leaving.values()):
            await self._start_draining(upstream)
        for id, spec in federation.initial.items():
            if id not in federation.members:
                self.federation.admit(Upstream(id, spec, federation))
        federation.initial = {}
        for upstream in tuple(federation.members.values()):
            if upstream.pid is not None and is_alive(upstream.pid):
                self._watch(upstream, upstream.pid)
            elif upstream.parked is not None:
                if not _is_held(upstream):
                    self._wake_later(upstream)
            else:
                if upstream.running:
                    upstream.on_stopped()
                await self._revive(upstream)

    def terminate(self, reason: ExitReason) -> None:
        """On an orderly end the federation stops: mark the upstreams, so that waiting callers fail."""
        if is_orderly(reason):
            for upstream in self.federation.members.values():
                upstream.stopped = True

    # --- calls

    async def start(self, id: str, spec: UpstreamSpec) -> Pid | None:
        """Add a server."""
        known = self.federation.members.get(id)
        if known is not None:
            raise Reject(AlreadyRegistered(id, known.pid or self.pid))
        upstream = self._make(id, spec)
        arriving = self.federation.arriving
        try:
            await self._run(upstream)
        except ActorError as error:
            del arriving[upstream.serial]
            raise Reject(error) from None
        del arriving[
            upstream.serial
        ]  # not in a `finally`: if this process dies in between, its successor stops what is in `arriving`
        self.federation.admit(upstream)
        return upstream.pid

    async def stop(self, id: str, grace: float | None = None) -> None:
        """Remove a server. Replies when its last process has ended."""
        upstream = self._member(id)
        replacing = self._replacing.pop(id, None)
        if replacing is not None:
            self.federation.arriving.pop(replacing.new.serial, None)
            await self._leave(replacing.new, 0.0)
            replacing.caller.fail(ClientClosed(f"{id} was stopped"))
        self._leaving.setdefault(upstream.serial, []).append(self.caller)
        self.federation.unregister(upstream)
        await self._leave(upstream, upstream.spec.grace if grace is None else grace)
        return later()  # type: ignore[no-any-return]  # `later()` means that the reply, None, comes later

    async def replace(self, id: str, spec: UpstreamSpec, ready_within: float, *, keep_old: bool) -> Pid | None:
        """Replace a server. Replies when the id has moved."""
        self._member(id)
        if id in self._replacing:
            raise Reject(UpstreamBusy(f"{id} is being replaced already"))
        new = self._make(id, spec)
        try:
            await self._run(new)
            await self._start_job(
                _wait_until_settled, new, ready_within, then=lambda: self._finish_replacement(id, new)
            )
        except ActorError as error:
            self.federation.arriving.pop(new.serial, None)
            await self._leave(new, 0.0)
            raise Reject(error) from None
        self._replacing[id] = _Replacing(new, self.caller, keep_old)
        return later()  # type: ignore[no-any-return]  # `later()` means that the reply, a pid, comes later

    async def retry(self, id: str) -> None:
        """Connect now, and revive the upstream if it is parked."""
        upstream = self._member(id)
        upstream.retry_now()
        if upstream.parked is not None:
            upstream.parkings = 0
            upstream.revive_at = self.process.node.now()
            await self._revive(upstream)
        upstream.line.retry()
        upstream.wakeup.wake()

    async def park(self, id: str) -> None:
        """Stop the upstream's processes for an operator, and start them again only when it is retried."""
        upstream = self._member(id)
        self._restart_epochs[upstream.serial] = self._restart_epochs.get(upstream.serial, 0) + 1  # no timer revives it
        upstream.revive_at = None
        upstream.park(ParkedByOperator("an operator has parked it: retry it to start it again"))
        if upstream.pid is not None and is_alive(upstream.pid):
            pid = upstream.pid
            self._downs[monitor(await supervise_job(self.federation.jobs, _stop_tree, pid))] = lambda _: None

    def _member(self, id: str) -> Upstream:
        upstream = self.federation.members.get(id)
        if upstream is None:
            raise Reject(NotRegistered(NO_PROCESS, id))
        return upstream

    # --- starting

    def _make(self, id: str, spec: UpstreamSpec) -> Upstream:
        try:
            upstream = Upstream(id, spec, self.federation)
        except Exception as error:  # the caller that made the spec gets the error; the manager goes on
            raise Reject(error) from error
        self.federation.arriving[upstream.serial] = upstream
        return upstream

    async def _run(self, upstream: Upstream) -> None:
        """Start the upstream's tree."""
        options = Options(label=f"upstream {upstream.name}")
        spec = child(UpstreamSupervisor, upstream).but(id=upstream.name, restart="temporary", options=options)
        ref = await start_child(self.federation.upstreams, spec)
        self._watch(upstream, ref.pid)

    def _watch(self, upstream: Upstream, pid: Pid) -> None:
        self._downs[monitor(pid)] = lambda reason: self._on_down(upstream, reason)

    async def _revive(self, upstream: Upstream) -> None:
        """Restart a tree, once the processes of the last one have ended."""
        if not self._wanted(upstream) or (upstream.pid is not None and is_alive(upstream.pid)):
            return
        for pid in (upstream.pid, upstream.line.pid):
            if pid is not None and current_node().process(pid) is not None:
                self._downs[monitor(pid)] = lambda _: self._revive(upstream)
                return
        upstream.parked = None
        try:
            await self._run(upstream)
        except ProcessExited:
            self._later(
                upstream, _SOON
            )  # the supervisor of all upstreams is being restarted; the upstream itself has not failed
        except ActorError as error:
            upstream.pid = None
            self._park(upstream, error)

    def _wanted(self, upstream: Upstream) -> bool:
        return upstream.leave_by is None and (
            self.federation.members.get(upstream.id) is upstream or upstream.serial in self.federation.arriving
        )

    # --- failures

    async def _on_down(self, upstream: Upstream, reason: ExitReason) -> None:
        upstream.on_stopped()
        if not self._wanted(upstream) or _is_held(upstream):
            return
        if reason != GAVE_UP and upstream.restarts.admit(self.process.node.now()):
            await self._revive(upstream)
            return
        why = upstream.last_end if reason == GAVE_UP and upstream.last_end is not None else reason
        spec = upstream.spec
        cause = Unavailable(upstream.name, _error_of(why))
        cause.add_note(f"its processes died more than {spec.intensity} times within {spec.period:g} s")
        self._park(upstream, cause)

    def _park(self, upstream: Upstream, cause: Exception) -> None:
        now = self.process.node.now()
        if now - upstream.since >= upstream.spec.revive.quiet:
            upstream.parkings = 0
        self._wake_later(upstream)
        upstream.park(cause)

    def _wake_later(self, upstream: Upstream) -> None:
        delay = upstream.spec.revive.delay(upstream.parkings, current_node().random)
        upstream.parkings += 1
        upstream.revive_at = self.process.node.now() + delay
        self._later(upstream, delay)

    def _later(self, upstream: Upstream, seconds: float) -> None:
        epoch = self._restart_epochs[upstream.serial] = self._restart_epochs.get(upstream.serial, 0) + 1
        send_after(seconds, self.pid, _RestartDue(upstream, epoch))

    # --- stopping

    async def _finish_replacement(self, id: str, new: Upstream) -> None:
        """The new upstream is ready, or its time is over: move the id, or give it up."""
        replacing = self._replacing.get(id)
        if replacing is None or replacing.new is not new:
            return
        del self._replacing[id]
        del self.federation.arriving[new.serial]
        if replacing.keep_old and not new.settled:
            await self._leave(new, 0.0)
            cause = new.line.status.cause
            replacing.caller.fail(Unavailable(new.name, cause))
            return
        old = self.federation.members[id]
        self.federation.hand_over(old, new)
        await self._leave(
            old, old.spec.grace
        )  # first: an upstream that is marked as leaving is stopped even if this process dies now
        if old.level is not None:
            await supervise_job(self.federation.jobs, _restore_level, new, old.level)
        replacing.caller.reply(new.pid)

    async def _leave(self, upstream: Upstream, grace: float) -> None:
        now = self.process.node.now()
        upstream.leave_by = now + grace
        self.federation.leaving[upstream.serial] = upstream
        upstream.refresh()
        await self._start_draining(upstream)

    async def _start_draining(self, upstream: Upstream) -> None:
        await self._start_job(_drain_and_stop, upstream, then=lambda: self._on_drained(upstream))

    async def _on_drained(self, upstream: Upstream) -> None:
        if upstream.pid is not None and is_alive(upstream.pid):
            await self._start_draining(upstream)  # the job was killed before the upstream had ended: start another one
            return
        upstream.limiter.close()
        upstream.limiter.abandon()
        upstream.forget_results()
        upstream.running = False
        upstream.gone = True
        self.federation.leaving.pop(upstream.serial, None)
        self._restart_epochs.pop(upstream.serial, None)
        upstream.refresh()
        for caller in self._leaving.pop(upstream.serial, ()):
            caller.reply(None)

    async def _start_job(self, what: Callable[..., Any], *args: Any, then: Callable[[], Any]) -> None:
        pid = await supervise_job(self.federation.jobs, what, *args)
        self._downs[monitor(pid)] = lambda _: then()

    def handle_info(self, message: Any) -> Any:
        """Handle the end of a monitored process, or a restart timer."""
        match message:
            case Down(ref=ref, reason=reason):
                then = self._downs.pop(ref, None)
                return None if then is None else then(reason)
            case _RestartDue(upstream, epoch):
                return self._revive(upstream) if self._restart_epochs.get(upstream.serial) == epoch else None
            case _:
                return super().handle_info(message)

    def report_state(self) -> str:
        federation = self.federation
        return f"{len(federation.members)} upstreams, {len(federation.arriving)} arriving, {len(federation.leaving)} leaving"


def _error_of(reason: ExitReason) -> Exception:
    error = getattr(reason, "error", None)
    return error if isinstance(error, Exception) else ProcessExited(reason)


async def _wait_until_settled(upstream: Upstream, seconds: float) -> None:
    """Wait until the upstream is ready or parked, or the time is over."""
    until = current_node().now() + seconds
    while not upstream.settled and await upstream.changed(until):
        pass


async def _restore_level(upstream: Upstream, level: str) -> None:
    """Set the log level of the replaced upstream at the new one, if that supports it."""
    with contextlib.suppress(GreenroomError):
        await upstream.set_level(level, upstream.spec.settings.request_timeout)


async def _drain_and_stop(upstream: Upstream) -> None:
    """Wait for the requests under way, within the grace, and stop the upstream's tree."""
    until = upstream.leave_by or 0.0
    while not upstream.limiter.idle and upstream.running and await upstream.changed(until):
        pass
    upstream.limiter.close()
    if upstream.pid is not None and is_alive(upstream.pid):
        await _stop_tree(upstream.pid)


def _is_held(upstream: Upstream) -> bool:
    """Whether an operator has parked it: no time is set at which it is revived."""
    return upstream.parked is not None and upstream.revive_at is None


async def _stop_tree(pid: Pid) -> None:
    """Stop an upstream's processes."""
    try:
        await stop(pid, SHUTDOWN, _CLOSING)
    except ProcessExited:
        pass
    except GreenroomError:
        kill(pid)
