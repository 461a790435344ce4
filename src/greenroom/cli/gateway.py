"""``greenroom serve --config FILE``: a gateway to the servers of a file, without any code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .endings import Misused

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from greenroom.auth.client.oauth import OAuth
    from greenroom.config.values import ServerConfig
    from greenroom.server import Server


def gateway(file: Path, only: Sequence[str] = ()) -> Server:
    """A server that serves those of the file, or `only` some of them, and follows the file.

    What is wrong with one server is logged, and keeps no other from anything. Raises `BadConfig` where none is left, and `Misused`.
    """
    from greenroom.config.mistakes import BadConfig, nearest  # noqa: PLC0415 - not for help
    from greenroom.config.reader import read  # noqa: PLC0415 - as above
    from greenroom.config.sign_in import oauth_of  # noqa: PLC0415 - as above
    from greenroom.host import Host  # noqa: PLC0415 - as above
    from greenroom.server import Server  # noqa: PLC0415 - as above

    if not file.is_file():
        raise Misused(f"--config: there is no file {file}")
    found = read(file)
    if strange := [each for each in only if each not in found.enabled and each not in found.failed]:
        known = [*found.enabled, *found.failed]
        there = f"there are {', '.join(known)}" if known else "none is configured"
        raise Misused(f"--only: {file} has no server {strange[0]!r}; {nearest(strange[0], known, there)}")
    wrong = [one for one in found.mistakes if not one.harmless and (not only or one.server in (None, *only))]
    if wrong and not any(not only or each in only for each in found.enabled):
        raise BadConfig(wrong)
    if not found.enabled:
        raise Misused(f"--config: {file} has no server to serve: write one as [server.NAME] with command or url")

    def sign_in(server: ServerConfig) -> OAuth | None:
        # A gateway opens no browser: its login is what `greenroom login` has kept, and its clients are told what to run.
        return oauth_of(server, port=found.oauth_port, browser=None, named=True)

    host = Host.from_config(file, sign_in=sign_in, only=tuple(only) or None, watch=True)
    front = Server("greenroom")
    front.mount(host)
    return front
