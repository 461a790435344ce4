"""The description of a handler from which a worker registers the same entry: where the function is, and the options that matter for running it.

Titles, icons and other things that only clients see are not sent. The second part imports modules in a worker.
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
from greenroom.actors.handler_options import (
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
    """The description of one handler for workers."""

    kind: str
    name: Any
    found: ImportPath
    main: MainProgram | None
    said: dict[str, Any]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(HandlerSpec)


def spec_of(entry: CatalogueEntry) -> bytes:
    """The description of an entry. Raises `RegistrationError` when a worker would find another function in its place."""
    handler = entry.handler
    assert handler.import_path is not None
    found = verify_import_path(f"{entry.kind.replace('_', ' ')} {entry.name!r}", handler.function, handler.import_path)
    main = main_program() if found.module == MAIN_MODULE else None
    return _encoder.encode(HandlerSpec(entry.kind, entry.name, found, main, _options_of(entry)))


def specs_of(entries: Sequence[CatalogueEntry], known: dict[int, bytes]) -> dict[int, bytes]:
    """The descriptions of these entries; `known` keeps those made before. An entry that has none is left out here, and refused when it is called."""
    specs: dict[int, bytes] = {}
    for entry in entries:
        number = entry.handler.number
        if number not in known:
            try:
                known[number] = spec_of(entry)
            except Exception:  # noqa: BLE001, S112 - refused when it is called
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
                "app": None if entry.app is None else entry.app.uri,
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
    """In a worker: a catalogue with that one entry. Imports what it needs, which may take long. Raises `NotLoaded`."""
    spec = _decoder.decode(data)
    function = load_function(spec.found, spec.main)
    entry = _MAKERS[spec.kind](spec.name, function, spec.said)
    if entry.handler.mode is ExecutionMode.THREAD and entry.handler.context is None:
        entry = replace(
            entry, handler=replace(entry.handler, mode=ExecutionMode.LOOP, function=_without_loop(function))
        )
    return CatalogueRef(Catalogue().put(entry, alone=True))


def _without_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function without a context in the loop's own thread.

    Such a function sends and receives nothing while it runs, so nothing else waits for this process's loop, and a thread would cost a switch for each call. It must not
    notice: the running loop is hidden, as it may run a loop of its own, and a child that it forks exits when it returns, as it would in a thread.
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
    "completion": lambda name, function, said: completion_entry(tuple(name), function),  # noqa: ARG005 - a completion has no options
}


# --- In a worker: importing modules, and finding handlers in them.
# The program's own file is imported under another name than `__main__`, so that its `if __name__ == "__main__"` block does not run again. Without such a block the
# import stops where the program would begin to serve, to call or to open a node: `server.run()`, clients and hosts raise `ImportStopped` in a worker. Everything that
# was defined before exists.

NOT_LOADED: Final = "a worker could not import its handler"
"""The text for callers; the error's own message quotes what the import has raised."""


class NotLoaded(GreenroomError):
    """A worker cannot load a handler; the message says which and why."""


class ImportStopped(BaseException):
    """The import of a program in a worker has come to what only the program's own process does.

    A `BaseException`, so that an `except Exception` around `server.run()` does not go on after it.
    """


class _Loader:
    """Whether this process is a worker, and whether it is importing."""

    def __init__(self) -> None:
        self.is_worker = False
        self.is_importing = False
        self.has_ended = False
        """Whether the current import was stopped."""
        self.lock = threading.Lock()


_loader: Final = _Loader()


def stop_import_in_worker(what: str) -> None:
    """Called by everything that only a program's own process does: stops the import when a worker is importing the program."""
    if _loader.is_importing:
        _loader.has_ended = True
        raise ImportStopped(f"{what} is not started in a worker process")


def is_worker() -> bool:
    """Whether this process runs handlers for another one."""
    return _loader.is_worker


def become_worker() -> None:
    """Mark this process as one that runs handlers for another."""
    _loader.is_worker = True


@contextlib.contextmanager
def importing() -> Generator[None]:
    """While this is open, imports by `import_until_stopped` and `run_file` stop where the program would begin to serve, to call or to open a node."""
    with _loader.lock:
        _loader.is_importing, _loader.has_ended = True, False
        try:
            yield
        finally:
            _loader.is_importing = False


def load_function(found: ImportPath, main: MainProgram | None) -> Any:
    """The function at that path. Blocks for as long as imports take. Raises `NotLoaded`."""
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
            return import_until_stopped(found.module)
        assert main is not None
        return _program(main)
    except BaseException as error:  # a program may end in any way, and the caller needs the reason
        why = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise NotLoaded(f"{found} cannot be imported by a worker: {why}") from error


def import_until_stopped(name: str) -> ModuleType:
    """Import a module; one whose import is stopped is kept as far as it got, which importlib would discard."""
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
        if not _loader.has_ended:  # `ImportStopped` may have become another exception on its way up
            sys.modules.pop(name, None)
            raise
    return sys.modules.get(name, module)


@cache
def _program(main: MainProgram) -> ModuleType:
    """The application's `__main__`, imported as a module of another name."""
    if main.module is not None:
        module = import_until_stopped(main.module)
        sys.modules[MAIN_MODULE] = module
    else:
        assert main.file is not None
        folder = str(Path(main.file).parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        module = run_file(main.file)
    return module


def run_file(file: str) -> ModuleType:
    """Run the program's file under another name than `__main__`, and register it under both, so that what it defines is found by name."""
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
