"""greenroom: Model Context Protocol (MCP) servers, clients and hosts that keep working when parts of them crash.

The public names are loaded lazily: `import greenroom` loads only this file, and each name below loads its package when it is first used. So the
import costs almost nothing for a command line tool, or for a worker that needs one name.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from greenroom.actors.apps import App as App
    from greenroom.actors.apps import AppCsp as AppCsp
    from greenroom.actors.apps import AppView as AppView
    from greenroom.actors.apps import shows_apps as shows_apps
    from greenroom.actors.catalogue import RegistrationError as RegistrationError
    from greenroom.actors.client.client_handler import ClientHandler as ClientHandler
    from greenroom.actors.client.client_handler import Deferred as Deferred
    from greenroom.actors.client.errors import CircuitOpen as CircuitOpen
    from greenroom.actors.client.errors import ClientClosed as ClientClosed
    from greenroom.actors.client.errors import ClientError as ClientError
    from greenroom.actors.client.errors import InitFailed as InitFailed
    from greenroom.actors.client.errors import InitTimeout as InitTimeout
    from greenroom.actors.client.errors import InputRefused as InputRefused
    from greenroom.actors.client.errors import NotReady as NotReady
    from greenroom.actors.client.errors import Parked as Parked
    from greenroom.actors.client.errors import ProtocolVersionError as ProtocolVersionError
    from greenroom.actors.client.errors import RequestLost as RequestLost
    from greenroom.actors.client.errors import RequestTimeout as RequestTimeout
    from greenroom.actors.client.errors import TaskLost as TaskLost
    from greenroom.actors.client.errors import TooManyPages as TooManyPages
    from greenroom.actors.client.errors import Unavailable as Unavailable
    from greenroom.actors.client.errors import Unsupported as Unsupported
    from greenroom.actors.client.interfaces import Phase as Phase
    from greenroom.actors.client.interfaces import Progress as Progress
    from greenroom.actors.client.interfaces import ServerNotification as ServerNotification
    from greenroom.actors.client.interfaces import Status as Status
    from greenroom.actors.client.response_cache import ResponseCache as ResponseCache
    from greenroom.actors.client.settings import ClientSettings as ClientSettings
    from greenroom.actors.context import CallIsOver as CallIsOver
    from greenroom.actors.context import Context as Context
    from greenroom.actors.extensions import Extension as Extension
    from greenroom.actors.handler_options import CompletionOptions as CompletionOptions
    from greenroom.actors.handler_options import PromptOptions as PromptOptions
    from greenroom.actors.handler_options import ResourceOptions as ResourceOptions
    from greenroom.actors.handler_options import TemplateOptions as TemplateOptions
    from greenroom.actors.handler_options import ToolOptions as ToolOptions
    from greenroom.actors.pools.pool_options import Pool as Pool
    from greenroom.actors.server_questions import Accepted as Accepted
    from greenroom.actors.server_questions import Declined as Declined
    from greenroom.actors.server_questions import Dismissed as Dismissed
    from greenroom.actors.server_questions import Question as Question
    from greenroom.actors.server_questions import Root as Root
    from greenroom.actors.server_questions import Sampled as Sampled
    from greenroom.actors.settings import Settings as Settings
    from greenroom.actors.skills import Skills as Skills
    from greenroom.actors.task_store import TaskStoreError as TaskStoreError
    from greenroom.actors.task_store_sqlite import SqliteTasks as SqliteTasks
    from greenroom.actors.worker_interfaces import Hooks as Hooks
    from greenroom.protocol.cache_hints import Cache as Cache
    from greenroom.protocol.content import Audio as Audio
    from greenroom.protocol.content import Contents as Contents
    from greenroom.protocol.content import Embedded as Embedded
    from greenroom.protocol.content import Image as Image
    from greenroom.protocol.content import ResourceLink as ResourceLink
    from greenroom.protocol.content import Text as Text
    from greenroom.protocol.content import ToolResult as ToolResult
    from greenroom.protocol.content import ToolUse as ToolUse
    from greenroom.protocol.content import audio as audio
    from greenroom.protocol.content import blob_resource as blob_resource
    from greenroom.protocol.content import embedded as embedded
    from greenroom.protocol.content import image as image
    from greenroom.protocol.content import resource_link as resource_link
    from greenroom.protocol.content import text as text
    from greenroom.protocol.content import text_resource as text_resource
    from greenroom.protocol.definitions import Annotations as Annotations
    from greenroom.protocol.definitions import Icon as Icon
    from greenroom.protocol.definitions import Prompt as Prompt
    from greenroom.protocol.definitions import PromptArgument as PromptArgument
    from greenroom.protocol.definitions import Resource as Resource
    from greenroom.protocol.definitions import ResourceTemplate as ResourceTemplate
    from greenroom.protocol.definitions import Tool as Tool
    from greenroom.protocol.definitions import ToolAnnotations as ToolAnnotations
    from greenroom.protocol.elicitation_forms import Email as Email
    from greenroom.protocol.elicitation_forms import Titles as Titles
    from greenroom.protocol.elicitation_forms import Uri as Uri
    from greenroom.protocol.elicitation_forms import UrlElicitation as UrlElicitation
    from greenroom.protocol.elicitation_forms import UrlElicitationRequired as UrlElicitationRequired
    from greenroom.protocol.errors import BadAnswer as BadAnswer
    from greenroom.protocol.errors import ErrorCode as ErrorCode
    from greenroom.protocol.errors import McpError as McpError
    from greenroom.protocol.errors import PeerError as PeerError
    from greenroom.protocol.errors import ProtocolError as ProtocolError
    from greenroom.protocol.errors import RequestCancelled as RequestCancelled
    from greenroom.protocol.errors import ToolError as ToolError
    from greenroom.protocol.handler_results import CallToolResult as CallToolResult
    from greenroom.protocol.handler_results import Completion as Completion
    from greenroom.protocol.handler_results import Message as Message
    from greenroom.protocol.handler_results import PromptResult as PromptResult
    from greenroom.protocol.handler_results import Structured as Structured
    from greenroom.protocol.handler_results import WithMeta as WithMeta
    from greenroom.protocol.handler_results import assistant_message as assistant_message
    from greenroom.protocol.handler_results import message as message
    from greenroom.protocol.handler_results import user_message as user_message
    from greenroom.protocol.input_required import InputRequired as InputRequired
    from greenroom.protocol.received_results import LogMessage as LogMessage
    from greenroom.protocol.received_results import Page as Page
    from greenroom.protocol.received_results import PromptReply as PromptReply
    from greenroom.protocol.received_results import RemoteTask as RemoteTask
    from greenroom.protocol.received_results import ResourceReply as ResourceReply
    from greenroom.protocol.received_results import ToolReply as ToolReply
    from greenroom.protocol.validation_errors import Mismatch as Mismatch
    from greenroom.transports.client.errors import TransportError as TransportError
    from greenroom.transports.client.errors import Unauthorized as Unauthorized
    from greenroom.transports.client.server_command import Command as Command
    from greenroom.transports.http_config import HttpConfig as HttpConfig

    from .client import Client as Client
    from .client import PendingCall as PendingCall
    from .client import ToolFailed as ToolFailed
    from .client_callbacks import ElicitationRequest as ElicitationRequest
    from .client_callbacks import SamplingRequest as SamplingRequest
    from .client_callbacks import UrlElicitationRequest as UrlElicitationRequest
    from .errors import ConfigError as ConfigError
    from .errors import GreenroomError as GreenroomError
    from .host import Host as Host
    from .mcp_server import McpServer as McpServer
    from .mcp_server import completion as completion
    from .mcp_server import prompt as prompt
    from .mcp_server import resource as resource
    from .mcp_server import tool as tool
    from .server import Server as Server
    from .skill_reader import SkillReader as SkillReader
    from .skill_reader import SkillRefused as SkillRefused
    from .sync_client import SyncClient as SyncClient

__version__: Final[str] = "0.1.0.dev0"

# Modules and the names exported from each: `python -m tests.house --write` makes the table of the imports above.
_HOMES: Final[dict[str, str]] = {
    "greenroom.actors.apps": "App AppCsp AppView shows_apps",
    "greenroom.actors.catalogue": "RegistrationError",
    "greenroom.actors.client.client_handler": "ClientHandler Deferred",
    "greenroom.actors.client.errors": "CircuitOpen ClientClosed ClientError InitFailed InitTimeout "
    "InputRefused NotReady Parked ProtocolVersionError RequestLost "
    "RequestTimeout TaskLost TooManyPages Unavailable Unsupported",
    "greenroom.actors.client.interfaces": "Phase Progress ServerNotification Status",
    "greenroom.actors.client.response_cache": "ResponseCache",
    "greenroom.actors.client.settings": "ClientSettings",
    "greenroom.actors.context": "CallIsOver Context",
    "greenroom.actors.extensions": "Extension",
    "greenroom.actors.handler_options": "CompletionOptions PromptOptions ResourceOptions TemplateOptions ToolOptions",
    "greenroom.actors.pools.pool_options": "Pool",
    "greenroom.actors.server_questions": "Accepted Declined Dismissed Question Root Sampled",
    "greenroom.actors.settings": "Settings",
    "greenroom.actors.skills": "Skills",
    "greenroom.actors.task_store": "TaskStoreError",
    "greenroom.actors.task_store_sqlite": "SqliteTasks",
    "greenroom.actors.worker_interfaces": "Hooks",
    "greenroom.client": "Client PendingCall ToolFailed",
    "greenroom.client_callbacks": "ElicitationRequest SamplingRequest UrlElicitationRequest",
    "greenroom.errors": "ConfigError GreenroomError",
    "greenroom.host": "Host",
    "greenroom.mcp_server": "McpServer completion prompt resource tool",
    "greenroom.protocol.cache_hints": "Cache",
    "greenroom.protocol.content": "Audio Contents Embedded Image ResourceLink Text ToolResult ToolUse "
    "audio blob_resource embedded image resource_link text text_resource",
    "greenroom.protocol.definitions": "Annotations Icon Prompt PromptArgument Resource ResourceTemplate Tool "
    "ToolAnnotations",
    "greenroom.protocol.elicitation_forms": "Email Titles Uri UrlElicitation UrlElicitationRequired",
    "greenroom.protocol.errors": "BadAnswer ErrorCode McpError PeerError ProtocolError RequestCancelled ToolError",
    "greenroom.protocol.handler_results": "CallToolResult Completion Message PromptResult Structured WithMeta "
    "assistant_message message user_message",
    "greenroom.protocol.input_required": "InputRequired",
    "greenroom.protocol.received_results": "LogMessage Page PromptReply RemoteTask ResourceReply ToolReply",
    "greenroom.protocol.validation_errors": "Mismatch",
    "greenroom.server": "Server",
    "greenroom.skill_reader": "SkillReader SkillRefused",
    "greenroom.sync_client": "SyncClient",
    "greenroom.transports.client.errors": "TransportError Unauthorized",
    "greenroom.transports.client.server_command": "Command",
    "greenroom.transports.http_config": "HttpConfig",
}

__all__ = sorted([*" ".join(_HOMES.values()).split(), "__version__"])  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll] - the table says which


if not TYPE_CHECKING:  # type checkers that saw this function would accept all names

    def __getattr__(name: str) -> object:
        """Load `name` when it is first used."""
        from .lazy_names import load_name  # noqa: PLC0415 - `import greenroom` loads nothing but this file

        return load_name(__name__, _HOMES, name)


class _Moved:
    """The last finder on `sys.meta_path`: for modules that Python's own finders did not find."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:  # noqa: ARG004 - as `importlib` calls it
        """The spec of a module under its old path."""
        if not name.startswith("greenroom."):
            return None
        from .moved import spec_of_moved  # noqa: PLC0415 - only needed for old paths

        return spec_of_moved(name)


sys.meta_path.append(_Moved)  # type: ignore[arg-type]


def __dir__() -> list[str]:
    """List names that are not loaded yet too, for completion and `help`."""
    return sorted({*globals(), *__all__})
