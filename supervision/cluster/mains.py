"""The application's own main module, in a process that was not started with it: handlers of `python server.py` live there.

It is executed once more under another name, so that what stands behind ``if __name__ == "__main__"`` is left out, and is known as `__main__`
from then on: what travels by its name is found.
"""

from __future__ import annotations

import runpy
import sys
import types
from typing import Final

NAME: Final = "__mp_main__"
"""As multiprocessing calls it: programs that look at their own name know that one."""


class Importing:
    """Whether the main module is being executed just now: what would run a program then does not."""

    now = False


def load(module: str | None, path: str | None) -> None:
    """Execute it. Whatever it raises is raised."""
    made = types.ModuleType(NAME)
    sys.modules[NAME] = sys.modules["__main__"] = made
    Importing.now = True
    try:
        if module is not None:
            found = runpy.run_module(module, run_name=NAME, alter_sys=True)
        else:
            assert path is not None
            found = runpy.run_path(path, run_name=NAME)
    except SystemExit as end:
        raise RuntimeError(
            f"{module or path} ended while it was imported ({end}): put what runs the program behind "
            'if __name__ == "__main__":'
        ) from end
    finally:
        Importing.now = False
    sys.modules[NAME] = sys.modules["__main__"] = made
    made.__dict__.update(found)
