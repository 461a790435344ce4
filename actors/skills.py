"""Skills (`io.modelcontextprotocol/skills`): folders of instructions for a host's model, as resources with digests.

A skill is a folder with a `SKILL.md`. `skills/list` and `skills/get` describe each one by its frontmatter and the digests of all its files,
`resources/directory/read` lists its folders, and `resources/read` has the files. The skills that are served follow the folder while the server runs.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.cache_hints import NO_HINT, BadCache, check_cache
from greenroom.protocol.content import Contents
from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.extension_ids import SKILLS_ID
from greenroom.protocol.pagination import page

from .catalogue import RegistrationError
from .catalogue_entries import resource_entry
from .extensions import Extension
from .handler_options import ResourceOptions, TemplateOptions
from .skill_folder import DIRECTORY_TYPE, MARKDOWN_TYPE, SkillFolder, text_of
from .worker import unknown_resource

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from os import PathLike

    from greenroom.protocol.cache_hints import Cache

    from .catalogue_entries import ResourceEntry
    from .context import Context
    from .server_registry import RegistrationMethods
    from .skill_folder import Skill, SkillSnapshot

_SKILLS_PER_PAGE: Final = 50
_FILES_PER_PAGE: Final = 2048
"""A page ends before the skill whose files would be more than this: an entry has all files of its skill."""
_CHILDREN_PER_PAGE: Final = 500
_SHOWN: Final = 200
"""How many characters of a URI an error text quotes."""
_FOREVER: Final = 10.0**9


class Skills(Extension):
    """The skills in some folders: ``Server(extensions=[Skills("path/to/skills")])``, or ``server.skills("path/to/skills")``."""

    def __init__(
        self,
        *folders: str | PathLike[str],
        scopes: Collection[str] = (),
        refresh: float = 1.0,
        cache: Cache | None = None,
    ) -> None:
        """Every folder with a `SKILL.md`, at any depth, is a skill: `skill://its/path/SKILL.md`. A folder that has one itself is one skill.

        The folders are looked at again at most every `refresh` seconds, when they are asked for. `cache` is how long clients of the stateless era may keep
        entries and files. With `scopes`, only callers that were granted all of them see the skills. Raises `BadSkill`.
        """
        super().__init__(SKILLS_ID, settings={"directoryRead": True}, requires_client=False)
        seconds: Any = refresh
        if type(seconds) not in (int, float) or not 0 <= seconds < _FOREVER:
            raise RegistrationError(f"skills: refresh must be 0 or more seconds, not {refresh!r}")
        try:
            check_cache("skills: cache", cache, scopes)
        except BadCache as error:
            raise RegistrationError(str(error)) from None
        self._cache = cache
        self._scopes = tuple(scopes)
        self._folder = SkillFolder(folders, refresh)
        self._lock = threading.Lock()
        self._listed: Mapping[str, Skill] = {}
        self._registry: RegistrationMethods[Any, Any] | None = None
        self.method("skills/list", scopes=self._scopes)(self._list)
        self.method("skills/get", scopes=self._scopes)(self._get)
        self.method("resources/directory/read", scopes=self._scopes)(self._read_directory)

    def attach(self, registry: RegistrationMethods[Any, Any]) -> None:
        """Register the files: each `SKILL.md` as a resource, and a template for all others."""
        self._registry = registry
        options = TemplateOptions(
            uri_template="skill://{+path}",
            description="The files of the skills.",
            scopes=self._scopes,
            cache=self._cache,
        )
        registry.register_resource_template("skills", self._read, options, replace=False)
        self._snapshot()

    def _snapshot(self) -> SkillSnapshot:
        """The skills as they are now. The list of resources follows them."""
        found = self._folder.snapshot()
        with self._lock:
            before, registry = self._listed, self._registry
            if registry is None or before is found.skills:
                return found
            self._listed = found.skills
            entries = [self._entry(skill) for uri, skill in found.skills.items() if before.get(uri) != skill]
            if entries:
                registry.put(*entries)
            for uri in before.keys() - found.skills.keys():
                registry.unregister_resource(uri)
        return found

    def _entry(self, skill: Skill) -> ResourceEntry:
        """A `SKILL.md` in the list of resources. It is registered by its URI, as two skills may have one name."""
        options = ResourceOptions(uri=skill.uri, mime_type=MARKDOWN_TYPE, scopes=self._scopes, cache=self._cache)
        entry = resource_entry(skill.uri, partial(self._contents, skill.uri), options)
        return entry.listed_as(_resource_of(skill))

    # --- requests: each looks at a disk, and runs in a thread

    def _list(self, params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        found = self._snapshot().skills
        keys = list(found)
        cursor = _text(params, "cursor", "skills/list")
        part, _ = page(keys, cursor, _SKILLS_PER_PAGE, "skill")
        size, files = 0, 0
        for key in keys[part]:
            files += len(found[key].files)
            if size and files > _FILES_PER_PAGE:
                break
            size += 1
        part, following = page(keys, cursor, max(size, 1), "skill")
        result: dict[str, Any] = {"skills": [found[key].to_wire() for key in keys[part]]}
        if following is not None:
            result["nextCursor"] = following
        return self._hinted(result, ctx)

    def _get(self, params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        uri = _uri(params, "skills/get")
        skill = self._snapshot().skills.get(uri)
        if skill is None:
            raise McpError(ErrorCode.INVALID_PARAMS, f"No skill is served at {uri[:_SHOWN]}", {"uri": uri})
        return self._hinted({"skill": skill.to_wire()}, ctx)

    def _read_directory(self, params: dict[str, Any]) -> dict[str, Any]:
        uri = _uri(params, "resources/directory/read")
        found = self._snapshot()
        children = found.directories.get(uri)
        if children is None:
            is_file = uri in found.files
            why = (
                f"{uri[:_SHOWN]} is not a directory resource"
                if is_file
                else f"No directory is served at {uri[:_SHOWN]}"
            )
            raise McpError(ErrorCode.INVALID_PARAMS, why, {"uri": uri})
        keys = sorted(children)
        cursor = _text(params, "cursor", "resources/directory/read")
        part, following = page(keys, cursor, _CHILDREN_PER_PAGE, "directory")
        result: dict[str, Any] = {"resources": [_child_of(each, found) for each in keys[part]]}
        if following is not None:
            result["nextCursor"] = following
        return result

    def _read(self, path: str, ctx: Context) -> Contents:  # noqa: ARG002 - the URI is looked up as it was sent
        return self._contents(ctx.uri or "")

    def _contents(self, uri: str) -> Contents:
        """The contents of a file. Raises `McpError` for a URI that is no file's."""
        file = self._snapshot().files.get(uri)
        data = None if file is None else self._folder.read(file)
        if file is None or data is None:
            raise unknown_resource(uri)
        text = text_of(data)
        if text is not None:
            return Contents(uri, file.mime_type, text)
        return Contents(uri, file.mime_type, None, data)

    def _hinted(self, result: dict[str, Any], ctx: Context) -> dict[str, Any]:
        """The result, with cache hints where the revision has them."""
        if not dialect_of(ctx.protocol_version).is_stateless:
            return result
        return {**result, **(NO_HINT if self._cache is None else self._cache.to_wire())}


