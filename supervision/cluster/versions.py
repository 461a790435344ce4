"""Which Thespian this is written for: the release, and the very text of what `hardening` replaces in it.

A Thespian whose insides are others would run, and listen on all addresses and unpickle what anybody sends. So nothing is started then.
"""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path
from typing import Final

from .endings import EngineFailed

THESPIAN: Final = "4.0.1"
REPLACED: Final = {
    "system/admin/convention.py": "7791a9fcbea84bdd79b9d902493fdf82398302e2e3ba80fc426b56e54fda22c4",
    "system/multiprocCommon.py": "fe2c4c348eac187d6cc7dabe0eff23dca276a2822e51b41d07e0c954c9e5efee",
    "system/systemBase.py": "778f900603739440168272618faf74be53ff6c4a2e1aac746498ea254ae7fd40",
    "system/transport/IPBase.py": "ff75cc8eb35019a3783b9ee3d8e8720c9fe4d6a6c3219fef7e1934b85c359a69",
    "system/transport/TCPTransport.py": "303b9a9b3871ca949f70c5f57654fc8147e44f8d0e9981c55902a1b0f16a2c59",
    "system/transport/streamBuffer.py": "3aa2191109c9aec9b7c96a6617eb7799dbe63e866de0d403075eb11e8f53f850",
}
"""The files of which something is replaced or relied upon from inside, with the SHA-256 of their text."""


def check(folder: Path | None = None, version: str | None = None) -> None:
    """Raise `EngineFailed` unless the Thespian that is installed is the one that is known."""
    found = metadata.version("thespian") if version is None else version
    if found != THESPIAN:
        raise EngineFailed(
            f"Thespian {found} is installed, and greenroom needs {THESPIAN}: pip install thespian=={THESPIAN}"
        )
    if folder is None:
        located = metadata.distribution("thespian").locate_file("thespian")
        folder = Path(str(located))
    for name, known in REPLACED.items():
        try:
            text = (folder / name).read_bytes().replace(b"\r\n", b"\n")
        except OSError as error:
            raise EngineFailed(
                f"cannot read Thespian's {name} to check it ({error}): install thespian=={THESPIAN} anew"
            ) from error
        if hashlib.sha256(text).hexdigest() != known:
            raise EngineFailed(
                f"Thespian's {name} is not that of release {THESPIAN}, and what makes it safe would not fit: "
                f"pip install --force-reinstall thespian=={THESPIAN}"
            )
