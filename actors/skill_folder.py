"""Folders of skills: what is in them, with digests, as a snapshot; and the bytes of a file that the snapshot lists.

A snapshot maps URIs to files. A URI that a client sends is only looked up in it, so no path is ever made of what a client says. Symbolic links are
never followed, neither to files nor to folders, and names that begin with a dot are left out. Every folder is opened relative to the one above it, so
a link that replaces a folder between two steps is not followed either.
"""

from __future__ import annotations

import hashlib
import logging
import mimetypes
import os
import re
import stat
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from greenroom.errors import ConfigError
from greenroom.protocol.frontmatter import MOST_BYTES, MOST_FILES, SKILL_FILE, BadFrontmatter, read_frontmatter
from greenroom.protocol.jsonrpc import is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DIRECTORY_TYPE: Final = "inode/directory"
MARKDOWN_TYPE: Final = "text/markdown"
_MOST_DEPTH: Final = 32
_MOST_ENTRIES: Final = 100_000
"""How many files and folders a folder of skills may have, so that looking at the wrong folder ends."""
_NAME: Final = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_DESCRIPTION_LIMIT: Final = 1024
_RESERVED_METADATA: Final = "io.modelcontextprotocol/"
_SAFE: Final = "!$&'()*+,;="
"""The characters that a segment of a URI may have beside letters, digits and `-._~`: those of a host, as the first one stands there."""
_SETTLED_NS: Final = 100_000_000
"""A digest is kept for a file that was last changed so long ago: a file system's clock ticks slowly, and within one tick two changes look like one."""
_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not hold up the reader
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_DIRECTORY
_logger = logging.getLogger("greenroom.skills")
_types = mimetypes.MimeTypes()  # Python's own table: the system's differs between machines
_types.add_type(MARKDOWN_TYPE, ".md")
_types.add_type("application/yaml", ".yaml")
_types.add_type("application/yaml", ".yml")
_types.add_type("text/x-toml", ".toml")


class BadSkill(ConfigError):
    """A folder of skills that cannot be served: which files are wrong, and what to write."""


class _FileState(NamedTuple):
    """Whether a file is the same as before, as far as the system tells."""

    size: int
    modified: int
    changed: int
    inode: int


class _Digest(NamedTuple):
    """The known facts about a file's content."""

    state: _FileState
    digest: str
    is_text: bool


@dataclass(frozen=True, slots=True)
class SkillFile:
    """One file of a skill."""

    uri: str
    mime_type: str
    digest: str
    size: int
    root: Path = field(repr=False)
    steps: tuple[str, ...] = field(repr=False)
    """The way to it from the root: folders, then the file."""
    state: _FileState = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the file, for people."""
        return shown_name(self.steps[-1])


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill: its frontmatter, and all its files."""

    uri: str
    frontmatter: Mapping[str, Any]
    files: tuple[SkillFile, ...]

    def to_wire(self) -> dict[str, Any]:
        """The entry of `skills/list` and `skills/get`."""
        return {
            "uri": self.uri,
            "frontmatter": dict(self.frontmatter),
            "resources": [{"uri": each.uri, "digest": each.digest, "size": each.size} for each in self.files],
        }


@dataclass(frozen=True, slots=True)
class SkillSnapshot:
    """The skills of all folders at one moment."""

    skills: Mapping[str, Skill]
    """By the URI of their `SKILL.md`, sorted."""
    files: Mapping[str, SkillFile]
    directories: Mapping[str, tuple[str, ...]]
    """The URIs of the direct children of each directory: files, and further directories."""
    directory_names: Mapping[str, str]
    """The name of each directory, for people."""
    problems: tuple[str, ...] = ()
    """The mistakes in skills that are left out."""


_Known: TypeAlias = dict[tuple[Path, tuple[str, ...]], _Digest]
"""By root, and the way from there."""


