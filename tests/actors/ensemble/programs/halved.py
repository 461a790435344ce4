"""A server in a module of its own, and a program that imports what registers the rest: its workers import that module alone."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom import Server

sys.path.insert(0, str(Path(__file__).parent))
half: Server = importlib.import_module("half_module").server
importlib.import_module("half_tools")

if __name__ == "__main__":
    half.run("http", port=0, workers=2)
