"""Child specs and supervisor flags: how children are started, stopped and restarted.

Both are values that are checked when they are made, so a wrong value is refused where it was written. The vocabulary is
OTP's, as string literals that type checkers know and as constants with the same values.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar, cast, get_args

from greenroom.supervision.behaviours.process_start import Options, launch
from greenroom.supervision.kernel import safe_repr
from greenroom.supervision.kernel.errors import ActorError, StartFailed

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from typing import TypeGuard, Unpack

    from greenroom.supervision.behaviours.refs import Ref
    from greenroom.supervision.kernel.process_lookup import Via
    from greenroom.supervision.kernel.process_messages import Pid

P = ParamSpec("P")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
"""Permanent children are always restarted, transient ones after a crash, temporary ones never."""
Patience: TypeAlias = float | Literal["brutal_kill", "infinity"]
"""How long a child may take to stop: seconds, `brutal_kill` or `infinity`."""
ChildType: TypeAlias = Literal["worker", "supervisor"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]

PERMANENT: Final = "permanent"
TRANSIENT: Final = "transient"
TEMPORARY: Final = "temporary"
BRUTAL_KILL: Final = "brutal_kill"
INFINITY: Final = "infinity"
WORKER: Final = "worker"
SUPERVISOR: Final = "supervisor"
ONE_FOR_ONE: Final = "one_for_one"
ONE_FOR_ALL: Final = "one_for_all"
REST_FOR_ONE: Final = "rest_for_one"
NEVER: Final = "never"
ANY_SIGNIFICANT: Final = "any_significant"
ALL_SIGNIFICANT: Final = "all_significant"

DEFAULT_SHUTDOWN: Final[Mapping[ChildType, Patience]] = {WORKER: 5.0, SUPERVISOR: INFINITY}
"""How long a child may take to stop when its spec gives no `shutdown`."""


class ChildSpecChanges(TypedDict, total=False):
    """The keyword arguments of `ChildSpec.but`."""

    id: Hashable
    start: Callable[..., Awaitable[Any]]
    restart: Restart
    shutdown: Patience
    type: ChildType
    significant: bool
    backoff: Backoff | None
    name: Hashable | Via
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec(Generic[R_co]):
    """One child: its `id` within its supervisor, and `start`, which starts it.

    `start` is an async function without arguments (`DynamicSupervisor` passes some) that runs in the supervisor,
    starts a process linked to it, and returns its `Ref` or pid, or a tuple that begins with one, which the caller of the
    start gets whole. It raises `StartFailed` or `StartIgnored`; any other exception is a failed start too. Most specs
    are made by `child`.
    """

    id: Hashable
    start: Callable[..., Awaitable[R_co]]
    restart: Restart = PERMANENT
    shutdown: Patience | None = None
    type: ChildType = WORKER
    significant: bool = False
    backoff: Backoff | None = None

    def __post_init__(self) -> None:
        try:
            hash(self.id)
        except TypeError:
            raise BadSpec("id", self.id, "hashable") from None
        if not callable(self.start):
            raise BadSpec("start", self.start, "an async function that starts the child")
        _check_word("restart", self.restart, Restart)
        _check_word("type", self.type, ChildType)
        if self.shutdown is None:
            object.__setattr__(self, "shutdown", DEFAULT_SHUTDOWN[self.type])
        check_shutdown(self.shutdown)
        if type(self.significant) is not bool:
            raise BadSpec("significant", self.significant, "True or False")
        if self.significant and self.restart == PERMANENT:
            raise BadSpec("significant", True, "False for a permanent child, which never ends by itself")  # noqa: FBT003
        check_backoff(self.backoff)

    @property
    def patience(self) -> Patience:
        """`shutdown`, which is never None once the spec is made."""
        return cast("Patience", self.shutdown)

    def but(self, **changes: Unpack[ChildSpecChanges]) -> ChildSpec[R_co]:
        """The same child with other values for some fields.

        `name` and `options` change the options of the start, for specs that were made by `child`.
        """
        values = cast("dict[str, Any]", dict(changes))
        if "name" in values or "options" in values:
            start: Any = self.start
            if not isinstance(start, StartLink):
                field = "name" if "name" in values else "options"
                raise BadSpec(field, values[field], "left to the start function, unless `child` made the spec")
            options: Options = values.pop("options", start.options)
            if "name" in values:
                options = options.but(name=values.pop("name"))
            values["start"] = replace(start, options=options)
        unknown = next((name for name in values if name not in _FIELDS), None)
        if unknown is not None:
            raise BadSpec(unknown, values[unknown], "left out: a child spec has no such field")
        if "type" in values and "shutdown" not in values and self.shutdown == DEFAULT_SHUTDOWN[self.type]:
            values["shutdown"] = None
        return replace(self, **values)

    def without_start_arguments(self) -> ChildSpec[R_co]:
        """The same spec without its start arguments, kept for a temporary child, which is never restarted."""
        return replace(self, start=DiscardedStart(start_name(self.start)))


_DEFAULT_OPTIONS: Final = Options()
_FIELDS = frozenset(field.name for field in fields(ChildSpec))


def start_name(start: Any) -> str:
    """The name of the class that a start function starts, or else of the function itself; never a memory address."""
    if isinstance(start, StartLink | DiscardedStart):
        return start.server_name
    return getattr(start, "__qualname__", None) or type(start).__name__


def start_text(start: Any) -> str:
    """As `start_name`, with the known arguments."""
    return str(start) if isinstance(start, StartLink | DiscardedStart) else start_name(start)


@dataclass(frozen=True, slots=True)
class StartLink:
    """The start function that `child` makes of a class."""

    server: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Options

    async def __call__(self, *more: Any, **named: Any) -> Ref[Any]:
        """Start it, linked to the calling process."""
        kwargs = {**self.kwargs, **named}
        return await launch(self.options, self.server, self.args + more, kwargs, link=True)

    @property
    def server_name(self) -> str:
        """The name of the class."""
        return getattr(self.server, "__name__", None) or safe_repr.short(self.server)

    def __str__(self) -> str:
        names = getattr(self.server, "__init__", None) if isinstance(self.server, type) else None
        return f"{self.server_name}({safe_repr.arguments(self.args, self.kwargs, names)})"


@dataclass(frozen=True, slots=True)
class DiscardedStart:
    """The start function in the kept spec of a temporary child: it has no arguments, so that they are not kept in memory."""

    server_name: str

    async def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise `TypeError`: a temporary child is never restarted."""
        message = f"the start arguments of {self.server_name} were not kept: the child is temporary"
        raise TypeError(message)

    def __str__(self) -> str:
        return f"{self.server_name}(…)"


