"""`HostSkills`: the skills of a host's servers, each known by its server and its URI (`io.modelcontextprotocol/skills`).

::

    for entry in await host.skills.list():             # reads no file
        print(entry.server, entry.name, entry.description)
    skill = await host.skills.load(entry)              # asks for consent, and compares what is read with the entry
    prompt = skill.for_model                           # says from which server the text is

A file of a skill is read from the server that has announced it, and from no other.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from .skill_reader import SkillReader, SkillRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .host import Host
    from .skill_reader import LoadedSkill, SkillEntry

_logger: Final = logging.getLogger("greenroom.skills")


class HostSkills:
    """The skills of one host's servers: `host.skills`."""

    def __init__(self, host: Host) -> None:
        """Made by `Host.skills`."""
        self._host = host

    def __repr__(self) -> str:
        return f"<HostSkills of {self._host!r}>"

    def reader(self, server: str) -> SkillReader:
        """The reader of one server's skills, which asks for no consent. Raises `UnknownServer`."""
        return SkillReader(self._host.server(server), server)

    async def list(self) -> list[SkillEntry]:
        """The skills that the servers list, by server. A server that does not answer is left out with a warning, and may have skills all the same.

        Names are labels: two entries may have the same one, also of one server. Show `entry.server` with each.
        """
        self._host.check_open()
        servers = tuple(self._host.federation.ids())
        answers = await asyncio.gather(*(self._listed(each) for each in servers), return_exceptions=True)
        found: list[SkillEntry] = []
        for server, answer in zip(servers, answers, strict=True):
            if isinstance(answer, Exception):
                _logger.warning("the skills of %s are left out: %s", server, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += answer
        return found

    async def _listed(self, server: str) -> Sequence[SkillEntry]:
        # As for its tools: a server that is being started is waited for, one that has failed is not.
        await self._host.federation.offering(server, timeout=self._host.router.patience)
        reader = self.reader(server)
        return await reader.list() if reader.is_offered else ()

    async def get(self, server: str, uri: str) -> SkillEntry:
        """The entry of one skill, listed or not. Raises `SkillRefused`, and `PeerError` when the server has none of this URI."""
        self._host.check_open()
        reader = self.reader(server)
        if not reader.is_offered:
            raise SkillRefused(uri, "its server has not declared that it serves skills")
        return await reader.get(uri)

    async def load(self, entry: SkillEntry, *, unverified: bool = False) -> LoadedSkill:
        """Load a skill. The host's rules (`Skill(server)`) decide, or ask the user, whose answer is kept for these very files.

        Raises `ConsentDenied`, and as `SkillReader.load`.
        """
        self._host.check_open()
        reader = self.reader(entry.server)
        reader.check(entry, unverified=unverified)
        if self._host.consent is not None:
            await self._host.consent.skill(entry.server, entry.uri, entry.frontmatter, entry.fingerprint)
        return await reader.load(entry, unverified=unverified)
