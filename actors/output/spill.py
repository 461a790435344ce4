"""Where whole answers are kept: files of our own in a folder of our own, 0600 in 0700, bounded together, and gone with the host."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

MOST: Final = 1 << 30
_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")


class Kept(NamedTuple):
    """One answer."""

    path: Path

    @property
    def uri(self) -> str:
        """As a resource."""
        return self.path.as_uri()


class Spill:
    """The folder. It is made when the first answer is kept."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, most: int = MOST) -> None:
        """In `folder`, or where temporary files go. Together they have `most` bytes; then the oldest go."""
        if most < 1:
            raise ConfigError(f"whole answers take at least 1 byte together, not {most!r}")
        self._parent = None if folder is None else Path(folder)
        self._most = most
        self._folder: Path | None = None
        self._kept: OrderedDict[Path, int] = OrderedDict()
        self._count = 0

    def __repr__(self) -> str:
        return f"<Spill: {len(self._kept)} answers>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def keep(self, name: str, suffix: str, data: bytes) -> Kept:
        """Write one down. Raises `OSError`."""
        if self._folder is None:
            if self._parent is not None:
                self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="greenroom-answers-", dir=self._parent))  # 0700
        self._count += 1
        path = self._folder / f"{_NAME.sub('_', name)[:80]}-{self._count}{suffix}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        self._kept[path] = len(data)
        while sum(self._kept.values()) > self._most and len(self._kept) > 1:
            oldest, _ = self._kept.popitem(last=False)
            oldest.unlink(missing_ok=True)
        return Kept(path)

    def close(self) -> None:
        """Remove them all."""
        folder, self._folder = self._folder, None
        self._kept.clear()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
