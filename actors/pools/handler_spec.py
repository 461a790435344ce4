"""What a worker is told of a handler, so that it can make the same entry of it: where the function is, and what was said of it.

Only that travels which has to do with running it. What clients are shown stays at home.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import sys
import threading
from asyncio.events import _set_running_loop
from dataclasses import replace
from functools import cache, wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from greenroom.actors.catalogue import Catalogue, CatalogueRef
from greenroom.actors.catalogue_entries import (
    CompletionEntry,
    PromptEntry,
    ResourceEntry,
    TemplateEntry,
    ToolEntry,
    completion_entry,
    prompt_entry,
    resource_entry,
    template_entry,
    tool_entry,
)
from greenroom.actors.handlers import (
    MAIN_MODULE,
    WORKER_MAIN_NAME,
    ExecutionMode,
    ImportPath,
    MainProgram,
    PromptOptions,
    ResourceOptions,
    TemplateOptions,
    ToolOptions,
    main_program,
    verify_import_path,
)
from greenroom.errors import GreenroomError
from greenroom.supervision.kernel import forks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from greenroom.actors.catalogue_entries import CatalogueEntry

    Maker = Callable[[Any, Any, dict[str, Any]], CatalogueEntry]


class HandlerSpec(msgspec.Struct, frozen=True):
    """One handler, as it is described to workers."""

    kind: str
    name: Any
    found: ImportPath
    main: MainProgram | None
    said: dict[str, Any]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(HandlerSpec)


def spec_of(entry: CatalogueEntry) -> bytes:
    """What to tell of it. Raises `RegistrationError` when a worker would find something else in its place."""
    handler = entry.handler
    assert handler.import_path is not None
    found = verify_import_path(f"{entry.kind.replace('_', ' ')} {entry.name!r}", handler.function, handler.import_path)
    main = main_program() if found.module == MAIN_MODULE else None
    return _encoder.encode(HandlerSpec(entry.kind, entry.name, found, main, _options_of(entry)))


def specs_of(entries: Sequence[CatalogueEntry], known: dict[int, bytes]) -> dict[int, bytes]:
    """The plans of all these; `known` are those that were made before, and those that are made now. An entry that has no plan is refused when it is called."""
    specs: dict[int, bytes] = {}
    for entry in entries:
        number = entry.handler.number
        if number not in known:
            try:
                known[number] = spec_of(entry)
            except Exception:  # noqa: BLE001, S112 - as it says
                continue
        specs[number] = known[number]
    return specs


def _options_of(entry: CatalogueEntry) -> dict[str, Any]:
    match entry:
        case ToolEntry(options=options):
            return {
                "input_schema": options.input_schema,
                "output_schema": options.output_schema,
                "validate_input": options.validate_input,
                "validate_output": options.validate_output,
            }
        case ResourceEntry():
            return {"uri": entry.uri, "mime_type": entry.mime_type}
        case TemplateEntry():
            return {
                "uri_template": entry.uri_template,
                "mime_type": entry.mime_type,
                "segments": entry.template.segments,
            }
        case PromptEntry():
            known = ("name", "title", "description", "required")
            arguments = [
                {name: value for name, value in each.items() if name in known}
                for each in entry.wire.get("arguments", ())
            ]
            return {"arguments": arguments, "description": entry.description}
        case CompletionEntry():
            return {}


def load_catalogue(data: bytes) -> CatalogueRef:
    """In a worker: a shelf with that one entry on it. Imports what it needs, which may take long. Raises `NotLoaded`."""
    spec = _decoder.decode(data)
    function = load_function(spec.found, spec.main)
    entry = _MAKERS[spec.kind](spec.name, function, spec.said)
    if entry.handler.mode is ExecutionMode.THREAD and entry.handler.context is None:
        entry = replace(
            entry, handler=replace(entry.handler, place=ExecutionMode.LOOP, function=_without_loop(function))
        )
    return CatalogueRef(Catalogue().put(entry))


def _without_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function without a context, which sends and receives nothing while it runs, needs no thread: nothing else waits for this process's loop meanwhile.

    It is called as from a thread all the same: it may run a loop of its own, and a child that it forks ends with it.
    """

    @wraps(function)
    def run(**named: Any) -> Any:
        loop, program = asyncio.get_running_loop(), os.getpid()
        _set_running_loop(None)
        error: BaseException | None = None
        try:
            return function(**named)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if os.getpid() != program:
                forks.exit_child(error)
            _set_running_loop(loop)

    return run


