"""Helpers of the worker tests: worker services without a company, and a runner that starts jobs and reads their replies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from greenroom.actors.bulkheads import Bulkheads
from greenroom.actors.catalogue import CatalogueRef
from greenroom.actors.catalogue_entries import prompt_entry, resource_entry, template_entry, tool_entry
from greenroom.actors.handler_options import PromptOptions, ResourceOptions, TemplateOptions, ToolOptions
from greenroom.actors.settings import Settings
from greenroom.actors.worker import execute_job
from greenroom.actors.worker_interfaces import Cancellation, Job, JobError, JobReply, SessionFacts
from greenroom.protocol.jsonrpc import decode
from greenroom.protocol.versions import LATEST
from greenroom.supervision import Down, Exit, Ref, TaskSupervisor, link, start, supervise_job
from greenroom.transports.interfaces import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.catalogue_entries import CatalogueEntry
    from greenroom.actors.worker_interfaces import AroundHook
    from greenroom.supervision import ExitReason, Pid
    from greenroom.supervision.testing import Probe


class NoProcesses:
    """Worker services without process pools."""

    async def run(self, job: Job, entry: Any) -> dict[str, Any]:
        """Nothing here is registered with an isolation."""
        raise NotImplementedError


@dataclass
class FakeServices:
    """The `WorkerServices` of a test."""

    settings: Settings = field(default_factory=Settings)
    catalogue_ref: CatalogueRef = field(default_factory=CatalogueRef)
    bulkheads: Bulkheads = field(default_factory=Bulkheads)
    pools: NoProcesses = field(default_factory=NoProcesses)
    method_handlers: dict[str, Any] = field(default_factory=dict[str, Any])
    around: AroundHook | None = None
    sent: list[tuple[str, int | None, list[str]]] = field(default_factory=list[tuple[str, int | None, list[str]]])

    def expect_elicitations(self, session_id: str, key: int | None, ids: Sequence[str]) -> None:
        """Record the expected elicitations."""
        self.sent.append((session_id, key, list(ids)))

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """No-op: there are no subscribers."""

    def list_changed(self, kind: Kind) -> None:
        """No-op: there are no sessions."""

    def completed(self, elicitation_id: str) -> bool:
        """Unused here."""
        raise NotImplementedError(elicitation_id)

    def put(self, *entries: CatalogueEntry) -> None:
        """Register entries."""
        for entry in entries:
            self.catalogue_ref.write(lambda catalogue, entry=entry: catalogue.put(entry))  # type: ignore[misc]

    def tool(self, function: Callable[..., Any], name: str | None = None, **options: Any) -> None:
        """Register a tool."""
        self.put(tool_entry(name or function.__name__, function, ToolOptions(**options)))

    def resource(self, uri: str, function: Callable[..., Any], **options: Any) -> None:
        """Register a resource."""
        self.put(resource_entry(uri, function, ResourceOptions(uri=uri, **options)))

    def template(self, text: str, function: Callable[..., Any], **options: Any) -> None:
        """Register a resource template."""
        self.put(template_entry(text, function, TemplateOptions(uri_template=text, **options)))

    def prompt(self, function: Callable[..., Any], name: str | None = None, **options: Any) -> None:
        """Register a prompt."""
        self.put(prompt_entry(name or function.__name__, function, PromptOptions(**options)))


class RecordingChannel:
    """A peer channel that records all messages."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Mapping[str, Any]]] = []
        self.logged: list[tuple[str, Any, str | None]] = []
        self.asked: list[tuple[str, Mapping[str, Any], float | None]] = []
        self.answers: dict[str, Any] = {}
        self.interrupted: list[float | None] = []
        self.touches = 0

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        self.said.append((method, params))
        return True

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        self.logged.append((level, data, logger))
        return True

    def touch(self, ahead: float = 0.0) -> None:
        self.touches += 1

    async def ask(
        self, method: str, params: Mapping[str, Any], timeout: float | None, key: str | None = None
    ) -> dict[str, Any]:
        self.asked.append((method, params, timeout))
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return cast("dict[str, Any]", answer)

    def interrupt_stream(self, retry: float | None) -> bool:
        self.interrupted.append(retry)
        return True