def child(server: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs) -> ChildSpec[Ref[S]]:
    """The spec of a child that is a GenServer, a supervisor or another behaviour; the arguments are its constructor's.

    Its id is the class's name; `.but(id=…, name=…, restart=…)` changes that and the rest.
    """
    return template(server, *args, **kwargs)


def template(server: Callable[..., S], /, *args: Any, **kwargs: Any) -> ChildSpec[Ref[S]]:
    """As `child`, for a `DynamicSupervisor` that adds each child's own arguments when it starts one."""
    if not isinstance(server, type) or getattr(server, "_otp_begin", None) is None:
        raise BadSpec("server", server, "a class that derives from GenServer or another behaviour")
    start = StartLink(server, args, kwargs, _DEFAULT_OPTIONS)
    return ChildSpec(id=start.server_name, start=start, type=getattr(server, "child_type", WORKER))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags of a supervisor: which children are restarted together, and how many restarts are too many.

    The supervisor gives up after more than `intensity` restarts within `period` seconds. `auto_shutdown` ends it when
    any, or the last, significant child has exited by itself. `backoff` delays restarts of children whose own spec has no
    `backoff`.
    """

    strategy: Strategy = ONE_FOR_ONE
    intensity: int = 1
    period: float = 5.0
    auto_shutdown: AutoShutdown = NEVER
    backoff: Backoff | None = None

    def __post_init__(self) -> None:
        _check_word("strategy", self.strategy, Strategy)
        check_count("intensity", self.intensity, 0)
        if not _is_seconds(self.period) or self.period <= 0:
            raise BadSpec("period", self.period, "a number of seconds, more than 0")
        _check_word("auto_shutdown", self.auto_shutdown, AutoShutdown)
        check_backoff(self.backoff)


def check_count(field: str, value: object, least: int, most: int | None = None) -> None:
    """Raise `BadSpec` unless `value` is a whole number within the bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        raise BadSpec(
            field, value, f"a whole number, {least} or more" if most is None else f"a whole number, {least} to {most}"
        )