_MAKERS: dict[str, Maker] = {
    "tool": lambda name, function, said: tool_entry(name, function, ToolOptions(**said)),
    "resource": lambda name, function, said: resource_entry(name, function, ResourceOptions(**said)),
    "resource_template": lambda name, function, said: template_entry(name, function, TemplateOptions(**said)),
    "prompt": lambda name, function, said: prompt_entry(name, function, PromptOptions(**said)),
    "completion": lambda name, function, said: completion_entry(tuple(name), function),  # noqa: ARG005 - nothing was
}


# --- In a worker: import the modules that handlers are in, and find the handlers there.
# The program's own file is run as well, under another name than `__main__`, so that what it does under `if __name__ == "__main__"` is not
# done again. What it does without such a guard ends where it would begin to serve, to call or to open a node: `server.run()`, a client and a
# host raise `ImportStopped` here, and whatever has been defined until then is what there is.

NOT_LOADED: Final = "a worker could not import its handler"
"""What callers are told of that: the message of the error quotes what the import has raised."""


class NotLoaded(GreenroomError):
    """A worker cannot load a handler; the message says which and why."""


class ImportStopped(BaseException):
    """The program was about to begin with what only its own process does: its import by a worker ends here.

    A `BaseException`, since an `except Exception` around `server.run()` is not meant to go on after it.
    """


class _Loader:
    """Whether this process is a worker, and whether it is importing."""

    def __init__(self) -> None:
        self.is_worker = False
        self.is_importing = False
        self.has_ended = False
        """Whether what is imported has come to where that ends."""
        self.lock = threading.Lock()


_loader: Final = _Loader()


def stop_import_in_worker(what: str) -> None:
    """Called by whatever a program does only in its own process: when a worker imports it, that is where the import ends."""
    if _loader.is_importing:
        _loader.has_ended = True
        raise ImportStopped(f"{what} is not begun in a worker process")


def is_worker() -> bool:
    """Whether this process is one that runs handlers for another."""
    return _loader.is_worker


def become_worker() -> None:
    """From now on this process runs handlers for another one."""
    _loader.is_worker = True


@contextlib.contextmanager
def importing() -> Generator[None]:
    """What is imported meanwhile, by `import_as_far_as_possible` or `run_file`, ends where it would begin to serve, to call or to open a node."""
    with _loader.lock:
        _loader.is_importing, _loader.has_ended = True, False
        try:
            yield
        finally:
            _loader.is_importing = False


def load_function(found: ImportPath, main: MainProgram | None) -> Any:
    """The function at that place. Blocks for as long as imports take. Raises `NotLoaded`."""
    with importing():
        here: Any = _module(found, main)
    try:
        for step in found.name.split("."):
            here = getattr(here, step)
        for _ in range(found.inner):
            here = here.__wrapped__
    except AttributeError as error:
        raise NotLoaded(
            f"{found} is not there when a worker imports it ({error}): define it where the import comes before "
            'anything that is only done once, and not under `if __name__ == "__main__"`'
        ) from None
    return here


def _module(found: ImportPath, main: MainProgram | None) -> ModuleType:
    try:
        if found.module != MAIN_MODULE:
            return import_as_far_as_possible(found.module)
        assert main is not None
        return _program(main)
    except BaseException as error:  # a program may end in any way, and the caller wants to know why
        why = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise NotLoaded(f"{found} cannot be imported by a worker: {why}") from error


def import_as_far_as_possible(name: str) -> ModuleType:
    """The module; one whose import ends early as far as it has come, which importlib would throw away."""
    known = sys.modules.get(name)
    if known is not None:
        return known
    parent = name.rpartition(".")[0]
    if parent:
        importlib.import_module(parent)
    import_spec = importlib.util.find_spec(name)
    if import_spec is None or import_spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = importlib.util.module_from_spec(import_spec)
    sys.modules[name] = module
    try:
        import_spec.loader.exec_module(module)
    except BaseException:
        if not _loader.has_ended:  # it may have become another exception on its way up
            sys.modules.pop(name, None)
            raise
    return sys.modules.get(name, module)


@cache
def _program(main: MainProgram) -> ModuleType:
    """What the application runs as `__main__`, as a module of another name."""
    if main.module is not None:
        module = import_as_far_as_possible(main.module)
        sys.modules[MAIN_MODULE] = module
    else:
        assert main.file is not None
        folder = str(Path(main.file).parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        module = run_file(main.file)
    return module


def run_file(file: str) -> ModuleType:
    """The file as the program that runs here, under another name than `__main__`: other processes find by it what is registered in it."""
    module = ModuleType(WORKER_MAIN_NAME)
    module.__file__ = file
    sys.modules[WORKER_MAIN_NAME] = sys.modules[MAIN_MODULE] = module
    code = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
    try:
        exec(code, module.__dict__)  # noqa: S102 - it is the program itself
    except BaseException:
        if not _loader.has_ended:
            raise
    return module
