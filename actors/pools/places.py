"""Where a handler is found by another process: by its module and its qualified name, as pickle finds functions.

What has no such place is refused when it is registered, with the reason and what to write instead. The program's own file is a module as
any other, except that a worker runs it under another name (`loading`).
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any, Final

from greenroom.actors.catalogue import RegistrationError

MAIN: Final = "__main__"
RUN_AS: Final = "__greenroom_main__"
"""What `__name__` is in the program's file when another process runs it: what stands there is the program's all the same."""
_INSTEAD: Final = 'write it as a function at the top of a module, or leave out isolation="process"'


@dataclass(frozen=True, slots=True)
class Found:
    """A function of a module. `inner` is how many wrappers are around it there, which other decorators have put on afterwards."""

    module: str
    name: str
    inner: int = 0

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, slots=True)
class Main:
    """The program, as a worker can load it: a module that `python -m` has run, or a file."""

    module: str | None
    file: str | None


def place_of(what: str, function: Any) -> Found:
    """Where a worker will find it. Raises `RegistrationError`. `what` names what it is for in messages."""
    if isinstance(function, partial):
        raise RegistrationError(f"{what}: a partial has no name by which another process could import it: {_INSTEAD}")
    if inspect.ismethod(function):
        raise RegistrationError(
            f"{what}: {function.__qualname__} is bound to an object of this process, which another process does not have: {_INSTEAD}"
        )
    if not isinstance(function, FunctionType | BuiltinFunctionType):
        raise RegistrationError(
            f"{what}: a {type(function).__name__} is an object of this process, which another process does not have: {_INSTEAD}"
        )
    module: Any = MAIN if function.__module__ == RUN_AS else function.__module__
    name = function.__qualname__
    if "<lambda>" in name:
        raise RegistrationError(f"{what}: a lambda has no name by which another process could import it: {_INSTEAD}")
    if "<locals>" in name:
        outer = name.partition(".<locals>")[0]
        raise RegistrationError(
            f"{what}: {function.__name__} is made inside of {outer}(), where another process cannot import it: {_INSTEAD}"
        )
    if not isinstance(module, str) or (module == MAIN and main_program() is None):
        raise RegistrationError(
            f"{what}: {name} was typed in and is in no file, so another process cannot import it: put it into a module"
        )
    return Found(module, name)


def main_program() -> Main | None:
    """How another process can load what runs as `__main__` here; None when it is in no file."""
    main: Any = sys.modules.get(MAIN)
    spec: Any = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return Main(spec.name, None)
    file: Any = getattr(main, "__file__", None)
    if not isinstance(file, str) or not Path(file).is_file():
        return None
    return Main(None, str(Path(file).absolute()))


def checked(what: str, function: Any, found: Found) -> Found:
    """The same place, when the function really stands there; with its wrappers counted. Raises `RegistrationError`.

    It is asked when the module has been imported: a decorator runs before its function has its name.
    """
    here: Any = sys.modules.get(found.module)
    for step in found.name.split("."):
        here = getattr(here, step, None)
    inner = 0
    while here is not None:
        if here is function:
            if found.module == MAIN and _is_guarded(inspect.unwrap(function).__code__):
                raise RegistrationError(
                    f'{what}: it stands under `if __name__ == "__main__":`, where the import by a worker process does not come: '
                    "define and register it above"
                )
            return Found(found.module, found.name, inner)
        here, inner = getattr(here, "__wrapped__", None), inner + 1
    raise RegistrationError(
        f"{what}: {found} is not the function that was registered, so another process would import something else: "
        "give the function the name that it has in its module, or register it under isolation in another way"
    )


def _is_guarded(code: CodeType) -> bool:
    """Whether the program's file defines it under `if __name__ == …`. A file that is not there any more is for the worker to find out."""
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
