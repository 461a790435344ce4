"""A user's function and its options, checked once: async or not, where the context goes, and where it runs.

Everything that can be wrong with a function is reported at registration, with what to write instead. Nothing here runs it: `worker.call_handler` does.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from .catalogue import RegistrationError
from .context import Context
from .pools.pool_options import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from greenroom.protocol.cache_hints import Cache

    from .apps import App, AppView

_numbers: Final = count(1)


class ExecutionMode(Enum):
    """Where a function runs."""

    LOOP = "loop"
    THREAD = "thread"
    OWN_LOOP = "own loop"
    """In a thread with an event loop of its own."""
    PROCESS = "process"
    """In a process of a pool."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A function, and how to call it."""

    function: Callable[..., Any]
    mode: ExecutionMode
    is_async: bool
    context: str | None
    """The parameter that gets the context."""
    timeout: float | None
    threads: int | None
    pool: Pool | None = None
    """The pool whose processes run it."""
    import_path: ImportPath | None = None
    """Where those processes import it from."""
    number: int = 0
    """Its id in messages to those processes."""


def handler_of(what: str, function: Any, options: RunOptions) -> Handler:
    """Check a function and its options. `what` names it in error messages. Raises `RegistrationError`."""
    if not callable(function):
        raise RegistrationError(f"{what}: {function!r} cannot be called: give a function, or an object with __call__")
    if inspect.isclass(function):
        raise RegistrationError(
            f"{what}: {function.__qualname__} is a class: give a function, or an instance with __call__"
        )
    core = _underlying_function(function)
    if inspect.isasyncgenfunction(core) or inspect.isgeneratorfunction(core):
        raise RegistrationError(
            f"{what}: it is a generator, but a call has one result: return a list, and report progress with ctx.progress"
        )
    is_async = inspect.iscoroutinefunction(core)
    _check_method(what, function)
    _check_run_options(what, options)
    pool = (
        Pool() if options.isolation == "process" else options.isolation if isinstance(options.isolation, Pool) else None
    )
    return Handler(
        function=function,
        mode=_execution_mode(options, is_async=is_async),
        is_async=is_async,
        context=_context_parameter(what, function, core),
        timeout=options.timeout,
        threads=options.threads,
        pool=pool,
        import_path=None if pool is None else import_path_of(what, function),
        number=next(_numbers),
    )


def _check_method(what: str, function: Any) -> None:
    """Refuse a function in a class body: there is no instance yet to call it on."""
    if not inspect.isfunction(function) or "." not in function.__qualname__.rpartition("<locals>")[2].lstrip("."):
        return
    first = next(iter(inspect.signature(function).parameters), None)
    if first in ("self", "cls"):
        owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
        raise RegistrationError(
            f"{what}: it is a method of {owner}, and there is no instance to call it on: derive {owner} from McpServer, "
            f"or register the method of an instance, {owner}().{function.__name__}"
        )


def _underlying_function(function: Any) -> Any:
    """The function below partials and callable objects."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func  # type: ignore[redundant-cast]  # not to pyright
    return function if inspect.isroutine(function) else type(function).__call__


def _execution_mode(options: RunOptions, *, is_async: bool) -> ExecutionMode:
    if options.isolation == "process" or isinstance(options.isolation, Pool):
        return ExecutionMode.PROCESS
    if options.isolation == "thread":
        return ExecutionMode.OWN_LOOP if is_async else ExecutionMode.THREAD
    return ExecutionMode.LOOP if is_async or options.isolation == "loop" else ExecutionMode.THREAD


def _check_run_options(what: str, options: RunOptions) -> None:
    isolation: Any = options.isolation
    if isolation not in (None, "loop", "thread", "process") and not isinstance(isolation, Pool):
        raise RegistrationError(f'{what}: isolation is "loop", "thread", "process", Pool(…) or None, not {isolation!r}')
    timeout: Any = options.timeout
    if timeout is not None and not (_is_number(timeout) and timeout > 0 and math.isfinite(timeout)):
        raise RegistrationError(
            f"{what}: timeout is more than 0 seconds, or None for the session's own, not {timeout!r}"
        )
    threads: Any = options.threads
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
    name = found[0] if found else "ctx" if "ctx" in parameters and _has_no_hint(parameters["ctx"]) else None
    if name is not None and parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
        raise RegistrationError(f"{what}: {name} is positional-only, and the context comes by name: remove the `/`")
    return name


def _has_no_hint(parameter: inspect.Parameter) -> bool:
    """Whether a parameter called `ctx` may be the context: with a hint of another type it is an ordinary argument."""
    return parameter.annotation in (inspect.Parameter.empty, Any, object, "Any", "object", "typing.Any")


def _other_context(annotation: Any, names: dict[str, Any]) -> str | None:
    """The name of another library's `Context`, from which programs are moved; None for ours."""
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
        # A name that exists only for type checkers is our `Context`; one bound to something else here is another
        # class.
        return here is None or here is Context or inspect.ismodule(here)
    kinds: tuple[Any, ...] = (annotation, *getattr(annotation, "__args__", ()))
    return any(isinstance(each, type) and issubclass(each, Context) for each in kinds)


