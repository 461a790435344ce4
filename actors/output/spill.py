"""Where whole answers are kept: files of our own in a folder of our own, 0600 in 0700, bounded together, and gone with the host."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from greenroom.errors import ConfigError
from greenroom.supervision.private_files import write_private

if TYPE_CHECKING:
    import os
    from types import TracebackType

MOST: Final = 1 << 30
MOST_FILES: Final = 10_000
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

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, most: int = MOST, most_files: int = MOST_FILES
    ) -> None:
        """In `folder`, or where temporary files go. Together they have `most` bytes, and are `most_files`; then the oldest go, of the owner with most bytes."""
        if most < 1:
            raise ConfigError(f"whole answers take at least 1 byte together, not {most!r}")
        if most_files < 1:
            raise ConfigError(f"at least 1 whole answer is kept, not {most_files!r}")
        self._parent = None if folder is None else Path(folder)
        self._most = most
        self._most_files = most_files
        self._folder: Path | None = None
        self._kept: dict[str, OrderedDict[Path, int]] = {}
        self._sizes: dict[str, int] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"<Spill: {sum(map(len, self._kept.values()))} answers>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def keep(self, name: str, suffix: str, data: bytes, owner: str = "") -> Kept:
        """Write one down, for that owner: a server that answers at length puts out its own answers. Raises `OSError`."""
        self._count += 1
        file = f"{_NAME.sub('_', name)[:80]}-{self._count}{suffix}"
        try:
            path = self._write(file, data)
        except FileNotFoundError:  # somebody has cleared away what is temporary
            self._forget()
            path = self._write(file, data)
        self._kept.setdefault(owner, OrderedDict())[path] = len(data)
        self._sizes[owner] = self._sizes.get(owner, 0) + len(data)
        while (count := sum(map(len, self._kept.values()))) > 1 and (
            sum(self._sizes.values()) > self._most or count > self._most_files
        ):
            self._drop_oldest(path)
        return Kept(path)

    def _drop_oldest(self, newest: Path) -> None:
        """Of the owner with most bytes, or most answers where it is they that are too many; never the one that was just kept."""
        too_large = sum(self._sizes.values()) > self._most
        others = [each for each, kept in self._kept.items() if next(iter(kept)) != newest]
        greedy = max(others, key=lambda each: self._sizes[each] if too_large else len(self._kept[each]))
        kept = self._kept[greedy]
        oldest, size = kept.popitem(last=False)
        self._sizes[greedy] -= size
        if not kept:
            del self._kept[greedy], self._sizes[greedy]
        oldest.unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> Path:
        if self._folder is None:
            if self._parent is not None:
                self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="greenroom-answers-", dir=self._parent))  # 0700
        path = self._folder / name
        write_private(path, data, sync=False)
        return path

    def _forget(self) -> Path | None:
        folder, self._folder = self._folder, None
        self._kept.clear()
        self._sizes.clear()
        return folder

    def close(self) -> None:
        """Remove them all."""
        folder = self._forget()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
