"""The server's own code that runs for a session and not for a call: its `init`, and what it wants to hear of.

Each runs in a worker of its own, as a tool does: it may take its time, fail or exit, and the session stays responsive. A plain function runs in
a thread.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.errors import suggests
from greenroom.protocol.errors import McpError
from greenroom.supervision import current_process, describe, link

from .jobs import Failed
from .settings import BadSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.supervision import Ref, Threads

    from .jobs import Around, Job, Own


@suggests("Hooks")
@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a server wants to be called for. Each may be an `async def` or a plain function."""

    init: Callable[[Any], Any] | None = None
    """``init(facts)`` makes the state of a new session (`ctx.state`). If it raises, there is no session.

    `facts` are `session_id`, `version` (the revision), `client_info`, `client_capabilities`, and `peer`, with its `transport`, `address`, `auth` and `principal`.
    """
    roots_changed: Callable[[Any, Any], Any] | None = None
    """``roots_changed(params, facts)``: the peer's roots are others now."""
    level: Callable[[str, Any], Any] | None = None
    """``level(level, facts)``: the peer wants another log level; if it raises, the level stays."""
    answers: Mapping[str, Own] = field(default_factory=dict[str, "Own"])
    """By method: code that answers instead of the catalogue, in a worker as any other. Each gets the job and its context."""
    around: Around | None = None
    """``await around(method, ctx, proceed)`` stands around every call, read, prompt and completion, in its worker: it awaits `proceed()` for the
    result, and returns that one or another; or raises, as a tool may. Lists and pings need no code, and do not come by."""

    def __post_init__(self) -> None:
        if self.around is not None and not _is_async(self.around):
            raise BadSetting("around", self.around, "an `async def` of the method, the context, and what to await")
        for name, taken in _TAKEN.items():
            function = getattr(self, name)
            if function is not None and not takes(function, len(taken)):
                raise BadSetting(name, function, f"a function of {len(taken)} ({', '.join(taken)}), or None")


_TAKEN: Final[Mapping[str, tuple[str, ...]]] = {
    "init": ("facts",),
    "roots_changed": ("params", "facts"),
    "level": ("level", "facts"),
    "around": ("method", "ctx", "proceed"),
}
"""What each is called with."""


def takes(function: object, count: int) -> bool:
    """Whether it can be called with so many things, as far as Python knows."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # one that is written in C does not say
        return True
    return True


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - which kind it is


class Returned(NamedTuple):
    """A hook to its session: this came of it."""

    key: int
    value: Any


async def run_hook(
    session: Ref[Any], key: int | None, threads: Threads, function: Callable[..., Any], *args: Any
) -> None:
    """Run it in the calling worker; the session hears what came of it if it waits for that (`key`)."""
    try:
        if inspect.iscoroutinefunction(function):
            value = await function(*args)
        else:
            value = await threads.run(function, *args)
            if inspect.isawaitable(value):
                value = await value
    except McpError as error:
        if key is not None:
            session.send(Failed(key, error))
        return
    if key is not None:
        session.send(Returned(key, value))


class Heeded(NamedTuple):
    """A hook to its session: it has done with what the peer told it."""


async def run_heeded(session: Ref[Any], threads: Threads, function: Callable[..., Any], *args: Any) -> None:
    """Run a hook that nothing comes of; the session hears when it is over, whatever it was."""
    link(session)
    try:
        await run_hook(session, None, threads, function, *args)
    finally:
        session.send(Heeded())


_SHORT: Final = 30
_SMALL: Final = 10**9


async def run_job(work: Callable[[Job], Any], job: Job) -> None:
    """Run a piece of a peer's work in the calling worker. Reports and drawings name it by what it does.

    A session ends the workers of its calls with itself; the process that keeps a task is linked to its worker instead.
    """
    current_process("do a peer's work").label = _label(job)
    if job.task is not None:
        link(job.session)
    if not job.cancelled:
        await work(job)


def _label(job: Job) -> str:
    about, id = job.params.get("name") or job.params.get("uri"), job.request_id
    if type(about) is str and len(about) < _SHORT and type(id) is int and -_SMALL < id < _SMALL:  # as most are
        return f"{job.method} {about!r} (request {id})"
    what = f"{job.method} {describe.short(about)}" if isinstance(about, str) else job.method
    return f"{what} (request {describe.short(id)})"  # by which a crash is found for a peer that complains
