"""A user's function, looked at once: whether it waits or blocks, where it wants its context, and where it is to run.

All that can be wrong with it is said at registration, with what to write instead. Nothing here runs it: that is `calling`.
"""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from .catalogue import RegistrationError
from .context import Context
from .pools.places import place_of
from .pools.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from .options import Running
    from .pools.places import Found


_numbers: Final = count(1)


class Place(Enum):
    """Where a function runs."""

    LOOP = "loop"
    THREAD = "thread"
    OWN_LOOP = "own loop"
    """In a thread that has an event loop for it alone."""
    PROCESS = "process"
    """In a process of a pool."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A function, and how to call it."""

    function: Callable[..., Any]
    place: Place
    is_async: bool
    context: str | None
    """The parameter that gets the context."""
    timeout: float | None
    threads: int | None
    pool: Pool | None = None
    """The processes that it runs in."""
    found: Found | None = None
    """Where those find it."""
    number: int = 0
    """What it is called between this process and those."""


def handler_of(what: str, function: Any, running: Running) -> Handler:
    """Look at a function. `what` names what it is for in messages. Raises `RegistrationError`."""
    if not callable(function):
        raise RegistrationError(f"{what}: {function!r} cannot be called: give a function, or an object with __call__")
    if inspect.isclass(function):
        raise RegistrationError(
            f"{what}: {function.__qualname__} is a class: give a function, or an instance with __call__"
        )
    core = _core(function)
    if inspect.isasyncgenfunction(core) or inspect.isgeneratorfunction(core):
        raise RegistrationError(
            f"{what}: it yields, and a call has one result: return a list, and tell of what comes before with ctx.progress"
        )
    is_async = inspect.iscoroutinefunction(core)
    _check_method(what, function)
    _check_running(what, running)
    pool = (
        Pool() if running.isolation == "process" else running.isolation if isinstance(running.isolation, Pool) else None
    )
    return Handler(
        function=function,
        place=_place(running, is_async=is_async),
        is_async=is_async,
        context=_context_parameter(what, function, core),
        timeout=running.timeout,
        threads=running.threads,
        pool=pool,
        found=None if pool is None else place_of(what, function),
        number=next(_numbers),
    )


def _check_method(what: str, function: Any) -> None:
    """A function in the body of a class has nobody yet who it could be called on."""
    if not inspect.isfunction(function) or "." not in function.__qualname__.rpartition("<locals>")[2].lstrip("."):
        return
    first = next(iter(inspect.signature(function).parameters), None)
    if first in ("self", "cls"):
        owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
        raise RegistrationError(
            f"{what}: it is a method of {owner}, and nobody says on which instance to call it: derive {owner} from McpServer, "
            f"or register the method of an instance, {owner}().{function.__name__}"
        )


def _core(function: Any) -> Any:
    """The code below partials and callable objects."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func  # type: ignore[redundant-cast]  # not to pyright
    return function if inspect.isroutine(function) else type(function).__call__


def _place(running: Running, *, is_async: bool) -> Place:
    if running.isolation == "process" or isinstance(running.isolation, Pool):
        return Place.PROCESS
    if running.isolation == "thread":
        return Place.OWN_LOOP if is_async else Place.THREAD
    return Place.LOOP if is_async or running.isolation == "loop" else Place.THREAD


def _check_running(what: str, running: Running) -> None:
    isolation: Any = running.isolation
    if isolation not in (None, "loop", "thread", "process") and not isinstance(isolation, Pool):
        raise RegistrationError(f'{what}: isolation is "loop", "thread", "process", Pool(…) or None, not {isolation!r}')
    timeout: Any = running.timeout
    if timeout is not None and not (_is_number(timeout) and timeout > 0 and math.isfinite(timeout)):
        raise RegistrationError(
            f"{what}: timeout is more than 0 seconds, or None for the session's own, not {timeout!r}"
        )
    threads: Any = running.threads
    if threads is not None and not (isinstance(threads, int) and not isinstance(threads, bool) and threads > 0):
        raise RegistrationError(f"{what}: threads is 1 or more, or None for the company's own, not {threads!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_NAMED_CONTEXT = re.compile(r"(^|[^\w.])((\w+\.)*)Context\b")


def _context_parameter(what: str, function: Any, core: Any) -> str | None:
    """The parameter that is annotated with `Context`, or is called `ctx`."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"{what}: its parameters cannot be read ({error}): wrap it in a function") from None
    names = getattr(core, "__globals__", {})
    for each_name, each in parameters.items():
        if (other := _other_context(each.annotation, names)) is not None:
            raise RegistrationError(
                f"{what}: {each_name} is annotated with {other}, of another library: take Context from greenroom"
            )
    found = [name for name, each in parameters.items() if _wants_context(each.annotation, names)]
    if len(found) > 1:
        raise RegistrationError(
            f"{what}: {' and '.join(found)} are both annotated with Context: there is one for each call"
        )
    name = found[0] if found else "ctx" if "ctx" in parameters and _says_nothing(parameters["ctx"]) else None
    if name is not None and parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
        raise RegistrationError(f"{what}: {name} is positional-only, and the context comes by name: remove the `/`")
    return name


def _says_nothing(parameter: inspect.Parameter) -> bool:
    """Whether a parameter called `ctx` may be the context: one with a hint of its own is an argument of that name."""
    return parameter.annotation in (inspect.Parameter.empty, Any, object, "Any", "object", "typing.Any")


def _other_context(annotation: Any, names: dict[str, Any]) -> str | None:
    """The class called Context of a library from which programs are moved, which ours is not."""
    if isinstance(annotation, str):
        written = _NAMED_CONTEXT.search(annotation)
        annotation = None if written is None or written[2] else names.get("Context")
    kinds: list[Any] = [annotation, *getattr(annotation, "__args__", ())]
    for kind in kinds:
        module = str(getattr(kind, "__module__", ""))
        if getattr(kind, "__name__", "") == "Context" and module.partition(".")[0] in ("mcp", "fastmcp"):
            return f"{module}.Context"
    return None


def _wants_context(annotation: Any, names: dict[str, Any]) -> bool:
    if isinstance(annotation, str):
        written = _NAMED_CONTEXT.search(annotation)
        if written is None:
            return False
        here = names.get(written[2].partition(".")[0] or "Context")
        # A name that is only there for type checkers is ours; one that is something else here is somebody's own.
        return here is None or here is Context or inspect.ismodule(here)
    kinds: tuple[Any, ...] = (annotation, *getattr(annotation, "__args__", ()))
    return any(isinstance(each, type) and issubclass(each, Context) for each in kinds)