# --- The options of tools, resources, templates, prompts and completions.
# Frozen values without behaviour; `catalogue_entries` checks them at registration.

Isolation: TypeAlias = "Literal['loop', 'thread', 'process'] | Pool"
"""Where a function runs. An `async def` runs in the loop, a `def` in a thread; `"thread"` gives an `async def` that may
block a thread with a loop of its own; `"process"` runs it in processes of its own, and a `Pool` in those of that pool."""

TaskSupport: TypeAlias = Literal["forbidden", "optional", "required"]
"""Whether a peer may, or must, ask for a task instead of an answer when it calls a tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a function runs.

    `timeout` is after how many seconds the call gets a timeout error; None leaves it to the session's `call_timeout`.
    `threads` is how many threads it may use at a time; None for the company's own limit.
    """

    isolation: Isolation | None = None
    timeout: float | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOptions(RunOptions):
    """The fields that clients see in a list. A `description` of None is taken from the docstring.

    `scopes` are what a caller has to have been granted, all of them, to see the entry and to use it.
    """

    title: str | None = None
    description: str | None = None
    icons: Sequence[Any] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scopes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions(ListedOptions):
    """The options of a tool.

    Without an `input_schema` the function's type hints are the schema, and arguments are always checked and
    converted. With one, arguments are passed as they arrive; `validate_input` checks them first. `validate_output`
    checks structured results against `output_schema`. None leaves both to the company (`strict`).

    `task_support` is whether peers may call it as a task. A `long_running` tool may be called so, and answers with a
    task also where the peer has not asked for one, unless its revision has no tasks. In the stateless era the server
    decides: each call of such a tool by a client that can follow tasks is one at once, or with `defer_task` when its
    handler says so (`await ctx.start_task()`).

    `app` is the document in which a host shows its results, as `Server.app` returns it, or the document's URI.
    """

    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    annotations: Any = None
    validate_input: bool | None = None
    validate_output: bool | None = None
    long_running: bool = False
    task_support: TaskSupport | None = None
    defer_task: bool = False
    app: App | str | None = None

    @property
    def as_task(self) -> TaskSupport:
        """Whether it can be called as a task: `task_support`, or what follows from `long_running`."""
        return self.task_support or ("optional" if self.long_running else "forbidden")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceOptions(ListedOptions):
    """The options of a resource. Clients read it by its `uri`; `mime_type` is for results that name none.

    `view` is how a host shows it, if it is the document of an app; `cache` is how long clients may keep what they have read.
    """

    uri: str
    mime_type: str | None = None
    annotations: Any = None
    size: int | None = None
    view: AppView | None = None
    cache: Cache | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions(ListedOptions):
    """The options of a resource template. `segments=True` keeps every bare `{variable}` from matching a `/`; `cache` is as for a resource."""

    uri_template: str
    mime_type: str | None = None
    annotations: Any = None
    segments: bool = False
    cache: Cache | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions(ListedOptions):
    """The options of a prompt. With `arguments` of None, the function's parameters are its arguments."""

    arguments: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOptions(RunOptions):
    """The options of a completion."""