class SkillFolder:
    """One or more folders of skills, looked at again when they have changed. Safe to use from any thread; every method may block on the disk."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]], refresh: float = 1.0) -> None:
        """The folders are looked at once now, and later at most every `refresh` seconds.

        Raises `BadSkill` for a folder that is not there or has no skill, and for a skill that cannot be served.
        """
        if not folders:
            raise BadSkill('skills are in a folder: write server.skills("path/to/skills")')
        self._roots = [_root_of(each) for each in folders]
        self._refresh = refresh
        self._lock = threading.Lock()
        self._digests: _Known = {}
        self._seen: SkillSnapshot
        self._seen_at = time.monotonic()
        self._seen = self._look()
        if self._seen.problems:
            raise BadSkill("; ".join(self._seen.problems))
        if not self._seen.skills:
            raise BadSkill(
                f"there is no {SKILL_FILE} in {' or '.join(map(str, self._roots))}, nor in a folder below: a skill is a folder with that file"
            )

    def __repr__(self) -> str:
        return f"<SkillFolder of {len(self._seen.skills)} skills>"

    def snapshot(self) -> SkillSnapshot:
        """The skills as they are now, or were at most `refresh` seconds ago. A skill that cannot be served any more is left out and logged."""
        with self._lock:
            now = time.monotonic()
            if now - self._seen_at >= self._refresh:
                before = self._seen
                self._seen = self._look()
                self._seen_at = time.monotonic()
                for problem in self._seen.problems:
                    if problem not in before.problems:
                        _logger.warning("a skill is left out: %s", problem)
            return self._seen

    def read(self, file: SkillFile) -> bytes | None:
        """The bytes of a file as they are now; None if it is gone, or has become too large."""
        try:
            with _opened(file.root, file.steps) as descriptor:
                data = _contents(descriptor, MOST_BYTES)
                state = _state_of(os.fstat(descriptor))
        except OSError:
            data, state = None, None
        if state != file.state:
            with self._lock:
                self._seen_at = -self._refresh  # the next request looks at the folder again, whatever time it is
        return data

    def _look(self) -> SkillSnapshot:
        """Look at all folders."""
        skills: dict[str, Skill] = {}
        files: dict[str, SkillFile] = {}
        directories: dict[str, tuple[str, ...]] = {}
        problems: list[str] = []
        folders: list[tuple[str, ...]] = []
        known: _Known = {}
        names: dict[str, str] = {}
        for root in self._roots:
            try:
                tree = _Tree.read(root)
            except (OSError, BadSkill) as error:
                problems.append(
                    str(error) if isinstance(error, BadSkill) else f"{root} cannot be read: {error.strerror}"
                )
                continue
            prefix = (root.name,) if tree.is_skill else ()
            for folder in tree.skill_folders():
                where = (*prefix, *folder)
                try:
                    skill = self._skill(root, prefix, folder, tree, known)
                    if skill.uri in skills:
                        raise BadSkill(f"another folder has a skill {'/'.join(where)} as well")  # noqa: TRY301 - one report for all
                except (OSError, BadSkill, BadFrontmatter) as error:
                    said = error.strerror if isinstance(error, OSError) else str(error)
                    problems.append(f"{Path(root, *folder, SKILL_FILE)}: {said}")
                    continue
                skills[skill.uri] = skill
                files.update((each.uri, each) for each in skill.files)
                for steps, children in tree.directories(prefix, folder):
                    names[uri_of(steps)] = shown_name(steps[-1])
                    directories[uri_of(steps)] = tuple(uri_of((*steps, each)) for each in children)
                folders += [where[:depth] for depth in range(2, len(where) + 1)]
        inside = frozenset(directories)
        for folder in sorted({*folders}):  # the folders in which skills stand, with those alone
            above = uri_of(folder[:-1])
            if above not in inside:
                names[above] = shown_name(folder[-2])
                directories[above] = (*directories.get(above, ()), uri_of(folder))
        self._digests = known
        return SkillSnapshot(dict(sorted(skills.items())), files, directories, names, tuple(problems))

    def _skill(
        self,
        root: Path,
        prefix: tuple[str, ...],
        folder: tuple[str, ...],
        tree: _Tree,
        known: _Known,
    ) -> Skill:
        """The skill in that folder. Raises `BadSkill`, `BadFrontmatter` or `OSError`."""
        found = list(tree.files_below(folder))
        if len(found) > MOST_FILES:
            raise BadSkill(f"the skill has {len(found)} files, and hosts take {MOST_FILES}: split it")
        size = sum(state.size for _, state in found)
        if size > MOST_BYTES:
            raise BadSkill(
                f"the skill has {size} bytes, and hosts take {MOST_BYTES}: split it, or fetch what is large from elsewhere"
            )
        files = tuple(self._file(root, prefix, steps, state, known) for steps, state in found)
        uri = uri_of((*prefix, *folder, SKILL_FILE))
        main = next(each for each in files if each.uri == uri)
        with _opened(root, main.steps) as descriptor:
            data = _contents(descriptor, MOST_BYTES)
            state = _state_of(os.fstat(descriptor))
        if data is None or state != main.state:
            raise BadSkill("the file is being written just now")
        text = text_of(data)
        if text is None:
            raise BadSkill("the file is not UTF-8: save it as UTF-8")
        frontmatter = read_frontmatter(text)
        folder_name = (*prefix, *folder)[-1]
        if problem := _frontmatter_problem(frontmatter, folder_name):
            raise BadSkill(problem)
        return Skill(uri, frontmatter, files)

    def _file(
        self,
        root: Path,
        prefix: tuple[str, ...],
        steps: tuple[str, ...],
        state: _FileState,
        known: _Known,
    ) -> SkillFile:
        """A file with its digest, which is only computed for a file that has changed."""
        key = (root, steps)
        found = known.get(key) or self._digests.get(key)
        if found is None or found.state != state:
            with _opened(root, steps) as descriptor:
                data = _contents(descriptor, MOST_BYTES)
                state = _state_of(os.fstat(descriptor))
            if data is None or len(data) != state.size:
                raise BadSkill(f"{'/'.join(steps)} is being written just now")
            found = _Digest(state, _digest(data), text_of(data) is not None)
        if found.state.modified + _SETTLED_NS < time.time_ns():
            known[key] = found
        mime_type = _mime_type(steps[-1], is_text=found.is_text)
        return SkillFile(uri_of((*prefix, *steps)), mime_type, found.digest, state.size, root, steps, found.state)


class _Tree:
    """The files and folders below a root, as one walk has found them."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, ...], dict[str, _FileState]] = {}
        """By folder."""
        self._folders: dict[tuple[str, ...], list[str]] = {}

    @classmethod
    def read(cls, root: Path) -> _Tree:
        """Walk through everything below the root. Raises `OSError`, and `BadSkill` when there is too much."""
        tree = cls()
        descriptor = os.open(root, _OPEN_FOLDER & ~os.O_NOFOLLOW)
        try:
            tree._walk(descriptor, (), [_MOST_ENTRIES], root)
        finally:
            os.close(descriptor)
        return tree

    def _walk(self, descriptor: int, folder: tuple[str, ...], left: list[int], root: Path) -> None:
        if len(folder) > _MOST_DEPTH:
            raise BadSkill(f"{root} has more than {_MOST_DEPTH} levels of folders")
        files = self._files[folder] = {}
        folders = self._folders[folder] = []
        with os.scandir(descriptor) as found:
            names = sorted(each.name for each in found if _is_served(each.name))
        left[0] -= len(names)
        if left[0] < 0:
            raise BadSkill(
                f"{root} has more than {_MOST_ENTRIES} files and folders: give the folder that has the skills"
            )
        for name in names:
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue  # removed meanwhile
            if stat.S_ISREG(status.st_mode):
                files[name] = _state_of(status)
            elif stat.S_ISDIR(status.st_mode):
                try:
                    inner = os.open(name, _OPEN_FOLDER, dir_fd=descriptor)
                except (FileNotFoundError, NotADirectoryError):
                    continue  # removed or replaced meanwhile
                folders.append(name)
                try:
                    self._walk(inner, (*folder, name), left, root)
                finally:
                    os.close(inner)

    def skill_folders(self) -> list[tuple[str, ...]]:
        """The folders with a `SKILL.md`."""
        return sorted(folder for folder, files in self._files.items() if SKILL_FILE in files)

    def files_below(self, folder: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], _FileState]]:
        """All files in that folder and below."""
        for name, state in self._files[folder].items():
            yield (*folder, name), state
        for name in self._folders[folder]:
            yield from self.files_below((*folder, name))

    @property
    def is_skill(self) -> bool:
        """Whether the root is a skill itself."""
        return SKILL_FILE in self._files[()]

    def directories(
        self, prefix: tuple[str, ...], folder: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], Sequence[str]]]:
        """The folder and all below it, each with the names of its direct children."""
        yield (*prefix, *folder), [*self._files[folder], *self._folders[folder]]
        for name in self._folders[folder]:
            yield from self.directories(prefix, (*folder, name))


