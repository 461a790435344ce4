"""Hosts, and the questions of servers, behave the same when each connection runs in a process of its own: the same tests."""

from __future__ import annotations

from typing import Any

import pytest
from tests.actors.agent import test_host
from tests.actors.client import test_callback_answers

from greenroom import Server, client_targets

from .thread_node import Below, Published, again

pytestmark = [pytest.mark.greenroom(clock="real"), pytest.mark.usefixtures("mark")]


@pytest.fixture(autouse=True)
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    below = Below()
    known: dict[Server, Published] = {}
    route_of = client_targets.route_of

    def by_way_of_a_process(target: Any, *args: Any) -> Any:
        if isinstance(target, Server):
            return known.setdefault(target, Published(target, below))
        return route_of(target, *args)

    for module in ("greenroom.client", "greenroom.host"):
        monkeypatch.setattr(f"{module}.route_of", by_way_of_a_process)


globals().update(
    again(
        test_callback_answers,
        "test_a_function_that_fails_is_an_internal_error_for_the_server_and_nothing_else_suffers",
        "test_a_handler_does_what_no_function_does",
        "test_a_slow_answer_delays_no_other_request",
        "test_functions_answer_sync_and_async",
        "test_logs_and_notifications_come_in_order",
    )
)
globals().update(
    again(
        test_host,
        "test_a_model_has_its_tools_and_its_results",
        "test_calls_lists_and_reads_by_names_that_say_whose_it_is",
        "test_a_host_is_a_child_like_any_other",
        "test_a_host_is_opened_and_closed_in_any_order",
        "test_pins_of_servers_that_are_away_stay",
        "test_roots_may_be_the_same_for_all",
        "test_servers_come_and_go_while_it_runs",
        "test_tools_are_pinned_in_a_file_and_what_is_not_as_it_was_is_refused",
        "test_callbacks_receive_the_id_of_the_asking_server",
        "test_a_failed_add_or_replace_changes_nothing",
        "test_whatever_has_no_function_is_not_declared",
        "test_wrong_names_and_arguments_are_errors_of_their_own",
    )
)