def _resource_of(skill: Skill) -> dict[str, Any]:
    """A `SKILL.md` as a resource."""
    size = next(each.size for each in skill.files if each.uri == skill.uri)
    return {
        "uri": skill.uri,
        "name": skill.frontmatter["name"],
        "description": skill.frontmatter["description"],
        "mimeType": MARKDOWN_TYPE,
        "size": size,
    }


def _child_of(uri: str, found: SkillSnapshot) -> dict[str, Any]:
    """An entry of a directory."""
    if (skill := found.skills.get(uri)) is not None:
        return _resource_of(skill)
    if (file := found.files.get(uri)) is not None:
        return {"uri": uri, "name": file.name, "mimeType": file.mime_type, "size": file.size}
    return {"uri": uri, "name": found.directory_names[uri], "mimeType": DIRECTORY_TYPE}


def _uri(params: Mapping[str, Any], method: str) -> str:
    uri = _text(params, "uri", method)
    if uri is None:
        raise McpError(ErrorCode.INVALID_PARAMS, f'Invalid params for {method}: "uri" is missing')
    return uri


def _text(params: Mapping[str, Any], name: str, method: str) -> str | None:
    value = params.get(name)
    if value is not None and not isinstance(value, str):
        raise McpError(ErrorCode.INVALID_PARAMS, f'Invalid params for {method}: "{name}" must be a string')
    return value