# --- Import paths: how another process finds a handler, by module and qualified name, as pickle does.
# A function without such a path is refused at registration, with what to write instead. The program's own file is a
# module like any other, except that a worker runs it under another name.

MAIN_MODULE: Final = "__main__"
WORKER_MAIN_NAME: Final = "__greenroom_main__"
"""The `__name__` of the program's file in a worker process. Functions defined there still belong to `__main__`."""
_REMEDY: Final = 'write it as a function at the top of a module, or leave out isolation="process"'


@dataclass(frozen=True, slots=True)
class ImportPath:
    """A function in a module. `inner` counts the wrappers that later decorators have put around it there."""

    module: str
    name: str
    inner: int = 0

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, slots=True)
class MainProgram:
    """The program as a worker can load it: a module run by `python -m`, or a file."""

    module: str | None
    file: str | None


def import_path_of(what: str, function: Any) -> ImportPath:
    """The import path of a function. Raises `RegistrationError`. `what` names it in error messages."""
    if isinstance(function, partial):
        raise RegistrationError(f"{what}: a partial has no name by which another process could import it: {_REMEDY}")
    if inspect.ismethod(function):
        raise RegistrationError(
            f"{what}: {function.__qualname__} is bound to an object of this process, which another process does not have: {_REMEDY}"
        )
    if not isinstance(function, FunctionType | BuiltinFunctionType):
        raise RegistrationError(
            f"{what}: a {type(function).__name__} is an object of this process, which another process does not have: {_REMEDY}"
        )
    module: Any = MAIN_MODULE if function.__module__ == WORKER_MAIN_NAME else function.__module__
    name = function.__qualname__
    if "<lambda>" in name:
        raise RegistrationError(f"{what}: a lambda has no name by which another process could import it: {_REMEDY}")
    if "<locals>" in name:
        outer = name.partition(".<locals>")[0]
        raise RegistrationError(
            f"{what}: {function.__name__} is made inside of {outer}(), where another process cannot import it: {_REMEDY}"
        )
    if not isinstance(module, str) or (module == MAIN_MODULE and main_program() is None):
        raise RegistrationError(
            f"{what}: {name} was typed in and is in no file, so another process cannot import it: put it into a module"
        )
    return ImportPath(module, name)


def main_program() -> MainProgram | None:
    """How another process can load this process's `__main__`; None when it is in no file."""
    main: Any = sys.modules.get(MAIN_MODULE)
    spec: Any = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return MainProgram(spec.name, None)
    file: Any = getattr(main, "__file__", None)
    if not isinstance(file, str) or not Path(file).is_file():
        return None
    return MainProgram(None, str(Path(file).absolute()))


def verify_import_path(what: str, function: Any, found: ImportPath) -> ImportPath:
    """The same path with its wrappers counted, if the function is really there. Raises `RegistrationError`.

    Called when the module has been imported: a decorator runs before its function has its name.
    """
    here: Any = sys.modules.get(found.module)
    for step in found.name.split("."):
        here = getattr(here, step, None)
    inner = 0
    while here is not None:
        if here is function:
            if found.module == MAIN_MODULE and _is_guarded(inspect.unwrap(function).__code__):
                raise RegistrationError(
                    f'{what}: it is defined under `if __name__ == "__main__":`, which a worker process does not run: '
                    "define and register it above"
                )
            return ImportPath(found.module, found.name, inner)
        here, inner = getattr(here, "__wrapped__", None), inner + 1
    raise RegistrationError(
        f"{what}: {found} is not the function that was registered, so another process would import something else: "
        "give the function the name that it has in its module, or register it under isolation in another way"
    )


def _is_guarded(code: CodeType) -> bool:
    """Whether the program's file defines the function under `if __name__ == …`.

    The worker reports a file that no longer exists.
    """
    try:
        tree = ast.parse(Path(code.co_filename).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(
        isinstance(each, ast.If)
        and each.lineno <= code.co_firstlineno <= (each.body[-1].end_lineno or 0)
        and any(isinstance(word, ast.Name) and word.id == "__name__" for word in ast.walk(each.test))
        for each in tree.body
    )
