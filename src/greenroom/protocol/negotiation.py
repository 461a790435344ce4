"""What two peers agree on at the beginning: a revision, and who can do what.

`read_hello` checks an `initialize`, `Features` becomes the capabilities that a server declares, `welcome` is its answer; and
`missing` says, of a request that is about to be sent, which capability the peer has not declared for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import ErrorCode, McpError
from .json import is_object
from .methods import METHODS, Side, check_params
from .sampling import uses_tools
from .versions import V2025_03_26, V2025_11_25, at_least, negotiate

if TYPE_CHECKING:
    from collections.abc import Mapping


def unable(why: str) -> McpError:
    """The error for a request that the peer's revision or capabilities do not allow."""
    return McpError(ErrorCode.INVALID_REQUEST, why)


class Hello(NamedTuple):
    """Who wants to begin, and how."""

    requested: str
    """The revision that the client asked for."""
    version: str
    """The one that it gets."""
    capabilities: dict[str, Any]
    client_info: dict[str, Any]


def read_hello(params: dict[str, Any]) -> Hello:
    """The params of an `initialize`, checked. Raises `McpError` (-32602), which travels as HTTP 400."""
    check_params("initialize", params)
    requested = params["protocolVersion"]
    return Hello(requested, negotiate(requested), params["capabilities"], params["clientInfo"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a server can do, from which its capabilities follow. A feature that is off is not there at all."""

    tools: bool = False
    tools_list_changed: bool = False
    resources: bool = False
    resources_subscribe: bool = False
    resources_list_changed: bool = False
    prompts: bool = False
    prompts_list_changed: bool = False
    logging: bool = False
    completions: bool = False
    tasks: Mapping[str, Any] | None = None
    experimental: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_wire(self, version: str = V2025_11_25) -> dict[str, Any]:
        """The capabilities object. What a revision does not know yet is left out."""
        flags: dict[str, tuple[bool, dict[str, bool]]] = {
            "tools": (self.tools, {"listChanged": self.tools_list_changed}),
            "resources": (
                self.resources,
                {"subscribe": self.resources_subscribe, "listChanged": self.resources_list_changed},
            ),
            "prompts": (self.prompts, {"listChanged": self.prompts_list_changed}),
            "logging": (self.logging, {}),
            "completions": (self.completions and at_least(version, V2025_03_26), {}),
        }
        wire: dict[str, Any] = {
            name: {part: True for part, on in parts.items() if on} for name, (there, parts) in flags.items() if there
        }
        if self.tasks is not None and at_least(version, V2025_11_25):
            wire["tasks"] = dict(self.tasks)
        if self.experimental:
            wire["experimental"] = dict(self.experimental)
        return wire


def welcome(
    version: str, capabilities: Mapping[str, Any], server_info: Mapping[str, Any], instructions: str | None = None
) -> dict[str, Any]:
    """The result of an `initialize`. Raises `McpError` (-32603) for a server that cannot say who it is."""
    for name in ("name", "version"):
        if not isinstance(server_info.get(name), str):
            raise McpError(ErrorCode.INTERNAL_ERROR, f'Internal error: the server\'s "{name}" is no string')
    result: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": dict(capabilities),
        "serverInfo": dict(server_info),
    }
    if instructions is not None:
        result["instructions"] = instructions
    return result


def declares(capabilities: Mapping[str, Any], path: str) -> bool:
    """Whether a capability was declared: an object, even an empty one, or `true`, at the end of a dotted path.

    An `elicitation` that names no mode means forms.
    """
    if path == "elicitation.form":
        modes = capabilities.get("elicitation")
        return is_object(modes) and ("form" in modes or "url" not in modes)
    here: Any = capabilities
    for name in path.split("."):
        here = here.get(name) if is_object(here) else None
    return here is True or is_object(here)


def missing(
    method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any], hearer: Side, version: str = V2025_11_25
) -> str | None:
    """The first capability that a request needs of `hearer` and that was not declared; None when it may be sent."""
    for path in needs(method, params, hearer, version):
        if not declares(capabilities, path):
            return path
    return None


def needs(method: str, params: Mapping[str, Any], hearer: Side, version: str = V2025_11_25) -> list[str]:
    """All capabilities that `hearer` must have declared for a request: its method's, and what the params ask for besides.

    Parts of capabilities came with the newest revision; before it, forms and context needed no word of their own.
    """
    line = METHODS.get(method)
    if line is None:
        return []
    paths = [line.capability] if line.capability and line.declarer(hearer) is hearer else []
    in_parts = at_least(version, V2025_11_25)
    if method == "elicitation/create":
        if params.get("mode") == "url":
            paths.append("elicitation.url")
        elif in_parts:
            paths.append("elicitation.form")
    if method == "sampling/createMessage":
        if uses_tools(params):
            paths.append("sampling.tools")
        if in_parts and params.get("includeContext") not in (None, "none"):
            paths.append("sampling.context")
    if params.get("task") is not None:
        paths.append(f"tasks.requests.{method.replace('/', '.')}")
    return paths
