"""Where configuration is looked for: the user's file, and the project's.

The user's is `greenroom.toml` in the folder that the system has for such (`$XDG_CONFIG_HOME/greenroom`, mostly `~/.config/greenroom`). The project's is
`greenroom.toml`, or `.greenroom/greenroom.toml`, in the current folder or in one above it, as far up as the repository goes; where there is no
repository only the current folder is looked into. So a file in a folder that all may write to starts nobody's programs but those of who works there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from greenroom.auth.folders import config_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = "greenroom.toml"
HIDDEN: Final = ".greenroom"
_REPOSITORIES: Final = (".git", ".hg", ".jj", ".svn")


def user_file() -> Path:
    """The user's, whether it is there or not."""
    return config_folder() / FILE


def project_folder(environment: Mapping[str, str], start: Path | None = None) -> Path:
    """The project that one is in: what is named as such, else the nearest folder with a file of ours, else the repository, else this folder."""
    named = environment.get("GREENROOM_PROJECT_DIR") or environment.get("CLAUDE_PROJECT_DIR")
    if start is None and named:
        return current_folder() / named
    here = current_folder() if start is None else start.absolute()
    folders = [here]
    for folder in (here, *here.parents):
        if folder not in folders:
            folders.append(folder)
        if any(is_there(folder / name) for name in _REPOSITORIES):
            break
    else:
        folders = [here]
    return next((one for one in folders if any(map(is_there, project_files(one)))), folders[-1])


def current_folder() -> Path:
    """This one; where it was removed, the place where it was."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.sep, os.environ.get("PWD", ""))


def is_there(path: Path, *, unsure: bool = False) -> bool:
    """Whether there is something. `unsure` is what to say where nobody may know: a folder may be closed to us, or a link lead in circles."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return unsure
    return True


def project_files(folder: Path) -> tuple[Path, Path]:
    """The two names that a project's file may have; the first one counts."""
    return folder / FILE, folder / HIDDEN / FILE


def foreign(path: Path) -> str | None:
    """Why a file that was found, and not named, is not to be trusted: others may have written it."""
    if not hasattr(os, "geteuid"):
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to somebody else"
    if found.st_mode & stat.S_IWOTH:
        return "may be written by anybody"
    return (
        "may be written by others of its group" if found.st_mode & stat.S_IWGRP and _is_shared(found.st_gid) else None
    )


def _is_shared(group: int) -> bool:
    """Whether others may be in it. Many systems give each user a group that is theirs alone, and let all that they make be written by it."""
    import grp  # noqa: PLC0415 - where there are users with numbers, and few files that need it
    import pwd  # noqa: PLC0415 - as above

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return True
    alone = user.pw_gid == group and found.gr_name == user.pw_name
    return not alone or not set(found.gr_mem) <= {user.pw_name}
