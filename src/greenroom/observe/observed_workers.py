"""A program with several workers as one: its parent asks each worker for views, metrics and acts, and shows them together.

A request and its answer are bytes in a message to the worker's node. A worker that is being restarted, hangs or is busy delays nothing for longer than `_PATIENCE`:
the page shows the others, and says which one did not answer.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from greenroom.supervision import ActorError

from .observed_program import ObservedProgram
from .view_models import LONGEST_TRY, VIEW_TYPES, ActOutcome, ViewQuery
from .worker_views import OWN_VIEWS, merged_view, named_view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from .admin_settings import Admin
    from .prometheus_metrics import MetricFamily, MetricsPage, WorkerMetrics
    from .readiness import ProgramReadiness
    from .view_models import View

    Ask = Callable[[str, bytes, float], Awaitable[bytes]]

_PATIENCE: Final = 1.0
"""Seconds that a worker has to answer."""
_ACT_PATIENCE: Final = LONGEST_TRY + 5.0
"""Seconds that it has for an act: as long as the longest, and a while to say how that went."""
_LARGEST_RECORDING: Final = 4 * 1024 * 1024


class ViewAsked(msgspec.Struct, frozen=True, tag="view"):
    """The parent asks for a view."""

    name: str
    query: ViewQuery


class ActAsked(msgspec.Struct, frozen=True, tag="act"):
    """The parent asks for an act of one of its viewers, whose right it has checked."""

    act: str
    target: str
    principal: str
    more: dict[str, Any]


class MetricsAsked(msgspec.Struct, frozen=True, tag="metrics"):
    """The parent asks for the metrics: the operating system's process, and their families."""


class RecordingAsked(msgspec.Struct, frozen=True, tag="recording"):
    """The parent asks for the messages that are kept."""


_REQUESTS: Final = msgspec.msgpack.Decoder(ViewAsked | ActAsked | MetricsAsked | RecordingAsked)


async def answer_parent(program: ObservedProgram, request: bytes) -> bytes:
    """The answer of a worker to a request of its parent."""
    asked = _REQUESTS.decode(request)
    match asked:
        case RecordingAsked():
            lines: list[bytes] = []
            size = 0
            async for line in program.recording():
                size += len(line)
                if size > _LARGEST_RECORDING:
                    break
                lines.append(line)
            return b"".join(lines)
        case ViewAsked():
            return msgspec.msgpack.encode(await program.view(asked.name, asked.query))
        case ActAsked():
            return msgspec.msgpack.encode(await program.act(asked.act, asked.target, asked.principal, **asked.more))
        case _:
            return msgspec.msgpack.encode((os.getpid(), program.own_metrics().families()))


class ObservedWorkers(ObservedProgram):
    """What the parent of several workers shows: its own processes, and those of its workers."""

    def __init__(
        self,
        admin: Admin,
        program: str,
        workers: Sequence[str],
        ask: Ask,
        *,
        urls: Callable[[], Sequence[str]] = tuple,
        readiness: ProgramReadiness | None = None,
    ) -> None:
        """`ask` sends a request to a worker's node and returns its answer within so many seconds. It raises `ActorError`."""
        super().__init__(admin, program, urls=urls, readiness=readiness)
        self._workers = tuple(workers)
        self._ask = ask
        self._worker_metrics: WorkerMetrics | None = None
        self._processes: dict[str, int] = {}
        """The operating system's process of each worker that has answered last."""

    # --- views and acts

    async def view(self, name: str, query: ViewQuery) -> View:
        """A view of all workers, or of the one that the query names."""
        if query.worker:
            return await self._view_of(query.worker, name, msgspec.structs.replace(query, worker=""))
        own = await super().view(name, query)
        if name in OWN_VIEWS:
            return msgspec.structs.replace(own, workers=list(self._workers))
        answers = await asyncio.gather(*(self._asked_view(worker, name, query) for worker in self._workers))
        return merged_view(own, dict(zip(self._workers, answers, strict=True)))

    async def _view_of(self, worker: str, name: str, query: ViewQuery) -> View:
        found = await self._asked_view(worker, name, query) if worker in self._workers else None
        if found is None:
            own = await super().view(name, query)
            notes = [f"{worker} does not answer: this is the program that starts it."]
            return msgspec.structs.replace(own, workers=list(self._workers), notes=notes)
        return msgspec.structs.replace(named_view(found, worker), workers=list(self._workers))

    async def _asked_view(self, worker: str, name: str, query: ViewQuery) -> View | None:
        answer = await self._asked(worker, ViewAsked(name, query))
        return None if answer is None else msgspec.msgpack.decode(answer, type=VIEW_TYPES[name])

    async def act(self, act: str, target: str, principal: str, *, worker: str = "", **more: Any) -> ActOutcome:
        """Act on a worker, or on the parent where no worker is named."""
        if not worker:
            return await super().act(act, target, principal, **more)
        answer = None
        if worker in self._workers:
            answer = await self._asked(worker, ActAsked(act, target, principal, more), _ACT_PATIENCE)
        if answer is None:
            text = f"{worker} does not answer, so it is not known whether this was done."
            return ActOutcome(act=act, target=target, is_done=False, text=text, worker=worker)
        return msgspec.structs.replace(msgspec.msgpack.decode(answer, type=ActOutcome), worker=worker)

    async def recording(self) -> AsyncGenerator[bytes]:
        """The messages that are kept, of one worker after the other."""
        async for line in super().recording():
            yield line
        for worker in self._workers:
            answer = await self._asked(worker, RecordingAsked())
            if answer:
                yield answer

    # --- metrics

    async def metrics_page(self, accept: str = "") -> MetricsPage:
        """The metrics of the parent and of all workers, added up."""
        own = self.own_metrics()
        from .prometheus_metrics import MetricFamily, WorkerMetrics  # noqa: PLC0415 - an extra, which is installed

        if self._worker_metrics is None:
            self._worker_metrics = WorkerMetrics()
        total = self._worker_metrics
        total.update("", own.families())
        answers = await asyncio.gather(*(self._asked(worker, MetricsAsked()) for worker in self._workers))
        for worker, answer in zip(self._workers, answers, strict=True):
            if answer is None:
                continue
            process, families = msgspec.msgpack.decode(answer, type=tuple[int, list[MetricFamily]])
            self._count(total, worker, process, families)
        return total.text(accept)

    def _count(self, total: WorkerMetrics, worker: str, process: int, families: list[MetricFamily]) -> None:
        before = self._processes.get(worker)
        if before not in (None, process):
            total.drop(f"{worker}:{before}")
        self._processes[worker] = process
        total.update(f"{worker}:{process}", families)

    async def _asked(self, worker: str, request: msgspec.Struct, patience: float = _PATIENCE) -> bytes | None:
        try:
            return await self._ask(worker, msgspec.msgpack.encode(request), patience)
        except ActorError:
            return None
