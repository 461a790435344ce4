"""Who runs, who watches, who restarts: OTP's processes, behaviours and supervisors, in one event loop.

Nothing in here knows of MCP. Everything public of the room is exported here; the tools for tests are in
`greenroom.supervision.testing`.
"""

from __future__ import annotations

from .behaviours.actions import (
    IGNORE,
    Continue,
    Ignore,
    NoReply,
    Reject,
    Reply,
    Stop,
    later,
    replying,
    stopping,
)
from .behaviours.calls import Caller, Ref
from .behaviours.gen_server import BadReturn, GenServer
from .behaviours.requests import Answers, Request, Requests, abcast, ask_later, multi_call, request, stop
from .behaviours.starting import Options, start, start_link, start_monitor
from .kernel.api import (
    Timer,
    demonitor,
    exit,
    is_alive,
    kill,
    link,
    monitor,
    send,
    send_after,
    trap_exit,
    unlink,
    wait_down,
)
from .kernel.current import current_node, self_pid
from .kernel.errors import (
    ActorError,
    AlreadyRegistered,
    CallCycle,
    CallTimeout,
    GreenroomError,
    InternalError,
    MailboxFull,
    NoNode,
    NotAnActor,
    NotRegistered,
    ProcessExited,
    Quit,
    StartFailed,
    StartIgnored,
    StartTimeout,
)
from .kernel.links import Monitor
from .kernel.messages import Down, Exit, Timeout
from .kernel.names import Via, register, registered, unregister, whereis
from .kernel.node import Node, run
from .kernel.pid import Pid
from .kernel.reasons import (
    KILLED,
    NO_CONNECTION,
    NO_PROCESS,
    NORMAL,
    SHUTDOWN,
    Crash,
    ExitReason,
    Killed,
    NoConnection,
    NoProcess,
    Normal,
    Shutdown,
)
from .kernel.reports import CrashReport, Leaked, LoopBlocked, Report, Unexpected
from .kernel.routine import Inbox, inbox, receive, spawn, spawn_link, spawn_monitor