def uri_of(steps: Sequence[str]) -> str:
    """The URI of a file or folder of a skill."""
    return "skill://" + "/".join(quote(step, safe=_SAFE, errors="surrogateescape") for step in steps)


def shown_name(name: str) -> str:
    """The name of a file or folder as text that can be sent, also where it is not UTF-8."""
    return name.encode(errors="replace").decode()


def _root_of(folder: str | os.PathLike[str]) -> Path:
    """A folder's absolute path."""
    # Not resolved: where a link names the current release of the skills, the link is read again each time.
    root = Path(os.path.abspath(Path(folder).expanduser()))  # noqa: PTH100 - `Path.absolute` keeps "..", which is no name
    if not root.is_dir():
        raise BadSkill(f"there is no folder {root}: give the folder that has the skills")
    return root


def _is_served(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"


def _state_of(status: os.stat_result) -> _FileState:
    return _FileState(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class _opened:  # noqa: N801 - used like a function, as contextlib's are
    """A file, opened by a way on which no symbolic link is followed. Raises `OSError`."""

    def __init__(self, root: Path, steps: Sequence[str]) -> None:
        self._root = root
        self._steps = steps
        self._descriptor = -1

    def __enter__(self) -> int:
        here = os.open(self._root, _OPEN_FOLDER & ~os.O_NOFOLLOW)
        for number, step in enumerate(self._steps, 1):
            try:
                inner = os.open(step, _OPEN_FILE if number == len(self._steps) else _OPEN_FOLDER, dir_fd=here)
            finally:
                os.close(here)
            here = inner
        self._descriptor = here
        return here

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _contents(descriptor: int, limit: int) -> bytes | None:
    """The bytes of an open file; None if it is no ordinary file, or longer than the limit."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    parts: list[bytes] = []
    size = 0
    while size <= limit and (part := os.read(descriptor, min(1024 * 1024, limit + 1 - size))):
        parts.append(part)
        size += len(part)
    return b"".join(parts) if size <= limit else None


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def text_of(data: bytes) -> str | None:
    """The text that these bytes are in UTF-8; None for other bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _mime_type(name: str, *, is_text: bool) -> str:
    found, encoding = _types.guess_type(name)
    if encoding is None and found is not None:
        return found
    return "text/plain" if is_text else "application/octet-stream"


def _frontmatter_problem(frontmatter: Mapping[str, Any], folder: str) -> str | None:
    """The first mistake in a frontmatter: a member that it lacks, or must not have."""
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"name must be 1 to 64 lower-case letters, digits and single hyphens between them, not {name!r:.80}"
    if name != folder:
        return f"name is {name!r}, and its folder is called {folder!r}: they must be the same"
    if not isinstance(description, str) or not description.strip() or len(description) > _DESCRIPTION_LIMIT:
        return f"description must be a text of 1 to {_DESCRIPTION_LIMIT} characters that says what the skill does and when to use it"
    metadata = frontmatter.get("metadata")
    if is_object(metadata):
        reserved = next((key for key in metadata if key.startswith(_RESERVED_METADATA)), None)
        if reserved is not None:
            return f"metadata: the key {reserved!r} is reserved for extensions of the protocol"
    return None
