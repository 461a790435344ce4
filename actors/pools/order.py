"""One call that is to run in a worker, as home has it: who asked, what is sent, and who hears of it.

It is made by the job's own process, kept by the foreman while it waits and by a minder while it runs, and answered once: `Caller` takes the
first answer, and drops the rest.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from io import BytesIO
from typing import TYPE_CHECKING, Any

from greenroom.actors.callers import whose

from .facts import packed
from .words import ANSWER, Errand, errand_to_bytes

if TYPE_CHECKING:
    from greenroom.actors.entries import Entry
    from greenroom.actors.jobs import Job
    from greenroom.supervision import Caller, Pid, Ref

    from .words import Outcome


class Order:
    """A call."""

    __slots__ = (
        "_context",
        "_parts",
        "_questions",
        "caller",
        "entry",
        "errand",
        "facts",
        "is_dropped",
        "job",
        "minder",
        "moved",
        "number",
        "taken",
        "who",
    )

    def __init__(self, job: Job, entry: Entry, node: str) -> None:
        """Made in the job's process. What cannot be sent is that process's error."""
        facts = job.facts
        self.job = job
        self.entry = entry
        self.who = whose(job)
        """Whose part of the pool it takes."""
        self.errand: bytes = errand_to_bytes(
            Errand(
                job.request_id,
                job.method,
                dict(job.params),
                job.task,
                facts.session_id,
                facts.version,
                facts.peer.transport,
                facts.peer.address,
                dict(facts.client_info),
                dict(facts.client_capabilities),
            )
        )
        self.facts = packed(facts, node)
        self.caller: Caller[Outcome]
        self.minder: Pid | None = None
        """Who has it, once it is with a worker; the foreman writes it."""
        self.number = 0
        """Which call of that worker it is."""
        self.taken = 0
        """How many words of its handler have come."""
        self.moved = 0
        """How many workers had it and did not even begin with it."""
        self.is_dropped = False
        """Whether whoever asked is gone."""
        self._parts: BytesIO | None = None
        self._context = copy_context()
        self._questions: dict[int, asyncio.Task[None]] = {}

    @property
    def is_unwanted(self) -> bool:
        """Whether nobody waits for it any more: then it is not begun anew."""
        return self.is_dropped or bool(self.job.cancelled)

    def take(self, piece: bytes) -> None:
        """A part of a response that comes in several."""
        if self._parts is None:
            self._parts = BytesIO()
        self._parts.write(piece)

    def put_together(self) -> bytes:
        """All the parts that have come. They lie where they will stay: to copy them now, all at once, would hold everybody up."""
        parts, self._parts = self._parts or BytesIO(), None
        return parts.getvalue()

    def settle(self, outcome: Outcome) -> None:
        """This came of it."""
        for each in self._questions.values():
            each.cancel()
        self.caller.reply(outcome)

    def ask(self, seat: Ref[Any], call: int, question: int, asked: tuple[str, dict[str, Any], float | None]) -> None:
        """Ask the peer, in the job's own process: what it has open ends with it."""
        asking = self._ask(seat, call, question, asked)
        task = asyncio.get_running_loop().create_task(asking, context=self._context)
        self._questions[question] = task

    def unask(self, question: int) -> None:
        """Whoever asked does not wait any more."""
        task = self._questions.get(question)
        if task is not None:
            task.cancel()

    async def _ask(
        self, seat: Ref[Any], call: int, question: int, asked: tuple[str, dict[str, Any], float | None]
    ) -> None:
        try:
            value: Any = await self.job.voice.ask(*asked)
        except Exception as error:  # noqa: BLE001 - it is the handler that hears of it
            seat.send([ANSWER, call, question, False, error])
        else:
            seat.send([ANSWER, call, question, True, value])
        finally:
            self._questions.pop(question, None)
