"""Small defects in the engine, applied one at a time: each breaks supervision in a way that is easy to overlook."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import greenroom.supervision.behaviours.task
import greenroom.supervision.groups
import greenroom.supervision.kernel.api
import greenroom.supervision.kernel.process
import greenroom.supervision.statem.gen_statem
import greenroom.supervision.supervisors.dynamic_supervisor
import greenroom.supervision.supervisors.supervisor
import greenroom.supervision.supervisors.supervisor_base
from greenroom.supervision import NORMAL, SHUTDOWN, Caller, Quit
from greenroom.supervision.kernel.process import DYING, GONE, Process
from greenroom.supervision.kernel.process_messages import CAST

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    Mutation: TypeAlias = Callable[[pytest.MonkeyPatch], None]

# Any: mutations put parts of wrong types into the engine
api: Any = greenroom.supervision.kernel.api
exits: Any = greenroom.supervision.kernel.process
base: Any = greenroom.supervision.supervisors.supervisor_base
dynamic: Any = greenroom.supervision.supervisors.dynamic_supervisor
shutdown: Any = greenroom.supervision.supervisors.supervisor_base
supervisor: Any = greenroom.supervision.supervisors.supervisor
routine: Any = greenroom.supervision.behaviours.task.Routine
groups: Any = greenroom.supervision.groups.Groups
agenda: Any = greenroom.supervision.statem.gen_statem.PendingEvents
window: Any = greenroom.supervision.supervisors.supervisor_base.RestartWindow
caller: Any = Caller
process_of_the_engine: Any = Process

MUTATIONS: list[Mutation] = []


def mutation(function: Mutation) -> Mutation:
    """A defect."""
    MUTATIONS.append(function)
    return function


# --- which children are restarted, and in which order


@mutation
def restarts_in_reverse_order(patch: pytest.MonkeyPatch) -> None:
    right = supervisor.affected_children

    def wrong(*args: Any) -> Any:
        return right(*args)[::-1]

    patch.setattr(supervisor, "affected_children", wrong)


@mutation
def rest_for_one_forgets_the_last(patch: pytest.MonkeyPatch) -> None:
    right = supervisor.affected_children

    def wrong(strategy: str, children: Any, dead: Any) -> Any:
        found = right(strategy, children, dead)
        return found[:-1] if strategy == "rest_for_one" and found[-1] is not dead else found

    patch.setattr(supervisor, "affected_children", wrong)


@mutation
def temporary_children_are_restarted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(base, "TRANSIENT", "temporary")


@mutation
def transient_children_are_restarted_after_any_exit(patch: pytest.MonkeyPatch) -> None:
    def wrong(_: Any) -> bool:
        return False

    patch.setattr(base, "is_orderly", wrong)


@mutation
def temporary_children_come_back_with_their_group(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(supervisor, "TEMPORARY", "no such type")


@mutation
def a_significant_child_ends_no_supervisor(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, child: Any) -> None:
        pass

    patch.setattr(supervisor.Supervisor, "_otp_shut_down_with", wrong)


# --- when a supervisor gives up


def _other_window(patch: pytest.MonkeyPatch, more: int, longer: float = 1.0) -> None:
    right = window.__init__

    def wrong(self: Any, intensity: int, period: float) -> None:
        right(self, max(0, intensity + more), period * longer)

    patch.setattr(window, "__init__", wrong)


@mutation
def one_restart_too_many(patch: pytest.MonkeyPatch) -> None:
    _other_window(patch, 1)


@mutation
def one_restart_too_few(patch: pytest.MonkeyPatch) -> None:
    _other_window(patch, -1)


@mutation
def restarts_are_never_forgotten(patch: pytest.MonkeyPatch) -> None:
    _other_window(patch, 0, 1e6)


@mutation
def retries_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, child: Any, turn: int) -> Any:
        return self._otp_try_restart(child) if child.retry_number == turn else None

    patch.setattr(base.BaseSupervisor, "_otp_on_retry", wrong)


@mutation
def retries_jump_the_queue(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, method: Any, child: Any) -> None:
        self._otp_process.push_front((CAST, method, (child, child.retry_number), {}))

    patch.setattr(base.BaseSupervisor, "_otp_to_self", wrong)


@mutation
def old_retries_are_still_good(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, child: Any, turn: int) -> Any:
        return self._otp_restart(child)

    patch.setattr(base.BaseSupervisor, "_otp_on_retry", wrong)


# --- how children are stopped


@mutation
def a_shutdown_has_no_timeout(patch: pytest.MonkeyPatch) -> None:
    async def wrong(process: Any, pid: Any, patience: Any, late: Any) -> Any:
        return (await shutdown.stop_together(process, ((pid, "infinity"),), late))[0]

    patch.setattr(base, "stop_child", wrong)


@mutation
def every_end_is_as_expected(patch: pytest.MonkeyPatch) -> None:
    def wrong(reason: Any, spec: Any) -> bool:
        return True

    patch.setattr(base, "is_expected", wrong)
    patch.setattr(dynamic, "is_expected", wrong)


@mutation
def why_one_had_died_before_is_lost(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, pid: Any) -> Any:
        return SHUTDOWN

    patch.setattr(shutdown.LateExits, "reason", wrong)


@mutation
def children_are_stopped_in_start_order(patch: pytest.MonkeyPatch) -> None:
    right = supervisor.Supervisor._otp_stop_all

    def wrong(self: Any, children: Any) -> Any:
        return right(self, list(children)[::-1])

    patch.setattr(supervisor.Supervisor, "_otp_stop_all", wrong)


# --- exit signals and replies


@mutation
def a_reply_is_lost(patch: pytest.MonkeyPatch) -> None:
    right = caller.reply

    def wrong(self: Any, value: Any) -> bool:
        return value == "call 1" or bool(right(self, value))

    patch.setattr(caller, "reply", wrong)


@mutation
def callers_do_not_learn_of_a_death(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, reason: Any) -> None:
        pass

    patch.setattr(caller, "on_exit", wrong)


@mutation
def orphans_live_on(patch: pytest.MonkeyPatch) -> None:
    right = exits.signal

    def wrong(process: Any, source: Any, reason: Any) -> None:
        parent = process.parent
        if parent is None or parent.pid != source or parent.life != GONE:
            right(process, source, reason)

    patch.setattr(exits, "signal", wrong)


@mutation
def a_normal_end_does_not_travel_along_a_link(patch: pytest.MonkeyPatch) -> None:
    right = exits.signal

    def wrong(process: Any, source: Any, reason: Any) -> None:
        if reason != NORMAL:
            right(process, source, reason)

    patch.setattr(exits, "signal", wrong)


@mutation
def unlinking_does_nothing(patch: pytest.MonkeyPatch) -> None:
    def wrong(one: Any, other: Any) -> None:
        pass

    patch.setattr(api, "links", SimpleNamespace(**{**vars(api.links), "unlink": wrong}))


# --- state machines


@mutation
def what_was_postponed_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    right = agenda.on_state_change

    def wrong(self: Any) -> None:
        self.postponed.clear()
        right(self)

    patch.setattr(agenda, "on_state_change", wrong)


@mutation
def what_was_postponed_comes_back_in_reverse(patch: pytest.MonkeyPatch) -> None:
    right = agenda.on_state_change

    def wrong(self: Any) -> None:
        self.postponed.reverse()
        right(self)

    patch.setattr(agenda, "on_state_change", wrong)


# --- tasks


@mutation
def a_task_that_quits_has_ended_well(patch: pytest.MonkeyPatch) -> None:
    right = routine._otp_on_error

    def wrong(self: Any, entry: Any, error: BaseException) -> None:
        right(self, entry, Quit(NORMAL) if isinstance(error, Quit) else error)

    patch.setattr(routine, "_otp_on_error", wrong)


# --- groups


@mutation
def a_death_takes_another_out_of_its_group(patch: pytest.MonkeyPatch) -> None:
    right = groups._remove

    def wrong(self: Any, group: Any, pid: Any) -> None:
        right(self, group, self._members[group][0])

    patch.setattr(groups, "_remove", wrong)


@mutation
def the_dead_are_members_for_ever(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, group: Any) -> Any:
        return self._members.get(group, [])

    def forgetful(self: Any, group: Any, pid: Any) -> None:
        pass

    patch.setattr(groups, "_living", wrong)
    patch.setattr(groups, "_remove", forgetful)


# --- exits


@mutation
def a_death_is_told_before_the_code_has_unwound(patch: pytest.MonkeyPatch) -> None:
    right = exits.begin_exit

    def wrong(process: Any, reason: Any) -> None:
        alive = not process.life
        right(process, reason)
        if alive and process.life == DYING and process.worker is not None:
            exits.complete_exit(process)

    patch.setattr(exits, "begin_exit", wrong)


@mutation
def stubborn_code_is_waited_for_without_end(patch: pytest.MonkeyPatch) -> None:
    def wrong(process: Any) -> None:
        pass

    patch.setattr(exits, "_arm_grace", wrong)


@mutation
def tasks_of_the_dead_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    def wrong(process: Any) -> None:
        for task in tuple(process.tasks or ()):
            task.cancel()
        exits.complete_exit(process)

    patch.setattr(exits, "end_tasks", wrong)


@mutation
def a_task_cannot_crash_its_process(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, error: BaseException) -> None:
        pass

    patch.setattr(process_of_the_engine, "crash", wrong)


@mutation
def a_name_outlives_its_process(patch: pytest.MonkeyPatch) -> None:
    def wrong(process: Any, name: Any) -> None:
        pass

    patch.setattr(exits, "unregister_process", wrong)
