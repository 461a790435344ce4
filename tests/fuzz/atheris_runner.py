"""Runs one target under Atheris in a separate process: `python -m tests.fuzz.atheris_runner TARGET SECONDS [libFuzzer's options]`."""

from __future__ import annotations

import faulthandler
import sys
from importlib import import_module
from typing import Any

PACKAGES = ("greenroom", "h11", "h2", "hpack", "hyperframe", "hypercorn")


def main() -> None:
    """Search for an input that breaks the target, within libFuzzer's limits."""
    atheris: Any = import_module("atheris")
    name, patience, *options = sys.argv[1:]
    faulthandler.dump_traceback_later(float(patience), exit=True)
    with atheris.instrument_imports(include=PACKAGES):
        check = import_module("tests.fuzz.catalogue").TARGETS[name].check
    atheris.Setup([sys.argv[0], *options], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
