"""greenroom: the Model Context Protocol as a company of supervised actors.

This is the front door, and it opens lazily: `import greenroom` loads nothing but this file, and each name below loads its own room
when it is first used. That keeps the import of a command line tool, or of a worker that needs one name, next to free.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from greenroom.actors.cancellation import RequestCancelled
    from greenroom.actors.catalogue import RegistrationError
    from greenroom.actors.client.errors import (
        CircuitOpen,
        ClientClosed,
        ClientError,
        InitFailed,
        InitTimeout,
        NotReady,
        Parked,
        ProtocolVersionError,
        RequestLost,
        RequestTimeout,
        TooManyPages,
        Unavailable,
        Unsupported,
    )
    from greenroom.actors.client.handler import ClientHandler, Deferred
    from greenroom.actors.client.seam import Phase, Progress, Status, Told
    from greenroom.actors.client.settings import ClientSettings
    from greenroom.actors.consent.consent import Consent, ConsentAnswer, ConsentQuestion
    from greenroom.actors.consent.rules import ConsentDenied, Permissions, Rule
    from greenroom.actors.context import CallEnded, Context
    from greenroom.actors.elicitation.bridge import ElicitationBridge, OpenQuestion
    from greenroom.actors.federation.specs import Annex
    from greenroom.actors.handlers import (
        CompletionOptions,
        PromptOptions,
        ResourceOptions,
        TemplateOptions,
        ToolOptions,
    )
    from greenroom.actors.hooks import Hooks
    from greenroom.actors.output.limits import OutputLimit, OutputLimits
    from greenroom.actors.pools.pool import Pool
    from greenroom.actors.server_questions import Accepted, Declined, Dismissed, Root, Sampled
    from greenroom.actors.settings import Settings
    from greenroom.actors.task_store import TaskStoreError
    from greenroom.actors.task_store_sqlite import SqliteTasks
    from greenroom.auth.bearer import BearerAuth
    from greenroom.auth.client.code_flow import DeviceCode, open_browser, paste_back, show_code
    from greenroom.auth.client.door import SignIn
    from greenroom.auth.client.keyring_store import KeyringStore, best_store
    from greenroom.auth.client.machine import ClientCredentials, EnterpriseManaged, GivenTokens
    from greenroom.auth.client.oauth import OAuth
    from greenroom.auth.client.registration import signing_key
    from greenroom.auth.client.stores import FileStore, MemoryStore, TokenStore
    from greenroom.auth.errors import Denied, SignInError
    from greenroom.auth.grants import AuthInfo
    from greenroom.auth.introspection import Introspection, KeySet
    from greenroom.auth.resource_server import OAuthResource
    from greenroom.auth.shared_secrets import (
        APIKeyAuth,
        BasicAuth,
        CustomAuth,
        NoAuth,
        hash_key,
        hash_password,
        verify_key,
        verify_password,
    )
    from greenroom.auth.stage import Protected
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
    from greenroom.protocol.definitions import (
        Annotations,
        Icon,
        Prompt,
        PromptArgument,
        Resource,
        ResourceTemplate,
        Tool,
        ToolAnnotations,
    )
    from greenroom.protocol.errors import BadAnswer, ErrorCode, McpError, PeerError, ProtocolError, ToolError
    from greenroom.protocol.forms import Email, Titles, Uri, UrlElicitation, UrlElicitationRequired
    from greenroom.protocol.pins import Pins, ToolRefused
    from greenroom.protocol.problems import Mismatch
    from greenroom.protocol.received import LogMessage, Page, PromptReply, RemoteTask, ResourceReply, ToolReply
    from greenroom.protocol.results import (
        CallToolResult,
        Completion,
        Message,
        PromptResult,
        Structured,
        ToolResult,
        ToolUse,
        WithMeta,
        assistant_message,
        message,
        user_message,
    )
    from greenroom.transports.client.command import Command
    from greenroom.transports.client.errors import (
        ConnectFailed,
        ConnectionLost,
        HttpError,
        NodeEnded,
        NotMcp,
        ProcessDied,
        RequestTooLarge,
        ResponseTooLarge,
        SessionGone,
        SilentTooLong,
        TransportError,
        Unauthorized,
        WireFull,
    )
    from greenroom.transports.client.fetch import Fetcher
    from greenroom.transports.client.http_address import Guard
    from greenroom.transports.client.http_route import HttpRoute, SseRoute
    from greenroom.transports.client.http_settings import HttpSettings, Trust
    from greenroom.transports.client.seam import FixedHeaders
    from greenroom.transports.http_config import HttpConfig

    from .client import Client, PendingCall, ToolFailed
    from .client_callbacks import ElicitationRequest, SamplingRequest, UrlElicitationRequest
    from .errors import ConfigError, GreenroomError
    from .host import Host
    from .server import Server
    from .service import McpServer, completion, prompt, resource, tool
    from .sync import SyncClient

__all__ = [
    "APIKeyAuth",
    "Accepted",
    "Annex",
    "Annotations",
    "Audio",
    "AuthInfo",
    "BadAnswer",
    "BasicAuth",
    "BearerAuth",
    "CallEnded",
    "CallToolResult",
    "CircuitOpen",
    "Client",
    "ClientClosed",
    "ClientCredentials",
    "ClientError",
    "ClientHandler",
    "ClientSettings",
    "Command",
    "Completion",
    "CompletionOptions",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "Consent",
    "ConsentAnswer",
    "ConsentDenied",
    "ConsentQuestion",
    "Contents",
    "Context",
    "CustomAuth",
    "Declined",
    "Deferred",
    "Denied",
    "DeviceCode",
    "Dismissed",
    "ElicitationBridge",
    "ElicitationRequest",
    "Email",
    "Embedded",
    "EnterpriseManaged",
    "ErrorCode",
    "Fetcher",
    "FileStore",
    "FixedHeaders",
    "GivenTokens",
    "GreenroomError",
    "Guard",
    "Hooks",
    "Host",
    "HttpConfig",
    "HttpError",
    "HttpRoute",
    "HttpSettings",
    "Icon",
    "Image",
    "InitFailed",
    "InitTimeout",
    "Introspection",
    "KeySet",
    "KeyringStore",
    "LogMessage",
    "McpError",
    "McpServer",
    "MemoryStore",
    "Message",
    "Mismatch",
    "NoAuth",
    "NodeEnded",
    "NotMcp",
    "NotReady",
    "OAuth",
    "OAuthResource",
    "OpenQuestion",
    "OutputLimit",
    "OutputLimits",
    "Page",
    "Parked",
    "PeerError",
    "PendingCall",
    "Permissions",
    "Phase",
    "Pins",
    "Pool",
    "ProcessDied",
    "Progress",
    "Prompt",
    "PromptArgument",
    "PromptOptions",
    "PromptReply",
    "PromptResult",
    "Protected",
    "ProtocolError",
    "ProtocolVersionError",
    "RegistrationError",
    "RemoteTask",
    "RequestCancelled",
    "RequestLost",
    "RequestTimeout",
    "RequestTooLarge",
    "Resource",
    "ResourceLink",
    "ResourceOptions",
    "ResourceReply",
    "ResourceTemplate",
    "ResponseTooLarge",
    "Root",
    "Rule",
    "Sampled",
    "SamplingRequest",
    "Server",
    "SessionGone",
    "Settings",
    "SignIn",
    "SignInError",
    "SilentTooLong",
    "SqliteTasks",
    "SseRoute",
    "Status",
    "Structured",
    "SyncClient",
    "TaskStoreError",
    "TemplateOptions",
    "Text",
    "Titles",
    "TokenStore",
    "Told",
    "TooManyPages",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "ToolFailed",
    "ToolOptions",
    "ToolRefused",
    "ToolReply",
    "ToolResult",
    "ToolUse",
    "TransportError",
    "Trust",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "Uri",
    "UrlElicitation",
    "UrlElicitationRequest",
    "UrlElicitationRequired",
    "WireFull",
    "WithMeta",
    "__version__",
    "assistant_message",
    "audio",
    "best_store",
    "blob_resource",
    "completion",
    "embedded",
    "hash_key",
    "hash_password",
    "image",
    "message",
    "open_browser",
    "paste_back",
    "prompt",
    "resource",
    "resource_link",
    "show_code",
    "signing_key",
    "text",
    "text_resource",
    "tool",
    "user_message",
    "verify_key",
    "verify_password",
]

__version__: Final[str] = "0.1.0.dev0"

# Public name -> the module it lives in. To add a name: one line here, one above for the type checkers, one in `__all__`; the house
# test compares the three.
_HOMES: Final[dict[str, str]] = {
    "BearerAuth": "greenroom.auth.bearer",
    "APIKeyAuth": "greenroom.auth.shared_secrets",
    "BasicAuth": "greenroom.auth.shared_secrets",
    "CustomAuth": "greenroom.auth.shared_secrets",
    "NoAuth": "greenroom.auth.shared_secrets",
    "AuthInfo": "greenroom.auth.grants",
    "hash_key": "greenroom.auth.shared_secrets",
    "verify_key": "greenroom.auth.shared_secrets",
    "hash_password": "greenroom.auth.shared_secrets",
    "verify_password": "greenroom.auth.shared_secrets",
    "KeySet": "greenroom.auth.introspection",
    "Introspection": "greenroom.auth.introspection",
    "signing_key": "greenroom.auth.client.registration",
    "DeviceCode": "greenroom.auth.client.code_flow",
    "show_code": "greenroom.auth.client.code_flow",
    "paste_back": "greenroom.auth.client.code_flow",
    "Consent": "greenroom.actors.consent.consent",
    "ConsentAnswer": "greenroom.actors.consent.consent",
    "ConsentQuestion": "greenroom.actors.consent.consent",
    "ConsentDenied": "greenroom.actors.consent.rules",
    "Permissions": "greenroom.actors.consent.rules",
    "Rule": "greenroom.actors.consent.rules",
    "ElicitationBridge": "greenroom.actors.elicitation.bridge",
    "OpenQuestion": "greenroom.actors.elicitation.bridge",
    "OutputLimit": "greenroom.actors.output.limits",
    "OutputLimits": "greenroom.actors.output.limits",
    "open_browser": "greenroom.auth.client.code_flow",
    "best_store": "greenroom.auth.client.keyring_store",
    "KeyringStore": "greenroom.auth.client.keyring_store",
    "TokenStore": "greenroom.auth.client.stores",
    "MemoryStore": "greenroom.auth.client.stores",
    "FileStore": "greenroom.auth.client.stores",
    "SignIn": "greenroom.auth.client.door",
    "GivenTokens": "greenroom.auth.client.machine",
    "EnterpriseManaged": "greenroom.auth.client.machine",
    "ClientCredentials": "greenroom.auth.client.machine",
    "OAuth": "greenroom.auth.client.oauth",
    "SignInError": "greenroom.auth.errors",
    "Denied": "greenroom.auth.errors",
    "OAuthResource": "greenroom.auth.resource_server",
    "Protected": "greenroom.auth.stage",
    "Fetcher": "greenroom.transports.client.fetch",
    "Guard": "greenroom.transports.client.http_address",
    "Accepted": "greenroom.actors.server_questions",
    "Annex": "greenroom.actors.federation.specs",
    "Annotations": "greenroom.protocol.definitions",
    "Audio": "greenroom.protocol.content",
    "BadAnswer": "greenroom.protocol.errors",
    "CallEnded": "greenroom.actors.context",
    "CallToolResult": "greenroom.protocol.results",
    "CircuitOpen": "greenroom.actors.client.errors",
    "Client": "greenroom.client",
    "ClientClosed": "greenroom.actors.client.errors",
    "ClientError": "greenroom.actors.client.errors",
    "ClientHandler": "greenroom.actors.client.handler",
    "ClientSettings": "greenroom.actors.client.settings",
    "Command": "greenroom.transports.client.command",
    "Completion": "greenroom.protocol.results",
    "CompletionOptions": "greenroom.actors.handlers",
    "ConfigError": "greenroom.errors",
    "ConnectFailed": "greenroom.transports.client.errors",
    "ConnectionLost": "greenroom.transports.client.errors",
    "Contents": "greenroom.protocol.content",
    "Context": "greenroom.actors.context",
    "Declined": "greenroom.actors.server_questions",
    "Deferred": "greenroom.actors.client.handler",
    "Dismissed": "greenroom.actors.server_questions",
    "ElicitationRequest": "greenroom.client_callbacks",
    "Email": "greenroom.protocol.forms",
    "Embedded": "greenroom.protocol.content",
    "ErrorCode": "greenroom.protocol.errors",
    "FixedHeaders": "greenroom.transports.client.seam",
    "GreenroomError": "greenroom.errors",
    "Hooks": "greenroom.actors.hooks",
    "Host": "greenroom.host",
    "HttpConfig": "greenroom.transports.http_config",
    "HttpError": "greenroom.transports.client.errors",
    "HttpRoute": "greenroom.transports.client.http_route",
    "HttpSettings": "greenroom.transports.client.http_settings",
    "Icon": "greenroom.protocol.definitions",
    "Image": "greenroom.protocol.content",
    "InitFailed": "greenroom.actors.client.errors",
    "InitTimeout": "greenroom.actors.client.errors",
    "LogMessage": "greenroom.protocol.received",
    "McpError": "greenroom.protocol.errors",
    "McpServer": "greenroom.service",
    "Message": "greenroom.protocol.results",
    "Mismatch": "greenroom.protocol.problems",
    "NodeEnded": "greenroom.transports.client.errors",
    "NotMcp": "greenroom.transports.client.errors",
    "NotReady": "greenroom.actors.client.errors",
    "Page": "greenroom.protocol.received",
    "Parked": "greenroom.actors.client.errors",
    "PeerError": "greenroom.protocol.errors",
    "PendingCall": "greenroom.client",
    "Phase": "greenroom.actors.client.seam",
    "Pins": "greenroom.protocol.pins",
    "Pool": "greenroom.actors.pools.pool",
    "ProcessDied": "greenroom.transports.client.errors",
    "Progress": "greenroom.actors.client.seam",
    "Prompt": "greenroom.protocol.definitions",
    "PromptArgument": "greenroom.protocol.definitions",
    "PromptOptions": "greenroom.actors.handlers",
    "PromptReply": "greenroom.protocol.received",
    "PromptResult": "greenroom.protocol.results",
    "ProtocolError": "greenroom.protocol.errors",
    "ProtocolVersionError": "greenroom.actors.client.errors",
    "RegistrationError": "greenroom.actors.catalogue",
    "RemoteTask": "greenroom.protocol.received",
    "RequestCancelled": "greenroom.actors.cancellation",
    "RequestLost": "greenroom.actors.client.errors",
    "RequestTimeout": "greenroom.actors.client.errors",
    "Resource": "greenroom.protocol.definitions",
    "ResourceLink": "greenroom.protocol.content",
    "ResourceOptions": "greenroom.actors.handlers",
    "ResourceReply": "greenroom.protocol.received",
    "ResourceTemplate": "greenroom.protocol.definitions",
    "RequestTooLarge": "greenroom.transports.client.errors",
    "ResponseTooLarge": "greenroom.transports.client.errors",
    "Root": "greenroom.actors.server_questions",
    "Sampled": "greenroom.actors.server_questions",
    "SamplingRequest": "greenroom.client_callbacks",
    "Server": "greenroom.server",
    "SessionGone": "greenroom.transports.client.errors",
    "Settings": "greenroom.actors.settings",
    "SilentTooLong": "greenroom.transports.client.errors",
    "SqliteTasks": "greenroom.actors.task_store_sqlite",
    "SseRoute": "greenroom.transports.client.http_route",
    "Status": "greenroom.actors.client.seam",
    "Structured": "greenroom.protocol.results",
    "SyncClient": "greenroom.sync",
    "TaskStoreError": "greenroom.actors.task_store",
    "TemplateOptions": "greenroom.actors.handlers",
    "Text": "greenroom.protocol.content",
    "Titles": "greenroom.protocol.forms",
    "Told": "greenroom.actors.client.seam",
    "TooManyPages": "greenroom.actors.client.errors",
    "Tool": "greenroom.protocol.definitions",
    "ToolAnnotations": "greenroom.protocol.definitions",
    "ToolError": "greenroom.protocol.errors",
    "ToolFailed": "greenroom.client",
    "ToolOptions": "greenroom.actors.handlers",
    "ToolRefused": "greenroom.protocol.pins",
    "ToolReply": "greenroom.protocol.received",
    "ToolResult": "greenroom.protocol.results",
    "ToolUse": "greenroom.protocol.results",
    "TransportError": "greenroom.transports.client.errors",
    "Trust": "greenroom.transports.client.http_settings",
    "Unauthorized": "greenroom.transports.client.errors",
    "Unavailable": "greenroom.actors.client.errors",
    "Unsupported": "greenroom.actors.client.errors",
    "Uri": "greenroom.protocol.forms",
    "UrlElicitation": "greenroom.protocol.forms",
    "UrlElicitationRequest": "greenroom.client_callbacks",
    "UrlElicitationRequired": "greenroom.protocol.forms",
    "WireFull": "greenroom.transports.client.errors",
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


class _Moved:
    """Asked last: for a module that none of Python's own finders has found."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:  # noqa: ARG004 - as `importlib` calls it
        """How to load a module under a path that it no longer has."""
        if not name.startswith("greenroom."):
            return None
        from .moved import spec_of_moved  # noqa: PLC0415 - a program that imports what there is needs none of it

        return spec_of_moved(name)


sys.meta_path.append(_Moved)  # type: ignore[arg-type]


def __dir__() -> list[str]:
    """Name what is not loaded yet as well, so that completion and `help` see the whole door."""
    return sorted({*globals(), *_HOMES})
