"""What a server has to know of the entries of mounted hosts, which are in no catalogue: answers that wait for no upstream.

A gateway implements it. Requests that reach such an entry are answered by the gateway's own handlers, in a worker; before that, the server asks here
whether a call may become a task, and which headers it must repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.protocol.jsonrpc import JsonRpcRequest
    from greenroom.protocol.mirrored_headers import HeaderPlan
    from greenroom.supervision import Pid

    from .handler_options import TaskSupport
    from .worker_interfaces import SessionFacts, WorkerServices


class CallableTool(Protocol):
    """A tool, as far as a call of it concerns the server before it runs: one of the server's own, or of an upstream."""

    @property
    def name(self) -> str:
        """The name that clients call it by."""
        ...

    @property
    def as_task(self) -> TaskSupport:
        """Whether its calls may become tasks."""
        ...

    @property
    def long_running(self) -> bool:
        """Whether its calls in a session become tasks unasked."""
        ...

    @property
    def defer_task(self) -> bool:
        """Whether the running call decides that it becomes a task."""
        ...

    @property
    def task_timeout(self) -> float | None:
        """How long it may run as a task; None for no limit of its own."""
        ...

    @property
    def header_plan(self) -> HeaderPlan | None:
        """The parameters that HTTP headers repeat; None for a tool without any."""
        ...

    @property
    def wraps_result(self) -> bool:
        """Whether handshake revisions have its structured results under `result`."""
        ...

    @property
    def may_run_again(self) -> bool:
        """Whether a call may be carried out twice: the tool is declared idempotent, or changes nothing."""
        ...


class MountedEntries(Protocol):
    """The entries of all hosts that are mounted on one server."""

    @property
    def runs_own_tools(self) -> bool:
        """Whether the server's own tools are called as they are registered; False where code of the server's author answers all calls."""
        ...

    def tool(self, name: str) -> CallableTool | None:
        """The upstream's tool that clients call by this name. None for one that no upstream has; while a list is not known yet, a tool of it that may be there."""
        ...

    def announces(self, method: str, name: str) -> bool:
        """Whether an upstream's list has the tool, prompt or resource that a request names."""
        ...

    async def listen(self, listener: Pid, facts: SessionFacts, uris: Sequence[str], *, lists: bool) -> Sequence[str]:
        """Announce changes to a process, until `stop_listening` or its death: of these resources, and with `lists` of lists that differ for its client.

        Returns the resources that are followed: of those that are no upstream's, all. One that its upstream cannot follow is left out.
        """
        ...

    def stop_listening(self, listener: Pid) -> None:
        """Announce nothing more to this process."""


def callable_tool(services: WorkerServices, request: JsonRpcRequest, found: Sequence[Any]) -> CallableTool | None:
    """The tool that a `tools/call` reaches; `found` are the entries of the catalogue. None for an unknown one, and where the author's code answers all calls."""
    mounted = services.catalogue_ref.current.mounted
    if found:
        entry: CallableTool = found[0]
        if mounted is None:
            return None if request.method in services.method_handlers else entry
        return entry if mounted.runs_own_tools else None
    return None if mounted is None else mounted.tool(request.params["name"])
