"""The model's predictions in simple cases, written out by hand, and that the engine does the same.

The main property only shows that the two agree. These tests show that they agree on what OTP does.

"""

from __future__ import annotations

from greenroom.supervision.testing import Fault, FaultPlan, Seed

from .example_plan import Blueprint, Call, Plan, Strategy, SupervisorBlueprint, WorkerBlueprint, fault
from .model_trial import run_trial
from .prediction import predict


def told(
    tree: SupervisorBlueprint,
    *faults: Fault,
    calls: tuple[Call, ...] = (),
    stop_at: float = 90.0,
    whose: str = "root#1",
) -> list[str]:
    """The lines about the children of one supervisor, from its first fault until the stop, without times."""
    plan = Plan(tree, FaultPlan(faults), calls, stop_at)
    for seed in (None, Seed(0), Seed(1)):
        verdict = run_trial(plan, seed)
        assert verdict is not None
        assert not verdict.wrong, str(verdict)
    lines = [line.split(maxsplit=1) for line in predict(plan).history[whose]]
    return [line for when, line in lines if faults[0].at <= float(when) < stop_at]


def team(strategy: Strategy, *children: Blueprint, intensity: int = 1, period: int = 5) -> SupervisorBlueprint:
    """A supervisor blueprint."""
    return SupervisorBlueprint(strategy=strategy, children=children, intensity=intensity, period=period)


KEPT = WorkerBlueprint()
TEMPORARY = WorkerBlueprint(restart="temporary")
TRANSIENT = WorkerBlueprint(restart="transient")
CRASH = "crash Boom: raise"


def test_one_for_one_restarts_the_one_that_died() -> None:
    assert told(team("one_for_one", KEPT, KEPT, KEPT), fault(1.0, "root.1", "raise")) == [
        f"end root.1#1: {CRASH}",
        f"report child_terminated 1: {CRASH}",
        "start root.1#2",
        "ready root.1#2",
    ]


def test_one_for_all_stops_the_others_in_reverse_and_starts_all_in_order() -> None:
    assert told(team("one_for_all", KEPT, KEPT, KEPT), fault(1.0, "root.1", "kill")) == [
        "end root.1#1: killed",
        "report child_terminated 1: killed",
        "end root.2#1: shutdown",
        "end root.0#1: shutdown",
        "start root.0#2",
        "ready root.0#2",
        "start root.1#2",
        "ready root.1#2",
        "start root.2#2",
        "ready root.2#2",
    ]


def test_rest_for_one_leaves_those_before_alone() -> None:
    assert told(team("rest_for_one", KEPT, KEPT, KEPT), fault(1.0, "root.1", "exit")) == [
        "end root.1#1: crash SystemExit: exit",
        "report child_terminated 1: crash SystemExit: exit",
        "end root.2#1: shutdown",
        "start root.1#2",
        "ready root.1#2",
        "start root.2#2",
        "ready root.2#2",
    ]


def test_a_temporary_child_is_not_restarted_with_its_group() -> None:
    assert told(team("one_for_all", TEMPORARY, KEPT), fault(1.0, "root.1", "quit_normal")) == [
        "end root.1#1: normal",
        "report child_terminated 1: normal",
        "end root.0#1: shutdown",
        "start root.1#2",
        "ready root.1#2",
    ]


def test_a_transient_child_may_end_in_order() -> None:
    assert told(team("one_for_one", TRANSIENT), fault(1.0, "root.0", "quit_shutdown")) == ["end root.0#1: shutdown"]


def test_a_temporary_child_that_crashes_is_reported_and_forgotten() -> None:
    assert told(team("one_for_one", TEMPORARY, KEPT), fault(1.0, "root.0", "raise")) == [
        f"end root.0#1: {CRASH}",
        f"report child_terminated 0: {CRASH}",
    ]


def test_a_restart_counts_to_the_last_moment_of_its_period() -> None:
    tree = team("one_for_one", KEPT, intensity=1, period=5)
    assert told(tree, fault(1.0, "root.0", "kill"), fault(6.0, "root.0", "kill"))[-1] == (
        "report shutdown 0: reached_max_restart_intensity"
    )
    assert told(tree, fault(1.0, "root.0", "kill"), fault(6.0 + 2.0**-20, "root.0", "kill"))[-1] == "ready root.0#3"


