"""The checks for leaked resources find each kind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from .leaked_resources import SHARED, held, left

if TYPE_CHECKING:
    from pathlib import Path


def test_each_kind_of_thing_that_is_left_behind_is_seen(temporary: Path) -> None:
    before = held(temporary)
    with ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        opened.enter_context(socket.socket())
        for end in os.pipe():
            opened.callback(os.close, end)
        for path in (temporary / "a file", SHARED / f"greenroom-{os.getpid()}"):
            opened.enter_context(path.open("w"))
            opened.callback(path.unlink)
        process = opened.enter_context(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        opened.callback(process.terminate)
        more = left(before, temporary, 0)
        kinds = Counter(each.partition(" ")[0] for each in more.elements())
        assert more[f"socket that listens on {listening.getsockname()!r}"] == 1
        assert more[f"process {process.pid}"] == 1
        assert more[f"file {temporary / 'a file'}"] == 1
        assert kinds == {"socket": 2, "pipe": 3, "descriptor": 2, "file": 2, "process": 1}
    assert left(before, temporary, 10) == Counter()
