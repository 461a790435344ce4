"""What wires over HTTP do at home, they do on another node: the same tests, with each wire on the far side of a link.

Left out are those that look into the wire itself, and those that wait for long on virtual time, which two nodes do not share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.transports.client_http import (
    test_misbehaviour,
    test_own_server,
    test_sessions,
    test_streams,
    wire_and_server,
    wire_owner,
)

from .thread_node import again, by_way_of_a_neighbour, neighbour

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.fixture(autouse=True)
async def far(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    """The other node outlasts the process that has opened a wire there, so a test can see what the wire does when its owner is gone."""
    opened = by_way_of_a_neighbour(wire_owner.opened)
    for module in (wire_and_server, test_misbehaviour, test_own_server, test_sessions, test_streams):
        if hasattr(module, "opened"):
            monkeypatch.setattr(module, "opened", opened)
    async with neighbour():
        yield


globals().update(
    again(
        test_misbehaviour,
        "test_a_broken_answer_names_the_request_that_it_leaves_unanswered",
        "test_a_connection_that_dies_under_a_request_loses_it_and_nobody_sends_it_again",
        "test_a_connection_that_the_server_has_closed_meanwhile_is_not_used",
        "test_a_notification_is_no_answer",
        "test_a_refusal_in_the_words_of_json_rpc_is_an_answer_if_it_names_the_request",
        "test_a_refusal_is_of_one_request",
        "test_a_second_answer_is_not_taken_for_that_of_the_next_request",
        "test_an_answer_that_says_it_is_too_large_is_not_read",
        "test_an_answer_that_turns_out_to_be_too_large_is_read_no_further",
        "test_an_answer_to_somebody_else_is_none",
        "test_an_empty_answer_is_none_unless_it_says_that_there_will_be_one",
        "test_an_error_that_names_nobody_in_an_answer_is_the_answer",
        "test_endless_headers_are_read_no_further_than_the_bound",
        "test_forgetting_a_request_hangs_up",
        "test_it_does_not_speak_http",
        "test_it_hangs_up_in_the_middle",
        "test_nobody_has_asked_for_compression",
        "test_nobody_there",
        "test_one_connection_serves_one_after_another",
        "test_what_is_unusual_and_right_is_taken",
        "test_who_sits_behind_a_full_house_waits_and_answers_to_the_server_do_not",
        "test_whoever_answers_with_a_page_does_not_speak_mcp",
    )
)
globals().update(
    again(
        test_own_server,
        "test_a_call_whose_answer_is_a_stream",
    )
)
globals().update(
    again(
        test_sessions,
        "test_a_403_that_asks_for_more_is_refused_credentials_and_another_is_not",
        "test_a_404_without_a_session_is_no_end_of_one",
        "test_a_redirect_within_the_origin_is_followed_and_remembered",
        "test_a_server_without_sessions_is_given_none_back",
        "test_a_session_id_that_cannot_be_sent_back_is_refused",
        "test_a_session_that_is_gone_is_told_to_all_of_it_and_is_no_proof_that_nothing_was_done",
        "test_a_wire_that_is_killed_leaves_nothing_and_nothing_raises_afterwards",
        "test_and_not_twice",
        "test_credentials_may_hand_out_the_same_mapping_with_other_things_in_it",
        "test_credentials_that_fail_or_are_no_headers",
        "test_headers_of_ones_own_and_secrets_of_the_url",
        "test_nobody_in_particular_is_not_tried_again",
        "test_other_redirects_are_not",
        "test_redirects_in_a_circle",
        "test_refused_credentials_are_tried_once_more",
        "test_the_owner_dies_and_the_session_is_given_back",
        "test_the_stream_can_bring_the_news_that_the_session_is_gone",
        "test_what_is_said_in_which_request",
        "test_what_is_under_way_when_the_session_goes_has_a_moment_left",
        "test_who_we_are_is_said_once_however_often_it_was_given",
    )
)
globals().update(
    again(
        test_streams,
        "test_a_line_that_goes_on_for_ever_in_a_comment_is_read_no_further",
        "test_a_stream_that_comes_byte_by_byte",
        "test_a_stream_that_ends_too_early_is_taken_up_where_it_broke",
        "test_a_stream_without_marks_is_lost_with_its_connection",
        "test_a_stream_without_marks_leaves_a_gap",
        "test_an_event_that_is_too_large_fails_the_request_that_it_answers",
        "test_an_event_without_an_end_is_read_no_further",
        "test_what_a_stream_may_look_like",
        "test_what_the_server_answers_on_the_other_stream_is_heard",
    )
)
