"""The options of ``greenroom serve``: how it is served, and one for each setting of a server and of its HTTP listener.

A test compares them with the fields of `HttpConfig` and `Settings`. What is not typed keeps what the server's code says, or the default.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .click_app import CommandOption

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENDPOINT: Final = "What is served over HTTP"


def _setting(
    of: str, section: str, name: str, text: str, kind: Any = "text", *, field: str = "", **more: Any
) -> CommandOption:
    return CommandOption(name, text, kind, setting=f"{of}.{field or name.replace('-', '_')}", section=section, **more)


_seconds: Final[dict[str, Any]] = {"kind": "seconds", "metavar": "SECONDS"}
_count: Final[dict[str, Any]] = {"kind": "whole", "metavar": "N"}
_bytes: Final[dict[str, Any]] = {"kind": "whole", "metavar": "BYTES"}
_no_limit: Final = "no limit"

_access = partial(_setting, "http", "Who may call, over HTTP")
_endpoint = partial(_setting, "http", _ENDPOINT)
_tls = partial(_setting, "http", "TLS")
_http_limit = partial(_setting, "http", "Limits of HTTP")
_identity = partial(_setting, "server", "What the server says of itself")
_work = partial(_setting, "server", "Sessions, calls and tasks")
_errors_and_logs = partial(_setting, "server", "Checks, errors and logs")

SERVE_OPTIONS: Final[Sequence[CommandOption]] = (
    CommandOption("config", "a gateway to the servers of this file, instead of a server's code", "path", metavar="FILE"),
    CommandOption("only", "of that file only this server; again for more", metavar="NAME", multiple=True),
    CommandOption("stdio", "on stdin and stdout, which is what is done without --http", "flag"),
    CommandOption("http", "over HTTP, at this host and port", metavar="[HOST:]PORT"),
    CommandOption(
        "origin",
        "a web page's origin that may call; again for more; none, or any. Wanted where other machines can call",
        metavar="ORIGIN",
        multiple=True,
        setting="http.allowed_origins",
    ),
    CommandOption("workers", "with so many processes that share the port", "whole", metavar="N", most=64),
    CommandOption("watch", "begin anew when one of its files changes", "flag"),
    CommandOption("inspect", "let `greenroom tree` look at it, through a socket that is only yours", "flag"),
    CommandOption("grace", "how long it may take to stop once it is told to: 5, or what --drain-grace needs", "seconds", metavar="SECONDS", zero=True),
    CommandOption("no-access-log", "write no line to stderr for each call and each refusal", "flag"),
    CommandOption("log-json", "write what is logged as JSON, an object a line", "flag"),
    # --- who may call
    _access(
        "allowed-host",
        "a name that Host may say, as name or name:port: the public name of this server; again for more; or any",
        metavar="NAME",
        multiple=True,
        field="allowed_hosts",
    ),
    _access("allow-missing-origin", "serve programs, which send no Origin; on unless switched off", "switch"),
    _access(
        "trusted-proxy",
        "an address or network of proxies, which bring many clients; again for more, or none; this machine's own without",
        metavar="ADDRESS",
        multiple=True,
        field="trusted_proxies",
    ),
    # --- what is served
    _endpoint("path", "where the endpoint is (/mcp)", metavar="PATH"),
    _endpoint("serve-root", "serve the endpoint at / as well; on unless switched off", "switch"),
    CommandOption(
        "sessions",
        "give out sessions; without them each request stands alone; on unless switched off",
        "switch",
        setting="http.session_enabled server.sessions",
        section=_ENDPOINT,
    ),
    _endpoint("require-session", "refuse requests without a session id; on unless switched off", "switch"),
    _endpoint("get", "let clients open a stream by GET; on unless switched off", "switch", field="enable_get"),
    _endpoint("delete", "let clients end their session by DELETE; on unless switched off", "switch", field="allow_delete"),
    _endpoint("validate-protocol-version", "refuse unknown values of MCP-Protocol-Version; on unless switched off", "switch"),
    _endpoint("accept", "whether a POST has to accept JSON and event streams, or either", choices=("both", "either")),
    _endpoint("honour-accept-order", "answer as an event stream where the client names that first", "switch"),
    _endpoint("plain", "plain HTTP for the oldest clients: one POST, one JSON answer, no sessions and no streams", "switch"),
    _endpoint("old-sse", "serve clients of 2024-11-05, too, which open a stream and post beside it", "switch"),
    _endpoint("old-sse-path", "where those open their stream (/sse)", metavar="PATH"),
    _endpoint("old-messages-path", "where those post (/messages)", metavar="PATH"),
    _endpoint("hypercorn", "read HTTP/1.1 with Hypercorn's parser, at several times the cost", "switch"),
    # --- TLS
    _tls("certfile", "the certificate, and those that lead from it to a known one, as PEM: TLS is spoken", "path", metavar="FILE"),
    _tls("keyfile", "its private key, where it is not in the same file", "path", metavar="FILE"),
    _tls(
        "keyfile-password-file",
        "a file with what opens the key, if it is encrypted",
        "path",
        metavar="FILE",
        field="keyfile_password",
    ),
    _tls("cacertfile", "clients have to show a certificate of one of these", "path", metavar="FILE"),
    _tls("http2", "speak HTTP/2 with clients that can", "switch"),
    _tls("max-streams", "requests at once on one connection of HTTP/2 (128)", **_count),
    _tls("handshake-timeout", "how long a new connection may take to agree on TLS (30)", **_seconds),
    # --- limits of HTTP
    _http_limit("max-body", "the largest message (4 MiB)", **_bytes),
    _http_limit("max-bodies", "bytes of all bodies that are being read (256 MiB), at least twice --max-body", **_bytes, unset="the default"),
    _http_limit("body-timeout", "how long a body may take to arrive (30)", **_seconds),
    _http_limit("max-header", "the longest head of a request (32 KiB)", **_bytes),
    _http_limit("header-timeout", "how long a new connection may take to say what it wants (30)", **_seconds),
    _http_limit("heartbeat", "after how long a silent stream carries a comment (30)", **_seconds),
    _http_limit("quiet-after", "after how long without a word a call becomes an event stream with comments (10)", **_seconds, unset="never"),
    _http_limit("sse-retry", "how long clients are asked to wait before they come back to a stream", **_seconds, zero=True, unset="their own choice"),
    _http_limit("write-timeout", "how long a client may read nothing of what it is sent (20)", **_seconds),
    _http_limit("keep-alive", "how long a connection may be idle between requests (75)", **_seconds),
    _http_limit("keep-alive-requests", "requests on one connection (1000000)", **_count),
    _http_limit("max-connections", "connections at once (16384)", **_count),
    _http_limit("max-connections-per-address", "of which one address may have so many", **_count, unset="a quarter"),
    _http_limit("backlog", "connections that wait to be accepted (2048)", **_count),
    _http_limit("send-buffer", "the kernel's buffer for each connection", **_bytes, unset="the kernel's choice"),
    _http_limit("drain-grace", "how long running requests may take to end when it stops", **_seconds, zero=True, unset="as long as --grace allows"),
    # --- what the server says of itself
    _identity("name", "its name", metavar="NAME"),
    _identity("server-version", "its version", metavar="VERSION", field="version"),
    _identity("title", "its name for people", metavar="TEXT"),
    _identity("description", "what it is for, in a line", metavar="TEXT"),
    _identity("website-url", "its page", metavar="URL"),
    _identity("icons", "its icons, as a JSON array", "json", metavar="JSON"),
    _identity("instructions", "what a model should know before it uses it", metavar="TEXT"),
    _identity("capabilities", 'capabilities to declare instead of those found, as a JSON object: {"logging": null} for none', "json", metavar="JSON"),
    _identity("experimental", "experimental capabilities, as a JSON object", "json", metavar="JSON"),
    # --- sessions, calls and tasks
    _work("gate", "refuse all requests but ping before notifications/initialized; on unless switched off", "switch"),
    _work("max-sessions", "sessions at once (10000)", **_count, unset=_no_limit),
    _work("max-sessions-per-principal", "of which one caller may have so many (1000)", **_count, unset=_no_limit),
    _work("session-idle", "how long a client may say nothing (1800)", **_seconds, unset=_no_limit),
    _work("session-lifetime", "how long any session may last", **_seconds, unset=_no_limit),
    _work("max-in-flight", "requests of one client under way at once (256)", **_count),
    _work("call-timeout", "how long a call may be silent that has no limit of its own (60)", **_seconds, unset=_no_limit),
    _work("ask-timeout", "how long a client may take to answer what it is asked (30)", **_seconds, unset=_no_limit),
    _work("max-asks", "questions to one client that are open at once (64)", **_count),
    _work("cancel-grace", "how long a cancelled call may take to notice (0.5)", **_seconds, zero=True),
    _work("buffer-events", "events that a stream keeps for readers that come back (256)", **_count),
    _work("buffer-bytes", "bytes of them (4 MiB)", **_bytes),
    _work("channel-events", "messages that wait for the reader of stdio (4096)", **_count),
    _work("channel-bytes", "bytes of them (16 MiB)", **_bytes),
    _work("max-tasks", "unfinished tasks of one owner (64)", **_count),
    _work("max-tasks-kept", "finished tasks that are kept for one owner (512)", **_count),
    _work("task-bytes", "bytes of their results (16 MiB)", **_bytes),
    _work("task-ttl", "how long a finished task is kept (3600)", **_seconds),
    _work("task-ttl-max", "the longest that a client may ask for (86400)", **_seconds),
    _work("task-lifetime", "how long a task may take (86400)", **_seconds),
    _work("task-poll", "how often clients are asked to look at a task, at most (1)", **_seconds),
    _work("tool-threads", "threads that one tool may hold (8)", **_count),
    _work("principal-threads", "threads that the calls of one caller may hold (16)", **_count),
    # --- checks, errors and logs
    _errors_and_logs("log-level", "what a session hears that has set no level (info)", metavar="LEVEL"),
    _errors_and_logs("page-size", "entries on one page of a list (50)", **_count),
    _errors_and_logs("strict", "check arguments and results against schemas that came from elsewhere", "switch"),
    _errors_and_logs("expose-errors", "tell clients what exceptions say", "switch"),
    _errors_and_logs("crashes", "what an exception of a tool becomes: a result with isError, or an error of JSON-RPC", choices=("tool", "protocol")),
)  # fmt: skip
