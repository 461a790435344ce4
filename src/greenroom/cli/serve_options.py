"""The options of ``greenroom serve``: the transport, and an option for each setting of a server and of its HTTP listener.

A test compares them with the fields of `HttpConfig` and `Settings`. An option that is not typed keeps the value that the server's code sets, or the default.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .click_app import CommandOption

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENDPOINT: Final = "HTTP endpoint"


def _setting(
    of: str, section: str, name: str, text: str, kind: Any = "text", *, field: str = "", **more: Any
) -> CommandOption:
    return CommandOption(name, text, kind, setting=f"{of}.{field or name.replace('-', '_')}", section=section, **more)


_seconds: Final[dict[str, Any]] = {"kind": "seconds", "metavar": "SECONDS"}
_count: Final[dict[str, Any]] = {"kind": "whole", "metavar": "N"}
_bytes: Final[dict[str, Any]] = {"kind": "whole", "metavar": "BYTES"}
_no_limit: Final = "no limit"

_access = partial(_setting, "http", "Access over HTTP")
_endpoint = partial(_setting, "http", _ENDPOINT)
_tls = partial(_setting, "http", "TLS")
_http_limit = partial(_setting, "http", "Limits of HTTP")
_identity = partial(_setting, "server", "Server identity")
_work = partial(_setting, "server", "Sessions, calls and tasks")
_errors_and_logs = partial(_setting, "server", "Checks, errors and logs")

SERVE_OPTIONS: Final[Sequence[CommandOption]] = (
    CommandOption("config", "serve a gateway to the servers of this file, instead of a server's code", "path", metavar="FILE"),
    CommandOption("only", "serve only this server of the file; repeat for more", metavar="NAME", multiple=True),
    CommandOption("stdio", "serve on stdin and stdout (the default without --http)", "flag"),
    CommandOption("http", "serve over HTTP, at this host and port", metavar="[HOST:]PORT"),
    CommandOption(
        "origin",
        "a web page's origin that may call; repeat for more; or none, or any. Required where other machines can call",
        metavar="ORIGIN",
        multiple=True,
        setting="http.allowed_origins",
    ),
    CommandOption("workers", "the number of processes that share the port", "whole", metavar="N", most=64),
    CommandOption("watch", "restart the server when one of its files changes", "flag"),
    CommandOption("inspect", "let `greenroom top`, `tree`, `logs` and the like show it, through a socket that only you can open", "flag"),
    CommandOption("inspect-acts", "as --inspect, and let you end, restart, park and retry its parts through that socket", "flag"),
    CommandOption(
        "admin",
        "serve health checks, metrics and the observer for a browser, at this host and port (127.0.0.1:9091)",
        metavar="[[HOST:]PORT]",
        is_flag=False,
        flag_value="9091",
    ),
    CommandOption("admin-acts", "let the observer end, restart, retry, park and drain", "flag"),
    CommandOption("admin-faults", "let the observer inject faults", "flag"),
    CommandOption(
        "admin-key-file",
        "a file with the API key that the observer and the metrics ask for. Required where other machines can reach --admin",
        "path",
        metavar="FILE",
    ),
    CommandOption("otel", "send traces and metrics by OpenTelemetry, as its variables OTEL_* in the environment say", "flag"),
    CommandOption("grace", "how long the server may take to stop: 5, or what --drain-grace needs", "seconds", metavar="SECONDS", zero=True),
    CommandOption("no-access-log", "do not log each call and each refusal to stderr", "flag"),
    CommandOption("log-json", "write the log as JSON, one object per line", "flag"),
    # --- access over HTTP
    _access(
        "allowed-host",
        "an allowed value of the Host header, as name or name:port: the public name of this server; repeat for more; or any",
        metavar="NAME",
        multiple=True,
        field="allowed_hosts",
    ),
    _access("allow-missing-origin", "serve programs, which send no Origin header (on by default)", "switch"),
    _access(
        "trusted-proxy",
        "the address or network of a proxy in front of many clients; repeat for more, or none (default: this machine's addresses)",
        metavar="ADDRESS",
        multiple=True,
        field="trusted_proxies",
    ),
    # --- the HTTP endpoint
    _endpoint("path", "the path of the endpoint (/mcp)", metavar="PATH"),
    _endpoint("serve-root", "serve the endpoint at / as well (on by default)", "switch"),
    CommandOption(
        "sessions",
        "give out sessions; without sessions each request stands alone (on by default)",
        "switch",
        setting="http.session_enabled server.sessions",
        section=_ENDPOINT,
    ),
    _endpoint("require-session", "refuse requests without a session id (on by default)", "switch"),
    _endpoint("get", "let clients open a stream by GET (on by default)", "switch", field="enable_get"),
    _endpoint("delete", "let clients end their session by DELETE (on by default)", "switch", field="allow_delete"),
    _endpoint("validate-protocol-version", "refuse unknown values of MCP-Protocol-Version (on by default)", "switch"),
    _endpoint("accept", "whether a POST has to accept both JSON and event streams, or either of them", choices=("both", "either")),
    _endpoint("honour-accept-order", "answer as an event stream if the client's Accept names it first", "switch"),
    _endpoint("plain", "serve plain HTTP for the oldest clients: one POST, one JSON answer, no sessions and no streams", "switch"),
    _endpoint("old-sse", "serve clients of protocol 2024-11-05 as well, which open a stream and post beside it", "switch"),
    _endpoint("old-sse-path", "the path of the stream for such clients (/sse)", metavar="PATH"),
    _endpoint("old-messages-path", "the path for posts of such clients (/messages)", metavar="PATH"),
    _endpoint("hypercorn", "read HTTP/1.1 with Hypercorn's parser, at several times the cost", "switch"),
    # --- TLS
    _tls("certfile", "speak TLS with this certificate and its chain, as PEM", "path", metavar="FILE"),
    _tls("keyfile", "the certificate's private key, if it is in another file", "path", metavar="FILE"),
    _tls(
        "keyfile-password-file",
        "a file with the password of the private key, if it is encrypted",
        "path",
        metavar="FILE",
        field="keyfile_password",
    ),
    _tls("cacertfile", "require client certificates that these authorities have signed", "path", metavar="FILE"),
    _tls("http2", "offer HTTP/2 to clients", "switch"),
    _tls("max-streams", "concurrent requests on one HTTP/2 connection (128)", **_count),
    _tls("handshake-timeout", "how long a TLS handshake may take (30)", **_seconds),
    # --- limits of HTTP
    _http_limit("max-body", "the largest message (4 MiB)", **_bytes),
    _http_limit("max-bodies", "bytes of all bodies that are being read at once (256 MiB), at least twice --max-body", **_bytes, unset="the default"),
    _http_limit("body-timeout", "how long a body may take to arrive (30)", **_seconds),
    _http_limit("max-header", "the largest request line and headers (32 KiB)", **_bytes),
    _http_limit("header-timeout", "how long a new connection may take to send its first request line and headers (30)", **_seconds),
    _http_limit("heartbeat", "the time after which a silent stream gets a comment (30)", **_seconds),
    _http_limit("quiet-after", "the time after which the answer of a silent call becomes an event stream with comments (10)", **_seconds, unset="never"),
    _http_limit("sse-retry", "how long clients are asked to wait before they reconnect to a stream", **_seconds, zero=True, unset="their own choice"),
    _http_limit("write-timeout", "how long a client may read nothing while data waits for it (20)", **_seconds),
    _http_limit("keep-alive", "how long a connection may be idle between requests (75)", **_seconds),
    _http_limit("keep-alive-requests", "requests on one connection (1000000)", **_count),
    _http_limit("max-connections", "concurrent connections (16384)", **_count),
    _http_limit("max-connections-per-address", "concurrent connections of one address", **_count, unset="a quarter"),
    _http_limit("backlog", "connections that may wait to be accepted (2048)", **_count),
    _http_limit("send-buffer", "the kernel's buffer for each connection", **_bytes, unset="the kernel's choice"),
    _http_limit("drain-grace", "how long running requests may take to end when the server stops", **_seconds, zero=True, unset="as long as --grace allows"),
    # --- the server's identity
    _identity("name", "the server's name", metavar="NAME"),
    _identity("server-version", "the server's version", metavar="VERSION", field="version"),
    _identity("title", "the server's display name", metavar="TEXT"),
    _identity("description", "a description in one line", metavar="TEXT"),
    _identity("website-url", "the URL of the server's website", metavar="URL"),
    _identity("icons", "the server's icons, as a JSON array", "json", metavar="JSON"),
    _identity("instructions", "instructions to a model that uses the server", metavar="TEXT"),
    _identity("capabilities", 'capabilities to declare instead of the detected ones, as a JSON object: {"logging": null} for none', "json", metavar="JSON"),
    _identity("experimental", "experimental capabilities, as a JSON object", "json", metavar="JSON"),
    _identity("cache", "how long clients of the current revision may keep lists; not at all unless given", **_seconds, zero=True),
    # --- sessions, calls and tasks
    _work(
        "seal-keys-file",
        "a file with the keys of what clients keep for the server, one per line, newest first",
        "path",
        metavar="FILE",
        field="seal_keys",
    ),
    _work("gate", "refuse all requests except ping before notifications/initialized (on by default)", "switch"),
    _work("max-sessions", "concurrent sessions (10000)", **_count, unset=_no_limit),
    _work("max-sessions-per-principal", "concurrent sessions of one caller (1000)", **_count, unset=_no_limit),
    _work("session-idle", "the time after which an idle session ends (1800)", **_seconds, unset=_no_limit),
    _work("session-lifetime", "how long a session may last", **_seconds, unset=_no_limit),
    _work("max-in-flight", "concurrent requests of one client (256)", **_count),
    _work("call-timeout", "how long a call without a timeout of its own may be silent (60)", **_seconds, unset=_no_limit),
    _work("ask-timeout", "how long a client may take to answer a question of the server (30)", **_seconds, unset=_no_limit),
    _work("max-asks", "open questions to one client (64)", **_count),
    _work("max-exchanges", "concurrent requests without a session, of revision 2026-07-28 (10000)", **_count, unset=_no_limit),
    _work("max-exchanges-per-principal", "concurrent requests without a session of one caller (256)", **_count, unset=_no_limit),
    _work("max-parked", "calls without a session that wait for their users' answers (10000)", **_count),
    _work("max-parked-per-principal", "calls of one caller that wait so (256)", **_count),
    _work("parked-timeout", "how long such a call waits for an answer (600)", **_seconds),
    _work("cancel-grace", "how long a cancelled call may take to end (0.5)", **_seconds, zero=True),
    _work("buffer-events", "events that a stream keeps for readers that reconnect (256)", **_count),
    _work("buffer-bytes", "bytes of these events (4 MiB)", **_bytes),
    _work("channel-events", "messages that may wait for the reader of stdout (4096)", **_count),
    _work("channel-bytes", "bytes of these messages (16 MiB)", **_bytes),
    _work("max-tasks", "unfinished tasks of one owner (64)", **_count),
    _work("max-tasks-in-all", "unfinished tasks of all owners (10000)", **_count, unset=_no_limit),
    _work("max-tasks-kept", "finished tasks kept for one owner (512)", **_count),
    _work("task-bytes", "bytes of the results of these tasks (16 MiB)", **_bytes),
    _work("task-ttl", "how long a finished task is kept (3600)", **_seconds),
    _work("task-ttl-max", "the longest --task-ttl that a client may ask for (86400)", **_seconds),
    _work("task-lifetime", "how long a task may run (86400)", **_seconds),
    _work("task-poll", "the shortest interval at which clients are asked to poll a task (1)", **_seconds),
    _work("tool-threads", "threads that one tool may use (8)", **_count),
    _work("principal-threads", "threads that the calls of one caller may use (16)", **_count),
    # --- checks, errors and logs
    _errors_and_logs("log-level", "the log level of a session that has set none (info)", metavar="LEVEL"),
    _errors_and_logs("page-size", "entries per page of a list (50)", **_count),
    _errors_and_logs("strict", "validate arguments and results against schemas that came from elsewhere", "switch"),
    _errors_and_logs("expose-errors", "send the texts of exceptions to clients", "switch"),
    _errors_and_logs("crashes", "what an exception of a tool becomes: a result with isError, or a JSON-RPC error", choices=("tool", "protocol")),
)  # fmt: skip