def test_an_intensity_of_nothing_allows_no_restart() -> None:
    assert told(team("one_for_one", KEPT, KEPT, intensity=0), fault(1.0, "root.0", "kill")) == [
        "end root.0#1: killed",
        "report child_terminated 0: killed",
        "report shutdown 0: reached_max_restart_intensity",
        "end root.1#1: shutdown",
    ]


def test_every_attempt_to_restart_counts() -> None:
    flaky = WorkerBlueprint(failures={2: "raise", 3: "raise", 4: "raise"})
    lines = told(team("one_for_one", flaky, intensity=3), fault(1.0, "root.0", "kill"))
    assert lines[2:] == [
        "start root.0#2",
        "end root.0#2: crash Boom: init",
        "report start_error 0: crash Boom: init",
        "start root.0#3",
        "end root.0#3: crash Boom: init",
        "report start_error 0: crash Boom: init",
        "start root.0#4",
        "end root.0#4: crash Boom: init",
        "report start_error 0: crash Boom: init",
        "report shutdown 0: reached_max_restart_intensity",
    ]


def test_a_group_restart_goes_on_with_the_one_that_failed() -> None:
    tree = team("rest_for_one", KEPT, KEPT, WorkerBlueprint(failures={2: "raise"}), KEPT, intensity=2)
    assert told(tree, fault(1.0, "root.1", "kill"))[2:] == [
        "end root.3#1: shutdown",
        "end root.2#1: shutdown",
        "start root.1#2",
        "ready root.1#2",
        "start root.2#2",
        "end root.2#2: crash Boom: init",
        "report start_error 2: crash Boom: init",
        "start root.2#3",
        "ready root.2#3",
        "start root.3#2",
        "ready root.3#2",
    ]


def test_messages_during_a_restart_attempt_are_handled_before_the_next() -> None:
    slow = WorkerBlueprint(init=1.0, failures={2: "raise"})
    tree = team("one_for_one", slow, KEPT, intensity=3)
    lines = told(tree, fault(4.0, "root.0", "kill"), fault(4.5, "root.1", "kill"))
    assert lines[2:] == [
        "start root.0#2",
        "end root.1#1: killed",
        "end root.0#2: crash Boom: init",
        "report start_error 0: crash Boom: init",
        "report child_terminated 1: killed",
        "start root.1#2",
        "ready root.1#2",
        "start root.0#3",
        "ready root.0#3",
    ]


def test_a_supervisor_that_gives_up_is_a_child_that_ended() -> None:
    tree = team("one_for_one", team("one_for_one", KEPT, intensity=0), KEPT)
    assert told(tree, fault(1.0, "root.0.0", "kill")) == [
        "end root.0#1: shutdown (reached max restart intensity)",
        "report child_terminated 0: shutdown (reached max restart intensity)",
        "start root.0#2",
        "ready root.0#2",
    ]


def test_children_of_a_killed_supervisor_die_of_that() -> None:
    tree = team("one_for_one", team("one_for_one", KEPT, WorkerBlueprint(traps=True, terminate=0.5)))
    assert told(tree, fault(1.0, "root.0", "kill"), whose="root.0#1") == [
        "end root.0.0#1: killed",
        "end root.0.1#1: killed",
    ]
    assert told(tree, fault(1.0, "root.0", "kill"))[2:] == ["start root.0#2", "ready root.0#2"]


def test_a_child_that_unlinked_is_not_missed_until_it_is_to_be_stopped() -> None:
    tree = team("one_for_all", KEPT, KEPT)
    lines = told(tree, fault(1.0, "root.0", "unlink"), fault(2.0, "root.0", "kill"), fault(3.0, "root.1", "kill"))
    assert lines[:4] == [
        "end root.0#1: killed",
        "end root.1#1: killed",
        "report child_terminated 1: killed",
        "report shutdown_error 0: no such process",
    ]


def test_a_child_that_does_not_stop_in_time_is_killed() -> None:
    slow = WorkerBlueprint(traps=True, terminate=4.0, shutdown=1.0)
    assert told(team("one_for_all", slow, KEPT), fault(1.0, "root.1", "kill"))[2:4] == [
        "end root.0#1: killed",
        "report shutdown_error 0: killed",
    ]


