"""greenroom: the Model Context Protocol as a company of supervised actors.

This is the front door, and it opens lazily: `import greenroom` loads nothing but this file, and each name below loads its own room
when it is first used. That keeps the import of a command line tool, or of a worker that needs one name, next to free.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from greenroom.actors.cancellation import RequestCancelled
    from greenroom.actors.catalogue import RegistrationError
    from greenroom.actors.context import CallEnded, Context
    from greenroom.actors.hooks import Hooks
    from greenroom.actors.options import CompletionOptions, PromptOptions, ResourceOptions, TemplateOptions, ToolOptions
    from greenroom.actors.questions import Accepted, Declined, Dismissed, Root, Sampled
    from greenroom.actors.settings import Settings
    from greenroom.actors.task_store import TaskStoreError
    from greenroom.actors.task_store_sqlite import SqliteTasks
    from greenroom.protocol.content import (
        Audio,
        Contents,
        Embedded,
        Image,
        ResourceLink,
        Text,
        audio,
        blob_resource,
        embedded,
        image,
        resource_link,
        text,
        text_resource,
    )
    from greenroom.protocol.definitions import Annotations, Icon, PromptArgument, ToolAnnotations
    from greenroom.protocol.elicitations import UrlElicitation, UrlElicitationRequired
    from greenroom.protocol.errors import BadAnswer, ErrorCode, McpError, PeerError, ProtocolError, ToolError
    from greenroom.protocol.forms import Email, Titles, Uri
    from greenroom.protocol.results import (
        CallToolResult,
        Completion,
        Message,
        PromptResult,
        Structured,
        WithMeta,
        assistant_message,
        message,
        user_message,
    )
    from greenroom.protocol.sampling import ToolResult, ToolUse
    from greenroom.transports.http_config import HttpConfig

    from .errors import ConfigError, GreenroomError
    from .server import Server
    from .service import McpServer, completion, prompt, resource, tool

__all__ = [
    "Accepted",
    "Annotations",
    "Audio",
    "BadAnswer",
    "CallEnded",
    "CallToolResult",
    "Completion",
    "CompletionOptions",
    "ConfigError",
    "Contents",
    "Context",
    "Declined",
    "Dismissed",
    "Email",
    "Embedded",
    "ErrorCode",
    "GreenroomError",
    "Hooks",
    "HttpConfig",
    "Icon",
    "Image",
    "McpError",
    "McpServer",
    "Message",
    "PeerError",
    "PromptArgument",
    "PromptOptions",
    "PromptResult",
    "ProtocolError",
    "RegistrationError",
    "RequestCancelled",
    "ResourceLink",
    "ResourceOptions",
    "Root",
    "Sampled",
    "Server",
    "Settings",
    "SqliteTasks",
    "Structured",
    "TaskStoreError",
    "TemplateOptions",
    "Text",
    "Titles",
    "ToolAnnotations",
    "ToolError",
    "ToolOptions",
    "ToolResult",
    "ToolUse",
    "Uri",
    "UrlElicitation",
    "UrlElicitationRequired",
    "WithMeta",
    "__version__",
    "assistant_message",
    "audio",
    "blob_resource",
    "completion",
    "embedded",
    "image",
    "message",
    "prompt",
    "resource",
    "resource_link",
    "text",
    "text_resource",
    "tool",
    "user_message",
]

__version__: Final[str] = "0.1.0.dev0"

# Public name -> the module it lives in. To add a name: one line here, one above for the type checkers, one in `__all__`; the house
# test compares the three.
_HOMES: Final[dict[str, str]] = {
    "Accepted": "greenroom.actors.questions",
    "Annotations": "greenroom.protocol.definitions",
    "Audio": "greenroom.protocol.content",
    "BadAnswer": "greenroom.protocol.errors",
    "CallEnded": "greenroom.actors.context",
    "CallToolResult": "greenroom.protocol.results",
    "Completion": "greenroom.protocol.results",
    "CompletionOptions": "greenroom.actors.options",
    "ConfigError": "greenroom.errors",
    "Contents": "greenroom.protocol.content",
    "Context": "greenroom.actors.context",
    "Declined": "greenroom.actors.questions",
    "Dismissed": "greenroom.actors.questions",
    "Email": "greenroom.protocol.forms",
    "Embedded": "greenroom.protocol.content",
    "ErrorCode": "greenroom.protocol.errors",
    "GreenroomError": "greenroom.errors",
    "Hooks": "greenroom.actors.hooks",
    "HttpConfig": "greenroom.transports.http_config",
    "Icon": "greenroom.protocol.definitions",
    "Image": "greenroom.protocol.content",
    "McpError": "greenroom.protocol.errors",
    "McpServer": "greenroom.service",
    "Message": "greenroom.protocol.results",
    "PeerError": "greenroom.protocol.errors",
    "PromptArgument": "greenroom.protocol.definitions",
    "PromptOptions": "greenroom.actors.options",
    "PromptResult": "greenroom.protocol.results",
    "ProtocolError": "greenroom.protocol.errors",
    "RegistrationError": "greenroom.actors.catalogue",
    "RequestCancelled": "greenroom.actors.cancellation",
    "ResourceLink": "greenroom.protocol.content",
    "ResourceOptions": "greenroom.actors.options",
    "Root": "greenroom.actors.questions",
    "Sampled": "greenroom.actors.questions",
    "Server": "greenroom.server",
    "Settings": "greenroom.actors.settings",
    "SqliteTasks": "greenroom.actors.task_store_sqlite",
    "Structured": "greenroom.protocol.results",
    "TaskStoreError": "greenroom.actors.task_store",
    "TemplateOptions": "greenroom.actors.options",
    "Text": "greenroom.protocol.content",
    "Titles": "greenroom.protocol.forms",
    "ToolAnnotations": "greenroom.protocol.definitions",
    "ToolError": "greenroom.protocol.errors",
    "ToolOptions": "greenroom.actors.options",
    "ToolResult": "greenroom.protocol.sampling",
    "ToolUse": "greenroom.protocol.sampling",
    "Uri": "greenroom.protocol.forms",
    "UrlElicitation": "greenroom.protocol.elicitations",
    "UrlElicitationRequired": "greenroom.protocol.elicitations",
    "WithMeta": "greenroom.protocol.results",
    "assistant_message": "greenroom.protocol.results",
    "audio": "greenroom.protocol.content",
    "blob_resource": "greenroom.protocol.content",
    "completion": "greenroom.service",
    "embedded": "greenroom.protocol.content",
    "image": "greenroom.protocol.content",
    "message": "greenroom.protocol.results",
    "prompt": "greenroom.service",
    "resource": "greenroom.service",
    "resource_link": "greenroom.protocol.content",
    "text": "greenroom.protocol.content",
    "text_resource": "greenroom.protocol.content",
    "tool": "greenroom.service",
    "user_message": "greenroom.protocol.results",
}


if not TYPE_CHECKING:  # a checker that saw this function would believe in every name

    def __getattr__(name: str) -> object:
        """Load `name` from its room at its first use, and keep it: later uses do not come through here."""
        home = _HOMES.get(name)
        if home is None:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message, name=name)
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Name what is not loaded yet as well, so that completion and `help` see the whole door."""
    return sorted({*globals(), *_HOMES})
