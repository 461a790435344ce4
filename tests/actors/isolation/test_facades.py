"""Clients and hosts behave the same when the connection runs on another node: the same tests.

Each server is reached over HTTP, by a wire on the far side of a link.

Left out are those that are about servers in the same program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.agent import test_host
from tests.actors.client import test_callback_answers, test_client_methods
from tests.actors.client.test_client_methods import client, server

from greenroom import Server, client_targets

from .thread_node import Beside, Published, again

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["client", "server"]

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.fixture(autouse=True)
def far(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    beside = Beside()
    known: dict[Server, Published] = {}
    route_of = client_targets.route_of

    def by_way_of_a_neighbour(target: Any, *args: Any) -> Any:
        if isinstance(target, Server):
            return known.setdefault(target, Published(target, beside))
        return route_of(target, *args)

    for module in ("greenroom.client", "greenroom.host"):
        monkeypatch.setattr(f"{module}.route_of", by_way_of_a_neighbour)
    yield
    beside.join()


globals().update(
    again(
        test_client_methods,
        "test_a_call_can_be_held_on_to_followed_and_cancelled",
        "test_a_call_gives_the_value",
        "test_a_call_of_a_tool_gives_all_of_the_answer_and_raises_no_failure",
        "test_a_deadline_is_of_one_view_only",
        "test_a_failed_tool_says_why",
        "test_a_function_for_progress_ends_neither_the_loop_nor_its_call",
        "test_a_function_for_progress_that_fails_takes_nothing_with_it",
        "test_a_list_without_an_end_is_given_up",
        "test_a_task_that_was_not_asked_for_is_read_all_the_same",
        "test_an_error_of_the_servers_has_its_code_and_its_data",
        "test_arguments_that_cannot_be_written_are_refused_before_anything_is_sent",
        "test_lists_come_whole_and_by_the_page",
        "test_progress_comes_before_the_result_and_in_order",
        "test_prompts_are_rendered_and_completed",
        "test_resources_are_read_and_watched",
        "test_tasks_are_begun_waited_for_and_read",
        "test_templates_are_named_by_what_they_are",
        "test_the_server_says_who_it_is_and_answers",
        "test_tools_that_change_promise_something_else",
        "test_an_unsupported_request_is_refused_without_sending_it",
    )
)
globals().update(
    again(
        test_callback_answers,
        "test_a_function_that_fails_is_an_internal_error_for_the_server_and_nothing_else_suffers",
        "test_a_handler_does_what_no_function_does",
        "test_a_model_that_uses_tools_is_declared_by_the_settings",
        "test_a_slow_answer_delays_no_other_request",
        "test_functions_answer_sync_and_async",
        "test_logs_and_notifications_come_in_order",
        "test_the_users_no_has_its_code",
        "test_capabilities_without_a_function_are_not_declared",
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
