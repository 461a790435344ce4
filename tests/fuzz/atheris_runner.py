"""One target under Atheris, in a process of its own: `python -m tests.fuzz.atheris_runner TARGET SECONDS [libFuzzer's options]`.

It runs with the project's own packages and Atheris beside them on the path, and with nothing of Hypothesis or pytest. What it
imports is instrumented on the way in, so nothing of greenroom may be imported before. When it does not end in time it says where
it is, and ends.
"""

from __future__ import annotations

import faulthandler
import sys
from importlib import import_module
from typing import Any

PACKAGES = ("greenroom", "h11", "h2", "hpack", "hyperframe", "hypercorn")


def main() -> None:
    """Look for an input that breaks the target, until libFuzzer's own limits say that it is enough."""
    atheris: Any = import_module("atheris")
    name, patience, *options = sys.argv[1:]
    faulthandler.dump_traceback_later(float(patience), exit=True)
    with atheris.instrument_imports(include=PACKAGES):
        check = import_module("tests.fuzz.catalogue").TARGETS[name].check
    atheris.Setup([sys.argv[0], *options], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