def check_backoff(backoff: object) -> None:
    """Raise `BadSpec` unless `backoff` is a `Backoff` or None."""
    if backoff is not None and not isinstance(backoff, Backoff):
        raise BadSpec("backoff", backoff, "Backoff(…), or None to restart at once")


def check_children(children: Iterable[object], auto_shutdown: AutoShutdown = NEVER) -> list[ChildSpec[Any]]:
    """The specs as a list. Raises `BadSpec` for wrong ones, and for an id that occurs twice."""
    if isinstance(children, str | bytes) or not isinstance(cast("object", children), Iterable):
        raise BadSpec("children", children, "a list of child specs")
    checked = [check_child(spec, auto_shutdown) for spec in children]
    ids: set[Hashable] = set()
    for spec in checked:
        if spec.id in ids:
            raise BadSpec("id", spec.id, "different for each child of a supervisor")
        ids.add(spec.id)
    return checked


def check_child(spec: object, auto_shutdown: AutoShutdown = NEVER) -> ChildSpec[Any]:
    """Return `spec`. Raises `BadSpec` if it is no spec, or does not fit the supervisor's flags."""
    if not is_spec(spec):
        raise BadSpec("child", spec, "a ChildSpec: write child(Server, …)")
    if spec.significant and auto_shutdown == NEVER:
        raise BadSpec("significant", True, "False where the supervisor's auto_shutdown is 'never'")  # noqa: FBT003
    return spec


def is_spec(value: object) -> TypeGuard[ChildSpec[Any]]:
    """Whether the value is a child spec, of any result type."""
    return isinstance(value, ChildSpec)


def _check_word(field: str, value: object, words: Any) -> None:
    known: tuple[str, ...] = get_args(words)
    if not isinstance(value, str) or value not in known:
        raise BadSpec(field, value, " or ".join((", ".join(map(repr, known[:-1])), repr(known[-1]))))


def check_shutdown(value: object) -> None:
    """Raise `BadSpec` for a wrong `shutdown`."""
    if value in (BRUTAL_KILL, INFINITY):
        return
    if not _is_seconds(value) or value < 0:
        raise BadSpec("shutdown", value, f"a number of seconds, 0 or more, {BRUTAL_KILL!r} or {INFINITY!r}")


def _is_seconds(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# --- The strategies as functions of a list: which children are restarted when a child dies, and in which order.
# Children are always passed and returned in start order; they are stopped in reverse.

T = TypeVar("T")

Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]


def affected_children(strategy: Strategy, children: Sequence[T], dead: T) -> list[T]:
    """The children to restart after `dead` died, including it, in start order.

    Running ones are stopped first, the last one first.
    """
    match strategy:
        case "one_for_one":
            return [dead]
        case "one_for_all":
            return list(children)
        case "rest_for_one":
            return list(children[children.index(dead) :])