@dataclass
class StartedJob:
    """A job that was started."""

    job: Job
    worker: Pid
    peer_channel: RecordingChannel
    runner: JobRunner

    async def answer(self, within: float = 60.0) -> dict[str, Any]:
        """The whole response: result or error."""
        key = self.job.key

        def ours(message: object) -> bool:
            return isinstance(message, JobReply | JobError) and message.key == key

        message: Any = await self.runner.probe.expect(ours, within=within)
        if isinstance(message, JobError):
            return {"error": message.error.to_wire()}
        whole: dict[str, Any] = decode(message.body)
        assert whole["id"] == self.job.request_id
        return whole

    async def result(self) -> dict[str, Any]:
        """The result."""
        answer = await self.answer()
        assert "result" in answer, answer
        return cast("dict[str, Any]", answer["result"])

    async def error(self) -> dict[str, Any]:
        """The error."""
        answer = await self.answer()
        assert "error" in answer, answer
        return cast("dict[str, Any]", answer["error"])

    async def gone(self) -> ExitReason:
        """The exit reason of the worker."""
        return await self.runner.probe.expect_down(self.worker, within=60.0)


class JobRunner:
    """Starts jobs as a session does, and reads their replies."""

    def __init__(self, services: FakeServices, probe: Probe, workers: Ref[TaskSupervisor]) -> None:
        self.services = services
        self.probe = probe
        self.workers = workers
        self._keys = count(1)

    async def start(self, method: str, params: dict[str, Any], **facts: Any) -> StartedJob:
        """Start a worker for a request."""
        peer_channel = RecordingChannel()
        peer = Peer("test", principal=facts.pop("principal", None), auth=facts.pop("auth", None))
        known: dict[str, Any] = {
            "session_id": "s1",
            "version": LATEST,
            "peer": peer,
            "client_info": {"name": "test", "version": "1"},
            "client_capabilities": {},
        }
        session: Ref[Any] = Ref(self.probe.pid)
        key = next(self._keys)
        job = Job(
            key,
            session,
            f"r{key}",
            method,
            params,
            SessionFacts(**(known | facts)),
            peer_channel,
            Cancellation(),
            self.services,
        )
        watched = asyncio.Event()
        worker = await supervise_job(self.workers, _work, watched, job)
        self.probe.monitor(worker)
        watched.set()
        return StartedJob(job, worker, peer_channel, self)

    async def call(self, name: str, arguments: Any = None, *, meta: Any = None, **facts: Any) -> StartedJob:
        """Start a tool call."""
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = arguments
        if meta is not None:
            params["_meta"] = meta
        return await self.start("tools/call", params, **facts)

    async def result(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        return await (await self.call(name, arguments)).result()

    def words(self) -> list[Any]:
        """The unread messages, without the ends of workers."""
        return [message for message in self.probe.pending if not isinstance(message, Down)]

    async def text(self, name: str, /, **arguments: Any) -> str:
        """The text of a tool's result."""
        result = await self.result(name, **arguments)
        assert not result["isError"], result
        (block,) = result["content"]
        return cast("str", block["text"])


async def _work(watched: asyncio.Event, job: Job) -> None:
    await watched.wait()
    await execute_job(job)


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that has no event."""
    while not condition():  # noqa: ASYNC110 - threads tell of nothing, and the time is virtual
        await asyncio.sleep(0.01)


async def start_job_runner(services: FakeServices, probe: Probe) -> JobRunner:
    """A job runner with its own workers."""
    workers = await start(TaskSupervisor)
    return JobRunner(services, probe, workers)


__all__ = ["Exit", "FakeServices", "JobRunner", "RecordingChannel", "StartedJob", "link", "start_job_runner", "until"]
