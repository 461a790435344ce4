"""The options of ``greenroom serve``: how it is served, and one for each setting of a server and of its HTTP listener.

A test compares them with the fields of `HttpConfig` and `Settings`. What is not typed keeps what the server's code says, or the default.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .door import Option

if TYPE_CHECKING:
    from collections.abc import Sequence

_WHAT: Final = "What is served over HTTP"


def _setting(
    of: str, section: str, name: str, text: str, kind: Any = "text", *, field: str = "", **more: Any
) -> Option:
    return Option(name, text, kind, setting=f"{of}.{field or name.replace('-', '_')}", section=section, **more)


_seconds: Final[dict[str, Any]] = {"kind": "seconds", "metavar": "SECONDS"}
_count: Final[dict[str, Any]] = {"kind": "whole", "metavar": "N"}
_bytes: Final[dict[str, Any]] = {"kind": "whole", "metavar": "BYTES"}
_no_limit: Final = "no limit"

_who = partial(_setting, "http", "Who may call, over HTTP")
_what = partial(_setting, "http", _WHAT)
_tls = partial(_setting, "http", "TLS")
_limit = partial(_setting, "http", "Limits of HTTP")
_says = partial(_setting, "server", "What the server says of itself")
_calls = partial(_setting, "server", "Sessions, calls and tasks")
_results = partial(_setting, "server", "Checks, errors and logs")

SERVE_OPTIONS: Final[Sequence[Option]] = (
    Option("config", "a gateway to the servers of this file, instead of a server's code", "path", metavar="FILE"),
    Option("only", "of that file only this server; again for more", metavar="NAME", multiple=True),
    Option("stdio", "on stdin and stdout, which is what is done without --http", "flag"),
    Option("http", "over HTTP, at this host and port", metavar="[HOST:]PORT"),
    Option(
        "origin",
        "a web page's origin that may call; again for more; none, or any. Wanted where other machines can call",
        metavar="ORIGIN",
        multiple=True,
        setting="http.allowed_origins",
    ),
    Option("workers", "with so many processes that share the port", "whole", metavar="N", most=64),
    Option("watch", "begin anew when one of its files changes", "flag"),
    Option("inspect", "let `greenroom tree` look at it, through a socket that is only yours", "flag"),
    Option("grace", "how long it may take to stop once it is told to: 5, or what --drain-grace needs", "seconds", metavar="SECONDS", zero=True),
    Option("no-access-log", "write no line to stderr for each call and each refusal", "flag"),
    Option("log-json", "write what is logged as JSON, an object a line", "flag"),
    # --- who may call
    _who(
        "allowed-host",
        "a name that Host may say, as name or name:port: the public name of this server; again for more; or any",
        metavar="NAME",
        multiple=True,
        field="allowed_hosts",
    ),
    _who("allow-missing-origin", "serve programs, which send no Origin; on unless switched off", "switch"),
    _who(
        "trusted-proxy",
        "an address or network of proxies, which bring many clients; again for more, or none; this machine's own without",
        metavar="ADDRESS",
        multiple=True,
        field="trusted_proxies",
    ),
    # --- what is served
    _what("path", "where the endpoint is (/mcp)", metavar="PATH"),
    _what("serve-root", "serve the endpoint at / as well; on unless switched off", "switch"),
    Option(
        "sessions",
        "give out sessions; without them each request stands alone; on unless switched off",
        "switch",
        setting="http.session_enabled server.sessions",
        section=_WHAT,
    ),
    _what("require-session", "refuse requests without a session id; on unless switched off", "switch"),
    _what("get", "let clients open a stream by GET; on unless switched off", "switch", field="enable_get"),
    _what("delete", "let clients end their session by DELETE; on unless switched off", "switch", field="allow_delete"),
    _what("validate-protocol-version", "refuse unknown values of MCP-Protocol-Version; on unless switched off", "switch"),
    _what("accept", "whether a POST has to accept JSON and event streams, or either", choices=("both", "either")),
    _what("honour-accept-order", "answer as an event stream where the client names that first", "switch"),
    _what("plain", "plain HTTP for the oldest clients: one POST, one JSON answer, no sessions and no streams", "switch"),
    _what("old-sse", "serve clients of 2024-11-05, too, which open a stream and post beside it", "switch"),
    _what("old-sse-path", "where those open their stream (/sse)", metavar="PATH"),
    _what("old-messages-path", "where those post (/messages)", metavar="PATH"),
    _what("hypercorn", "read HTTP/1.1 with Hypercorn's parser, at several times the cost", "switch"),
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
    _limit("max-body", "the largest message (4 MiB)", **_bytes),
    _limit("max-bodies", "bytes of all bodies that are being read (256 MiB), at least twice --max-body", **_bytes, unset="the default"),
    _limit("body-timeout", "how long a body may take to arrive (30)", **_seconds),
    _limit("max-header", "the longest head of a request (32 KiB)", **_bytes),
    _limit("header-timeout", "how long a new connection may take to say what it wants (30)", **_seconds),
    _limit("heartbeat", "after how long a silent stream carries a comment (30)", **_seconds),
    _limit("quiet-after", "after how long without a word a call becomes an event stream with comments (10)", **_seconds, unset="never"),
    _limit("sse-retry", "how long clients are asked to wait before they come back to a stream", **_seconds, zero=True, unset="their own choice"),
    _limit("write-timeout", "how long a client may read nothing of what it is sent (20)", **_seconds),
    _limit("keep-alive", "how long a connection may be idle between requests (75)", **_seconds),
    _limit("keep-alive-requests", "requests on one connection (1000000)", **_count),
    _limit("max-connections", "connections at once (16384)", **_count),
    _limit("max-connections-per-address", "of which one address may have so many", **_count, unset="a quarter"),
    _limit("backlog", "connections that wait to be accepted (2048)", **_count),
    _limit("send-buffer", "the kernel's buffer for each connection", **_bytes, unset="the kernel's choice"),
    _limit("drain-grace", "how long running requests may take to end when it stops", **_seconds, zero=True, unset="as long as --grace allows"),
    # --- what the server says of itself
    _says("name", "its name", metavar="NAME"),
    _says("server-version", "its version", metavar="VERSION", field="version"),
    _says("title", "its name for people", metavar="TEXT"),
    _says("description", "what it is for, in a line", metavar="TEXT"),
    _says("website-url", "its page", metavar="URL"),
    _says("icons", "its icons, as a JSON array", "json", metavar="JSON"),
    _says("instructions", "what a model should know before it uses it", metavar="TEXT"),
    _says("capabilities", 'capabilities to declare instead of those found, as a JSON object: {"logging": null} for none', "json", metavar="JSON"),
    _says("experimental", "experimental capabilities, as a JSON object", "json", metavar="JSON"),
    # --- sessions, calls and tasks
    _calls("gate", "refuse all requests but ping before notifications/initialized; on unless switched off", "switch"),
    _calls("max-sessions", "sessions at once (10000)", **_count, unset=_no_limit),
    _calls("max-sessions-per-principal", "of which one caller may have so many (1000)", **_count, unset=_no_limit),
    _calls("session-idle", "how long a client may say nothing (1800)", **_seconds, unset=_no_limit),
    _calls("session-lifetime", "how long any session may last", **_seconds, unset=_no_limit),
    _calls("max-in-flight", "requests of one client under way at once (256)", **_count),
    _calls("call-timeout", "how long a call may be silent that has no limit of its own (60)", **_seconds, unset=_no_limit),
    _calls("ask-timeout", "how long a client may take to answer what it is asked (30)", **_seconds, unset=_no_limit),
    _calls("max-asks", "questions to one client that are open at once (64)", **_count),
    _calls("cancel-grace", "how long a cancelled call may take to notice (0.5)", **_seconds, zero=True),
    _calls("buffer-events", "events that a stream keeps for readers that come back (256)", **_count),
    _calls("buffer-bytes", "bytes of them (4 MiB)", **_bytes),
    _calls("channel-events", "messages that wait for the reader of stdio (4096)", **_count),
    _calls("channel-bytes", "bytes of them (16 MiB)", **_bytes),
    _calls("max-tasks", "unfinished tasks of one owner (64)", **_count),
    _calls("max-tasks-kept", "finished tasks that are kept for one owner (512)", **_count),
    _calls("task-bytes", "bytes of their results (16 MiB)", **_bytes),
    _calls("task-ttl", "how long a finished task is kept (3600)", **_seconds),
    _calls("task-ttl-max", "the longest that a client may ask for (86400)", **_seconds),
    _calls("task-lifetime", "how long a task may take (86400)", **_seconds),
    _calls("task-poll", "how often clients are asked to look at a task, at most (1)", **_seconds),
    _calls("tool-threads", "threads that one tool may hold (8)", **_count),
    _calls("principal-threads", "threads that the calls of one caller may hold (16)", **_count),
    # --- checks, errors and logs
    _results("log-level", "what a session hears that has set no level (info)", metavar="LEVEL"),
    _results("page-size", "entries on one page of a list (50)", **_count),
    _results("strict", "check arguments and results against schemas that came from elsewhere", "switch"),
    _results("expose-errors", "tell clients what exceptions say", "switch"),
    _results("crashes", "what an exception of a tool becomes: a result with isError, or an error of JSON-RPC", choices=("tool", "protocol")),
)  # fmt: skip