# --- Delayed restarts: opt-in, for children that depend on something outside, such as a server.
# OTP has none: its only delay is the duration of a start. Without a delay, a child whose server is down for a minute
# exceeds any intensity in a moment. Every attempt still counts for `intensity`, when it is decided and not when
# it is made; so the period should be long enough for the delays.


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delay before a restart.

    The first attempt waits `first` seconds, each further one `factor` times as long as the one before it, up to
    `longest`. Up to the part `jitter` of the delay is subtracted at random, so that children that died together do not
    restart together. After a child has run for `quiet` seconds, its delays begin at `first` again.
    """

    first: float = 0.1
    factor: float = 2.0
    longest: float = 30.0
    jitter: float = 0.5
    quiet: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
                raise BadSpec(f"backoff.{field.name}", value, "a number, 0 or more")
        if self.factor < 1:
            raise BadSpec("backoff.factor", self.factor, "1 or more")
        if self.jitter > 1:
            raise BadSpec("backoff.jitter", self.jitter, "a part between 0 and 1")
        if self.longest < self.first:
            raise BadSpec("backoff.longest", self.longest, f"no less than backoff.first ({self.first:g})")

    def delay(self, tries: int, source: random.Random) -> float:
        """The delay in seconds after `tries` consecutive attempts, with jitter."""
        return self.most(tries) * (1 - self.jitter * source.random())

    def most(self, tries: int) -> float:
        """The delay in seconds after `tries` consecutive attempts, without jitter."""
        try:
            return min(self.longest, self.first * self.factor**tries)
        except OverflowError:
            return self.longest


# --- The exceptions for callers of a supervisor.
# ::
#     ActorError
#     ├─ BadSpec              a child spec or a flag is wrong (has `field` and `value`); also a ValueError
#     ├─ ChildNotFound        the supervisor has no such child
#     ├─ AlreadyPresent       a child of that id is known, and does not run now
#     │  ├─ AlreadyStarted    … and runs (has `pid`)
#     │  ├─ ChildRunning      it runs: stop it first
#     │  └─ ChildRestarting   it is being restarted: stop it first
#     ├─ MaxChildren          the dynamic supervisor is full (has `limit`)
#     └─ StartFailed
#        └─ StartRaised       the start function itself failed, not the process that it was to start


class BadSpec(ActorError, ValueError):
    """A wrong child spec or supervisor flag: `field` is its name, `value` the given value."""

    def __init__(self, field: str, value: object, wanted: str) -> None:
        """`wanted` completes the sentence "`field` must be …"."""
        super().__init__(field, value, wanted)
        self.field = field
        self.value = value
        self.wanted = wanted

    def __str__(self) -> str:
        return f"{self.field} must be {self.wanted}, not {safe_repr.short(self.value)}"


class StartRaised(StartFailed):
    """The start function itself failed, so that no process has reported the error."""


class ChildNotFound(ActorError):
    """The supervisor has no child with that id, or with that pid for a dynamic supervisor."""

    def __init__(self, id: object) -> None:
        """`id` is the requested id or pid."""
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        return f"there is no child {self.id!r}"


class AlreadyPresent(ActorError):
    """The supervisor has a child with that id that does not run: restart or delete it."""

    def __init__(self, id: Hashable, pid: Pid | None = None) -> None:
        """`pid` is the running child's, if it runs."""
        super().__init__(id, pid)
        self.id = id
        self.pid = pid

    def __str__(self) -> str:
        return f"there is a child {self.id!r} already, which is not running: restart or delete it"


class AlreadyStarted(AlreadyPresent):
    """A child with that id runs already, as `pid`."""

    def __str__(self) -> str:
        return f"child {self.id!r} runs already, as {self.pid}"


class ChildRunning(AlreadyPresent):
    """The child runs: terminate it first."""

    def __str__(self) -> str:
        return f"child {self.id!r} is running: terminate it first"


class ChildRestarting(AlreadyPresent):
    """The child is being restarted: terminate it first."""

    def __str__(self) -> str:
        return f"child {self.id!r} is being restarted: terminate it first"


class MaxChildren(ActorError):
    """The dynamic supervisor has its maximal number of children, including restarting ones."""

    def __init__(self, limit: int) -> None:
        """`limit` is its `max_children`."""
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"the supervisor has {self.limit} children already, and may not have more"