def test_dynamic_children_are_stopped_together_and_reported_by_reason() -> None:
    slow = WorkerBlueprint(traps=True, terminate=4.0, shutdown=1.0)
    tree = team("one_for_one", SupervisorBlueprint(strategy="dynamic", template=True, children=(slow,)))
    hired = [fault(1.0 + number, f"root.0.{number}", "start_child") for number in range(2)]
    assert told(tree, *hired, fault(4.0, "root.0", "stop_normal"), whose="root.0#1")[-3:] == [
        "end root.0.0#1: killed",
        "end root.0.1#1: killed",
        "report shutdown_error 2 of them: killed",
    ]


def test_the_last_significant_child_ends_its_supervisor() -> None:
    child = WorkerBlueprint(restart="transient", significant=True)
    tree = SupervisorBlueprint(auto_shutdown="all_significant", children=(child, KEPT, child))
    lines = told(tree, fault(1.0, "root.0", "quit_normal"), fault(2.0, "root.2", "quit_normal"))
    assert lines == ["end root.0#1: normal", "end root.2#1: normal", "end root.1#1: shutdown"]


def test_a_machine_at_work_keeps_the_rest_for_later_and_in_order() -> None:
    tree = team("one_for_one", WorkerBlueprint(kind="machine", terminate=1.0))
    plan = Plan(
        tree,
        FaultPlan.of(fault(40.0, "root.0", "kill")),
        (
            Call(1.0, "root.0", "work", 3.0),
            Call(2.0, "root.0", "work", 1.0),
            Call(3.0, "root.0", "echo"),
            Call(9.0, "root.0", "work", 3.0),
            Call(10.0, "root.0", "crash"),
            Call(11.0, "root.0", "echo"),
            Call(20.0, "root.0", "farewell"),
            Call(21.0, "root.0", "work", 30.0),
            Call(29.0, "root.0", "work", 30.0),
            Call(30.0, "root.0", "echo"),
        ),
        90.0,
    )
    ended = [predict(plan).outcomes[f"call {number}"] for number in range(10)]
    assert [(int(when), what) for when, what in ended] == [
        (4, "answered"),
        (5, "answered"),
        (5, "answered"),
        (12, "answered"),
        (13, "exited: crash Boom: call"),
        (13, "exited: crash Boom: call"),
        (20, "answered"),
        (21, "exited: normal"),
        (40, "exited: killed"),
        (40, "exited: killed"),
    ]
    verdict = run_trial(plan, Seed(3))
    assert verdict is not None
    assert not verdict.wrong, str(verdict)


def test_a_task_stops_when_it_is_told_to() -> None:
    task = WorkerBlueprint(kind="task", traps=True)
    tree = team("one_for_all", task, KEPT)
    assert told(tree, fault(1.0, "root.1", "kill"))[2] == "end root.0#1: shutdown"
    assert told(tree, fault(1.0, "root.0", "stop_normal"))[:2] == [
        "end root.0#1: normal",
        "report child_terminated 0: normal",
    ]


def test_simultaneous_events_cannot_be_predicted() -> None:
    plan = Plan(
        team("one_for_all", KEPT, KEPT),
        FaultPlan.of(fault(1.0, "root.0", "kill"), fault(1.0, "root.1", "kill")),
        (),
        2.0,
    )
    assert predict(plan).races
    assert run_trial(plan, None) is None


def test_calls_end_with_the_answer_the_death_or_the_deadline() -> None:
    tree = team("one_for_one", KEPT)
    plan = Plan(
        tree,
        FaultPlan.of(fault(9.0, "root.0", "kill")),
        (
            Call(1.0, "root.0", "echo"),
            Call(2.0, "root.0", "never", deadline=1.0),
            Call(4.0, "root.0", "later", 20.0),
            Call(5.0, "root.0", "work", 1.0),
            Call(12.0, "root.0", "crash"),
        ),
        90.0,
    )
    outcomes = predict(plan).outcomes
    assert [outcomes[f"call {number}"][1] for number in range(5)] == [
        "answered",
        "timed out",
        "exited: killed",
        "answered",
        "exited: crash Boom: call",
    ]
    verdict = run_trial(plan, Seed(3))
    assert verdict is not None
    assert not verdict.wrong, str(verdict)
